"""What the middleware of ASGI and of WSGI have in common: their parameters."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any, TypeVar

from tidegate import AsyncGate, Gate, Limiter, MemoryStore, RedisStore
from tidegate._native import Middleware
from tidegate._rule_file import RuleFile

Request = MutableMapping[str, Any]
Found = TypeVar("Found")
Rules = str | os.PathLike[str] | Sequence[Mapping[str, Any]] | Gate | AsyncGate
Store = MemoryStore | RedisStore | str
HEADERS = ("x", "draft-10", "retry-after")

# The rule and the attribute of a middleware that is given a limit.
LIMIT = "limit"
KEY = "key"


class Settings:
    """What a middleware was given, checked."""

    def __init__(
        self,
        rules: Rules | None,
        limit: str | None,
        key: Callable[[Request], Any] | None,
        store: Store | None,
        attributes: Callable[[Request], Any] | None,
        cost: int | Callable[[Request], Any] | None,
        trusted_proxies: Iterable[str],
        headers: Iterable[str],
    ) -> None:
        if (rules is None) == (limit is None):
            raise TypeError("give either `rules` or `limit`")
        if key is not None and limit is None:
            raise TypeError("`key` is of `limit`; rules have `per`")
        if isinstance(trusted_proxies, str) or isinstance(headers, str):
            raise TypeError("`trusted_proxies` and `headers` are lists of texts")
        for name, function in (("key", key), ("attributes", attributes)):
            if function is not None and not callable(function):
                raise TypeError(f"`{name}` is a function of the request")
        self.key, self.attributes = key, attributes
        self.cost = cost if callable(cost) else None
        self.fixed_cost = None if callable(cost) else cost
        self.file: RuleFile | None = None
        # Whether no function of the application is asked.
        self.is_plain = key is None and attributes is None and self.cost is None
        self.gate = self._open_gate(rules, limit, store)
        self.native = Middleware(self.gate, list(headers), [str(network) for network in trusted_proxies])

    def _open_gate(self, rules: Rules | None, limit: str | None, store: Store | None) -> Gate:
        if isinstance(rules, (Gate, AsyncGate)):
            if store is not None:
                raise TypeError("`store` is of rules; a gate has its own")
            return rules._gate if isinstance(rules, AsyncGate) else rules
        if rules is None:
            if not isinstance(limit, str):
                raise TypeError(f"`limit` is a text such as `100/minute`, not `{type(limit).__name__}`")
            # A malformed one is an error of its own.
            Limiter(limit)
            per = ["ip"] if self.key is None else [KEY]
            return Gate([{"id": LIMIT, "per": per, "limit": limit}], store=store)
        if isinstance(rules, os.PathLike) or isinstance(rules, str) and is_path(rules):
            self.file = RuleFile(rules)
            return Gate(self.file.read(), store=store)
        return Gate(rules, store=store)

    def look(self) -> None:
        """Looks whether the rule file has changed."""
        if self.file is not None:
            self.file.look(self.gate)


def is_path(rules: str) -> bool:
    """Whether a text is the path of a rule file, and not the rules: those have a colon, and usually several lines."""
    return "\n" not in rules and ": " not in rules and "{" not in rules


def with_key(key: object, attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """The attributes of a request that is counted by `key`."""
    if not isinstance(key, str):
        raise TypeError(f"`key` returns a `str`, not `{type(key).__name__}`: a client that is not known must not share a counter with others")
    return {**(attributes or {}), KEY: key}
