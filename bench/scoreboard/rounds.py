"""Contenders in turns: each round has a turn of each, so that what the machine does meanwhile affects all alike."""

import sys
import time

from .process import Skipped
from .settings import ROUNDS


class Row:
    """One contender in one case: how it starts, and what a turn of it measures."""

    def __init__(self, contender, start, role="peer", case="", x=None):
        self.contender, self.role, self.case = contender, role, case
        self.x, self.command, self.load = x, "", ""
        self.start = start
        self.turns, self.skipped = [], None

    def to_json(self):
        names = ("contender", "role", "case", "x", "command", "load", "skipped", "turns")
        return {name: getattr(self, name) for name in names}


class Started:
    """A contender that runs: `turn` measures, `stop` ends it."""

    def __init__(self, turn, stop, command="", load=""):
        self.turn, self.stop, self.command, self.load = turn, stop, command, load


def progress(text):
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[2K{text}"[:160])
        sys.stderr.flush()


def run(title, rows, rounds=None, warm=True):
    """Starts all rows, lets them work in turns, and ends them. A row that fails is skipped with the reason."""
    rounds = rounds or ROUNDS
    running = []
    began = time.monotonic()
    try:
        for row in rows:
            progress(f"{title}: starting {row.contender}")
            try:
                started = row.start()
            except Exception as error:  # A contender that fails must not end the run.
                row.skipped = reason(error)
                continue
            row.command, row.load = started.command or row.command, started.load or row.load
            running.append((row, started))
            if warm:
                attempt(row, started.turn)
                row.turns.clear()
        for number in range(rounds):
            order = running[number % len(running) :] + running[: number % len(running)] if running else []
            for row, started in order:
                spent = time.monotonic() - began
                progress(f"{title}: round {number + 1} of {rounds}, {row.contender} {row.case} ({spent:.0f} s)")
                attempt(row, started.turn)
    finally:
        for _, started in running:
            started.stop()
    progress("")
    for row in rows:
        print(line(title, row), flush=True)
    return [row.to_json() for row in rows]


def attempt(row, turn):
    if row.skipped:
        return
    try:
        row.turns.append(turn())
    except Exception as error:  # As above.
        row.skipped = reason(error)
        row.turns = []


def reason(error):
    return str(error) if isinstance(error, Skipped) else f"{type(error).__name__}: {error}"


def median(values):
    values = sorted(values)
    half = len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def line(title, row):
    head = f"{title:<12} {row.case:<28} {row.contender:<34}"
    if row.skipped:
        return f"{head} skipped: {row.skipped}"
    if not row.turns:
        return f"{head} skipped: no turns"
    figures = []
    for name, unit in (("cpu_us", "µs of CPU"), ("per_second", "/s"), ("bytes", "bytes")):
        values = [turn[name] for turn in row.turns if name in turn]
        if values:
            figures.append(f"{median(values):,.3g} {unit}" if name == "cpu_us" else f"{median(values):,.0f} {unit}")
    return f"{head} {', '.join(figures)}"
