"""The strategies that `limits` does not have, for threads."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, ClassVar, TypeVar, cast
from weakref import WeakKeyDictionary

import limits.strategies
from limits import RateLimitItem, WindowStats
from limits.errors import StorageError
from limits.storage import MemoryStorage, StorageTypes

from tidegate import StoreError
from tidegate.limits._counters import Counters
from tidegate.limits._operations import TOKEN_BUCKET, Operation, Operations, run
from tidegate.limits._storage import TidegateStorage

Result = TypeVar("Result")

_in_memory: MutableMapping[Any, Operations] = WeakKeyDictionary()


def operations_of(storage: Any, own: type, memory: type, strategy: str) -> Operations:
    """The operations on the counters of a storage. An extension falls back to the storage in memory of `limits`, which cannot
    count by this strategy: then there are counters in memory next to it.
    """
    if isinstance(storage, own):
        operations: Operations = storage._operations  # type: ignore[attr-defined]
        return operations
    if not isinstance(storage, memory):
        raise NotImplementedError(
            f"the strategy `{strategy}` needs a storage of Tidegate, such as `tidegate://`, not `{type(storage).__name__}`"
        )
    if storage not in _in_memory:
        _in_memory[storage] = Operations(Counters(None, {"clock": "python"}))
    return _in_memory[storage]


class _ExactRateLimiter(limits.strategies.RateLimiter):
    """A strategy of which a denied hit costs nothing."""

    strategy: ClassVar[str]

    def __init__(self, storage: StorageTypes) -> None:
        super().__init__(storage)
        self._operations = operations_of(storage, TidegateStorage, MemoryStorage, self.strategy)

    def hit(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        """Charges a hit, if the limit allows it: one call to Redis."""
        key, operations = item.key_for(*identifiers), self._operations
        if operations.is_in_memory:
            return operations.charge_now(self.strategy, key, item.amount, item.get_expiry(), cost)
        return self._run(operations.charge(self.strategy, key, item.amount, item.get_expiry(), cost))

    def test(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        """Whether a hit would be allowed."""
        key = item.key_for(*identifiers)
        return self._run(self._operations.allows(self.strategy, key, item.amount, item.get_expiry(), cost))

    def get_window_stats(self, item: RateLimitItem, *identifiers: str) -> WindowStats:
        """What is left of the limit, and until when. Right after a hit that is what the hit was answered, without another call.

        If nothing is left, or the hit was denied, the time is when the next hit is allowed, else when all is free again.
        """
        key = item.key_for(*identifiers)
        return self._run(self._operations.stats(self.strategy, key, item.amount, item.get_expiry()))

    def clear(self, item: RateLimitItem, *identifiers: str) -> None:
        """Forgets what was charged."""
        key = item.key_for(*identifiers)
        self._run(self._operations.forget(self.strategy, key, item.get_expiry()))

    def _run(self, operation: Operation[Result]) -> Result:
        try:
            return run(operation)
        except StoreError as error:
            if self.storage.wrap_exceptions:
                raise StorageError(error) from error
            raise


class TokenBucketRateLimiter(_ExactRateLimiter):
    """A bucket that holds as many tokens as the limit has, and refills continuously. The strategy `token-bucket`.

    >>> from limits import parse
    >>> from tidegate.limits import TidegateStorage, TokenBucketRateLimiter
    >>> limiter = TokenBucketRateLimiter(TidegateStorage())
    >>> item = parse("2/minute")
    >>> [limiter.hit(item, "user_42") for _ in range(3)], limiter.get_window_stats(item, "user_42").remaining
    ([True, True, False], 0)
    """

    strategy = TOKEN_BUCKET


class SlidingWindowLogRateLimiter(_ExactRateLimiter):
    """As many hits as the limit has in any window, wherever it starts. The strategy `sliding-window-log`.

    >>> from limits import parse
    >>> from tidegate.limits import SlidingWindowLogRateLimiter, TidegateStorage
    >>> limiter = SlidingWindowLogRateLimiter(TidegateStorage())
    >>> limiter.hit(parse("10/minute"), "user_42", cost=10), limiter.test(parse("10/minute"), "user_42")
    (True, False)
    """

    strategy = "sliding-window-log"


STRATEGIES: dict[str, type[_ExactRateLimiter]] = {
    limiter.strategy: limiter for limiter in (TokenBucketRateLimiter, SlidingWindowLogRateLimiter)
}
cast("dict[str, Any]", limits.strategies.STRATEGIES).update(STRATEGIES)
