"""The Python package `limits` on arrivals of a file, in virtual time: `limits_worker.py STRATEGY COUNT RETRIED FILE`.

Each line of the file is the time of an arrival in microseconds, and its key. Prints one line with a digit for each
arrival, then a line for each denial that was tried again: whether it was admitted at the reset time, a microsecond before,
and a microsecond after.
"""

import sys
import threading
import time


class NeverFires:
    """Instead of a timer: the package removes what has expired on a thread, by real time. That would race with virtual time, and changes no decision."""

    def __init__(self, *_):
        pass

    def start(self):
        pass

    def is_alive(self):
        return True


NOW = 0.0
time.time = lambda: NOW
threading.Timer = NeverFires

from limits import RateLimitItemPerSecond, strategies  # noqa: E402, it must find the time replaced
from limits.storage import MemoryStorage  # noqa: E402

STRATEGY = getattr(strategies, sys.argv[1])
ITEM = RateLimitItemPerSecond(int(sys.argv[2]))
RETRIED = int(sys.argv[3])


def decide(limiter, micros, key):
    global NOW
    NOW = micros / 1e6
    return limiter.hit(ITEM, key)


def replay(arrivals, micros, key):
    """Whether a request at this time is admitted after those arrivals."""
    limiter = STRATEGY(MemoryStorage())
    for at, whose in arrivals:
        decide(limiter, at, whose)
    return decide(limiter, micros, key)


def main():
    arrivals = [tuple(map(int, line.split())) for line in open(sys.argv[4])]
    limiter = STRATEGY(MemoryStorage())
    digits, denied = [], []
    for index, (micros, key) in enumerate(arrivals):
        is_admitted = decide(limiter, micros, key)
        digits.append("1" if is_admitted else "0")
        if not is_admitted:
            denied.append((index, limiter.get_window_stats(ITEM, key).reset_time))
    print("".join(digits))
    step = max(-(-len(denied) // RETRIED), 1)
    for index, reset in denied[::step]:
        micros, key = arrivals[index]
        # Rounded up: a microsecond is as exact as its times are.
        then = max(-(-reset * 1e6 // 1), micros)
        # Keys do not depend on each other.
        before = [arrival for arrival in arrivals[: index + 1] if arrival[1] == key]
        print(*(int(replay(before, at, key)) for at in (then, then - 1, then + 1)))


main()
