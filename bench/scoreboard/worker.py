"""A library in a process of its own, which works off turns: see bench/src/bin/library."""

import json
import subprocess

from . import peers
from .process import Process, Skipped, shown
from .settings import BENCH, LOAD_CORE, SERVER_CORE, bench_program


class Worker:
    def __init__(self, name, keys, threads=2):
        if name == "limits":
            command = [peers.python_limits(), BENCH / "scoreboard/limits_worker.py", keys]
        else:
            command = [bench_program("library"), name, keys]
        cores = {SERVER_CORE, LOAD_CORE} if threads > 1 else {SERVER_CORE}
        self.process = Process(command, core=cores, stdin=subprocess.PIPE)
        self._read()

    def _read(self):
        line = self.process.child.stdout.readline()
        if not line:
            raise Skipped("the process ended")
        return json.loads(line)

    def ask(self, text):
        self.process.child.stdin.write(text + "\n")
        self.process.child.stdin.flush()
        return self._read()

    def fill(self, start, end):
        self.ask(f"fill {start} {end}")

    def turn(self, threads, checks, spread, seed):
        done = self.ask(f"turn {threads} {checks} {spread} {seed}")
        return {
            "cpu_us": done["cpu_seconds"] / done["checks"] * 1e6,
            "per_second": done["checks"] / done["seconds"],
            "p50_us": done["p50"] * 1e6,
            "p99_us": done["p99"] * 1e6,
        }

    @property
    def command(self):
        return shown(self.process.command)

    def stop(self):
        self.process.stop()
