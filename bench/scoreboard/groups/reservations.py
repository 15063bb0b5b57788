"""Reserve and settle next to a check, over HTTP: in memory, and over one Redis."""

import json
import os
import subprocess

from .. import rounds, servers
from ..process import Skipped, shown
from ..settings import BENCH, LOAD_CORE, SECONDS

CONNECTIONS = 16
KINDS = {"check": "tidegate, check", "reserve": "tidegate, reserve and settle"}


def command(server, kind):
    load = ["python3", BENCH / "scoreboard/reserve_load.py", server.addresses["http"], kind]
    return [str(word) for word in [*load, int(SECONDS * 1000), CONNECTIONS]]


def send(server, kind):
    pin = lambda: os.sched_setaffinity(0, {LOAD_CORE})
    run = subprocess.run(command(server, kind), capture_output=True, text=True, timeout=600, preexec_fn=pin)
    if run.returncode:
        raise Skipped("load failed: " + (run.stderr.strip() or "no reason given")[:300])
    report = json.loads(run.stdout)
    if report["denied"]:
        raise Skipped(f"{report['denied']} of {report['decisions']} were denied")
    return report


def row(case, kind):
    def begin():
        redis = servers.redis() if case == "over Redis" else None
        arguments = ["--redis", f"redis://{redis.addresses['resp']}"] if redis else []
        try:
            server = servers.tidegate(arguments=arguments)
        except Exception:
            if redis:
                redis.stop()
            raise
        started = [server, redis] if redis else [server]

        def turn():
            before = [one.process.cpu() for one in started]
            report = send(server, kind)
            used = [one.process.cpu() - start for one, start in zip(started, before)]
            each = [seconds / report["decisions"] * 1e6 for seconds in used]
            return {"cpu_us": each[0], "redis_us": each[1] if redis else 0.0, "per_second": report["decisions"] / report["seconds"]}

        def stop():
            for one in started:
                one.stop()

        load = f"taskset -c {LOAD_CORE} " + shown(command(server, kind))
        return rounds.Started(turn, stop, shown(server.process.command), load)

    return rounds.Row(KINDS[kind], begin, "tidegate", case)


def measure(group, only):
    rows = [row(case, kind) for case in ("in memory", "over Redis") for kind in KINDS if only in KINDS[kind]]
    return rounds.run(group, rows)
