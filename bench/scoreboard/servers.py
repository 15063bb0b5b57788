"""How each server is started: on one core, on ports that are free, with limits that allow everything."""

import os
import pathlib
import shutil
import tempfile

from . import peers
from .process import Process, free_port
from .settings import LOAD_CORE, SERVER_CORE, bench_program, tidegate as tidegate_program

RULES = """rules:
  - {id: per-user, match: {path: /v1/**}, per: [user_id], missing: deny, limit: 1000000/second}
"""
RULES_ENVOY = """rules:
  - {id: per-user, match: {attributes: {domain: bench}}, per: [user_id], missing: deny, limit: 1000000/second}
"""


class Server:
    """A process with its addresses and its folder."""

    def __init__(self, process, addresses, folder=None):
        self.process, self.addresses, self.folder = process, addresses, folder

    def port(self, name):
        return int(self.addresses[name].rsplit(":", 1)[1])

    def stop(self):
        self.process.stop()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def folder():
    return pathlib.Path(tempfile.mkdtemp(prefix="tidegate-bench-"))


def tidegate(*fronts, rules=RULES, arguments=(), core=SERVER_CORE, variables=None):
    """`tidegate serve` with some of `grpc`, `resp` and `gateway` next to HTTP."""
    here = folder()
    (here / "rules.yaml").write_text(rules)
    command = [tidegate_program(), "serve", "--http", "127.0.0.1:0"]
    command += ["--grpc", "127.0.0.1:0" if "grpc" in fronts else "off"]
    for front in ("resp", "gateway"):
        if front in fronts:
            command += [f"--{front}", "127.0.0.1:0"]
    command += ["--log-level", "error", "--data-dir", here / "data", "--rules", here / "rules.yaml", *arguments]
    process = Process(command, core, env={**os.environ, **(variables or {})})
    try:
        return Server(process, process.addresses(["http", *fronts]), here)
    except Exception:
        process.stop()
        raise


def bare(kind, core=SERVER_CORE):
    command = [bench_program("bare"), kind]
    process = Process(command, core)
    return Server(process, process.addresses(["resp" if kind == "resp" else "grpc" if kind == "tonic" else "http"]))


def upstream():
    """What is behind the gateways, on the core of the load."""
    return bare("hyper", LOAD_CORE)


def on_port(command, port, name, here=None):
    process = Process(command)
    try:
        process.wait_for(port)
    except Exception:
        process.stop()
        raise
    return Server(process, {name: f"127.0.0.1:{port}"}, here)


def throttlecrab(front):
    port = free_port()
    command = [peers.throttlecrab_server(), f"--{front}", f"--{front}-host", "127.0.0.1", f"--{front}-port", port]
    return on_port([*command, "--log-level", "error"], port, "resp" if front == "redis" else front)


def redis(core=SERVER_CORE):
    here, port = folder(), free_port()
    command = [peers.find_program("redis-server"), "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", here]
    process = Process(command, core)
    process.wait_for(port)
    return Server(process, {"resp": f"127.0.0.1:{port}"}, here)
