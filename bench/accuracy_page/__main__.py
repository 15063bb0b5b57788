"""The command line: `scripts/accuracy` calls it."""

import argparse
import concurrent.futures
import os
import signal
import sys
import time

from . import groups, page, promises


def arguments():
    listing = "\n".join(f"  {name:<12} {text}" for name, (_, text) in groups.GROUPS.items())
    parser = argparse.ArgumentParser(
        prog="scripts/accuracy",
        description="Runs Tidegate and its peers on the same arrivals, and writes docs/accuracy.md.",
        epilog=f"groups (without any: all of them, then the page):\n{listing}\n\n"
        "  report       writes docs/accuracy.md and its charts from bench/results/accuracy",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*groups.GROUPS, "report", []])
    parser.add_argument("--check", action="store_true", help="with `report`: write nothing, and fail if a file differs")
    return parser.parse_args()


def run_report(check):
    found = groups.load()
    stale = page.write(found, check)
    for path in stale:
        print(f"{path} is not what `./scripts/accuracy report` writes from bench/results/accuracy" if check else f"wrote {path}")
    code = 1 if check and stale else 0
    for line in promises.judge(found):
        print(f"broken promise: {line}", file=sys.stderr)
        code = 1
    return code


def run_group(name):
    """Runs a group, twice if it must print the same again."""
    started = time.monotonic()
    is_run_twice, text = groups.GROUPS[name]
    print(f"== {name}: {text}", flush=True)
    rows = groups.run(name)
    is_repeated = not is_run_twice or groups.run(name) == rows
    if not is_repeated:
        print(f"{name}: two runs in virtual time differ", file=sys.stderr)
    groups.save(name, rows)
    for row in rows:
        if row.get("skipped"):
            print(f"{row['contender']} skipped: {row['skipped']}")
    print(f"== {name}: {len(rows)} rows, {time.monotonic() - started:.0f} s", flush=True)
    return 0 if is_repeated else 1


def main():
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    given = arguments()
    if given.names == ["report"]:
        return run_report(given.check)
    groups.build()
    names = [name for name in given.names or [*groups.GROUPS] if name != "report"]
    # The longest first, on all cores; what has no virtual time afterwards.
    order = sorted(names, key=["exact", "leased", "limits"].__contains__, reverse=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        codes = list(pool.map(run_group, [name for name in order if name not in groups.REAL_TIME]))
    codes += [run_group(name) for name in names if name in groups.REAL_TIME]
    return max([run_report(False), *codes])


sys.exit(main())
