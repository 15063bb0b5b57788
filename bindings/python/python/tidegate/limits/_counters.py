"""Where the storages count: the options of their URIs, and what sync and async storages have in common."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from limits.errors import ConfigurationError

from tidegate import RedisStore
from tidegate._native import LimitsCounters

SCHEMES = [
    "tidegate",
    "tidegate+redis",
    "tidegate+rediss",
    "tidegate+unix",
    "tidegate+redis+sentinel",
    "tidegate+redis+cluster",
]
_OPTIONS = ("clock", "deadline", "key_secret", "namespace")

LARGEST_AMOUNT = 1_000_000_000
"""The most that a limit may grant, and that is counted."""

Usage = tuple[bool, int, float, float, float]
"""Whether a cost is allowed, the usage, when all of it will be free again, when the cost will be allowed, and the time now."""


class Counters:
    """The counters of a storage, made from its URI and options."""

    def __init__(self, uri: str | None, options: dict[str, Any]) -> None:
        url, given = _read(uri or "tidegate://", options)
        self.clock: str | None = given.pop("clock", None)
        try:
            store = None
            if url is not None:
                store = RedisStore(url, **given)
            elif given:
                raise ValueError(f"`{min(given)}` is an option of Redis; in memory there is `clock`")
            self.native = LimitsCounters(store, self.clock)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(str(error)) from error
        self.is_in_memory = url is None
        self.shown = f"tidegate+{self.native.url}" if self.native.url else "tidegate://"
        # Storages on the same counters know of each other's answers.
        self.place = f"{self.shown} {given.get('namespace')}"

    def by_clock(self, usage: Usage) -> Usage:
        """A usage with the times of `time.time`, if that is the clock: counters go by whole microseconds, and tests that let the
        clock stand still compare times to the last digit.
        """
        if self.clock != "python":
            return usage
        allowed, used, resets_at, allowed_at, now = usage
        since = time.time() - now
        return allowed, used, resets_at + since, allowed_at + since, now + since

    def __getstate__(self) -> dict[str, Any]:
        if not self.is_in_memory:
            raise TypeError("a storage in Redis cannot be pickled: make one from its URI")
        return {**self.__dict__, "native": self.native.pickled()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.native = LimitsCounters.unpickled(state["native"], self.clock)


def _read(uri: str, options: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The URL of Redis, or none, and the options of the URI and the storage."""
    parts = urlsplit(uri.removeprefix("async+"))
    given: dict[str, Any] = {}
    kept = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in _OPTIONS:
            given[name] = value
        else:
            # Such as the database of a socket.
            kept.append(f"{name}={value}")
    unknown = options.keys() - set(_OPTIONS)
    if unknown:
        expected = ", ".join(f"`{name}`" for name in _OPTIONS)
        raise ConfigurationError(f"`{min(unknown)}` is not an option of `{parts.scheme}`; expected one of {expected}")
    given.update({name: value for name, value in options.items() if value is not None})
    if isinstance(given.get("deadline"), str):
        try:
            given["deadline"] = float(given["deadline"])
        except ValueError:
            raise ConfigurationError(f"a deadline of `{given['deadline']}` is not a number of seconds") from None
    query = "&".join(kept)
    if parts.scheme == "tidegate":
        if parts.netloc or parts.path or query:
            raise ConfigurationError(
                "`tidegate://` counts in memory and takes nothing but `?clock=python`; for Redis write `tidegate+redis://host:port`"
            )
        return None, given
    scheme = parts.scheme.removeprefix("tidegate+")
    return f"{scheme}://{parts.netloc}{parts.path}{'?' if query else ''}{query}", given
