"""Middleware for ASGI: FastAPI, Starlette, Django, and whatever else an ASGI server runs.

>>> from tidegate.asgi import RateLimitMiddleware
>>> async def application(scope, receive, send):
...     await send({"type": "http.response.start", "status": 200, "headers": []})
...     await send({"type": "http.response.body", "body": b"hello"})
>>> application = RateLimitMiddleware(application, limit="100/minute")
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from inspect import isawaitable
from typing import Any

from tidegate._event_loops import call
from tidegate._heard import Heard
from tidegate._middleware import HEADERS, Rules, Settings, Store, with_key
from tidegate._native import Admitted, Reply

__all__ = ["RateLimitMiddleware"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

# "Try again later", and "policy violation" for a request that could not be understood (RFC 6455 and its registry).
TRY_AGAIN_LATER = 1013
POLICY_VIOLATION = 1008
# The messages that begin an answer, and those that end one.
BEGINS = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})
ENDS = frozenset({"http.response.body", "websocket.http.response.body"})


class RateLimitMiddleware:
    """Calls an application for requests that are allowed, and answers all others.

    `rules` is the path of a rule file, which is watched, rules as text or as a list, or a gate; or `limit` is a limit for
    each client, that is for each result of `key`, by default for each address. All functions get the scope, and may be
    coroutine functions. WebSockets are decided when they are opened.

    >>> import asyncio
    >>> async def application(scope, receive, send):
    ...     await send({"type": "http.response.start", "status": 200, "headers": []})
    ...     await send({"type": "http.response.body", "body": b"hello"})
    >>> limited = RateLimitMiddleware(application, limit="1/minute", key=lambda scope: scope["user"])
    >>> async def send(message):
    ...     if message["type"] == "http.response.start":
    ...         print(message["status"])
    >>> async def twice():
    ...     for _ in range(2):
    ...         await limited({"type": "http", "method": "GET", "path": "/", "user": "u1", "headers": []}, None, send)
    >>> asyncio.run(twice())
    200
    429
    """

    def __init__(
        self,
        app: App,
        *,
        rules: Rules | None = None,
        limit: str | None = None,
        key: Callable[[Scope], str | Awaitable[str]] | None = None,
        store: Store | None = None,
        attributes: Callable[[Scope], Any] | None = None,
        cost: int | Callable[[Scope], int | Awaitable[int]] | None = None,
        trusted_proxies: Iterable[str] = (),
        headers: Iterable[str] = HEADERS,
    ) -> None:
        self._app = app
        self._settings = Settings(rules, limit, key, store, attributes, cost, trusted_proxies, headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind != "http" and kind != "websocket":
            return await self._app(scope, receive, send)
        decided = await self._decide(scope)
        if isinstance(decided, Reply):
            return await refuse(decided, scope, receive, send)
        kept = decided.kept_names
        if kept is not None:
            scope = {**scope, "headers": [pair for pair in scope["headers"] if pair[0].lower() in kept]}
        if not decided.is_plain:
            return await self._call(decided, scope, receive, send)
        if decided.has_headers:
            send = answering(decided, send)
        return await self._app(scope, receive, send)

    async def _decide(self, scope: Scope) -> Admitted | Reply:
        settings, native = self._settings, self._settings.native
        if settings.file is not None:
            settings.look()
        if settings.is_plain:
            attributes, cost = None, settings.fixed_cost
        else:
            attributes, cost = await self._describe(scope)
        if native.is_remote:
            decided: Admitted | Reply = await call(
                lambda mailbox, number: native.begin_asgi(mailbox, number, scope, attributes, cost)
            )
            return decided
        return native.asgi(scope, attributes, cost)

    async def _describe(self, scope: Scope) -> tuple[Mapping[str, str | None] | None, int | None]:
        settings = self._settings
        attributes = settings.attributes(scope) if settings.attributes else None
        if isawaitable(attributes):
            attributes = await attributes
        if settings.key:
            key = settings.key(scope)
            attributes = with_key(await key if isawaitable(key) else key, attributes)
        cost = settings.cost(scope) if settings.cost else settings.fixed_cost
        return attributes, await cost if isawaitable(cost) else cost

    async def _call(self, admitted: Admitted, scope: Scope, receive: Receive, send: Send) -> None:
        """Calls the application for a request that waits, holds a permit, or is measured."""
        heard = Heard(receive)
        if admitted.delay:
            try:
                is_there = await heard.wait(admitted.delay)
            except BaseException:
                admitted.give_back()
                raise
            if not is_there:
                return admitted.give_back()
        admitted.begin()
        answer = answering(admitted, send)

        async def send_and_release(message: Message) -> None:
            await answer(message)
            if message["type"] in ENDS and not message.get("more_body"):
                admitted.release()

        try:
            await self._app(scope, heard.receive if admitted.delay else receive, send_and_release)
        except BaseException:
            admitted.fail()
            raise
        finally:
            admitted.release()
            heard.close()


def answering(admitted: Admitted, send: Send) -> Send:
    """Puts the headers of a decision on the answer of the application."""

    async def answer(message: Message) -> None:
        if message["type"] in BEGINS:
            status = message.get("status", 101)
            message = {**message, "headers": admitted.answer(status, message.get("headers") or ())}
        await send(message)

    return answer


async def refuse(reply: Reply, scope: Scope, receive: Receive, send: Send) -> None:
    """Answers a request that does not go on."""
    if scope["type"] == "http":
        body = b"" if scope.get("method") == "HEAD" else reply.body
        await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
        await send({"type": "http.response.body", "body": body})
        return
    # A server expects that what it says first is heard.
    await receive()
    if "websocket.http.response" in (scope.get("extensions") or {}):
        await send({"type": "websocket.http.response.start", "status": reply.status, "headers": reply.headers})
        await send({"type": "websocket.http.response.body", "body": reply.body})
    else:
        code = POLICY_VIOLATION if reply.is_malformed else TRY_AGAIN_LATER
        await send({"type": "websocket.close", "code": code, "reason": "rate limited" if code == TRY_AGAIN_LATER else "bad request"})
