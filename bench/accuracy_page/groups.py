"""The groups of runs: what is started for each, and where their results are kept."""

import datetime
import json
import re
import subprocess

from scoreboard import peers
from scoreboard.process import Skipped
from scoreboard.results import commit, first_line, number_in
from scoreboard.settings import BENCH, RESULTS, TARGET

KEPT = RESULTS / "accuracy"
# What has no virtual time runs by itself.
REAL_TIME = ("nginx",)
PROGRAM = TARGET / "release/accuracy"
WORKER = BENCH / "accuracy_page/limits_worker.py"

# Whether a group is run twice, to see that it prints the same; and what its runs are. Groups with instances repeat some of their runs by themselves.
GROUPS = {
    "memory": (True, "the memory store"),
    "concurrency": (True, "the memory store, for requests in progress"),
    "exact": (False, "1 to 8 instances on one simulated Redis, exact"),
    "leased": (False, "1 to 8 instances on one simulated Redis, leased"),
    "redis": (False, "two instances on a real Redis"),
    "peers": (True, "governor and throttlecrab"),
    "limits": (True, "the Python package limits"),
    "nginx": (False, "limit_req of nginx, in real time"),
}


def build():
    """The program of the suite."""
    cargo = ["cargo", "build", "--release", "--locked", "--quiet", "--manifest-path", BENCH / "Cargo.toml", "--target-dir", TARGET, "-p", "tidegate-bench-accuracy"]
    subprocess.run(cargo, check=True)


def arguments(name):
    """What the program is started with."""
    if name == "limits":
        return [peers.python_limits(), WORKER]
    if name == "nginx":
        return [peers.find_program("nginx", "nginx-light")]
    return []


def run(name):
    """The rows of a group, as they were printed; a skipped group is one row with the reason."""
    try:
        command = [PROGRAM, name, *arguments(name)]
    except Skipped as reason:
        return [{"contender": name, "skipped": str(reason)}]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no reason given"])[-1])
    return [json.loads(line) for line in done.stdout.splitlines()]


def versions(name):
    locked = dict(re.findall(r'name = "([^"]+)"\nversion = "([^"]+)"', (BENCH / "Cargo.lock").read_text()))
    if name == "peers":
        return {"governor": locked["governor"], "throttlecrab": locked["throttlecrab"]}
    if name == "limits":
        return {"limits (Python)": peers.LIMITS}
    if name == "redis":
        return {"redis-server": number_in(first_line("redis-server", "--version"))}
    if name == "nginx":
        try:
            return {"nginx": number_in(first_line(peers.find_program("nginx", "nginx-light"), "-v"))}
        except Skipped:
            return {}
    return {"tidegate": locked["tidegate-core"]}


def save(name, rows):
    """One row on a line, so that a change of one shows as such."""
    KEPT.mkdir(parents=True, exist_ok=True)
    head = {
        "group": name,
        "command": f"./scripts/accuracy {name}",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "commit": commit(),
        "versions": versions(name),
    }
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    text = json.dumps(head, ensure_ascii=False)[:-1] + ', "rows": [\n' + lines + "\n]}\n"
    (KEPT / f"{name}.json").write_text(text)


def load():
    """The results of every group that has some."""
    found = {}
    for name in GROUPS:
        path = KEPT / f"{name}.json"
        if path.exists():
            found[name] = json.loads(path.read_text())
    return found
