"""Threads: exactly the limit is admitted, whatever the switch interval; signals end a wait."""

import signal
import sys
import threading
import time

import pytest

from conftest import IS_SHORT
from tidegate import AsyncLimiter, Gate, Limit, Limiter, RedisStore


@pytest.fixture(params=[1e-6, 0.005])
def switch_interval(request):
    before = sys.getswitchinterval()
    sys.setswitchinterval(request.param)
    yield
    sys.setswitchinterval(before)


def admitted(ask, threads=16, calls=20):
    begin, counts = threading.Barrier(threads), []

    def work():
        begin.wait()
        counts.append(sum(bool(ask()) for _ in range(calls)))

    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return sum(counts)


@pytest.mark.parametrize("algorithm", ["token_bucket", "leaky_bucket", "fixed_window", "sliding_window_log", "sliding_window_counter", "sliding_window_slots"])
def test_16_threads_against_50(switch_interval, algorithm):
    for _ in range(3 if IS_SHORT else 50):
        limiter = Limiter("50/day", algorithm=algorithm)
        assert admitted(lambda: limiter.allow("a")) == 50
        assert admitted(lambda: limiter.check("b")) == 50


def test_16_threads_against_50_by_the_clock_of_python(switch_interval):
    limiter = Limiter("50/day; 60/hour", clock="python")
    assert admitted(lambda: limiter.allow("a")) == 50


def test_16_threads_against_50_of_a_gate(switch_interval):
    gate = Gate("rules: [{id: all, per: [], limit: 50/day}]")
    assert admitted(lambda: gate.check({})) == 50


def test_16_threads_against_50_over_redis(switch_interval, redis):
    limiter = Limiter("50/day", store=RedisStore(redis.url, deadline=2))
    limiter.peek("a")
    assert admitted(lambda: limiter.allow("a")) == 50


def test_16_threads_hold_one_permit_at_a_time(switch_interval):
    limiter = Limiter(Limit.concurrent(1), max_wait=60)
    holding, most = 0, 0

    def work():
        nonlocal holding, most
        with limiter.acquire("a"):
            holding += 1
            most = max(most, holding)
            time.sleep(0)
            holding -= 1
        return True

    assert admitted(work, threads=8, calls=10) == 80 and most == 1


def test_other_threads_go_on_while_one_waits(redis):
    for store in (None, RedisStore(redis.url, deadline=2)):
        limiter = Limiter("1/second", store=store, name="wait")
        limiter.allow("a")
        counted = 0

        def count():
            nonlocal counted
            end = time.monotonic() + 0.3
            while time.monotonic() < end:
                counted += 1

        thread = threading.Thread(target=count)
        thread.start()
        limiter.acquire("a")
        thread.join()
        assert counted > 1000


def test_a_signal_ends_a_wait_and_gives_back(redis):
    for store in (None, RedisStore(redis.url, deadline=2)):
        limiter = Limiter("1/minute", store=store, max_wait=300, name="signal")
        assert limiter.allow("a")

        class Alarm(Exception):
            pass

        def ring(*_):
            raise Alarm

        before = signal.signal(signal.SIGALRM, ring)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(Alarm):
                limiter.acquire("a")
        finally:
            signal.signal(signal.SIGALRM, before)
        time.sleep(0.1)
        assert limiter.peek("a").retry_after <= 60


def test_nothing_is_kept_of_those_who_have_waited():
    limiter = Limiter("20/second burst 1", algorithm="leaky_bucket")
    held = AsyncLimiter(Limit.concurrent(2))
    import asyncio

    async def hold():
        async with held.acquire("a"):
            pass

    for _ in range(5):
        limiter.acquire("a")
        asyncio.run(hold())
