"""Applications behind the middleware, for real servers. `RULES` names the rule file, `PROXIES` the trusted networks."""

import asyncio
import os
import time

from tidegate import RedisStore
from tidegate.asgi import RateLimitMiddleware as AsgiMiddleware
from tidegate.wsgi import RateLimitMiddleware as WsgiMiddleware

PROXIES = os.environ.get("PROXIES", "").split()
# With a deadline for a busy machine.
STORE = RedisStore(os.environ["STORE"], deadline=5) if "STORE" in os.environ else None


def header(scope, name):
    return next((value.decode("latin-1") for found, value in scope["headers"] if found == name), None)


def served(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/slow":
        time.sleep(float(environ["QUERY_STRING"] or "1"))
    start_response("200 OK", [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", "7")])
    return [b"served\n"] if environ["REQUEST_METHOD"] != "HEAD" else []


async def served_async(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": "hello"})
        while (await receive())["type"] != "websocket.disconnect":
            pass
        return
    if scope["path"] == "/slow":
        await asyncio.sleep(float(scope["query_string"] or b"1"))
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"7")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"served\n"})


def wsgi():
    return WsgiMiddleware(
        served,
        rules=os.environ["RULES"],
        store=STORE,
        trusted_proxies=PROXIES,
        attributes=lambda environ: {"user_id": environ.get("HTTP_X_USER")},
        cost=lambda environ: 2 if environ["PATH_INFO"] == "/export" else 1,
    )


def asgi():
    return AsgiMiddleware(
        served_async,
        rules=os.environ["RULES"],
        store=STORE,
        trusted_proxies=PROXIES,
        attributes=lambda scope: {"user_id": header(scope, b"x-user")},
        cost=lambda scope: 2 if scope["path"] == "/export" else 1,
    )


if "RULES" in os.environ:
    wsgi_app, asgi_app = wsgi(), asgi()
