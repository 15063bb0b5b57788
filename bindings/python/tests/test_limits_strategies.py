"""The strategies over the storages of the plugin: those of `limits` mean what they mean there, the new ones are exact."""

import doctest
import importlib
import inspect
import random
import sys
import threading
import time

import hiro
import pytest
from conftest import IS_SHORT
from limits import RateLimitItemPerMonth, RateLimitItemPerYear, parse
from limits.aio.storage import MemoryStorage as AsyncMemoryStorage
from limits.errors import ConfigurationError
from limits.storage import MemoryStorage, storage_from_string
from limits.strategies import STRATEGIES as REGISTERED
from limits_storages import STRATEGIES, Opened, ready

import tidegate.limits
import tidegate.limits.aio

OF_LIMITS = STRATEGIES[:3]
NEW = STRATEGIES[3:]


@pytest.fixture
def time_stands_still():
    with hiro.Timeline().freeze() as timeline:
        yield timeline


@pytest.mark.parametrize("asynchronous", ["", "async+"])
@pytest.mark.parametrize("strategy", OF_LIMITS)
def test_strategies_of_limits_answer_as_over_their_own_memory(strategy, asynchronous, time_stands_still):
    chance = random.Random(strategy)
    expected, opened = Opened(f"{asynchronous}memory://"), Opened(f"{asynchronous}tidegate://?clock=python")
    items = [parse(text) for text in ("5/minute", "3 per 10 second", "100/hour", "1/second", "0/minute")]
    limiters = [expected.limiter(strategy), opened.limiter(strategy)]
    for _ in range(500 if IS_SHORT else 5_000):
        # Never whole: what happens at the very end of a window is another microsecond's business.
        time_stands_still.forward(chance.choice([0, 0.001, 0.3, 2, 11, 61, 4000]) + chance.random() / 10)
        item, key, cost = chance.choice(items), chance.choice("ab"), chance.choice([1, 1, 1, 2, 4])
        asked = chance.choices(["hit", "test", "get_window_stats", "clear"], [10, 10, 10, 1])[0]
        costs = {"cost": cost} if asked in ("hit", "test") else {}
        wanted, got = (getattr(limiter, asked)(item, key, **costs) for limiter in limiters)
        if asked == "get_window_stats":
            assert got.remaining == wanted.remaining, (item, key)
            # In a moving window of which nothing is left, `limits` answers the end of what has left it.
            if wanted.remaining < item.amount:
                assert got.reset_time == pytest.approx(wanted.reset_time, rel=0, abs=1e-4), (item, key)
        else:
            assert got == wanted, (asked, item, key, costs)
    expected.close()
    opened.close()


@pytest.mark.parametrize("strategy", ["fixed-window", "moving-window"])
def test_times_are_those_of_a_clock_that_stands_still_to_the_last_digit(strategy, time_stands_still):
    limiter, item = Opened("tidegate://?clock=python").limiter(strategy), parse("5/minute")
    for key in range(50):
        time_stands_still.forward(random.random())
        start = time.time()
        limiter.hit(item, str(key))
        time_stands_still.forward(1)
        limiter.hit(item, str(key))
        assert limiter.get_window_stats(item, str(key)).reset_time == start + 60


@pytest.mark.parametrize("uri", ["tidegate://?clock=python", "async+tidegate://?clock=python"])
def test_a_token_bucket_refills_continuously_and_a_denied_hit_costs_nothing(uri, time_stands_still):
    opened = Opened(uri)
    limiter, item = opened.limiter("token-bucket"), parse("10/minute")
    assert all(limiter.hit(item, "key") for _ in range(10))
    for _ in range(3):
        assert not limiter.hit(item, "key")
        assert not limiter.test(item, "key")
    stats = limiter.get_window_stats(item, "key")
    assert (stats.remaining, stats.reset_time - time.time()) == (0, pytest.approx(6, abs=1e-3))
    time_stands_still.forward(6)
    assert limiter.test(item, "key") and not limiter.test(item, "key", cost=2)
    stats = limiter.get_window_stats(item, "key")
    assert (stats.remaining, stats.reset_time - time.time()) == (1, pytest.approx(54, abs=1e-3))
    assert limiter.hit(item, "key")
    assert not limiter.hit(item, "key")
    assert not limiter.hit(item, "key", cost=11)
    limiter.clear(item, "key")
    assert limiter.get_window_stats(item, "key").remaining == 10
    opened.close()


