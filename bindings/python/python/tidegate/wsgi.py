"""Middleware for WSGI: Flask, Django, and whatever else a WSGI server runs.

>>> from tidegate.wsgi import RateLimitMiddleware
>>> def application(environ, start_response):
...     start_response("200 OK", [])
...     return [b"hello"]
>>> application = RateLimitMiddleware(application, limit="100/minute")
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tidegate._middleware import HEADERS, Rules, Settings, Store, with_key
from tidegate._native import Admitted, Reply

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

__all__ = ["RateLimitMiddleware"]


class RateLimitMiddleware:
    """Calls an application for requests that are allowed, and answers all others.

    `rules` is the path of a rule file, which is watched, rules as text or as a list, or a gate; or `limit` is a limit for
    each client, that is for each result of `key`, by default for each address. All functions get the environ.

    >>> def application(environ, start_response):
    ...     start_response("200 OK", [])
    ...     return [b"hello"]
    >>> limited = RateLimitMiddleware(application, limit="1/minute", key=lambda environ: environ["HTTP_X_USER"])
    >>> request = {"REQUEST_METHOD": "GET", "PATH_INFO": "/", "HTTP_HOST": "a.example", "HTTP_X_USER": "u1"}
    >>> for _ in range(2):
    ...     body = limited(request, lambda status, headers: print(status))
    200 OK
    429 Too Many Requests
    """

    def __init__(
        self,
        app: WSGIApplication,
        *,
        rules: Rules | None = None,
        limit: str | None = None,
        key: Callable[[dict[str, Any]], str] | None = None,
        store: Store | None = None,
        attributes: Callable[[dict[str, Any]], Mapping[str, str | None] | None] | None = None,
        cost: int | Callable[[dict[str, Any]], int] | None = None,
        trusted_proxies: Iterable[str] = (),
        headers: Iterable[str] = HEADERS,
    ) -> None:
        self._app = app
        self._settings = Settings(rules, limit, key, store, attributes, cost, trusted_proxies, headers)  # type: ignore[arg-type]

    def __call__(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        settings = self._settings
        if settings.file is not None:
            settings.look()
        if settings.is_plain:
            decided = settings.native.wsgi(environ, start_response, None, settings.fixed_cost)
        else:
            decided = settings.native.wsgi(environ, start_response, *self._describe(environ))
        if isinstance(decided, Reply):
            start_response(decided.status_line, decided.headers)
            return [] if environ.get("REQUEST_METHOD") == "HEAD" else [decided.body]
        return self._app(environ, decided) if decided.is_plain else self._call(decided, environ)

    def _describe(self, environ: dict[str, Any]) -> tuple[Any, int | None]:
        settings = self._settings
        attributes = settings.attributes(environ) if settings.attributes else None
        if settings.key:
            attributes = with_key(settings.key(environ), attributes)
        return attributes, settings.cost(environ) if settings.cost else settings.fixed_cost

    def _call(self, admitted: Admitted, environ: dict[str, Any]) -> Iterable[bytes]:
        """Calls the application for a request that waits, holds a permit, or is measured."""
        if admitted.delay:
            try:
                time.sleep(admitted.delay)
            except BaseException:
                admitted.give_back()
                raise
        admitted.begin()
        try:
            return HeldBody(self._app(environ, admitted), admitted)
        except BaseException:
            admitted.fail()
            admitted.release()
            raise


class HeldBody:
    """The body of an answer, with the permit of its request: released when the body has ended or the server closes it."""

    def __init__(self, body: Iterable[bytes], admitted: Admitted) -> None:
        self._body, self._admitted = body, admitted
        self._parts = iter(body)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._parts)
        except BaseException as error:
            if not isinstance(error, StopIteration):
                self._admitted.fail()
            self._admitted.release()
            raise

    def close(self) -> None:
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            self._admitted.release()

    def __del__(self) -> None:
        self._admitted.release()
