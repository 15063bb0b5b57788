"""What limiters of Python do, counted: `python_stories.py STORY CONTENDER [PORT OF REDIS]` prints JSON."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import threading
import time

from python_worker import environ, flask_app, scope, starlette_app

LIMIT = 50


def admitted_by(allow):
    """How many of 16 threads with 20 calls each are admitted."""
    begin, admitted = threading.Barrier(16), []

    def ask():
        begin.wait()
        for _ in range(20):
            if allow():
                admitted.append(1)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(admitted)


def threads(contender):
    """The most that is admitted of 50, at the usual and at a short interval between threads."""
    if contender == "rest-framework":
        from django.conf import settings

        settings.configure(CACHES={"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}, REST_FRAMEWORK={"DEFAULT_THROTTLE_RATES": {"user": "50/hour"}})

    def fresh(number):
        if contender == "tidegate":
            from tidegate import Limiter

            limiter = Limiter("50/hour", algorithm="fixed_window")
            return lambda: limiter.allow("user")
        if contender == "limits":
            from limits import RateLimitItemPerHour
            from limits.storage import MemoryStorage
            from limits.strategies import STRATEGIES

            limiter = STRATEGIES["fixed-window" if number % 4 < 2 else "sliding-window-counter"](MemoryStorage())
            return lambda: limiter.hit(RateLimitItemPerHour(LIMIT), "user")
        from rest_framework.throttling import UserRateThrottle

        class Throttle(UserRateThrottle):
            def get_cache_key(self, request, view):
                return f"run-{number}"

        return lambda: Throttle().allow_request(None, None)

    found = []
    for number in range(20):
        sys.setswitchinterval(0.005 if number % 2 else 1e-6)
        found.append(admitted_by(fresh(number)))
    return {"admitted": max(found)}


@contextlib.contextmanager
def monitored(port):
    """The commands that Redis is sent meanwhile, without those of scripts and connections."""
    with socket.create_connection(("127.0.0.1", port)) as monitor, monitor.makefile("rwb") as lines:
        lines.write(b"MONITOR\r\n")
        lines.flush()
        lines.readline()
        seen = []
        yield seen
        with socket.create_connection(("127.0.0.1", port)) as last:
            last.sendall(b"ECHO enough\r\n")
            last.recv(100)
        while b'"enough"' not in (line := lines.readline()):
            name = line.split(b'"')[1].lower()
            # By `instances` a process says every now and then that it is there.
            if b" lua] " not in line and b"{instances}" not in line and name not in (b"hello", b"client", b"ping", b"select", b"info", b"script"):
                seen.append(name.decode())


def requested(app, count, path="/orders"):
    statuses = []
    for _ in range(count):
        body = app({**environ(1), "PATH_INFO": path, "RAW_URI": path}, lambda status, headers, exc_info=None: statuses.append(int(status[:3])))
        b"".join(body)
        getattr(body, "close", lambda: None)()
    return statuses


def flask_behind(contender, port, limits, strategy="fixed-window"):
    app = flask_app()
    url = f"redis://127.0.0.1:{port}"
    if contender == "tidegate":
        from tidegate import RedisStore
        from tidegate.wsgi import RateLimitMiddleware

        rule = {"id": "orders", "per": ["ip"], "limit": limits, "algorithm": {"fixed-window": "fixed_window", "moving-window": "sliding_window_log"}[strategy]}
        app.wsgi_app = RateLimitMiddleware(app.wsgi_app, rules=[rule], store=RedisStore(url, deadline=1))
    else:
        from flask_limiter import Limiter
        from flask_limiter.util import get_remote_address

        Limiter(get_remote_address, app=app, default_limits=[limits], headers_enabled=True, storage_uri=url, strategy=strategy)
    return app


def commands(contender, port):
    """Commands of a request with three limits, once the scripts are known."""
    app = flask_behind(contender, port, "1000/minute;5000/hour;9000/day")
    requested(app, 2)
    with monitored(port) as seen:
        assert requested(app, 50) == [200] * 50
    return {"commands": len(seen) / 50}


def strategies(contender, port):
    """The share of requests that fail after another strategy was chosen, on a Redis in use."""
    requested(flask_behind(contender, port, "1000/minute"), 5)
    statuses = requested(flask_behind(contender, port, "1000/minute", "moving-window"), 20)
    return {"failed": sum(status >= 500 for status in statuses) / len(statuses)}


def stall(contender, port, process):
    """For how long the event loop stands still at the most, while Redis does for a second."""
    url = f"redis://127.0.0.1:{port}"
    if contender == "tidegate":
        from tidegate.asgi import RateLimitMiddleware

        app = RateLimitMiddleware(starlette_app(), limit="1000/minute", store=url)
    else:
        from slowapi import Limiter
        from slowapi.middleware import SlowAPIASGIMiddleware
        from slowapi.util import get_remote_address

        app = starlette_app()
        app.state.limiter = Limiter(get_remote_address, default_limits=["1000/minute"], storage_uri=url)
        app.add_middleware(SlowAPIASGIMiddleware)

    async def receive():
        return {"type": "http.request", "body": b""}

    async def send(message):
        pass

    async def story():
        await app(scope(1), receive, send)
        longest, is_over = 0.0, False

        async def watch():
            nonlocal longest
            while not is_over:
                before = time.perf_counter()
                await asyncio.sleep(0.001)
                longest = max(longest, time.perf_counter() - before - 0.001)

        watching = asyncio.create_task(watch())
        await asyncio.sleep(0.05)
        longest = 0.0
        os.kill(process, signal.SIGSTOP)
        threading.Timer(1, os.kill, (process, signal.SIGCONT)).start()
        end = time.perf_counter() + 1.1
        while time.perf_counter() < end:
            await app(scope(1), receive, send)
            await asyncio.sleep(0.01)
        is_over = True
        await watching
        return longest

    return {"stall_us": asyncio.run(story()) * 1e6}


STORIES = {"threads": threads, "commands": commands, "strategies": strategies, "stall": stall}

if __name__ == "__main__":
    print(json.dumps(STORIES[sys.argv[1]](sys.argv[2], *(int(argument) for argument in sys.argv[3:]))))
