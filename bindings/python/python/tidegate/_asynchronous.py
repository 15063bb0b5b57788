"""`AsyncLimiter` and `AsyncGate`: the same questions as coroutines. In memory they answer without waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tidegate._decorator import limit_coroutines
from tidegate._errors import StoreError
from tidegate._event_loops import Wakeup, call, sleep
from tidegate._native import Decision, Gate, Limit, Limiter, ManualClock, MemoryStore, Permit, RedisStore
from tidegate._stats import Stats

if TYPE_CHECKING:
    from typing_extensions import Self

Function = TypeVar("Function", bound=Callable[..., Any])


class AsyncPermit:
    """Permission to go on: an asynchronous context manager that releases at its end.

    >>> import asyncio
    >>> from tidegate import AsyncLimiter, Limit
    >>> async def main():
    ...     limiter = AsyncLimiter(Limit.concurrent(1))
    ...     async with limiter.acquire("worker") as permit:
    ...         print(permit.decision.remaining)
    >>> asyncio.run(main())
    0
    """

    __slots__ = ("_permit",)

    def __init__(self, permit: Permit) -> None:
        self._permit = permit

    @property
    def decision(self) -> Decision:
        """The answer of the limits.

        >>> import asyncio
        >>> from tidegate import AsyncLimiter
        >>> async def main():
        ...     permit = await AsyncLimiter("3/minute").acquire("user_42")
        ...     print(permit.decision.remaining)
        >>> asyncio.run(main())
        2
        """
        return self._permit.decision

    @property
    def id(self) -> str | None:
        """Its id, which is `lease` in the HTTP API; none if nothing is held.

        >>> import asyncio
        >>> from tidegate import AsyncLimiter
        >>> async def main():
        ...     permit = await AsyncLimiter("3/minute").acquire("user_42")
        ...     print(permit.id)
        >>> asyncio.run(main())
        None
        """
        return self._permit.id

    async def release(self) -> bool:
        """Releases what is held. False if there is nothing, or if it has ended before.

        >>> import asyncio
        >>> from tidegate import AsyncLimiter, Limit
        >>> async def main():
        ...     permit = await AsyncLimiter(Limit.concurrent(1)).acquire("worker")
        ...     print(await permit.release(), await permit.release())
        >>> asyncio.run(main())
        True False
        """
        return await self._step(False)

    async def renew(self) -> bool:
        """Holds on for another whole `lease_ttl`. False if there is nothing, or if it has ended.

        >>> import asyncio
        >>> from tidegate import AsyncLimiter, Limit
        >>> async def main():
        ...     async with AsyncLimiter(Limit.concurrent(1)).acquire("worker") as permit:
        ...         print(await permit.renew())
        >>> asyncio.run(main())
        True
        """
        return await self._step(True)

    async def _step(self, renew: bool) -> bool:
        permit = self._permit
        if not permit._is_remote or not permit._is_held:
            return permit.renew() if renew else permit.release()
        done: bool = await call(lambda mailbox, number: permit._begin(mailbox, number, renew))
        return done

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._permit._is_held:
            return
        try:
            await self.release()
        except StoreError:
            # A store that cannot be asked ends the permit by itself.
            pass
        except BaseException:
            self._permit._abandon()
            raise


class Acquiring(Coroutine[Any, Any, AsyncPermit]):
    """What `AsyncLimiter.acquire` returns: a coroutine whose result is a permit, and an asynchronous context manager.

    >>> import asyncio
    >>> from tidegate import AsyncLimiter
    >>> async def main():
    ...     limiter = AsyncLimiter("10/minute")
    ...     async with limiter.acquire("user_42"):
    ...         permit = await limiter.acquire("user_42")
    ...         print(permit.decision.remaining)
    >>> asyncio.run(main())
    8
    """

    __slots__ = ("_begun", "_cost", "_key", "_limiter", "_permit", "_timeout")

    def __init__(self, limiter: Limiter, key: str, cost: int, timeout: float | None) -> None:
        self._limiter, self._key, self._cost, self._timeout = limiter, key, cost, timeout
        self._permit: AsyncPermit | None = None
        # Begun when it is first used as a coroutine, so that a context manager leaves none behind.
        self._begun: Coroutine[Any, Any, AsyncPermit] | None = None

    def _coroutine(self) -> Coroutine[Any, Any, AsyncPermit]:
        if self._begun is None:
            self._begun = self._acquire()
        return self._begun

    def __await__(self) -> Generator[Any, Any, AsyncPermit]:
        return self._coroutine().__await__()

    def send(self, value: Any, /) -> Any:
        """Resumes it, as an event loop does.

        >>> from tidegate import AsyncLimiter
        >>> try:
        ...     AsyncLimiter("10/minute").acquire("user_42").send(None)
        ... except StopIteration as done:
        ...     print(done.value.decision.remaining)
        9
        """
        return self._coroutine().send(value)

    def throw(self, *error: Any) -> Any:
        """Raises an error where it waits, as an event loop does.

        >>> from tidegate import AsyncLimiter
        >>> try:
        ...     AsyncLimiter("10/minute").acquire("user_42").throw(KeyError("gone"))
        ... except KeyError:
        ...     print("raised")
        raised
        """
        return self._coroutine().throw(*error)

    def close(self) -> None:
        """Ends it. What it has reserved is given back.

        >>> from tidegate import AsyncLimiter
        >>> AsyncLimiter("10/minute").acquire("user_42").close()
        """
        if self._begun is not None:
            self._begun.close()

    async def __aenter__(self) -> AsyncPermit:
        self._permit = await self._acquire()
        return self._permit

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._permit is not None:
            await self._permit.__aexit__(kind, error, traceback)

    async def _acquire(self) -> AsyncPermit:
        limiter, key, cost, timeout = self._limiter, self._key, self._cost, self._timeout
        if limiter._is_remote:
            return AsyncPermit(
                await call(
                    lambda mailbox, number: limiter._begin_acquire(mailbox, number, key, cost, timeout)
                )
            )
        deadline = time.monotonic() + limiter._max_wait(timeout)
        wakeup: Wakeup | None = None
        try:
            while True:
                left = max(0.0, deadline - time.monotonic())
                turn, wait = limiter._reserve(key, cost, left)
                if turn is not None:
                    try:
                        if wait > 0:
                            await sleep(wait)
                    except BaseException:
                        turn.give_back()
                        raise
                    return AsyncPermit(turn.take())
                if wakeup is None:
                    # Asked once more while listening, so that a permit that is released in between is noticed.
                    wakeup = Wakeup(limiter)
                    continue
                await wakeup.wait(wait)
                wakeup.forget()
                wakeup = None
        finally:
            if wakeup is not None:
                wakeup.forget()


class AsyncLimiter:
    """`Limiter` for asyncio: every method is a coroutine, and none blocks the event loop. Over memory also for trio.

    >>> import asyncio
    >>> from tidegate import AsyncLimiter
    >>> async def main():
    ...     limiter = AsyncLimiter("1/minute")
    ...     print(await limiter.allow("user_42"), await limiter.allow("user_42"))
    >>> asyncio.run(main())
    True False
    """

    __slots__ = ("__weakref__", "_limiter")

    def __init__(
        self,
        limits: str | Limit | Sequence[Limit | str],
        *,
        algorithm: str | None = None,
        store: MemoryStore | RedisStore | str | None = None,
        name: str = "limiter",
        max_wait: float = 10.0,
        on_store_failure: Literal["raise", "allow", "deny"] = "raise",
        clock: ManualClock | Literal["python"] | None = None,
        per_attribute: str = "user_id",
    ) -> None:
        self._limiter = Limiter(
            limits,
            algorithm=algorithm,
            store=store,
            name=name,
            max_wait=max_wait,
            on_store_failure=on_store_failure,
            clock=clock,
            per_attribute=per_attribute,
        )

    @classmethod
    def _over(cls, limiter: Limiter) -> AsyncLimiter:
        made = cls.__new__(cls)
        made._limiter = limiter
        return made

    @property
    def limits(self) -> list[Limit]:
        """The limits, in their order.

        >>> from tidegate import AsyncLimiter
        >>> len(AsyncLimiter("10/minute; 2/second").limits)
        2
        """
        return self._limiter.limits

    async def check(self, key: str, cost: int = 1) -> Decision:
        """Charges a request to `key` if all limits allow it. Cost 0 takes nothing.

        >>> import asyncio
        >>> from tidegate import AsyncLimiter
        >>> asyncio.run(AsyncLimiter("10/minute").check("user_42", cost=3)).remaining
        7
        """
        limiter = self._limiter
        if not limiter._is_remote:
            return limiter.check(key, cost)
        decision: Decision = await call(
            lambda mailbox, number: limiter._begin(mailbox, number, "check", key, cost)
        )
        return decision

    async def allow(self, key: str, cost: int = 1) -> bool:
        """Charges a request to `key` if all limits allow it, and answers whether it did.

        >>> import asyncio
        >>> from tidegate import AsyncLimiter
        >>> asyncio.run(AsyncLimiter("10/minute").allow("user_42"))
        True
        """
        if not self._limiter._is_remote:
            return self._limiter.allow(key, cost)
        return (await self.check(key, cost)).allowed

    async def peek(self, key: str, cost: int = 1) -> Decision:
        """What `check` would answer, without charging anything.

        >>> import asyncio
        >>> from tidegate import AsyncLimiter
        >>> asyncio.run(AsyncLimiter("10/minute").peek("user_42")).remaining
        10
        """
        limiter = self._limiter
        if not limiter._is_remote:
            return limiter.peek(key, cost)
        decision: Decision = await call(
            lambda mailbox, number: limiter._begin(mailbox, number, "peek", key, cost)
        )
        return decision

    async def settle(self, key: str, cost: int) -> Decision:
        """Charges a cost that is known only afterwards, without asking: as much of it as fits into a full quota.

        >>> import asyncio
        >>> from tidegate import AsyncLimiter
        >>> asyncio.run(AsyncLimiter("10/minute").settle("user_42", 30)).remaining
        0
        """
        limiter = self._limiter
        if not limiter._is_remote:
            return limiter.settle(key, cost)
        decision: Decision = await call(
            lambda mailbox, number: limiter._begin(mailbox, number, "settle", key, cost)
        )
        return decision

    async def reset(self, key: str) -> None:
        """Forgets what `key` has used.

        >>> import asyncio
        >>> from tidegate import AsyncLimiter
        >>> asyncio.run(AsyncLimiter("10/minute").reset("user_42"))
        """
        limiter = self._limiter
        if not limiter._is_remote:
            limiter.reset(key)
        else:
            await call(lambda mailbox, number: limiter._begin_reset(mailbox, number, key))

    def acquire(self, key: str, cost: int = 1, *, timeout: float | None = None) -> Acquiring:
        """Waits until `key` may go on, for `timeout` seconds at the most and never longer than `max_wait`; raises
        `RateLimited` if it would take longer. Awaited it is a permit. A task that is cancelled gives back what it reserved.

        >>> import asyncio
        >>> from tidegate import AsyncLimiter
        >>> async def main():
        ...     limiter = AsyncLimiter("100/second burst 1")
        ...     for page in range(2):
        ...         async with limiter.acquire("api.example.com", timeout=2.0):
        ...             print(page)
        >>> asyncio.run(main())
        0
        1
        """
        return Acquiring(self._limiter, key, cost, timeout)

    def limit(
        self, key: str | Callable[..., str], *, cost: int = 1, wait: bool = False
    ) -> Callable[[Function], Function]:
        """Limits a coroutine function: a decorator. `key` is a text, or a function of the call's arguments. If a call
        is over the limit it raises `RateLimited`, or waits if `wait` is true.

        >>> import asyncio
        >>> from tidegate import AsyncLimiter
        >>> limiter = AsyncLimiter("10/minute")
        >>> @limiter.limit(lambda user: user)
        ... async def greet(user):
        ...     return f"hello {user}"
        >>> asyncio.run(greet("ada"))
        'hello ada'
        """
        return limit_coroutines(self, key, cost, wait)

    async def stats(self) -> Stats:
        """How many keys the store in memory holds, and how many it had to forget; none over Redis.

        >>> import asyncio
        >>> from tidegate import AsyncLimiter
        >>> asyncio.run(AsyncLimiter("10/minute").stats())
        Stats(keys=0, evictions=0)
        """
        return self._limiter.stats()

    def _permit_of(self, decision: Decision) -> AsyncPermit | None:
        permit = decision.permit
        return None if permit is None else AsyncPermit(permit)

    def __repr__(self) -> str:
        return f"Async{self._limiter!r}"


class AsyncGate:
    """`Gate` for asyncio: every method is a coroutine, and none blocks the event loop. Over memory also for trio.

    >>> import asyncio
    >>> from tidegate import AsyncGate
    >>> gate = AsyncGate([{"id": "per-user", "per": ["user_id"], "limit": "10/minute"}])
    >>> asyncio.run(gate.check({"user_id": "u1"})).remaining
    9
    """

    __slots__ = ("__weakref__", "_gate")

    def __init__(
        self,
        rules: str | Sequence[Mapping[str, Any]] | Mapping[str, Any],
        *,
        store: MemoryStore | RedisStore | str | None = None,
        clock: ManualClock | Literal["python"] | None = None,
    ) -> None:
        self._gate = Gate(rules, store=store, clock=clock)

    @classmethod
    def from_file(
        cls,
        path: str | PathLike[str],
        *,
        store: MemoryStore | RedisStore | str | None = None,
        clock: ManualClock | Literal["python"] | None = None,
    ) -> AsyncGate:
        """A gate with the rules of a file.

        >>> from tidegate import AsyncGate
        >>> try:
        ...     AsyncGate.from_file("missing.yaml")
        ... except FileNotFoundError:
        ...     print("there is no such file")
        there is no such file
        """
        made = cls.__new__(cls)
        made._gate = Gate.from_file(path, store=store, clock=clock)
        return made

    async def check(self, attributes: Mapping[str, str], cost: int = 1) -> Decision:
        """Decides a request by what is known of it.

        >>> import asyncio
        >>> from tidegate import AsyncGate
        >>> gate = AsyncGate("rules: [{id: all, per: [], limit: 10/minute}]")
        >>> asyncio.run(gate.check({})).rule
        'all'
        """
        gate = self._gate
        if not gate._is_remote:
            return gate.check(attributes, cost)
        decision: Decision = await call(
            lambda mailbox, number: gate._begin_check(mailbox, number, attributes, cost)
        )
        return decision

    async def replace(self, rules: str | Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> None:
        """Puts other rules in force, all of them in one step. What was used stays used.

        >>> import asyncio
        >>> from tidegate import AsyncGate
        >>> gate = AsyncGate("rules: [{id: all, per: [], limit: 10/minute}]")
        >>> asyncio.run(gate.replace("rules: [{id: all, per: [], limit: 20/minute}]"))
        """
        self._gate.replace(rules)

    async def explain(self, attributes: Mapping[str, str]) -> dict[str, Any]:
        """Why a request would be allowed or denied. Nothing is charged.

        >>> import asyncio
        >>> from tidegate import AsyncGate
        >>> gate = AsyncGate("rules: [{id: all, per: [], limit: 10/minute}]")
        >>> asyncio.run(gate.explain({}))["rules"][0]["applies"]
        True
        """
        gate = self._gate
        if not gate._is_remote:
            return gate.explain(attributes)
        explanation: dict[str, Any] = await call(
            lambda mailbox, number: gate._begin_explain(mailbox, number, attributes)
        )
        return explanation

    def __repr__(self) -> str:
        return repr(self._gate).replace("Gate", "AsyncGate", 1)
