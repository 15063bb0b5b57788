"""Limiters of Python as a worker: `python_worker.py CONTENDER`, then a line `turn N` for each turn, answered with JSON."""

import asyncio
import json
import sys
import time

KEYS = [f"user_{number}" for number in range(1_000)]


def timed(work, count):
    began = time.process_time()
    work(count)
    return (time.process_time() - began) / count * 1e6


def each_key(call):
    def work(count):
        for _ in range(count // len(KEYS)):
            for key in KEYS:
                call(key)

    return work


def in_loop(call, gets_key=True):
    async def all_keys(count):
        for _ in range(count // len(KEYS)):
            for key in KEYS:
                await (call(key) if gets_key else call())

    loop = asyncio.new_event_loop()
    return lambda count: loop.run_until_complete(all_keys(count))


# A decision in memory, by a limit that allows everything.


def tidegate_allow():
    from tidegate import Limiter

    return each_key(Limiter("100000000/day").allow)


def tidegate_check():
    from tidegate import Limiter

    return each_key(Limiter("100000000/day").check)


def tidegate_async_check():
    from tidegate import AsyncLimiter

    return in_loop(AsyncLimiter("100000000/day").check)


def limits_hit(strategy):
    from limits import RateLimitItemPerDay
    from limits.storage import MemoryStorage
    from limits.strategies import STRATEGIES

    limiter, item = STRATEGIES[strategy](MemoryStorage()), RateLimitItemPerDay(100_000_000)
    return each_key(lambda key: limiter.hit(item, key))


def pyrate_limiter():
    from pyrate_limiter import Duration, Limiter, Rate

    limiter = Limiter(Rate(100_000_000, Duration.DAY))
    return each_key(lambda key: limiter.try_acquire(key, blocking=False))


def aiolimiter():
    from aiolimiter import AsyncLimiter

    return in_loop(AsyncLimiter(100_000_000, 86_400).acquire, gets_key=False)


# A request of WSGI: what a limit adds to a Flask application.


def environ(number):
    return {
        "REQUEST_METHOD": "GET", "SCRIPT_NAME": "", "PATH_INFO": "/orders", "QUERY_STRING": "", "RAW_URI": "/orders", "SERVER_NAME": "127.0.0.1", "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1", "REMOTE_ADDR": f"203.0.113.{number % 250}", "HTTP_HOST": "api.example.com", "HTTP_ACCEPT": "*/*", "HTTP_USER_AGENT": "bench",
        "wsgi.url_scheme": "http", "wsgi.input": None, "wsgi.errors": sys.stderr,
    }


def flask_app():
    from flask import Flask

    app = Flask("bench")
    app.get("/orders")(lambda: "ok")
    return app


def of_wsgi(app):
    def work(count):
        for number in range(count):
            answer = app(environ(number), lambda status, headers, exc_info=None: None)
            b"".join(answer)
            close = getattr(answer, "close", None)
            if close:
                close()

    return work


def added(work, bare):
    """What a request costs more than without a limit, in turns."""

    def turn(count):
        part = max(count // 10, 1)
        with_limit, without = 0.0, 0.0
        for _ in range(10):
            with_limit += timed(work, part)
            without += timed(bare, part)
        return {"cpu_us": (with_limit - without) / 10, "bare_us": without / 10}

    return turn


def wsgi_tidegate():
    from tidegate.wsgi import RateLimitMiddleware

    app = flask_app()
    app.wsgi_app = RateLimitMiddleware(app.wsgi_app, rules="rules: [{id: orders, match: {path: /orders}, per: [ip], limit: 100000000/day}]")
    return added(of_wsgi(app), of_wsgi(flask_app()))


def wsgi_flask_limiter():
    from flask_limiter import Limiter
    from flask_limiter.util import get_remote_address

    app = flask_app()
    Limiter(get_remote_address, app=app, default_limits=["100000000/day"], headers_enabled=True, storage_uri="memory://")
    return added(of_wsgi(app), of_wsgi(flask_app()))


# A request of ASGI: what a limit adds to a Starlette application.


def scope(number):
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http", "path": "/orders", "raw_path": b"/orders", "query_string": b"",
        "root_path": "", "headers": [(b"host", b"api.example.com"), (b"accept", b"*/*"), (b"user-agent", b"bench")], "client": (f"203.0.113.{number % 250}", 5000),
        "server": ("127.0.0.1", 80),
    }


def starlette_app(endpoint=None, **more):
    from starlette.applications import Starlette
    from starlette.responses import PlainTextResponse
    from starlette.routing import Route

    async def orders(request):
        return PlainTextResponse("ok")

    return Starlette(routes=[Route("/orders", endpoint(orders) if endpoint else orders)], **more)


def of_asgi(app):
    async def receive():
        return {"type": "http.request", "body": b""}

    async def send(message):
        pass

    async def all_requests(count):
        for number in range(count):
            await app(scope(number), receive, send)

    loop = asyncio.new_event_loop()
    return lambda count: loop.run_until_complete(all_requests(count))


def asgi_tidegate():
    from tidegate.asgi import RateLimitMiddleware

    rules = "rules: [{id: orders, match: {path: /orders}, per: [ip], limit: 100000000/day}]"
    return added(of_asgi(RateLimitMiddleware(starlette_app(), rules=rules)), of_asgi(starlette_app()))


def asgi_slowapi():
    from slowapi import Limiter
    from slowapi.middleware import SlowAPIASGIMiddleware
    from slowapi.util import get_remote_address

    app = starlette_app()
    app.state.limiter = Limiter(get_remote_address, default_limits=["100000000/day"], headers_enabled=True)
    app.add_middleware(SlowAPIASGIMiddleware)
    return added(of_asgi(app), of_asgi(starlette_app()))


CONTENDERS = {
    "tidegate-allow": tidegate_allow,
    "tidegate-check": tidegate_check,
    "tidegate-async-check": tidegate_async_check,
    "limits-fixed-window": lambda: limits_hit("fixed-window"),
    "limits-moving-window": lambda: limits_hit("moving-window"),
    "limits-sliding-window-counter": lambda: limits_hit("sliding-window-counter"),
    "pyrate-limiter": pyrate_limiter,
    "aiolimiter": aiolimiter,
    "wsgi-tidegate": wsgi_tidegate,
    "wsgi-flask-limiter": wsgi_flask_limiter,
    "asgi-tidegate": asgi_tidegate,
    "asgi-slowapi": asgi_slowapi,
}


def main():
    work = CONTENDERS[sys.argv[1]]()
    print("{}", flush=True)
    for line in sys.stdin:
        count = int(line.split()[1])
        done = work(count) if sys.argv[1][4:5] == "-" else {"cpu_us": timed(work, count)}
        print(json.dumps(done), flush=True)


if __name__ == "__main__":
    main()
