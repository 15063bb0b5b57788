"""Writes docs/performance.md and its charts from the results. Nothing in them is written by hand."""

from . import bounds, capacity, chart, headline, rehearsal, results
from .figures import duration, is_even, middle, ratio, values, verdict
from .sections import SECTIONS
from .settings import ROOT

PAGE = ROOT / "docs/performance.md"
IMAGES = ROOT / "docs/images/performance"


def write(check=False):
    """Writes the files, or says which of them differ."""
    return write_files(build(results.load_all()), IMAGES, check)


def write_files(files, images, check):
    """Writes the files of a page, and removes charts in `images` that are none of them; or says which of them differ."""
    stale = []
    for path, text in files.items():
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    for path in images.glob("*.svg"):
        if path not in files:
            stale.append(path)
            if not check:
                path.unlink()
    return [str(path.relative_to(ROOT)) for path in stale]


def build(found):
    files, lines = {}, head(found)
    overview = headline.overview(found)
    if overview:
        files[IMAGES / f"{headline.CHART}.svg"] = overview
    for section in SECTIONS:
        lines += ["", f"## {section.title}", "", section.text, ""]
        for group in section.groups:
            result = found.get(group.name)
            if group.title:
                lines += [f"### {group.title}", ""]
            if group.text:
                lines += [group.text, ""]
            if not result:
                lines += [f"Not measured: `./scripts/bench {group.name}`.", ""]
                continue
            lines += [results.measured_at(result), ""]
            if not any(row["turns"] for row in result["rows"]):
                lines += tables(group, result)
                continue
            for name, svg in charts(group, result):
                files[IMAGES / f"{name}.svg"] = svg
                lines += [f"![{group.alt}](images/performance/{name}.svg)", ""]
            lines += tables(group, result)
    lines += rehearsal.section() + bounds.section(found) + [""] + capacity.section(found)
    files[PAGE] = "\n".join(lines).replace("\n\n\n", "\n\n").rstrip() + "\n"
    return files


def head(found):
    lines = ["# Performance", "", "<!-- Written by `./scripts/bench report` from bench/results. Do not edit: run the benchmark again. -->", ""]
    lines += headline.lines(found) + behind(found)
    lines += [
        "## How it is measured",
        "",
        "Tidegate, other limiters, and servers that do nothing but speak the protocol (*ceilings*), measured in turns on one machine in one run. "
        "The server is pinned to one core and the load to another. What counts is the **CPU time per decision** of the server: user and system time of its process and its children. "
        "Throughput and latency depend on what else the machine does, and on the load generator, which is not always faster than the server; `busy` is the share of its core that the server used.",
        "",
        "Figures are medians of the rounds, with the least and the most in brackets. The comparison is the median of the ratios within each round: `behind: 1.30 times nginx` means that Tidegate costs 1.3 times "
        "as much CPU time (or memory) as nginx, `ahead: 0.50 times` half as much.",
        "",
    ]
    if not found:
        return lines + ["No results yet: `./scripts/bench`."]
    newest = max(found.values(), key=lambda result: result["date"])
    machine = newest["machine"]
    lines += ["| | |", "| --- | --- |"]
    lines.append(f"| machine | {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB of memory |")
    lines.append(f"| kernel | Linux {machine['kernel']} |")
    others = [f"{name} on {result['machine']['cpu']}" for name, result in found.items() if result["machine"]["cpu"] != machine["cpu"]]
    if others:
        lines.append(f"| measured elsewhere | {', '.join(others)} |")
    dates = sorted({result["date"] for result in found.values()})
    lines.append(f"| date | {dates[0]}" + (f" to {dates[-1]}" if len(dates) > 1 else "") + " |")
    versions = [f"{name} {version}" for name, version in newest["versions"].items()]
    lines.append(f"| versions | {', '.join(versions)} |")
    lines.append("| build | Tidegate's profile `dist`, as it is shipped; libraries in process with cargo's own release settings, the same for all (no link-time optimisation across crates) |")
    lines.append("| command | `./scripts/bench`, or one group: `./scripts/bench NAME`; the page: `./scripts/bench report` |")
    return lines + [""]


