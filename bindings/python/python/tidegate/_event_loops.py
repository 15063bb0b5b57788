"""Waiting in asyncio and trio: for calls that run in the native thread, and for time."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakKeyDictionary

from tidegate._native import Limiter, Mailbox, PendingCall



class _Correspondence:
    """The calls of one event loop that have no answer yet. Does not hold the loop, which holds it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.process = os.getpid()
        self.mailbox = Mailbox()
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self.numbers = itertools.count()
        loop.add_reader(self.mailbox.fileno(), self.deliver)

    def deliver(self) -> None:
        for number, succeeded, answer in self.mailbox.take():
            future = self.waiting.pop(number, None)
            if future is None or future.done():
                abandon(answer)
            elif succeeded:
                future.set_result(answer)
            else:
                future.set_exception(answer)


_correspondences: WeakKeyDictionary[asyncio.AbstractEventLoop, _Correspondence] = WeakKeyDictionary()



def abandon(answer: object) -> None:
    """Gives back what nothing waits for any more."""
    give_back: Callable[[], None] | None = getattr(answer, "_abandon", None)
    if give_back is not None:
        give_back()


async def call(begin: Callable[[Mailbox, int], PendingCall | None]) -> Any:
    """The answer of a call that `begin` starts in the native thread. Needs asyncio."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError("Redis needs asyncio; with another event loop count in memory") from None
    found = _correspondences.get(loop)
    if found is None or found.process != os.getpid():
        found = _correspondences[loop] = _Correspondence(loop)
    number = next(found.numbers)
    future = found.waiting[number] = loop.create_future()
    try:
        pending = begin(found.mailbox, number)
    except BaseException:
        del found.waiting[number]
        raise
    if pending is None:
        del found.waiting[number]
        return False
    try:
        return await future
    except asyncio.CancelledError:
        pending.cancel()
        if future.done() and not future.cancelled() and future.exception() is None:
            abandon(future.result())
        found.waiting.pop(number, None)
        raise


def is_in_trio() -> bool:
    """Whether the running coroutine belongs to trio."""
    trio = sys.modules.get("trio")
    if trio is None:
        return False
    try:
        trio.lowlevel.current_task()
    except RuntimeError:
        return False
    return True


def sleep(seconds: float) -> Awaitable[None]:
    """Waits in the event loop that runs."""
    if is_in_trio():
        pause: Awaitable[None] = sys.modules["trio"].sleep(seconds)
        return pause
    return asyncio.sleep(seconds)


class Wakeup:
    """Waits until a limiter in memory has released a permit, from any thread. Listens from the start, until it is forgotten."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._future: asyncio.Future[None] | None = None
        if is_in_trio():
            trio = sys.modules["trio"]
            token, event = trio.lowlevel.current_trio_token(), trio.Event()
            self._event = event
            self._number = limiter._when_freed(lambda: token.run_sync_soon(event.set))
        else:
            loop = asyncio.get_running_loop()
            future = self._future = loop.create_future()

            def finish() -> None:
                if not future.done():
                    future.set_result(None)

            self._number = limiter._when_freed(lambda: loop.call_soon_threadsafe(finish))

    async def wait(self, seconds: float) -> None:
        """Waits for so many seconds at the most."""
        if self._future is not None:
            await asyncio.wait([self._future], timeout=seconds)
        else:
            with sys.modules["trio"].move_on_after(seconds):
                await self._event.wait()

    def forget(self) -> None:
        """Listens no more."""
        if self._number is not None:
            self._limiter._forget_freed(self._number)
