"""Memory of a gateway for an idle connection: HTTP/1.1 without TLS, after one request."""

import resource
import socket
import time

from .. import rounds, servers
from ..process import Skipped, shown
from .gateway import GATEWAYS

CONNECTIONS = 2000
# How long connections are idle before the memory is read, in seconds.
IDLE_FOR = 5
REQUEST = b"GET /v1/users?page=1 HTTP/1.1\r\nHost: api.example.com\r\n\r\n"


def open_connections(port, count):
    """Connections that have had one answer each."""
    opened = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port), 10)
        opened.append(connection)
        connection.sendall(REQUEST)
        received = b""
        while b"\r\n\r\n" not in received or not received.endswith(b"}"):
            part = connection.recv(4096)
            if not part:
                raise Skipped("the gateway closed a connection")
            received += part
        if not received.startswith(b"HTTP/1.1 200"):
            raise Skipped(f"the gateway answered {received[:40]!r}")
    return opened


def raise_files(count):
    """Lets this process open so many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < count:
        raise Skipped(f"{count} open files are needed, and `ulimit -Hn` is {hard}")
    if soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def idle_turn(server):
    # The first connections make what later ones share.
    first = open_connections(server.port("gateway"), 100)
    time.sleep(IDLE_FOR)
    before = server.process.memory()
    opened = open_connections(server.port("gateway"), CONNECTIONS)
    used = server.process.memory() - before
    time.sleep(IDLE_FOR)
    idle = server.process.memory() - before
    for connection in opened + first:
        connection.close()
    return {"bytes": idle / CONNECTIONS, "used_bytes": used / CONNECTIONS}


def row(name, role, start):
    def begin():
        raise_files(CONNECTIONS * 3)
        server = start()
        # Each turn has a new process: memory that was freed may be used again.
        server.stop()

        def turn():
            fresh = start()
            try:
                return idle_turn(fresh)
            finally:
                fresh.stop()

        return rounds.Started(turn, lambda: None, shown(server.process.command))

    return rounds.Row(name, begin, role)


def measure(_, only):
    upstream = servers.upstream()
    try:
        behind = upstream.addresses["http"]
        rows = [
            row(name, role, lambda start=start: start(behind)) for name, role, start in GATEWAYS if only in name
        ]
        return rounds.run("idle", rows, rounds=3)
    finally:
        upstream.stop()
