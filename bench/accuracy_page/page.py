"""Writes docs/accuracy.md and its charts from the results. Nothing in them is written by hand."""

from scoreboard.report import write_files
from scoreboard.settings import ROOT

from . import charts, head, tables

PAGE = ROOT / "docs/accuracy.md"
IMAGES = ROOT / "docs/images/accuracy"


def write(found, check=False):
    """Writes the files, or says which of them differ."""
    return write_files(build(found), IMAGES, check)


def build(found):
    rows = [row for result in found.values() for row in result["rows"] if "scenario" in row]
    skipped = [row for result in found.values() for row in result["rows"] if row.get("skipped")]
    rows = [row for row in rows if not row.get("skipped")]
    files = {IMAGES / f"{name}.svg": svg for name, svg in charts.draw(rows)}
    drawn = {path.stem for path in files}
    lines = head.lines(found, rows, drawn)
    lines += tables.window_edge(rows)
    lines += tables.apisix(rows, drawn)
    lines += tables.patterns(rows)
    lines += tables.concurrency(rows)
    lines += tables.instances(rows, drawn)
    lines += tables.where_peers_are_better(rows)
    lines += tables.where_peers_are_over(rows)
    lines += tables.skipped(skipped)
    files[PAGE] = "\n".join(lines).replace("\n\n\n", "\n\n").rstrip() + "\n"
    return files
