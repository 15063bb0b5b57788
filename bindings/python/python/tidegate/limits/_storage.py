"""The storage for threads."""

from __future__ import annotations

from limits.storage.base import (
    MovingWindowSupport,
    SlidingWindowCounterSupport,
    Storage,
    TimestampedSlidingWindow,
)

from tidegate import StoreError
from tidegate.limits._counters import SCHEMES, Counters
from tidegate.limits._operations import MOVING, SLIDING, Operations, run


class TidegateStorage(Storage, MovingWindowSupport, SlidingWindowCounterSupport, TimestampedSlidingWindow):
    """Counts the limits of `limits` in memory or in Redis.

    Options, in the URI or as keywords: `namespace`, `key_secret` and `deadline` for Redis, as those of `RedisStore`;
    `clock="python"` for memory, which asks `time.time` for the time, so that tests can rule it.

    >>> from tidegate.limits import TidegateStorage
    >>> storage = TidegateStorage("tidegate://")
    >>> storage.incr("user_42", 60), storage.incr("user_42", 60, amount=10), storage.get("user_42")
    (1, 11, 11)
    """

    STORAGE_SCHEME = SCHEMES

    def __init__(
        self, uri: str | None = None, wrap_exceptions: bool = False, **options: float | str | bool
    ) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self._operations = Operations(Counters(uri, options))

    @property
    def base_exceptions(self) -> type[Exception] | tuple[type[Exception], ...]:
        """What it raises if Redis does not answer.

        >>> from tidegate.limits import TidegateStorage
        >>> TidegateStorage().base_exceptions.__name__
        'StoreError'
        """
        return StoreError

    @property
    def storage(self) -> str:
        """Where it counts, without secrets.

        >>> from tidegate.limits import TidegateStorage
        >>> TidegateStorage("tidegate+redis://:secret@127.0.0.1:6379").storage
        'tidegate+redis://127.0.0.1:6379'
        """
        return self._operations.counters.shown

    def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        """Adds to the counter of a key, whose window of `expiry` seconds starts with its first hit, and returns it.

        >>> from tidegate.limits import TidegateStorage
        >>> TidegateStorage().incr("user_42", 60)
        1
        """
        operations = self._operations
        if operations.is_in_memory:
            return operations.count_now(key, expiry, amount)
        return run(operations.count(key, expiry, amount))

    def get(self, key: str) -> int:
        """The counter of a key.

        >>> from tidegate.limits import TidegateStorage
        >>> TidegateStorage().get("user_42")
        0
        """
        return run(self._operations.counted(key))

    def get_expiry(self, key: str) -> float:
        """When the window of a key ends, in seconds since 1970; now, if none is open.

        >>> import time
        >>> from tidegate.limits import TidegateStorage
        >>> storage = TidegateStorage()
        >>> storage.incr("user_42", 60)
        1
        >>> 59 < storage.get_expiry("user_42") - time.time() < 61
        True
        """
        return run(self._operations.window_end(key))

    def check(self) -> bool:
        """Whether the counters can be reached.

        >>> from tidegate.limits import TidegateStorage
        >>> TidegateStorage().check(), TidegateStorage("tidegate+redis://127.0.0.1:1").check()
        (True, False)
        """
        try:
            run(self._operations.probe())
        except StoreError:
            return False
        return True

    def reset(self) -> int | None:
        """Forgets all counters, and returns how many there were. In Redis that takes a walk through all keys.

        >>> from tidegate.limits import TidegateStorage
        >>> storage = TidegateStorage()
        >>> storage.incr("user_42", 60)
        1
        >>> storage.reset(), storage.get("user_42")
        (1, 0)
        """
        return run(self._operations.reset())

    def clear(self, key: str) -> None:
        """Forgets the counter of a key.

        >>> from tidegate.limits import TidegateStorage
        >>> storage = TidegateStorage()
        >>> storage.incr("user_42", 60)
        1
        >>> storage.clear("user_42")
        >>> storage.get("user_42")
        0
        """
        run(self._operations.clear(key))

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Adds entries to the moving window of a key, if no more than `limit` are then in it.

        >>> from tidegate.limits import TidegateStorage
        >>> storage = TidegateStorage()
        >>> storage.acquire_entry("user_42", 2, 60, amount=2), storage.acquire_entry("user_42", 2, 60)
        (True, False)
        """
        operations = self._operations
        if operations.is_in_memory:
            return operations.charge_now(MOVING, key, limit, expiry, amount)
        return run(operations.charge(MOVING, key, limit, expiry, amount))

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """When the oldest entry of the moving window was made, or now, and how many entries there are.

        >>> from tidegate.limits import TidegateStorage
        >>> storage = TidegateStorage()
        >>> storage.acquire_entry("user_42", 2, 60)
        True
        >>> storage.get_moving_window("user_42", 2, 60)[1]
        1
        """
        return run(self._operations.moving_window(key, limit, expiry))

    def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Adds to the current window of a key, if that and what is left of the previous one are no more than `limit`.

        >>> from tidegate.limits import TidegateStorage
        >>> storage = TidegateStorage()
        >>> storage.acquire_sliding_window_entry("user_42", 2, 86_400, amount=3)
        False
        """
        operations = self._operations
        if operations.is_in_memory:
            return operations.charge_now(SLIDING, key, limit, expiry, amount)
        return run(operations.charge(SLIDING, key, limit, expiry, amount))

    def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """The counts and lifetimes of the previous and the current window.

        What is left of the previous window is in the count of the current one, and its own is 0; the lifetime of the current
        one is `expiry` and the seconds until the sum is less by one.

        >>> from tidegate.limits import TidegateStorage
        >>> storage = TidegateStorage()
        >>> storage.acquire_sliding_window_entry("user_42", 2, 86_400)
        True
        >>> storage.get_sliding_window("user_42", 86_400)[2]
        1
        """
        return run(self._operations.sliding_window(key, expiry))

    def clear_sliding_window(self, key: str, expiry: int) -> None:
        """Forgets the sliding window of a key.

        >>> from tidegate.limits import TidegateStorage
        >>> TidegateStorage().clear_sliding_window("user_42", 60)
        """
        run(self._operations.forget(SLIDING, key, expiry))