@pytest.mark.parametrize("uri", ["tidegate://?clock=python", "async+tidegate://?clock=python"])
def test_a_sliding_window_log_counts_in_any_window(uri, time_stands_still):
    opened = Opened(uri)
    limiter, item = opened.limiter("sliding-window-log"), parse("10/minute")
    assert limiter.hit(item, "key", cost=4)
    time_stands_still.forward(30)
    assert limiter.hit(item, "key", cost=6)
    assert not limiter.hit(item, "key")
    stats = limiter.get_window_stats(item, "key")
    assert (stats.remaining, stats.reset_time - time.time()) == (0, pytest.approx(30, abs=1e-3))
    time_stands_still.forward(30)
    assert limiter.get_window_stats(item, "key").remaining == 4
    assert [limiter.hit(item, "key") for _ in range(5)] == [True] * 4 + [False]
    opened.close()


@pytest.mark.parametrize("uri", ["tidegate://", "async+tidegate://"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_zero_denies_and_what_cannot_be_counted_is_a_configuration_error(uri, strategy):
    opened = Opened(uri)
    limiter = opened.limiter(strategy)
    for _ in range(2):
        assert not limiter.hit(parse("0/minute"), "key")
        assert not limiter.test(parse("0/minute"), "key")
        assert limiter.get_window_stats(parse("0/minute"), "key").remaining == 0
    for text in ("1000000001/minute", "10000000000000000000000/minute", "1/367 day", "1/13 month"):
        for _ in range(2):
            with pytest.raises(ConfigurationError, match=r"1000000000|366 days"):
                limiter.hit(parse(text), "key")
    assert limiter.hit(parse("1000000000/366 day"), "key")
    for item, days in ((RateLimitItemPerMonth(1), 30), (RateLimitItemPerYear(1), 360)):
        assert [limiter.hit(item, "key"), limiter.hit(item, "key")] == [True, False]
        assert item.get_expiry() == days * 86_400
    opened.close()


def test_new_strategies_are_registered_as_those_of_limits():
    import limits.aio.strategies

    ours = (tidegate.limits.TokenBucketRateLimiter, tidegate.limits.SlidingWindowLogRateLimiter)
    assert tuple(REGISTERED[name] for name in NEW) == ours
    twins = (tidegate.limits.aio.TokenBucketRateLimiter, tidegate.limits.aio.SlidingWindowLogRateLimiter)
    assert tuple(limits.aio.strategies.STRATEGIES[name] for name in NEW) == twins


@pytest.mark.parametrize("strategy", NEW)
def test_over_the_memory_of_limits_new_strategies_count_in_memory(strategy, time_stands_still):
    item = parse("2/minute")
    storage = MemoryStorage()
    limiters = [REGISTERED[strategy](storage), REGISTERED[strategy](storage), REGISTERED[strategy](MemoryStorage())]
    assert [limiter.hit(item, "key") for limiter in limiters + limiters] == [True, True, True, False, False, True]
    time_stands_still.forward(61)
    assert limiters[0].hit(item, "key", cost=2)
    opened = Opened("async+memory://")
    limiter = opened.limiter(strategy)
    assert isinstance(limiter.storage, AsyncMemoryStorage)
    assert [limiter.hit(item, "key") for _ in range(3)] == [True, True, False]
    opened.close()


@pytest.mark.parametrize("uri", ["tidegate://", "tidegate://?clock=python"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_threads_are_admitted_exactly(uri, strategy):
    before = sys.getswitchinterval()
    for _ in range(2 if IS_SHORT else 20):
        limiter = REGISTERED[strategy](storage_from_string(uri))
        item, start, admitted = parse("50/day"), threading.Barrier(16), []

        def hit(limiter=limiter, item=item, start=start, admitted=admitted):
            start.wait()
            admitted.append(sum(limiter.hit(item, "key") for _ in range(20)))

        threads = [threading.Thread(target=hit) for _ in range(16)]
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(before)
        assert sum(admitted) == 50


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_threads_are_admitted_exactly_over_redis(redis, strategy):
    limiter = REGISTERED[strategy](ready(storage_from_string(f"tidegate+{redis.url}", deadline=5.0)))
    item, start, admitted = parse("50/day"), threading.Barrier(16), []

    def hit():
        start.wait()
        admitted.append(sum(limiter.hit(item, "key") for _ in range(10)))

    threads = [threading.Thread(target=hit) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(admitted) == 50


MODULES = ["", "._answers", "._counters", "._operations", "._storage", "._strategies", ".aio"]


@pytest.mark.parametrize("module", MODULES)
def test_examples_run_and_every_class_has_one(module):
    found = importlib.import_module("tidegate.limits" + module)
    assert doctest.testmod(found).failed == 0
    for name in getattr(found, "__all__", []):
        text = inspect.getdoc(getattr(found, name))
        assert text, name
        if inspect.isclass(getattr(found, name)):
            assert ">>>" in text, name
