"""Event loops: nothing blocks them, cancelled tasks give back, and several may use one object."""

import asyncio
import contextlib
import gc
import threading
import time

import pytest
import trio

from tidegate import AsyncGate, AsyncLimiter, Limit, Limiter, RateLimited, RedisStore, StoreError


def stores(redis):
    return [None, RedisStore(redis.url, deadline=1)]


def test_every_method_is_a_coroutine_and_answers_as_the_limiter_does(redis):
    async def ask(store):
        limiter = AsyncLimiter("3/minute", store=store)
        assert (await limiter.check("a")).remaining == 2
        assert await limiter.allow("a", 2) and not await limiter.allow("a")
        assert (await limiter.peek("a")).remaining == 0
        assert await limiter.reset("a") is None
        assert (await limiter.settle("a", 9)).remaining == 0
        assert len(limiter.limits) == 1
        assert (await limiter.stats()).keys == (1 if store is None else None)
        for key, error in ((None, TypeError), (b"a", TypeError), ("\ud800", ValueError)):
            with pytest.raises(error):
                await limiter.check(key)
        with pytest.raises(ValueError):
            await limiter.check("a", -1)

    for store in stores(redis):
        asyncio.run(ask(store))


def test_gates(redis):
    async def ask(store):
        gate = AsyncGate("rules: [{id: per-user, per: [user_id], limit: 2/minute}]", store=store)
        assert (await gate.check({"user_id": "a"})).rule == "per-user"
        assert (await gate.explain({"user_id": "a"}))["decision"].allowed
        await gate.replace([{"id": "per-user", "per": ["user_id"], "limit": "1/minute"}])
        assert not await gate.check({"user_id": "a"})

    for store in stores(redis):
        asyncio.run(ask(store))


def test_acquire_waits_without_blocking(redis):
    async def wait(store):
        limiter = AsyncLimiter("20/second burst 1", store=store, name="wait")
        began = time.monotonic()
        async with limiter.acquire("a") as permit:
            assert permit.decision.allowed
        assert (await limiter.acquire("a")).decision.allowed
        await asyncio.gather(*(limiter.acquire("a") for _ in range(3)))
        assert 0.18 <= time.monotonic() - began < 5
        with pytest.raises(RateLimited) as raised:
            async with limiter.acquire("a", 2):
                raise AssertionError("more than the limit")
        assert raised.value.retry_after is None

    for store in stores(redis):
        asyncio.run(wait(store))


def test_a_cancelled_task_gives_back_what_it_reserved(redis):
    async def cancel(store):
        limiter = AsyncLimiter("1/minute", store=store, max_wait=300, name="cancel")
        assert await limiter.allow("a")
        for _ in range(3):
            # Each reserves a turn behind the one before, unless that was given back.
            task = asyncio.ensure_future(limiter.acquire("a"))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        # Given back in the background.
        end = time.monotonic() + 10
        while (await limiter.peek("a")).retry_after > 60:
            assert time.monotonic() < end, "a turn was not given back"
            await asyncio.sleep(0.02)
        assert (await limiter.peek("a")).retry_after > 20

    for store in stores(redis):
        asyncio.run(cancel(store))


def test_a_timeout_of_asyncio_gives_back_too():
    async def wait():
        limiter = AsyncLimiter("1/minute", max_wait=300)
        assert await limiter.allow("a")
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(limiter.acquire("a"), 0.05)
        assert (await limiter.peek("a")).retry_after <= 60

    asyncio.run(wait())


def test_permits_wake_those_who_wait(redis):
    async def hold(store):
        limiter = AsyncLimiter(Limit.concurrent(1), store=store, name="hold")
        first = await limiter.acquire("a")
        began = time.monotonic()
        waiting = asyncio.ensure_future(limiter.acquire("a"))
        await asyncio.sleep(0.1)
        assert not waiting.done() and await first.renew()
        assert await first.release() and not await first.release()
        second = await waiting
        assert time.monotonic() - began < 3
        async with second:
            assert not await limiter.allow("a")
            with pytest.raises(RateLimited):
                await limiter.acquire("a", timeout=0.05)
        assert (await limiter.peek("a")).allowed
        # One that is cancelled while it waits leaves nothing behind.
        third = await limiter.acquire("a")
        waiting = asyncio.ensure_future(limiter.acquire("a"))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await third.release()
        assert (await limiter.peek("a")).allowed

    for store in stores(redis):
        asyncio.run(hold(store))


def test_a_thread_wakes_an_event_loop():
    limiter = Limiter(Limit.concurrent(1))
    permit = limiter.acquire("a")
    threading.Timer(0.1, permit.release).start()

    async def wait():
        began = time.monotonic()
        async with AsyncLimiter._over(limiter).acquire("a"):
            return time.monotonic() - began

    assert asyncio.run(wait()) < 3


