"""The command line: `scripts/bench` calls it."""

import argparse
import signal
import subprocess
import sys
import time

from . import bounds, report, results
from .groups import envoy, gateway, growth, idle, library, memory, node, protocols, python, reservations
from .settings import BENCH, ROOT, ROUNDS, SECONDS, TARGET, bench_program
from .process import stop_all

GROUPS = {
    "library": (library.measure, "libraries in process"),
    "http": (protocols.measure, "POST /v1/check over HTTP"),
    "reservations": (reservations.measure, "reserve and settle next to a check, over HTTP"),
    "grpc": (protocols.measure, "calls over gRPC"),
    "resp": (protocols.measure, "commands over RESP"),
    "gateway": (gateway.measure, "a small GET through a gateway"),
    "envoy": (envoy.measure, "what a decision over gRPC adds to a request through Envoy"),
    "idle": (idle.measure, "memory of an idle connection of a gateway"),
    "memory": (memory.measure, "memory of a key"),
    "keys": (growth.keys, "growth with keys"),
    "rules": (growth.rules, "growth with rules"),
    "limits": (growth.limits, "growth with the limits of a request"),
    "connections": (growth.connections, "growth with connections"),
    "instances": (growth.instances, "growth with instances on one Redis"),
    "python": (python.measure, "limiters of Python"),
    "node": (node.measure, "limiters of Node"),
}
# Programs that check a bound of their own, and are not a part of the page.
CHECKS = {
    "snapshot": "time to write and to load a million counters, and the slowest decision meanwhile",
    "redis": "CPU time of Redis per decision, compared with one script call for each",
    "faults": "time per decision while Redis is unavailable, and until it has recovered",
}


def arguments():
    listing = "\n".join(f"  {name:<12} {text}" for name, (_, text) in GROUPS.items())
    checks = "\n".join(f"  {name:<12} {text}" for name, text in CHECKS.items())
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Runs Tidegate, its peers and bare ceilings in turns, and writes docs/performance.md.",
        epilog=f"groups (without any: all of them, then the report):\n{listing}\n\nnot on the page:\n{checks}\n\n"
        "  report       writes docs/performance.md and its charts from bench/results\n\n"
        "BENCH_ROUNDS (5), BENCH_SECONDS (1, of a turn), BENCH_MAX_KEYS (10000000), BENCH_NOTE (a sentence for the page about this run) "
        "and TIDEGATE_BIN (the program that is measured) can be set.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*GROUPS, *CHECKS, "report", []])
    parser.add_argument("--only", default="", metavar="CONTENDER", help="only contenders with this in their name; nothing is saved")
    parser.add_argument("--check", action="store_true", help="with `report`: write nothing, and fail if a file differs")
    return parser.parse_args()


def run_report(check):
    stale = report.write(check)
    for path in stale:
        print(f"{path} is not what `./scripts/bench report` writes from bench/results" if check else f"wrote {path}")
    return 1 if check and stale else 0


def run_check(name):
    cargo = ["cargo", "build", "--release", "--locked", "--quiet", "--target-dir", TARGET, "-p", "tidegate-bench-store"]
    subprocess.run(cargo, cwd=BENCH, check=True)
    return subprocess.run([bench_program(name)], cwd=ROOT, check=False).returncode


def main():
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    given = arguments()
    if given.names == ["report"]:
        return run_report(given.check)
    code, began = 0, time.monotonic()
    for name in given.names or [*GROUPS]:
        if name == "report":
            continue
        if name in CHECKS:
            code = run_check(name) or code
            continue
        started = time.monotonic()
        print(f"\n== {name}: {GROUPS[name][1]} ({ROUNDS} rounds, {SECONDS:g} s a turn)", flush=True)
        try:
            rows = GROUPS[name][0](name, given.only)
        except Exception as error:  # The other groups can still be measured.
            print(f"{name} failed: {type(error).__name__}: {error}", file=sys.stderr)
            code = 1
            continue
        finally:
            stop_all()
        for bound, title, figure in bounds.judge(name, rows):
            print(f"{title}: {bound.shown(figure)}, at most {bound.shown(bound.most)}" + ("" if figure <= bound.most else ": NOT MET"))
            code = code if figure <= bound.most else 1
        if not given.only:
            results.save(name, rows, f"./scripts/bench {name}")
        print(f"== {name}: {time.monotonic() - started:.0f} s", flush=True)
    if not given.only and any(name in GROUPS for name in given.names or [*GROUPS]):
        run_report(False)
    print(f"\nin all {time.monotonic() - began:.0f} s")
    return code


sys.exit(main())
