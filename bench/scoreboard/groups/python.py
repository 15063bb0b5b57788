"""Limiters of Python: a decision in memory, what a limit adds to a request, threads, and Redis."""

import json
import pathlib
import subprocess

from .. import peers, rounds, servers
from ..process import Process, Skipped, shown
from ..settings import BENCH, SECONDS, SERVER_CORE

WORKER = BENCH / "scoreboard/python_worker.py"
STORIES = BENCH / "scoreboard/python_stories.py"
DECISION, WSGI, ASGI = "a decision in memory", "what a limit adds to a request of Flask", "what a limit adds to a request of Starlette"
THREADS, COMMANDS = "16 threads against a limit of 50: the most that is admitted in 20 runs", "commands to Redis for a request with three limits"
STALL, STRATEGY = "the event loop stands still, while Redis does for a second", "requests that fail after a change of strategy, on a Redis in use"

# Case, contender of the worker, role, title, and calls in a turn of a second.
WORKERS = [
    (DECISION, "tidegate-allow", "tidegate", "tidegate, allow", 3_000_000),
    (DECISION, "tidegate-check", "tidegate", "tidegate, check", 2_000_000),
    (DECISION, "tidegate-async-check", "tidegate", "tidegate, await check", 1_000_000),
    (DECISION, "limits-fixed-window", "peer", "limits, hit, fixed-window", 200_000),
    (DECISION, "limits-moving-window", "peer", "limits, hit, moving-window", 100_000),
    (DECISION, "limits-sliding-window-counter", "peer", "limits, hit, sliding-window-counter", 100_000),
    (DECISION, "pyrate-limiter", "peer", "pyrate-limiter, try_acquire", 100_000),
    (DECISION, "aiolimiter", "peer", "aiolimiter, acquire (no keys)", 200_000),
    (WSGI, "wsgi-tidegate", "tidegate", "tidegate, WSGI middleware", 5_000),
    (WSGI, "wsgi-flask-limiter", "peer", "Flask-Limiter", 5_000),
    (ASGI, "asgi-tidegate", "tidegate", "tidegate, ASGI middleware", 5_000),
    (ASGI, "asgi-slowapi", "peer", "slowapi", 3_000),
]
# Case, story, contender, role, title, and whether it needs a Redis.
PLAYED = [
    (THREADS, "threads", "tidegate", "tidegate", "tidegate, allow", False),
    (THREADS, "threads", "limits", "peer", "limits, hit, fixed-window and sliding-window-counter", False),
    (THREADS, "threads", "rest-framework", "peer", "Django REST framework, UserRateThrottle", False),
    (COMMANDS, "commands", "tidegate", "tidegate", "tidegate, WSGI middleware", True),
    (COMMANDS, "commands", "flask-limiter", "peer", "Flask-Limiter", True),
    (STALL, "stall", "tidegate", "tidegate", "tidegate, ASGI middleware", True),
    (STALL, "stall", "slowapi", "peer", "slowapi", True),
    (STRATEGY, "strategies", "tidegate", "tidegate", "tidegate, WSGI middleware", True),
    (STRATEGY, "strategies", "flask-limiter", "peer", "Flask-Limiter", True),
]


def worker_row(case, name, role, title, calls):
    count = max(int(calls * SECONDS), 1_000)

    def begin():
        process = Process([peers.python_frameworks(), WORKER, name], core={SERVER_CORE}, stdin=subprocess.PIPE)

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


def story_row(case, story, contender, role, title, needs_redis):
    def begin():
        python = peers.python_frameworks()

        def turn():
            redis = servers.redis() if needs_redis else None
            try:
                arguments = [] if redis is None else [redis.port("resp")]
                if story == "stall":
                    arguments.append(redis.process.child.pid)
                command = [python, STORIES, story, contender, *arguments]
                done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120, check=False)
                if done.returncode:
                    raise Skipped((done.stderr.strip().splitlines() or ["no reason given"])[-1][:200])
                return json.loads(done.stdout)
            finally:
                if redis is not None:
                    redis.stop()

        return rounds.Started(turn, lambda: None, f"{pathlib.Path(STORIES).relative_to(BENCH.parent)} {story} {contender}")

    return rounds.Row(title, begin, role, case)


def measure(_, only):
    measured = []
    for case in (DECISION, WSGI, ASGI):
        rows = [worker_row(*entry) for entry in WORKERS if entry[0] == case and only in entry[3]]
        measured += rounds.run("python", rows)
    for case in (THREADS, COMMANDS, STALL, STRATEGY):
        rows = [story_row(*entry) for entry in PLAYED if entry[0] == case and only in entry[4]]
        measured += rounds.run("python", rows, rounds=3, warm=False)
    return measured