def test_the_decorator_limits_coroutine_functions(redis):
    async def call(store):
        for limiter in (AsyncLimiter("1/minute", store=store, name="one"), Limiter("1/minute", store=store, name="two")):

            @limiter.limit(lambda user: user)
            async def greet(user):
                return f"hello {user}"

            assert await greet("ada") == "hello ada"
            with pytest.raises(RateLimited):
                await greet("ada")
        held = AsyncLimiter(Limit.concurrent(1), store=store, name="held")

        @held.limit("all", wait=True)
        async def work():
            return await held.allow("all")

        @held.limit("all")
        async def check():
            return await held.allow("all")

        assert [await work(), await work(), await check(), await check()] == [False] * 4
        with pytest.raises(TypeError, match="coroutine"):
            held.limit("all")(print)

    for store in stores(redis):
        asyncio.run(call(store))


def test_one_limiter_in_several_loops(redis):
    for store in stores(redis):
        limiter = AsyncLimiter("50/hour", store=store, name="loops")
        allowed = []

        async def ask():
            answers = await asyncio.gather(*(limiter.allow("a") for _ in range(25)))
            allowed.extend(answers)

        threads = [threading.Thread(target=lambda: asyncio.run(ask())) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(allowed) == 50 and len(allowed) == 100
        for _ in range(3):
            asyncio.run(ask())
        assert sum(allowed) == 50
    gc.collect()
    from tidegate._event_loops import _correspondences

    assert len(_correspondences) <= 1, "closed loops are not kept"


def test_trio_over_memory():
    async def main():
        limiter = AsyncLimiter("20/second burst 1")
        began = time.monotonic()
        for _ in range(3):
            async with limiter.acquire("a"):
                pass
        assert time.monotonic() - began >= 0.09
        slow = AsyncLimiter("1/minute", max_wait=300)
        assert await slow.allow("a")
        with trio.move_on_after(0.05) as scope:
            await slow.acquire("a")
        assert scope.cancelled_caught and (await slow.peek("a")).retry_after <= 60
        held = AsyncLimiter(Limit.concurrent(1))
        permit = await held.acquire("a")
        waited = []

        async def wait():
            async with held.acquire("a"):
                waited.append(True)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(0.05)
            assert not waited
            await permit.release()
        assert waited
        gate = AsyncGate("rules: [{id: all, per: [], limit: 1/minute}]")
        assert await gate.check({}) and not await gate.check({})
        with pytest.raises(RuntimeError, match="asyncio"):
            await AsyncLimiter("1/minute", store="redis://127.0.0.1:1").check("a")

    trio.run(main)


def waited_for_a_processor():
    """Seconds for which this thread could have run and another one did. Part of the machine, not of the package."""
    with open("/proc/thread-self/schedstat") as file:
        return int(file.read().split()[1]) / 1e9


def test_the_loop_goes_on_while_redis_stands_still(own_redis):
    async def main():
        limiter = AsyncLimiter("1000/second", store=RedisStore(own_redis.url, deadline=0.25))
        for _ in range(200):
            # A busy machine may be late, and is not for ever: see the end.
            with contextlib.suppress(StoreError):
                assert await limiter.allow("a")
        longest = 0.0

        async def beat():
            nonlocal longest
            last = time.perf_counter() - waited_for_a_processor()
            while True:
                await asyncio.sleep(0.001)
                now = time.perf_counter() - waited_for_a_processor()
                longest, last = max(longest, now - last), now

        async def ask():
            failed = 0
            end = time.monotonic() + 1
            while time.monotonic() < end:
                try:
                    await limiter.check("a")
                except StoreError:
                    failed += 1
                await asyncio.sleep(0.001)
            return failed

        beating = asyncio.ensure_future(beat())
        await asyncio.sleep(0.1)
        with own_redis.stopped():
            failed = sum(await asyncio.gather(*(ask() for _ in range(8))))
        beating.cancel()
        assert failed >= 8, "Redis stood still for each of them"
        end = time.monotonic() + 10
        while time.monotonic() < end:
            try:
                assert await limiter.check("b")
                break
            except StoreError:
                await asyncio.sleep(0.05)
        else:
            raise AssertionError("it goes on when Redis does")
        return longest

    # A machine may stand still itself: the best of some runs is what the package adds.
    longest = []
    while len(longest) < 6 and (not longest or min(longest) >= 0.02):
        longest.append(asyncio.run(main()))
    assert min(longest) < 0.02, longest
    print(f"the event loop stood still for {min(longest) * 1000:.1f} ms at the most")
