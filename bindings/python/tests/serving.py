"""Real servers as processes on a free port, and requests to them byte by byte."""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import time

from tidegate import StoreError

TESTS = pathlib.Path(__file__).parent
ROOT = TESTS.parents[2]
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))

IS_SHORT = os.environ.get("TIDEGATE_TESTS") == "short"
GUNICORN = ["-m", "gunicorn", "--log-level", "warning", "--bind", "fd://{fd}"]
SERVERS = {
    "gunicorn": [*GUNICORN, "served_apps:wsgi_app"],
    "gunicorn-threads": [*GUNICORN, "--preload", "--worker-class", "gthread", "--threads", "16", "served_apps:wsgi_app"],
    "uvicorn": ["-m", "uvicorn", "--log-level", "warning", "--no-proxy-headers", "--fd", "{fd}", "served_apps:asgi_app"],
    "hypercorn": ["-m", "hypercorn", "--bind", "fd://{fd}", "served_apps:asgi_app"],
}


@contextlib.contextmanager
def serving(name, **environment):
    """The port of a server of `served_apps`."""
    arguments = SERVERS[name] if isinstance(name, str) else name
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.set_inheritable(True)
        command = [sys.executable, *(part.format(fd=listener.fileno()) for part in arguments)]
        process = subprocess.Popen(command, cwd=TESTS, env={**os.environ, **environment}, pass_fds=[listener.fileno()])
        port = listener.getsockname()[1]
    try:
        # The socket listens already: the answer comes when the server is there.
        exchange(port, b"GET /ready HTTP/1.1\r\nHost: ready.example\r\nConnection: close\r\n\r\n", timeout=60)
        yield port
    finally:
        process.terminate()
        assert process.wait(30) in (0, -15), f"{name} ended with {process.returncode}"


@contextlib.contextmanager
def reference(rules, proxies):
    """The port of the middleware of Rust."""
    program = TARGET / "debug/examples/reference"
    build = ["cargo", "build", "--quiet", "--locked", "--package", "tidegate-tower", "--example", "reference"]
    subprocess.run(build, cwd=ROOT, check=True)
    process = subprocess.Popen([program, "127.0.0.1:0", rules, *proxies], stdout=subprocess.PIPE, text=True)
    try:
        yield int(process.stdout.readline().rsplit(":", 1)[1])
    finally:
        process.terminate()
        process.wait(30)


def exchange(port, request, timeout=20):
    """The status line, the headers and the body of the answer to a request."""
    with socket.create_connection(("127.0.0.1", port), timeout) as connection:
        connection.sendall(request)
        received = b""
        while part := connection.recv(65536):
            received += part
    head, _, body = received.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers = [tuple(line.split(": ", 1)) for line in lines]
    return int(status.split(" ")[1]), headers, body


def get(port, target="/", method="GET", **headers):
    headers = {"Host": "a.example", "Connection": "close", **headers}
    lines = [f"{method} {target} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return exchange(port, "\r\n".join([*lines, "", ""]).encode("latin-1"))


def answered(ask, *arguments):
    """What a call returns, made again while a busy machine keeps the store from answering in time."""
    end = time.monotonic() + 20
    while True:
        try:
            return ask(*arguments)
        except StoreError:
            assert time.monotonic() < end, "Redis does not answer"
            time.sleep(0.01)


def within(seconds, holds):
    """Waits until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)
