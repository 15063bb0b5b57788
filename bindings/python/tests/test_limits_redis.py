"""The plugin of `limits` over Redis: how often it is called, what others have written, and what happens while it stands still."""

import asyncio
import contextlib
import contextvars
import subprocess
import threading
import time

import pytest
from limits import parse
from limits.aio.strategies import STRATEGIES as ASYNC_STRATEGIES
from limits.storage import storage_from_string
from limits.strategies import STRATEGIES
from limits_storages import STRATEGIES as ALL
from limits_storages import Opened, ready
from serving import answered

from tidegate import StoreError


@contextlib.contextmanager
def counted_calls(redis):
    """Lists the calls of storages that Redis gets meanwhile. What the store asks for itself does not count."""
    command = ["redis-cli", "-p", str(redis.port), "monitor"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as monitor:
        try:
            assert monitor.stdout.readline() == "OK\n"
            calls = []
            yield calls
            redis.ask("echo", "the end")
            for line in monitor.stdout:
                if '"the end"' in line:
                    break
                # Commands within a script have no sender.
                if ":limits." in line and " lua] " not in line:
                    calls.append(line)
        finally:
            monitor.kill()


@pytest.fixture(params=["", "async+"])
def opened(request, redis):
    opened = Opened(f"{request.param}tidegate+{redis.url}?deadline=2")
    yield opened
    opened.close()


def within_one_request(opened, limiter, *asked):
    """Asks a limiter several times in one task or thread, as an extension does in a request."""
    if not opened.loop:
        return [getattr(limiter, name)(*arguments) for name, *arguments in asked]

    async def request():
        return [await getattr(limiter.target, name)(*arguments) for name, *arguments in asked]

    return opened.loop.run_until_complete(request())


@pytest.mark.parametrize("strategy", ["fixed-window", "token-bucket", "sliding-window-log"])
def test_a_hit_and_its_headers_are_one_call(opened, redis, strategy):
    limiter, item = opened.limiter(strategy), parse("100/day")
    limiter.hit(item, "first")
    with counted_calls(redis) as calls:
        for left in range(99, 79, -1):
            hit, stats = within_one_request(opened, limiter, ("hit", item, "key"), ("get_window_stats", item, "key"))
            assert (hit, stats.remaining) == (True, left)
            assert 0 < stats.reset_time - time.time() < 86_401

    assert len(calls) == 20
    with counted_calls(redis) as calls:
        within_one_request(opened, limiter, ("get_window_stats", item, "key"))
    assert calls, "another request asks again"


@pytest.mark.parametrize("strategy", ["moving-window", "sliding-window-counter"])
def test_other_strategies_need_no_more_calls_than_with_limits(opened, redis, strategy):
    limiter, item = opened.limiter(strategy), parse("20/day")
    limiter.hit(item, "first")
    request = [("hit", item, "key"), ("get_window_stats", item, "key")]
    with counted_calls(redis) as calls:
        for allowed, left in [(True, left) for left in range(19, -1, -1)] + [(False, 0)] * 20:
            hit, stats = within_one_request(opened, limiter, *request)
            assert (hit, stats.remaining) == (allowed, left)
    # Denials say when the next hit is allowed, and are remembered for a moment.
    assert 40 < len(calls) <= 60


@pytest.mark.parametrize("strategy", ["token-bucket", "sliding-window-log"])
def test_a_denied_hit_says_when_it_would_be_allowed(opened, strategy):
    limiter, item = opened.limiter(strategy), parse("2/minute")
    hits = [("hit", item, "key")] * 3
    allowed_in = 30 if strategy == "token-bucket" else 60
    *answers, stats = within_one_request(opened, limiter, *hits, ("get_window_stats", item, "key"))
    assert answers == [True, True, False]
    assert (stats.remaining, stats.reset_time - time.time()) == (0, pytest.approx(allowed_in, abs=2))
    stats = limiter.get_window_stats(item, "key")
    assert (stats.remaining, stats.reset_time - time.time()) == (0, pytest.approx(allowed_in, abs=2))


def test_answers_are_used_once_and_in_their_own_thread_and_task_alone(redis):
    uri = f"tidegate+{redis.url}?deadline=2"
    one, other = (STRATEGIES["token-bucket"](ready(storage_from_string(uri))) for _ in range(2))
    item = parse("100/day")

    def left(limiter):
        return limiter.get_window_stats(item, "key").remaining

    def in_thread(function):
        answers = []
        # With the context of this thread, as thread pools of event loops do.
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: answers.append(context.run(function)))
        thread.start()
        thread.join()
        return answers[0]

    one.hit(item, "key")
    other.hit(item, "key")
    assert left(one) == 98, "another storage of this thread counts in the same place"
    one.hit(item, "key")
    in_thread(lambda: other.hit(item, "key"))
    assert in_thread(lambda: left(one)) == 96, "another thread asks Redis"
    assert left(one) == 97, "as of the hit of this thread"
    assert left(one) == 96, "once"
    one.hit(item, "key")
    assert not other.test(item, "key", cost=96)
    assert left(one) == 95, "an answer to a test is one, too"
    one.clear(item, "key")
    assert left(one) == 100

    async def tasks():
        limiter = ASYNC_STRATEGIES["token-bucket"](storage_from_string(f"async+{uri}"))

        async def left():
            return (await limiter.get_window_stats(item, "key")).remaining

        while not await limiter.storage.check():
            await asyncio.sleep(0.01)
        await limiter.hit(item, "key")
        assert await asyncio.create_task(limiter.hit(item, "key"))
        assert await asyncio.create_task(left()) == 98, "another task asks Redis"
        assert await left() == 99, "as of the hit of this task"
        assert await left() == 98

    asyncio.run(tasks())


