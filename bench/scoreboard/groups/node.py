"""Limiters of Node: a check in memory, and the storage of Nest by what a client has used."""

import json
import subprocess

from .. import peers, rounds
from ..process import Process, Skipped, shown
from ..settings import BENCH, SECONDS, SERVER_CORE

WORKER = BENCH / "scoreboard/node_worker.mjs"
CHECK = "a check of one of 10,000 clients"
NEST = "a request to Nest's storage, by the client's requests in the window: {}"

# Contender of the worker, role, title, and calls in a turn of a second.
CHECKS = [
    ("check", "tidegate", "tidegate, check", 3_000_000),
    ("allow", "tidegate", "tidegate, allow", 3_000_000),
    ("express-store", "tidegate", "tidegate, store of express-rate-limit and hono-rate-limiter", 3_000_000),
    ("express-bucket", "tidegate", "tidegate, the same with token_bucket", 2_000_000),
    ("fastify-store", "tidegate", "tidegate, store of @fastify/rate-limit", 2_000_000),
    ("nest-storage", "tidegate", "tidegate, storage of @nestjs/throttler", 1_000_000),
    ("express", "peer", "express-rate-limit, MemoryStore", 3_000_000),
    ("hono", "peer", "hono-rate-limiter, MemoryStore", 3_000_000),
    ("fastify", "peer", "@fastify/rate-limit, LocalStore", 2_000_000),
    ("nest", "peer", "@nestjs/throttler, ThrottlerStorageService", 500_000),
    ("flexible", "peer", "rate-limiter-flexible, RateLimiterMemory", 1_000_000),
]
HITS = [10, 1_000, 10_000]


def row(case, contender, role, title, count):
    def begin():
        process = Process(["node", peers.node_frameworks() / WORKER.name, contender], core={SERVER_CORE}, stdin=subprocess.PIPE)

        def read():
            line = process.child.stdout.readline()
            if not line:
                raise Skipped("the process ended")
            return json.loads(line)

        def turn():
            process.child.stdin.write(f"turn {count}\n")
            process.child.stdin.flush()
            return read()

        read()
        return rounds.Started(turn, process.stop, shown(process.command), f"turn {count}")

    return rounds.Row(title, begin, role, case)


def measure(_, only):
    measured = []
    rows = [row(CHECK, name, role, title, max(int(calls * SECONDS), 10_000)) for name, role, title, calls in CHECKS if only in title]
    measured += rounds.run("node", rows)
    for hits in HITS:
        case = NEST.format(f"{hits:,}")
        # The calls of a turn are a part of the hits: what is measured stays about what it is called.
        calls = max(int(100_000 * SECONDS), 10_000)
        pairs = [("nest-storage-used", "tidegate", "tidegate, storage"), ("nest-used", "peer", "@nestjs/throttler, ThrottlerStorageService")]
        rows = [row(case, f"{name}-{hits}", role, title, calls // (1 if role == "tidegate" else 20)) for name, role, title in pairs if only in title]
        measured += rounds.run("node", rows, rounds=3)
    return measured
