"""How the cost of a decision grows: with keys, rules, limits of a request, connections, and instances on one Redis."""

import itertools
from concurrent.futures import ThreadPoolExecutor

from .. import load, rounds, servers
from ..process import Skipped, shown
from ..settings import MAX_KEYS, SECONDS
from ..worker import Worker
from .idle import raise_files
from .protocols import CHECK, post

CHECKS = int(600_000 * min(SECONDS, 1.0))
INSTANCES = (1, 2, 4, 8)
SHARED_RULES = "rules:\n  - {{id: per-user, per: [user_id], missing: deny, limit: 1000000/second, sync: {sync}}}\n"
# One hot key: what leases are for. An exact decision costs Redis the same with many.
SHARED_KEYS = 1


def counted(count, name):
    return f"{count:,} {name}" + ("" if count == 1 else "s")


def gate_row(rules, limits, keys, x, case):
    """The gate in process, as `Gate::decide` of the library."""
    seeds = itertools.count(1)
    checks = max(CHECKS // limits, 1000)

    def begin():
        worker = Worker(f"gate:{rules},{limits}", keys, 1)
        worker.fill(0, keys)
        return rounds.Started(
            turn=lambda: worker.turn(1, checks, "uniform", next(seeds)),
            stop=worker.stop,
            command=worker.command,
            load=f"fill 0 {keys}; turn 1 {checks} uniform SEED",
        )

    return rounds.Row("tidegate, Gate::decide", begin, "tidegate", case, x)


def keys(_, only):
    counts = [10**power for power in range(8) if 10**power <= MAX_KEYS]
    return rounds.run("keys", [gate_row(1, 1, count, count, counted(count, "key")) for count in counts])


def rules(_, only):
    counts = (1, 10, 100, 1_000, 10_000)
    return rounds.run("rules", [gate_row(count, 1, 10_000, count, counted(count, "rule")) for count in counts])


def limits(_, only):
    counts = (1, 2, 3, 5, 7, 10)
    return rounds.run("limits", [gate_row(count, count, 10_000, count, counted(count, "limit")) for count in counts])


def connection_row(count):
    def begin():
        raise_files(count + 200)
        server = servers.tidegate()
        sent = [*post("/v1/check", CHECK)(server), "--connections", str(count)]
        # Long enough that all connections are open before it ends.
        short_load = max(SECONDS, count / 4000)

        def turn():
            # The cost of connecting is in both loads, and not in their difference.
            totals = []
            for seconds in (short_load, short_load + SECONDS * 2):
                before = server.process.cpu()
                report = load.send(sent, seconds)
                totals.append((server.process.cpu() - before, report))
            (short_cpu, short), (long_cpu, long) = totals
            more = long["requests"] - short["requests"]
            if more < 1000:
                raise Skipped("too few requests to compare two loads; raise BENCH_SECONDS")
            return {
                "cpu_us": (long_cpu - short_cpu) / more * 1e6,
                "per_second": more / (long["seconds"] - short["seconds"]),
                "p50_us": long["latency"]["p50"] * 1e6,
                "p99_us": long["latency"]["p99"] * 1e6,
            }

        return rounds.Started(turn, server.stop, shown(server.process.command), load.text(sent))

    return rounds.Row("tidegate, POST /v1/check", begin, "tidegate", counted(count, "connection"), count)


def connections(_, only):
    rows = [connection_row(count) for count in (1, 10, 100, 1_000, 10_000)]
    return rounds.run("connections", rows, rounds=3)


class Shared:
    """Servers that share one Redis; load on each of them at the same time."""

    def __init__(self, count, sync):
        self.redis = servers.redis()
        self.servers = []
        arguments = ["--redis", f"redis://{self.redis.addresses['resp']}"]
        try:
            for _ in range(count):
                self.servers.append(servers.tidegate(rules=SHARED_RULES.format(sync=sync), arguments=arguments))
        except Exception:
            self.stop()
            raise
        lanes = ["--connections", "64", "--keys", str(SHARED_KEYS)]
        self.loads = [[*post("/v1/check", CHECK)(server), *lanes] for server in self.servers]

    def cpu(self):
        return self.redis.process.cpu(), sum(server.process.cpu() for server in self.servers)

    def turn(self):
        before = self.cpu()
        with ThreadPoolExecutor(len(self.loads)) as pool:
            reports = list(pool.map(load.send, self.loads))
        after = self.cpu()
        decided = sum(report["allowed"] + report["denied"] for report in reports)
        worst = max(reports, key=lambda report: report["latency"]["p99"])
        return {
            "cpu_us": (after[1] - before[1]) / decided * 1e6,
            "redis_us": (after[0] - before[0]) / decided * 1e6,
            "per_second": sum(report["per_second"] for report in reports),
            "p50_us": worst["latency"]["p50"] * 1e6,
            "p99_us": worst["latency"]["p99"] * 1e6,
        }

    def stop(self):
        for server in [*self.servers, self.redis]:
            server.stop()


def instance_row(count, sync):
    def begin():
        shared = Shared(count, sync)
        command = shown(shared.servers[0].process.command)
        return rounds.Started(shared.turn, shared.stop, command, load.text(shared.loads[0]))

    case = f"{counted(count, 'instance')}, {sync}"
    return rounds.Row(f"tidegate, sync: {sync}", begin, "tidegate", case, count)


def instances(_, only):
    measured = []
    for sync in ("exact", "leased"):
        # One after the other: many servers that wait would still take time from those that work.
        for count in INSTANCES:
            measured += rounds.run("instances", [instance_row(count, sync)], rounds=3)
    return measured