def test_answers_get_old(redis):
    limiter = STRATEGIES["token-bucket"](ready(storage_from_string(f"tidegate+{redis.url}?deadline=2")))
    item = parse("10/second")
    assert limiter.hit(item, "key", cost=10)
    time.sleep(0.35)
    assert limiter.get_window_stats(item, "key").remaining >= 3


def test_processes_share_counters_and_strategies_do_not(redis):
    uri = f"tidegate+{redis.url}?deadline=2"
    item = parse("2/day")

    def limiter(strategy, options=""):
        return STRATEGIES[strategy](ready(storage_from_string(uri + options)))

    for strategy in ALL * 2:
        # Made anew each time: a strategy that is changed meets what the one before has written.
        assert limiter(strategy).hit(item, "key"), strategy
    for strategy in ALL:
        assert not limiter(strategy).hit(item, "key"), strategy
        assert limiter(strategy).hit(parse("3/day"), "key"), "another limit"
        assert limiter(strategy, "&namespace=other").hit(item, "key")


def test_what_limits_has_written_is_no_error(redis):
    item = parse("2/day")
    for key in ("LIMITS:LIMITER/key/2/1/day", "LIMITER/key/2/1/day"):
        redis.ask("lpush", key, "1")
    for strategy in ALL:
        limiter = STRATEGIES[strategy](ready(storage_from_string(f"tidegate+{redis.url}?deadline=2")))
        assert [limiter.hit(item, "key") for _ in range(3)] == [True, True, False], strategy


def test_keys_are_readable_or_hashed_if_they_are_long(redis):
    storage = ready(storage_from_string(f"tidegate+{redis.url}?deadline=2", key_secret="of all instances"))
    STRATEGIES["token-bucket"](storage).hit(parse("5/minute"), "127.0.0.1", "home")
    STRATEGIES["fixed-window"](storage).hit(parse("5/minute"), "x" * 100)
    keys = [key for key in redis.ask("keys", "tg:*") if "limits" in key]
    assert "tg:{LIMITER%2f127.0.0.1%2fhome%2f5%2f1%2fminute}:limits.token-bucket:tb:1m" in keys
    assert not any("x" * 20 in key for key in keys) and len(keys) == 2
    assert all(0 < int(redis.ask("pttl", key)[0]) <= 61_000 for key in keys)


def test_a_clock_of_python_decides_over_redis(redis):
    import hiro

    limiter = STRATEGIES["fixed-window"](ready(storage_from_string(f"tidegate+{redis.url}?deadline=2&clock=python")))
    with hiro.Timeline().freeze() as timeline:
        assert [limiter.hit(parse("1/hour"), "key") for _ in range(2)] == [True, False]
        timeline.forward(3601)
        assert limiter.hit(parse("1/hour"), "key")


@pytest.mark.parametrize("strategy", ALL)
def test_the_event_loop_goes_on_while_redis_stands_still(own_redis, strategy):
    async def longest_pause():
        # Longer than the loop may stand still: if calls blocked it, that would show on a busy machine, too.
        storage = storage_from_string(f"async+tidegate+{own_redis.url}?deadline=0.3")
        limiter, item = ASYNC_STRATEGIES[strategy](storage), parse("1000/day")
        while not await storage.check():
            await asyncio.sleep(0.01)
        pauses, failures, is_over = [], [], False

        async def watch():
            while not is_over:
                before = time.perf_counter()
                await asyncio.sleep(0.001)
                pauses.append(time.perf_counter() - before - 0.001)

        watching = asyncio.create_task(watch())
        with own_redis.stopped():
            for _ in range(2):
                try:
                    await limiter.hit(item, "key")
                except StoreError:
                    failures.append(1)
        is_over = True
        await watching
        assert len(failures) == 2
        return max(pauses)

    # The machine may be busy: one quiet run shows what the storage does.
    assert any(asyncio.run(longest_pause()) < 0.15 for _ in range(5))


def test_a_redis_that_stands_still_costs_a_thread_no_more_than_the_deadline(own_redis):
    storage = ready(storage_from_string(f"tidegate+{own_redis.url}"))
    limiter, item = STRATEGIES["token-bucket"](storage), parse("1000/day")
    longest = []
    with own_redis.stopped():
        end = time.monotonic() + 0.5
        while time.monotonic() < end:
            before = time.perf_counter()
            with pytest.raises(StoreError):
                limiter.hit(item, "key")
            longest.append(time.perf_counter() - before)
        assert not storage.check()
    assert sorted(longest)[len(longest) // 2] < 0.05
    assert answered(limiter.hit, item, "key")
