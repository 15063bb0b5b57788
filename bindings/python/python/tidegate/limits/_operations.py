"""What storages and strategies do, written once for threads and event loops: each operation yields the calls that it needs
answered, and returns its result. `run` waits for them, `run_async` awaits them.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, TypeVar

from limits import WindowStats

from tidegate._event_loops import call
from tidegate._native import LimitsCall
from tidegate.limits import _answers
from tidegate.limits._counters import Counters, Usage

Result = TypeVar("Result")
Operation = Generator[LimitsCall, Any, Result]

FIXED = "fixed-window"
MOVING = "moving-window"
SLIDING = "sliding-window-counter"
TOKEN_BUCKET = "token-bucket"
_COUNT, _END = f"{FIXED} count", f"{FIXED} end"


def run(operation: Operation[Result]) -> Result:
    """The result of an operation, in this thread."""
    try:
        step = next(operation)
        while True:
            step = operation.send(step.now())
    except StopIteration as end:
        result: Result = end.value
        return result


async def run_async(operation: Operation[Result], is_in_memory: bool) -> Result:
    """The result of an operation, in this event loop."""
    try:
        step = next(operation)
        while True:
            step = operation.send(step.now() if is_in_memory else await call(step.begin))
    except StopIteration as end:
        result: Result = end.value
        return result


class Operations:
    """The operations on the counters of one storage."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.is_in_memory = counters.is_in_memory
        self._native = counters.native

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["counters"])  # type: ignore[misc]

    def __getstate__(self) -> dict[str, Any]:
        return {"counters": self.counters}

    # Hits in memory by threads, which are most hits: without the cost of an operation.

    def count_now(self, key: str, expiry: float, amount: int) -> int:
        """`count`, in memory."""
        count: int = self._native.count(key, expiry, amount).now()[1]
        return count

    def charge_now(self, strategy: str, key: str, limit: int, expiry: int, amount: int) -> bool:
        """`charge`, in memory."""
        if limit <= 0:
            return False
        allowed: bool = self._native.charge(strategy, key, limit, expiry, amount).now()[0]
        return allowed

    # The strategy `fixed-window`, which asks for the count and the end of a window one after the other.

    def count(self, key: str, expiry: float, amount: int) -> Operation[int]:
        """Adds to the window of a key."""
        usage: Usage = yield self._native.count(key, expiry, amount)
        self._keep(_COUNT, key, usage)
        self._keep(_END, key, usage)
        return usage[1]

    def counted(self, key: str) -> Operation[int]:
        """The count of the window of a key."""
        usage = self._take(_COUNT, key)
        if usage is None:
            usage = yield self._native.counted(key)
            self._keep(_END, key, usage)
        return usage[1]

    def window_end(self, key: str) -> Operation[float]:
        """The end of the window of a key; now, if none is open."""
        usage = self._take(_END, key)
        if usage is None:
            usage = self.counters.by_clock((yield self._native.counted(key)))
        return usage[2]

    def clear(self, key: str) -> Operation[None]:
        """Forgets what `fixed-window` and `moving-window` have counted for a key."""
        _answers.forget()
        yield self._native.clear(key)

    # The strategies that charge nothing if they deny.

    def charge(self, strategy: str, key: str, limit: int, expiry: int, amount: int) -> Operation[bool]:
        """Charges an amount to a key if the limit allows it."""
        if limit <= 0:
            return False
        usage: Usage = yield self._native.charge(strategy, key, limit, expiry, amount)
        # When a larger amount is allowed does not say when the next one is.
        if usage[0] or amount == 1 or strategy not in (MOVING, SLIDING):
            self._keep(strategy, key, usage)
        return usage[0]

    def allows(self, strategy: str, key: str, limit: int, expiry: int, amount: int) -> Operation[bool]:
        """Whether the limit allows an amount."""
        if limit <= 0:
            return False
        usage: Usage = yield self._native.peek(strategy, key, limit, expiry, amount)
        self._keep(strategy, key, usage)
        return usage[0]

    def forget(self, strategy: str, key: str, expiry: int) -> Operation[None]:
        """Forgets what a strategy has counted for a key."""
        _answers.forget()
        yield self._native.forget(strategy, key, expiry)

    def stats(self, strategy: str, key: str, limit: int, expiry: int) -> Operation[WindowStats]:
        """What is left of a limit, and until when: if nothing is left or the last hit was denied, until there is enough, else
        until all of it is free again.
        """
        if limit <= 0:
            return WindowStats(time.time() + expiry, 0)
        usage = self._take(strategy, key)
        if usage is None:
            usage = self.counters.by_clock((yield self._native.peek(strategy, key, limit, expiry, 1)))
        allowed, used, resets_at, allowed_at, _ = usage
        if not allowed:
            return WindowStats(allowed_at, limit - used)
        if used == limit and strategy == TOKEN_BUCKET:
            return WindowStats(resets_at - expiry + expiry / limit, 0)
        return WindowStats(resets_at, limit - used)

    def moving_window(self, key: str, limit: int, expiry: int) -> Operation[tuple[float, int]]:
        """When the window of a key starts, which is at its oldest entry or now, and how much is in it."""
        used, leaves_at = yield from self._next_free(MOVING, key, expiry)
        if used == 0:
            return time.time(), 0
        return leaves_at - expiry, used

    def sliding_window(self, key: str, expiry: int) -> Operation[tuple[int, float, int, float]]:
        """The counts and lifetimes of the previous and the current window. What is left of the previous one is part of the count
        of the current one, whose lifetime says when the sum will be less by one.
        """
        used, falls_at = yield from self._next_free(SLIDING, key, expiry)
        if used == 0:
            return 0, 0.0, 0, 0.0
        falls_in = min(max(falls_at - time.time(), 0.0), expiry - 1e-6)
        return 0, 0.0, used, expiry + falls_in

    def _next_free(self, strategy: str, key: str, expiry: int) -> Operation[tuple[int, float]]:
        """The usage of a key, and when it will be less by one."""
        usage = self._take(strategy, key)
        if usage is None or usage[0]:
            used = usage[1] if usage else None
            usage = self.counters.by_clock((yield self._native.next_free(strategy, key, expiry, used)))
        return usage[1], usage[3]

    # All strategies.

    def reset(self) -> Operation[int]:
        """Forgets everything, and returns how many counters there were."""
        _answers.forget()
        forgotten: int = yield self._native.reset()
        return forgotten

    def probe(self) -> Operation[None]:
        """Fails if the counters cannot be reached."""
        yield self._native.peek(FIXED, "", 1, 1, 0)

    def _keep(self, what: str, key: str, usage: Usage) -> None:
        if not self.is_in_memory:
            _answers.keep((self.counters.place, what, key), self.counters.by_clock(usage))

    def _take(self, what: str, key: str) -> Usage | None:
        if self.is_in_memory:
            return None
        return _answers.take((self.counters.place, what, key))
