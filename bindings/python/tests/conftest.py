"""What the tests share: a Redis of their own, and how long they take."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

IS_SHORT = os.environ.get("TIDEGATE_TESTS") == "short"


class RedisServer:
    """A real Redis on a port of its own, which can be stopped and killed."""

    def __init__(self):
        program = shutil.which("redis-server")
        assert program, "redis-server is missing: ./scripts/install packages"
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", "/tmp"]
        self.process = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.url = f"redis://127.0.0.1:{self.port}"
        end = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                assert time.monotonic() < end, "redis-server does not listen"
                time.sleep(0.01)

    def ask(self, *words):
        """The lines that Redis answers to a command."""
        command = ["redis-cli", "-p", str(self.port), *words]
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return [line for line in answer.splitlines() if line]

    @contextlib.contextmanager
    def stopped(self):
        os.kill(self.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.process.pid, signal.SIGCONT)

    def end(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def shared_redis():
    server = RedisServer()
    yield server
    server.end()


@pytest.fixture
def redis(shared_redis):
    """A Redis without any keys."""
    shared_redis.ask("flushall")
    return shared_redis


@pytest.fixture
def own_redis():
    """A Redis that the test may stop or kill."""
    server = RedisServer()
    yield server
    server.end()


def run_python(program, *arguments, timeout=60, **environment):
    """Runs a program in an interpreter of its own. It must print nothing but what it should, and end."""
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
