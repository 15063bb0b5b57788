"""The tables of the page."""

EDGE, APISIX = "window edge", "apisix 13704"
# What the report of apache/apisix#13704 measured: admitted per second of 500, before and after its fix.
REPORTED = (590, 438)
COUNTS = (1, 2, 4, 8)


def number(value):
    return f"{value:,}"


def share(part, whole):
    """A percentage that is 0 or 100 only if it is exactly that."""
    if not whole:
        return "–"
    percent = part * 100 / whole
    return f"{percent:.0f} %" if percent in (0, 100) else f"{percent:.1f} %"


def who(row):
    """The limiter of a row."""
    if row["contender"] != "tidegate":
        return row["contender"] + ("" if row["virtual"] else " *(real time)*")
    store = {"memory": "memory", "exact": "Redis, exact", "leased": "Redis, leased"}[row["store"]]
    if row["instances"] > 1:
        store += f", {row['instances']} instances" + (" that share nothing" if row["store"] == "memory" else "")
    return f"**Tidegate**, {store}" + ("" if row["virtual"] else " *(real time)*")


def over_under(over, under):
    return "same" if not over and not under else " / ".join(words for words in (f"+{over:,}" if over else "", f"−{under:,}" if under else "") if words)


def reference(row):
    """The comparison with the reference. In real time the order of near requests is not known, so totals are all there is."""
    text = over_under(row["over_reference"], row["under_reference"])
    if not row["virtual"] or not row["different"]:
        return text
    return ("same total" if text == "same" else text) + f"; {row['different']:,} decided otherwise"


def retry(row):
    if not row["retries"] or not row["retries"][0]:
        return "–"
    tried, admitted, early = row["retries"]
    return f"{share(admitted, tried)}, {share(early, tried)}"