def behind(found):
    """Every row in which a peer costs less."""
    lines = []
    for section in SECTIONS:
        for group in section.groups:
            rows = found.get(group.name, {}).get("rows", [])
            for case in cases(rows):
                of = references(case)
                for row in case:
                    ours = of(row) if row["role"] == "peer" else None
                    times = ratio(ours, row, group.figure) if ours else None
                    if times and times > 1 and not is_even(times):
                        where = f", {row['case']}" if row["case"] else ""
                        lines.append(f"- {group.short}{where}: {times:.2f} times {row['contender']}")
    if not lines:
        return ["**Where Tidegate is behind**: in no row that was measured.", ""]
    return [f"**Where Tidegate is behind** ({len(lines)} row{'s' if len(lines) > 1 else ''}):", "", *lines, ""]


def cases(rows):
    """The rows of each case, in the order in which the cases come."""
    found = {}
    for row in rows:
        found.setdefault(row["case"], []).append(row)
    return list(found.values())


def references(rows):
    """Tidegate's row for each other: a library compares with the library, a server with the server."""
    own = [row for row in rows if row["role"] == "tidegate" and row["turns"]]

    def of(row):
        in_process = [our for our in own if "in process" in our["contender"]]
        if in_process and ("in process" in row["contender"] or row["role"] == "ceiling"):
            return in_process[0]
        return own[0] if own else None

    return of


def tables(group, result):
    lines = []
    columns = group.columns
    only = lambda row: row["contender"].split(",")[0].split(" (")[0]
    grouped = [result["rows"]] if group.is_growth else cases(result["rows"])
    for rows in grouped:
        of = references(rows)
        if rows[0]["case"] and not group.is_growth:
            lines += [f"**{rows[0]['case']}**", ""]
        names = [title for title, _ in columns]
        compared = [] if group.is_growth else ["Tidegate compared"]
        lines.append("| " + " | ".join(["", *names, *compared, "command"]) + " |")
        lines.append("| --- |" + " --- |" * (len(names) + len(compared) + 1))
        for row in rows:
            name = f"{row['case']}" if group.is_growth else row["contender"]
            again = f"`./scripts/bench {group.name}`" if group.is_growth else f"`./scripts/bench {group.name} --only {only(row)!r}`".replace("'", "" if " " not in only(row) else "'")
            if row["skipped"] or not row["turns"]:
                cells = [f"skipped: {row['skipped'] or 'no turns'}"] + [""] * (len(names) - 1 + len(compared))
            else:
                cells = [cell(row) for _, cell in columns]
                cells += [] if group.is_growth else [verdict(of(row), row, group.figure)]
            lines.append("| " + " | ".join([name, *cells, again]) + " |")
        lines.append("")
    return lines + commands(group, result)


def commands(group, result):
    """What was run, once for each contender."""
    seen, lines = set(), []
    for row in result["rows"]:
        if row["contender"] in seen or not row["command"]:
            continue
        seen.add(row["contender"])
        lines.append(f"# {row['contender']}")
        lines.append(f"$ {row['command']}")
        if row["load"].startswith("taskset"):
            lines.append(f"$ {row['load']}")
        elif row["load"]:
            lines.append(f"> {row['load']}")
    if not lines:
        return []
    summary = f"What was run, {result['rounds']} rounds"
    return ["<details>", f"<summary>{summary}</summary>", "", "```text", *lines, "```", "", "</details>", ""]


def charts(group, result):
    rows = [row for row in result["rows"] if row["turns"]]
    if group.is_growth:
        series = {}
        for name, part in group.series:
            for row in rows:
                found = values(row, part)
                if found and name in ("", row["contender"].rsplit(" ", 1)[-1]) or found and name == "*":
                    title = group.names.get((name, part), row["contender"])
                    point = (row["x"], min(found), middle(row, part), max(found))
                    series.setdefault(title, []).append(point)
        if series:
            lines = [(name, sorted(points)) for name, points in series.items()]
            yield group.name, chart.lines(group.alt, group.x_label, group.y_label, lines)
        return
    case = group.chart_case
    if case and rows:
        # A shorter run has other cases.
        case = case if any(row["case"] == case for row in rows) else rows[-1]["case"]
        rows = [row for row in rows if row["case"] == case]
    text = duration if group.figure == "cpu_us" else lambda value: f"{value:,.0f} bytes"
    drawn = [(row["contender"], middle(row, group.figure), row["role"], text(middle(row, group.figure))) for row in rows if values(row, group.figure)]
    title = group.alt + (f", {case}" if case else "")
    yield group.name, chart.bars(title, group.unit, drawn)
