"""The Python package `limits` as a worker: the same commands as bench/src/bin/library."""

import json
import random
import sys
import threading
import time

from limits import RateLimitItemPerDay
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter

KEYS = int(sys.argv[1])
LIMITER = FixedWindowRateLimiter(MemoryStorage())
ITEM = RateLimitItemPerDay(100_000_000)
TIMED = 64


def stream(spread, checks, seed):
    source = random.Random(seed)
    if spread != "zipf":
        return [source.randrange(KEYS) for _ in range(checks)]
    total = sum(1 / rank for rank in range(1, KEYS + 1))
    # The inverse of the sum of 1/rank, which grows as a logarithm.
    ranks = [int(min(KEYS, max(1, 2.718281828 ** (source.random() * total - 0.5772)))) for _ in range(checks)]
    return [rank * 2_654_435_761 % KEYS for rank in ranks]


def drive(numbers, latencies):
    for index, number in enumerate(numbers):
        if index % TIMED:
            LIMITER.hit(ITEM, f"user:{number}")
        else:
            started = time.perf_counter_ns()
            LIMITER.hit(ITEM, f"user:{number}")
            latencies.append(time.perf_counter_ns() - started)


def turn(threads, checks, spread, seed):
    streams = [stream(spread, checks, seed * 16 + thread) for thread in range(threads)]
    latencies = []
    workers = [threading.Thread(target=drive, args=(numbers, latencies)) for numbers in streams]
    started, cpu = time.perf_counter(), time.process_time()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    latencies.sort()
    at = lambda share: latencies[min(int(len(latencies) * share), len(latencies) - 1)] / 1e9
    return {"checks": threads * checks, "seconds": seconds, "cpu_seconds": cpu, "p50": at(0.5), "p99": at(0.99)}


print("{}", flush=True)
for line in sys.stdin:
    name, *words = line.split()
    if name == "fill":
        for number in range(int(words[0]), int(words[1])):
            LIMITER.hit(ITEM, f"user:{number}")
        answer = {}
    else:
        answer = turn(int(words[0]), int(words[1]), words[2], int(words[3]))
    print(json.dumps(answer), flush=True)
