"""Bounds that Tidegate must keep, in times of another row of the same run. `scripts/bench` fails if one is exceeded."""

from .figures import ratio

# Group, the row that is bounded, the row that it is compared with, and how many times as much CPU time it may take.
# A row is found by the start of its contender, or by its position on the axis of a chart.
BOUNDS = [
    ("http", "tidegate", "bare axum", 1.15),
    ("grpc", "tidegate", "bare tonic", 1.15),
    ("resp", "tidegate", "Redis", 1.0),
    ("gateway", "tidegate", "nginx", 1.4),
    ("rules", 1_000, 10, 2.0),
]


def find(rows, which):
    if isinstance(which, int):
        return next((row for row in rows if row["x"] == which and row["turns"]), None)
    return next((row for row in rows if row["contender"].startswith(which) and row["turns"]), None)


def judge(group, rows):
    """What is bounded, by how much, and what was measured, for each bound of a group that could be measured."""
    for name, bounded, other, most in BOUNDS:
        if name != group:
            continue
        ours, theirs = find(rows, bounded), find(rows, other)
        times = ratio(ours, theirs, "cpu_us") if ours and theirs else None
        if times is not None:
            title = (ours["contender"], theirs["contender"]) if isinstance(other, str) else (ours["case"], theirs["case"])
            yield f"{group}: {title[0]}, compared with {title[1]}", most, times


def section(found):
    lines = ["", "## Bounds", "", "What a change to Tidegate must keep: `./scripts/bench` fails if the CPU time of a decision is more than so many times that of another row.", ""]
    lines += ["| | at most | measured | |", "| --- | --- | --- | --- |"]
    for group, result in found.items():
        for title, most, times in judge(group, result["rows"]):
            lines.append(f"| {title} | {most:g} times | {times:.2f} times | {'met' if times <= most else '**not met**'} |")
    return lines
