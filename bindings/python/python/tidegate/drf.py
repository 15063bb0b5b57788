"""Throttles of Django REST framework: its settings and classes, with exact counters.

In the settings of a project, `"rest_framework.throttling.AnonRateThrottle"` becomes `"tidegate.drf.AnonRateThrottle"`, and
so on. `DEFAULT_THROTTLE_RATES` and `throttle_scope` stay as they are. `TIDEGATE` may name a store and an algorithm:

    TIDEGATE = {"store": "redis://127.0.0.1:6379", "algorithm": "sliding_window_log"}

Without a store, each process counts in its memory.
"""

# Django and Django REST framework have no types of their own.
# mypy: disable-error-code="import-untyped,import-not-found,misc"

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from rest_framework import throttling

from tidegate import Gate, MemoryStore, RedisStore

if TYPE_CHECKING:
    from rest_framework.request import Request
    from rest_framework.views import APIView

    from tidegate import Decision

__all__ = ["AnonRateThrottle", "ScopedRateThrottle", "UserRateThrottle"]

# As of Django REST framework itself.
ALGORITHM = "sliding_window_log"
OPTIONS = {"store", "algorithm"}


def options() -> dict[str, Any]:
    """The setting `TIDEGATE`."""
    found: dict[str, Any] = getattr(settings, "TIDEGATE", None) or {}
    unknown = sorted(set(found) - OPTIONS)
    if unknown:
        raise ImproperlyConfigured(f"TIDEGATE has `{unknown[0]}`; expected one of `algorithm`, `store`")
    return found


@functools.cache
def opened_store() -> MemoryStore | RedisStore | None:
    """The store of all throttles."""
    store: MemoryStore | RedisStore | str | None = options().get("store")
    return RedisStore(store) if isinstance(store, str) else store


@functools.cache
def gate_of(requests: int, seconds: int) -> Gate:
    """The counters of a rate. They are by the time of Python, as those of Django REST framework are."""
    store = opened_store()
    rule = {
        "id": f"throttle.{requests}.{seconds}",
        "per": ["client"],
        "limit": f"{requests}/{seconds}s",
        "algorithm": options().get("algorithm", ALGORITHM),
    }
    return Gate([rule], store=store, clock="python" if store is None else None)


def forget(*, setting: str, **_: Any) -> None:
    if setting in ("TIDEGATE", "REST_FRAMEWORK"):
        gate_of.cache_clear()
        opened_store.cache_clear()


setting_changed.connect(forget)


class TidegateThrottle(throttling.SimpleRateThrottle):
    """A throttle whose counters are Tidegate's: `get_cache_key` and the rates are those of Django REST framework."""

    _decision: Decision | None = None

    def allow_request(self, request: Request, view: APIView) -> bool:
        """Whether the request may go on. One that may not costs nothing."""
        self._decision = None
        if self.rate is None or self.num_requests is None:
            return True
        key = self.get_cache_key(request, view)
        if key is None:
            return True
        if self.num_requests > 0:
            self._decision = gate_of(self.num_requests, self.duration).check({"client": key})
            if self._decision:
                return True
        return bool(self.throttle_failure())

    def wait(self) -> float | None:
        """Seconds after which the request may be repeated."""
        return None if self._decision is None else self._decision.retry_after


class AnonRateThrottle(throttling.AnonRateThrottle, TidegateThrottle):
    """Limits requests without a user, by address: the rate `anon`.

    >>> class LoginThrottle(AnonRateThrottle):
    ...     rate = "3/minute"
    >>> LoginThrottle().num_requests
    3
    """


class UserRateThrottle(throttling.UserRateThrottle, TidegateThrottle):
    """Limits requests by user, or by address if there is none: the rate `user`.

    >>> class BurstThrottle(UserRateThrottle):
    ...     rate = "10/second"
    >>> BurstThrottle().duration
    1
    """


class ScopedRateThrottle(throttling.ScopedRateThrottle, TidegateThrottle):
    """Limits requests to views with a `throttle_scope`: the rate of that name.

    >>> class UploadView:
    ...     throttle_classes = [ScopedRateThrottle]
    ...     throttle_scope = "uploads"
    """
