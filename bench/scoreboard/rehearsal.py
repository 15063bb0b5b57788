"""What a simulation of a large log takes: the figures of bench/simulate.py, their bounds, and their part of docs/performance.md."""

import datetime
import json

from . import results
from .settings import RESULTS

NAME = "simulate"
COMMAND = "./scripts/long simulate"
MOST_SECONDS, MOST_BYTES = 60, 500_000_000
# By how much more time a line of the whole log may take than one of its quarter.
MOST_GROWTH = 1.5


def save(runs):
    RESULTS.mkdir(exist_ok=True)
    result = {
        "group": NAME,
        "command": COMMAND,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": results.commit(),
        "machine": results.machine(),
        "runs": [results.rounded(run) for run in runs],
    }
    (RESULTS / f"{NAME}.json").write_text(json.dumps(result, indent=1) + "\n")


def growth(quarter, whole):
    """How much more time a line of the whole log takes."""
    return (whole["seconds"] / whole["lines"]) / (quarter["seconds"] / quarter["lines"])


def exceeded(quarter, whole):
    """The bounds that were not kept, as sentences."""
    found = []
    if whole["seconds"] > MOST_SECONDS:
        found.append(f"it took {whole['seconds']:.1f} s; at most {MOST_SECONDS} are accepted")
    if whole["peak_bytes"] > MOST_BYTES:
        found.append(f"it took {whole['peak_bytes'] / 1e6:.0f} MB; at most {MOST_BYTES / 1e6:.0f} are accepted")
    if growth(quarter, whole) > MOST_GROWTH:
        found.append(f"a line took {growth(quarter, whole):.2f} times the time of one of a quarter of the log; at most {MOST_GROWTH} are accepted")
    return found


def section():
    """Its part of the page; nothing before the first whole run."""
    file = RESULTS / f"{NAME}.json"
    if not file.exists():
        return []
    result = json.loads(file.read_text())
    quarter, whole = result["runs"]
    lines = [
        "",
        "## Simulations of logs",
        "",
        f"`tidegate simulate` of a combined log with 1,000 rules and 100,000 clients, by {whole['factors']} factors: {whole['rules_a_line']:.2f} rules apply to a line, and there are "
        f"{whole['pairs']:,} pairs of rule and client. At most {MOST_SECONDS} s and {MOST_BYTES / 1e6:.0f} MB are accepted.",
        "",
        results.measured_at(result),
        "",
        "| lines | log | time | CPU time | peak of the memory | lines/s |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for run in (quarter, whole):
        lines.append(
            f"| {run['lines']:,} | {run['log_bytes'] / 1e9:.2f} GB | {run['seconds']:.1f} s | {run['cpu_seconds']:.1f} s | {run['peak_bytes'] / 1e6:.0f} MB | {run['lines'] / run['seconds']:,.0f} |"
        )
    return lines + ["", f"A line of the whole log takes {growth(quarter, whole):.2f} times the time of one of its quarter. Again: `{COMMAND}`.", ""]
