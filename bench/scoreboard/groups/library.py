"""Libraries in a process: the call that the README of each project shows, for several numbers of keys and threads."""

import itertools

from .. import rounds
from ..settings import SECONDS
from ..worker import Worker

CONTENDERS = [
    ("tidegate", "tidegate", "tidegate, Limiter::check"),
    ("governor", "peer", "governor, check_key"),
    ("throttlecrab", "peer", "throttlecrab, rate_limit"),
    ("limitador", "peer", "limitador, check_rate_limited_and_update"),
    ("limits", "peer", "limits (Python), hit"),
    ("bare", "ceiling", "bare map of numbers with locks"),
]
SPREADS = [(1, "uniform", "1 key"), (10_000, "uniform", "10,000 keys"), (1_000_000, "uniform", "1,000,000 keys"),
           (1_000_000, "zipf", "1,000,000 keys, Zipf")]
# Checks that take about this many seconds in a turn.
TURN = 0.2 * min(SECONDS, 1.0)
PER_SECOND = {"limits": 150_000, "limitador": 250_000, "throttlecrab": 4_000_000}
MOST = 8_000_000


def row(name, role, title, keys, spread, case, threads):
    seeds = itertools.count(1)
    checks = int(min(PER_SECOND.get(name, MOST), MOST) * TURN)

    def begin():
        worker = Worker(name, keys, threads)
        worker.fill(0, keys)
        return rounds.Started(
            turn=lambda: worker.turn(threads, checks, spread, next(seeds)),
            stop=worker.stop,
            command=worker.command,
            load=f"fill 0 {keys}; turn {threads} {checks} {spread} SEED",
        )

    return rounds.Row(title, begin, role, case)


def measure(_, only):
    measured = []
    for keys, spread, text in SPREADS:
        for threads in (1, 2):
            case = f"{text}, {threads} thread{'s' if threads > 1 else ''}"
            rows = [row(*entry, keys, spread, case, threads) for entry in CONTENDERS if only in entry[2]]
            measured += rounds.run("library", rows)
    return measured
