"""The decorator `limit` of limiters."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tidegate._errors import RateLimited
from tidegate._event_loops import sleep

if TYPE_CHECKING:
    from tidegate._asynchronous import AsyncLimiter
    from tidegate._native import Decision, Limiter

Function = TypeVar("Function", bound=Callable[..., Any])


def _key_of(key: str | Callable[..., str]) -> Callable[..., str]:
    if isinstance(key, str):
        return lambda *_, **__: key
    if callable(key):
        return key
    raise TypeError(f"`key` is a text or a function of the call's arguments, not `{type(key).__name__}`")


def _refuse(decision: Decision) -> None:
    if decision:
        return
    if decision.retry_after is None:
        message = f"the cost is above the limit of {decision.limit}, so waiting cannot help"
    else:
        message = f"over the limit of {decision.limit}; try again in {decision.retry_after:.3f} s"
    raise RateLimited(message, decision, decision.retry_after)


def limit(
    limiter: Limiter, key: str | Callable[..., str], cost: int, wait: bool
) -> Callable[[Function], Function]:
    """Limits a function, or a coroutine function without blocking its event loop."""
    key_of = _key_of(key)

    def decorate(function: Function) -> Function:
        if inspect.iscoroutinefunction(function):
            from tidegate._asynchronous import AsyncLimiter

            return limit_coroutines(AsyncLimiter._over(limiter), key_of, cost, wait)(function)

        @functools.wraps(function)
        def limited(*args: Any, **kwargs: Any) -> Any:
            if wait:
                with limiter.acquire(key_of(*args, **kwargs), cost):
                    return function(*args, **kwargs)
            decision = limiter.check(key_of(*args, **kwargs), cost)
            _refuse(decision)
            permit = decision.permit
            if permit is None:
                if decision.delay > 0:
                    time.sleep(decision.delay)
                return function(*args, **kwargs)
            with permit:
                if decision.delay > 0:
                    time.sleep(decision.delay)
                return function(*args, **kwargs)

        return cast(Function, limited)

    return decorate


def limit_coroutines(
    limiter: AsyncLimiter, key: str | Callable[..., str], cost: int, wait: bool
) -> Callable[[Function], Function]:
    """Limits a coroutine function."""
    key_of = _key_of(key)

    def decorate(function: Function) -> Function:
        if not inspect.iscoroutinefunction(function):
            raise TypeError("an `AsyncLimiter` limits coroutine functions; use a `Limiter` for others")
        begin = cast(Callable[..., Awaitable[Any]], function)

        @functools.wraps(function)
        async def limited(*args: Any, **kwargs: Any) -> Any:
            if wait:
                async with limiter.acquire(key_of(*args, **kwargs), cost):
                    return await begin(*args, **kwargs)
            decision = await limiter.check(key_of(*args, **kwargs), cost)
            _refuse(decision)
            permit = limiter._permit_of(decision)
            if permit is None:
                if decision.delay > 0:
                    await sleep(decision.delay)
                return await begin(*args, **kwargs)
            async with permit:
                if decision.delay > 0:
                    await sleep(decision.delay)
                return await begin(*args, **kwargs)

        return cast(Function, limited)

    return decorate