def table(rows, first=who):
    lines = ["| | algorithm | admitted | most in a second | bound | over the promise | reference | ideal | retry exact |", "| --- |" + " --- |" * 8]
    for row in rows:
        cells = [
            first(row),
            f"`{row['algorithm']}`" if row["contender"] == "tidegate" else f"as `{row['algorithm']}`",
            f"{number(row['admitted'])} of {number(row['arrivals'])}",
            number(row["most"]),
            number(row["worst"]),
            number(row["over_promise"]),
            reference(row),
            over_under(row["over_ideal"], row["under_ideal"]),
            retry(row),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def of(rows, scenario):
    """The rows of a scenario: Tidegate's, then peers'; one instance only, as peers in a process have."""
    own = [row for row in rows if row["scenario"] == scenario and row["store"] == "memory" and row["instances"] == 1]
    peers = [row for row in rows if row["scenario"] == scenario and row["contender"] != "tidegate"]
    return own + peers


def image(name, alt, drawn):
    return [f"![{alt}](images/accuracy/{name}.svg)", ""] if name in drawn else []


def window_edge(rows, drawn):
    return [
        "## The burst at the edge of a window",
        "",
        "A known weakness of fixed windows: a client sends its whole limit right before the end of a window and again right after, and has twice the limit through in a moment. "
        "The client here also knows slots, and goes on through the next window, which is the worst that can happen to a `sliding_window_counter`. "
        "Choose `sliding_window_log` or `strict: true` where no second may ever have more than the limit.",
        "",
        *image("edge", "Most admitted in any second by a client at the edges of windows", drawn),
        *table(of(rows, EDGE)),
    ]


def apisix(rows, drawn):
    before, after = REPORTED
    own = [row for row in rows if row["scenario"] == APISIX and row["contender"] == "tidegate"]
    shared = [row for row in own if row["instances"] == 2]
    lines = [
        "## 500 per second on two gateways: APISIX 13704",
        "",
        "[apache/apisix#13704](https://github.com/apache/apisix/pull/13704) reports two gateways on one Redis with a sliding window of 500 per second, at 800 requests per second for 30 seconds: "
        f"they admitted about {before} per second before a fix, and about {after} after it. The same arrivals here, in turns to two instances. "
        "`per second` is the average without the first second, in which a bucket has its burst.",
        "",
        *image("apisix", "Admitted in each second of APISIX 13704", drawn),
        "| | algorithm | admitted per second | most in a second | over the promise |",
        "| --- | --- | --- | --- | --- |",
        f"| APISIX before the fix, as reported | sliding window, delayed sync | {before} | – | – |",
        f"| APISIX after the fix, as reported | sliding window, delayed sync | {after} | – | – |",
    ]
    for row in shared:
        lines.append(f"| {who(row)} | `{row['algorithm']}` | {per_second(row):.1f} | {row['most']:,} | {row['over_promise'] if row['store'] != 'memory' else 'not shared'} |")
    lines += ["", "One process, next to libraries that have no shared store:", "", *image("apisix-peers", "Admitted in each second by limiters in one process", drawn), *table(of(rows, APISIX))]
    return lines


def per_second(row):
    """The average of the seconds from the second one on, without those in which what was delayed went on."""
    seconds = row["per_second"][1:30]
    return sum(seconds) / len(seconds)


def patterns(rows):
    names = [name for name in dict.fromkeys(row["scenario"] for row in rows) if name not in (EDGE, APISIX)]
    lines = ["## Every pattern, every algorithm", "", "In one process: the memory store and peers.", ""]
    for name in names:
        found = of(rows, name)
        if found:
            lines += ["<details>", f"<summary>{title(name)}: {found[0]['arrivals']:,} requests</summary>", "", *table(found), "</details>", ""]
    return lines


def title(name):
    kind, _, percent = name.partition(" ")
    return f"Poisson at {percent} % of the limit" if kind == "poisson" else name


def instances(rows, drawn):
    """Redis: what is used of a limit by how many instances."""
    lines = []
    for store, text in (
        ("exact", "`exact`: every decision is made in Redis. However many instances there are, each decision is the reference's."),
        ("leased", "`leased`: instances take units in advance, so that some lie with an instance that does not need them while another is denied. "
         "It is never over the limit; what it costs is in these tables: requests less than the reference admits, in percent. `leaky_bucket` with `shape: true` and `sliding_window_log` are refused."),
    ):
        found = [row for row in rows if row["store"] == store]
        if not found:
            continue
        lines += [f"### {store.capitalize()}", "", text, ""]
        lines += image(store, "Under-use of leased limits by instances", drawn)
        lines += summary(found)
    if not lines:
        return []
    return [
        "## Many instances on one Redis",
        "",
        "Each request goes to one of 1, 2, 4 or 8 instances, which share one Redis.",
        "",
        *lines,
    ]


def summary(rows):
    """A row for each scenario and algorithm: the worst over, and the under-use by instances."""
    counts = [count for count in COUNTS if any(row["instances"] == count for row in rows)]
    lines = ["| pattern | algorithm | over the promise | not as the reference | " + " | ".join(f"{count} instance{'s' if count > 1 else ''}" for count in counts) + " |"]
    lines.append("| --- | --- | --- | --- |" + " --- |" * len(counts))
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        for algorithm in dict.fromkeys(row["algorithm"] for row in rows if row["scenario"] == scenario):
            found = [row for row in rows if row["scenario"] == scenario and row["algorithm"] == algorithm]
            cells = []
            for count in counts:
                row = next((row for row in found if row["instances"] == count), None)
                cells.append("–" if row is None else used(row))
            different = sum(row["different"] for row in found)
            lines.append(f"| {title(scenario)} | `{algorithm}` | {max(row['over_promise'] for row in found)} | {different:,} of {sum(row['arrivals'] for row in found):,} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def used(row):
    """What was admitted in comparison with the reference."""
    change = row["over_reference"] - row["under_reference"]
    return "same" if not change else f"{change * 100 / row['reference']:+.1f} %".replace("-", "−")


def where_peers_are_better(rows):
    """Rows of peers that keep the reference's total where Tidegate's leased limits do not, or admit less in the worst second."""
    lines = []
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        here = [row for row in rows if row["scenario"] == scenario]
        for peer in (row for row in here if row["contender"] != "tidegate"):
            own = [row for row in here if row["contender"] == "tidegate" and row["algorithm"] == peer["algorithm"]]
            own += [row for row in here if row["contender"] == "tidegate" and peer["algorithm"].startswith("leaky") and row["algorithm"] == "token_bucket"]
            missed = peer["over_reference"] + peer["under_reference"]
            behind = [row for row in own if row["store"] == "leased" and row["under_reference"] * peer["reference"] > missed * row["reference"]]
            if behind:
                worst = max(behind, key=lambda row: row["under_reference"] / row["reference"])
                lines.append(f"- {title(scenario)}: {peer['contender']} in one process is nearer to `{peer['algorithm']}` than Tidegate leased, at most {share(worst['under_reference'], worst['reference'])} under with {worst['instances']} instances")
    text = ["## Where a peer is better", ""]
    if not lines:
        return [*text, "In no row that was measured.", ""]
    return [*text, "Libraries in one process share nothing, so they have nothing to lease. `exact` admits what the reference admits.", "", *lines, ""]


def skipped(rows):
    if not rows:
        return []
    lines = [f"- {row['contender']}" + (f", {row['scenario']}" if "scenario" in row else "") + f": {row['skipped']}" for row in rows]
    return ["## Skipped", "", *lines, ""]
