"""The storage and the strategies for event loops, as `limits.aio` has them."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar, cast

import limits.aio.strategies
from limits import RateLimitItem, WindowStats
from limits.aio.storage import MemoryStorage
from limits.aio.storage.base import MovingWindowSupport, SlidingWindowCounterSupport, Storage
from limits.errors import StorageError
from limits.storage import StorageTypes
from limits.storage.base import TimestampedSlidingWindow

from tidegate import StoreError
from tidegate.limits._counters import SCHEMES, Counters
from tidegate.limits._operations import MOVING, SLIDING, TOKEN_BUCKET, Operation, Operations, run_async
from tidegate.limits._strategies import operations_of

__all__ = ["AsyncTidegateStorage", "SlidingWindowLogRateLimiter", "TokenBucketRateLimiter"]

Result = TypeVar("Result")


class AsyncTidegateStorage(Storage, MovingWindowSupport, SlidingWindowCounterSupport, TimestampedSlidingWindow):
    """Counts the limits of `limits` in memory or in Redis, for event loops. Options are those of `TidegateStorage`.

    >>> import asyncio
    >>> from tidegate.limits import AsyncTidegateStorage
    >>> async def main():
    ...     storage = AsyncTidegateStorage("async+tidegate://")
    ...     return await storage.incr("user_42", 60), await storage.get("user_42")
    >>> asyncio.run(main())
    (1, 1)
    """

    STORAGE_SCHEME = [f"async+{scheme}" for scheme in SCHEMES]

    def __init__(
        self, uri: str | None = None, wrap_exceptions: bool = False, **options: float | str | bool
    ) -> None:
        super().__init__(uri, wrap_exceptions=wrap_exceptions)
        self._operations = Operations(Counters(uri, options))

    @property
    def base_exceptions(self) -> type[Exception] | tuple[type[Exception], ...]:
        """What it raises if Redis does not answer."""
        return StoreError

    @property
    def storage(self) -> str:
        """Where it counts, without secrets."""
        return f"async+{self._operations.counters.shown}"

    async def incr(self, key: str, expiry: float, amount: int = 1) -> int:
        """Adds to the counter of a key, whose window of `expiry` seconds starts with its first hit, and returns it."""
        return await self._run(self._operations.count(key, expiry, amount))

    async def get(self, key: str) -> int:
        """The counter of a key."""
        return await self._run(self._operations.counted(key))

    async def get_expiry(self, key: str) -> float:
        """When the window of a key ends, in seconds since 1970; now, if none is open."""
        return await self._run(self._operations.window_end(key))

    async def check(self) -> bool:
        """Whether the counters can be reached."""
        try:
            await self._run(self._operations.probe())
        except StoreError:
            return False
        return True

    async def reset(self) -> int | None:
        """Forgets all counters, and returns how many there were. In Redis that takes a walk through all keys."""
        return await self._run(self._operations.reset())

    async def clear(self, key: str) -> None:
        """Forgets the counter of a key."""
        await self._run(self._operations.clear(key))

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Adds entries to the moving window of a key, if no more than `limit` are then in it."""
        return await self._run(self._operations.charge(MOVING, key, limit, expiry, amount))

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """When the oldest entry of the moving window was made, or now, and how many entries there are."""
        return await self._run(self._operations.moving_window(key, limit, expiry))

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Adds to the current window of a key, if that and what is left of the previous one are no more than `limit`."""
        return await self._run(self._operations.charge(SLIDING, key, limit, expiry, amount))

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """The counts and lifetimes of the previous and the current window, as those of `TidegateStorage`."""
        return await self._run(self._operations.sliding_window(key, expiry))

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        """Forgets the sliding window of a key."""
        await self._run(self._operations.forget(SLIDING, key, expiry))

    async def _run(self, operation: Operation[Result]) -> Result:
        return await run_async(operation, self._operations.is_in_memory)


class _ExactRateLimiter(limits.aio.strategies.RateLimiter):
    """A strategy of which a denied hit costs nothing."""

    strategy: ClassVar[str]

    def __init__(self, storage: StorageTypes) -> None:
        super().__init__(storage)
        self._operations = operations_of(storage, AsyncTidegateStorage, MemoryStorage, self.strategy)

    async def hit(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        """Charges a hit, if the limit allows it: one call to Redis."""
        key = item.key_for(*identifiers)
        return await self._run(self._operations.charge(self.strategy, key, item.amount, item.get_expiry(), cost))

    async def test(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        """Whether a hit would be allowed."""
        key = item.key_for(*identifiers)
        return await self._run(self._operations.allows(self.strategy, key, item.amount, item.get_expiry(), cost))

    async def get_window_stats(self, item: RateLimitItem, *identifiers: str) -> WindowStats:
        """What is left of the limit, and until when. Right after a hit that is what the hit was answered, without another call.

        If nothing is left, or the hit was denied, the time is when the next hit is allowed, else when all is free again.
        """
        key = item.key_for(*identifiers)
        return await self._run(self._operations.stats(self.strategy, key, item.amount, item.get_expiry()))

    async def clear(self, item: RateLimitItem, *identifiers: str) -> None:
        """Forgets what was charged."""
        key = item.key_for(*identifiers)
        await self._run(self._operations.forget(self.strategy, key, item.get_expiry()))

    async def _run(self, operation: Operation[Result]) -> Result:
        try:
            return await run_async(operation, self._operations.is_in_memory)
        except StoreError as error:
            if self.storage.wrap_exceptions:
                raise StorageError(error) from error
            raise


class TokenBucketRateLimiter(_ExactRateLimiter):
    """A bucket that holds as many tokens as the limit has, and refills continuously. The strategy `token-bucket`.

    >>> import asyncio
    >>> from limits import parse
    >>> from tidegate.limits import AsyncTidegateStorage
    >>> from tidegate.limits.aio import TokenBucketRateLimiter
    >>> async def main():
    ...     limiter = TokenBucketRateLimiter(AsyncTidegateStorage())
    ...     return [await limiter.hit(parse("2/minute"), "user_42") for _ in range(3)]
    >>> asyncio.run(main())
    [True, True, False]
    """

    strategy = TOKEN_BUCKET


class SlidingWindowLogRateLimiter(_ExactRateLimiter):
    """As many hits as the limit has in any window, wherever it starts. The strategy `sliding-window-log`.

    >>> import asyncio
    >>> from limits import parse
    >>> from tidegate.limits import AsyncTidegateStorage
    >>> from tidegate.limits.aio import SlidingWindowLogRateLimiter
    >>> async def main():
    ...     limiter = SlidingWindowLogRateLimiter(AsyncTidegateStorage())
    ...     return await limiter.hit(parse("10/minute"), "user_42", cost=11)
    >>> asyncio.run(main())
    False
    """

    strategy = "sliding-window-log"


STRATEGIES: dict[str, type[_ExactRateLimiter]] = {
    limiter.strategy: limiter for limiter in (TokenBucketRateLimiter, SlidingWindowLogRateLimiter)
}
cast("dict[str, Any]", limits.aio.strategies.STRATEGIES).update(STRATEGIES)
