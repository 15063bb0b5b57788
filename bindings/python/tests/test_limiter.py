"""The limiter in memory: what the contract says of each method."""

import threading
import time

import pytest

from tidegate import Limit, Limiter, LimitError, ManualClock, MemoryStore, RateLimited

START = 1_800_000_000


def manual(limits, **options):
    clock = ManualClock(START)
    return Limiter(limits, clock=clock, **options), clock


def test_a_decision_has_the_numbers_of_the_limit_that_decided():
    limiter, clock = manual("100/minute burst 20; 5/second")
    decision = limiter.check("user_42")
    assert decision and decision.allowed
    assert (decision.limit, decision.remaining, decision.retry_after, decision.delay) == (5, 4, 0.0, 0.0)
    assert decision.reset_at == START + 0.2
    assert [outcome.remaining for outcome in decision.outcomes] == [19, 4]
    assert decision.permit is None and decision.rule is None and not decision.degraded and decision.missing == []


def test_all_limits_are_charged_or_none():
    limiter, clock = manual("10/minute; 2/second")
    assert limiter.allow("a", 2)
    denied = limiter.check("a")
    assert not denied and denied.retry_after == 0.5 and denied.reason == "over_limit"
    assert [outcome.remaining for outcome in limiter.peek("a", 0).outcomes] == [8, 0], "a denied request costs nothing"
    clock.advance(0.5)
    assert limiter.allow("a")


def test_retry_after_is_true():
    limiter, clock = manual("3/minute")
    assert limiter.allow("a", 3)
    wait = limiter.check("a").retry_after
    clock.advance(wait - 0.000001)
    assert not limiter.allow("a")
    clock.advance(0.000001)
    assert limiter.allow("a")


def test_a_cost_above_the_limit_never_passes():
    limiter, _ = manual("3/minute")
    decision = limiter.check("a", 4)
    assert not decision and decision.retry_after is None and decision.reason == "too_expensive"
    assert limiter.check("a", 2**50).retry_after is None
    assert limiter.check("a", 0), "a cost of 0 takes nothing"
    assert limiter.peek("a").remaining == 3


def test_peek_settle_and_reset():
    limiter, _ = manual("10/minute")
    assert limiter.peek("a", 10) and limiter.peek("a").remaining == 10
    settled = limiter.settle("a", 30)
    assert not settled and settled.remaining == 0
    assert limiter.reset("a") is None
    assert limiter.check("a").remaining == 9


def test_limiters_with_the_same_name_limits_and_store_share_counters():
    store = MemoryStore(max_keys=100)
    one, same = (Limiter("2/minute", store=store, name="api") for _ in range(2))
    other = Limiter("2/minute", store=store, name="web")
    assert one.allow("a") and same.allow("a") and not one.allow("a")
    assert other.allow("a")
    assert not Limiter("2/minute", store=MemoryStore()).check("b", 3) and one.stats().keys == 2


def test_a_store_has_one_clock():
    store = MemoryStore()
    clock = ManualClock(START)
    Limiter("2/minute", store=store, clock=clock)
    Limiter("2/minute", store=store, clock=clock)
    for other in (None, "python", ManualClock(START)):
        with pytest.raises(ValueError, match="another clock"):
            Limiter("2/minute", store=store, clock=other)


def test_a_full_store_counts_what_it_forgets():
    limiter = Limiter("2/minute", store=MemoryStore(max_keys=10))
    for key in range(1000):
        limiter.allow(str(key))
    keys, evictions = limiter.stats()
    assert keys <= 10 and evictions >= 900


@pytest.mark.parametrize(
    ("limit", "text", "algorithm", "capacity"),
    [
        (Limit("100/minute burst 20"), "100/minute burst 20", "token_bucket", 20),
        (Limit("10000/day"), "10000/day", "fixed_window", 10000),
        (Limit("10 per 2 hours", "sliding_window_log"), "10/2h", "sliding_window_log", 10),
        (Limit("10/minute", "sliding_window_slots", slots=30, strict=True), "10/minute", "sliding_window_slots", 10),
        (Limit("10/minute", "sliding_window_counter"), "10/minute", "sliding_window_counter", 10),
        (Limit("10/minute", "leaky_bucket", shape=False), "10/minute", "leaky_bucket", 10),
        (Limit("10/minute", "fixed_window", anchor="first_request"), "10/minute", "fixed_window", 10),
        (Limit("1/second", max_delay="2s"), "1/second", "token_bucket", 1),
        (Limit("10/day", max_delay=2.5), "10/day", "token_bucket", 10),
        (Limit("5", "concurrency", lease_ttl="30s"), "5", "concurrency", 5),
        (Limit.concurrent(5, lease_ttl=30), "5", "concurrency", 5),
    ],
)
def test_limits_and_their_options(limit, text, algorithm, capacity):
    assert (str(limit), limit.algorithm, limit.capacity) == (text, algorithm, capacity)
    assert limit == limit and hash(limit) == hash(limit) and limit != Limit("77/second")
    assert Limiter(limit).limits == [limit] and Limiter([limit]).limits == [limit]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": "10/fortnight"}, "fortnight"),
        ({"rate": "0/minute"}, "0"),
        ({"rate": ""}, "limit"),
        ({"rate": "10/minute", "algorithm": "leaky"}, "expected one of `token_bucket`"),
        ({"rate": "10/minute", "slots": 5}, "`slots` is an option of `sliding_window_slots`"),
        ({"rate": "10/minute", "algorithm": "fixed_window", "anchor": "noon"}, "expected one of `clock`"),
        ({"rate": "10/minute", "algorithm": "sliding_window_log", "max_delay": "1s"}, "`max_delay` is an option of"),
        ({"rate": "10/minute", "max_delay": "soon"}, "soon"),
        ({"rate": "10/minute burst 5", "algorithm": "sliding_window_log"}, "burst"),
        ({"rate": "10/minute", "algorithm": "concurrency"}, "window"),
        ({"rate": "5", "algorithm": "concurrency", "lease_ttl": "1000000000s"}, "lease_ttl"),
        ({"rate": "10/minute; 20/minute"}, "10/minute; 20/minute"),
    ],
)
def test_a_malformed_limit_says_what_is_accepted(options, message):
    with pytest.raises(LimitError) as raised:
        Limit(**options)
    assert message in str(raised.value) and isinstance(raised.value, ValueError)


def test_malformed_limits_of_a_limiter():
    for limits, error in [("", LimitError), ([], LimitError), ("10/minute; 20/minute", LimitError), (5, TypeError), (None, TypeError), (b"1/s", TypeError), ([5], TypeError)]:
        with pytest.raises(error):
            Limiter(limits)
    with pytest.raises(ValueError, match="give it to each"):
        Limiter(Limit("1/second"), algorithm="fixed_window")
    with pytest.raises(ValueError, match="expected one of `raise`"):
        Limiter("1/second", on_store_failure="panic")
    with pytest.raises(TypeError, match="clock"):
        Limiter("1/second", clock="system")
    with pytest.raises(TypeError, match="store"):
        Limiter("1/second", store=5)
    with pytest.raises(ValueError, match="redis"):
        Limiter("1/second", store="memcached://host")
    with pytest.raises(ValueError, match="name"):
        Limiter("1/second", name="")


def test_acquire_waits_for_its_turn():
    limiter = Limiter("20/second burst 1")
    began = time.monotonic()
    for _ in range(3):
        with limiter.acquire("a") as permit:
            assert permit.decision.allowed and permit.id is None and not permit.release()
    assert 0.09 <= time.monotonic() - began < 2


def test_acquire_waits_with_every_algorithm():
    for algorithm in ("leaky_bucket", "fixed_window", "sliding_window_log", "sliding_window_counter", "sliding_window_slots"):
        limiter = Limiter("2/100ms", algorithm=algorithm, max_wait=5)
        for _ in range(4):
            limiter.acquire("a")


def test_acquire_fails_immediately_if_it_would_take_too_long():
    limiter = Limiter("1/hour", max_wait=60)
    assert limiter.allow("a")
    began = time.monotonic()
    for timeout in (None, 30, 5000, 0):
        with pytest.raises(RateLimited) as raised:
            limiter.acquire("a", timeout=timeout)
        error = raised.value
        assert error.retry_after == error.decision.retry_after > 3500 and not error.decision
    with pytest.raises(RateLimited) as raised:
        limiter.acquire("b", 2)
    assert raised.value.retry_after is None
    assert time.monotonic() - began < 10
    assert limiter.peek("b").remaining == 1, "nothing was charged"


def test_a_frozen_clock_does_not_hold_acquire_for_longer_than_its_timeout():
    limiter, _ = manual("1/second", algorithm="sliding_window_log")
    assert limiter.allow("a")
    began = time.monotonic()
    with pytest.raises(RateLimited):
        limiter.acquire("a", timeout=1.2)
    assert time.monotonic() - began < 5


def test_a_permit_is_held_until_it_is_released():
    limiter = Limiter([Limit.concurrent(1), Limit("100/second")])
    with limiter.acquire("a") as permit:
        assert len(permit.id) == 32 and permit.renew()
        assert not limiter.check("a")
        with pytest.raises(RateLimited):
            limiter.acquire("a", timeout=0.05)
    assert not permit.release() and not permit.renew()
    decision = limiter.check("a")
    assert decision.permit.release() and not decision.permit.release()


def test_a_permit_that_is_released_wakes_a_thread_that_waits():
    limiter = Limiter(Limit.concurrent(1))
    permit = limiter.acquire("a")
    waited = []

    def wait():
        began = time.monotonic()
        with limiter.acquire("a", timeout=10):
            waited.append(time.monotonic() - began)

    thread = threading.Thread(target=wait)
    thread.start()
    time.sleep(0.2)
    permit.release()
    thread.join(5)
    assert waited and waited[0] < 2


def test_a_permit_is_released_on_an_error():
    limiter = Limiter(Limit.concurrent(1))
    with pytest.raises(KeyError), limiter.acquire("a"):
        raise KeyError("a")
    assert limiter.allow("a")


def test_the_decorator_limits_functions():
    limiter, clock = manual("2/minute")
    calls = []

    @limiter.limit(lambda user, **_: user)
    def greet(user, *, loud=False):
        """Greets."""
        calls.append(user)
        return user.upper() if loud else user

    assert greet("ada", loud=True) == "ADA" and greet("ada") == "ada" and greet.__doc__ == "Greets."
    with pytest.raises(RateLimited) as raised:
        greet("ada")
    assert raised.value.retry_after == 30 and len(calls) == 2
    assert greet("bob") == "bob"

    @limiter.limit("all", cost=3)
    def expensive():
        calls.append("never")

    with pytest.raises(RateLimited, match="waiting cannot help"):
        expensive()
    for key in (None, b"a", 5):
        with pytest.raises(TypeError):
            limiter.limit(key)
    with pytest.raises(TypeError):
        limiter.limit(lambda: None)(print)()


def test_the_decorator_waits_and_holds_its_permit():
    limiter = Limiter([Limit.concurrent(1), Limit("50/second burst 1")])

    @limiter.limit("all", wait=True)
    def work():
        return limiter.peek("all").allowed

    began = time.monotonic()
    assert [work() for _ in range(3)] == [False, False, False]
    assert time.monotonic() - began >= 0.03
    held = Limiter(Limit.concurrent(1))

    @held.limit("all")
    def check():
        return held.peek("all").allowed

    assert check() is False and check() is False


def test_headers_are_those_of_the_server():
    limiter, _ = manual("3/minute; 100/hour")
    limiter.check("a", 3)
    headers = dict(limiter.check("a").headers("per-user"))
    assert headers == {
        "retry-after": "20",
        "x-ratelimit-limit": "3",
        "x-ratelimit-remaining": "0",
        "x-ratelimit-reset": str(START + 60),
        "ratelimit-policy": '"per-user";q=3;w=60, "per-user/1h";q=100;w=3600',
        "ratelimit": '"per-user";r=0;t=20, "per-user/1h";r=97;t=108',
    }
    with pytest.raises(ValueError, match="name of a limit"):
        limiter.check("a").headers('"quoted"')


def test_objects_have_no_setters_and_tell_what_they_are():
    limiter = Limiter("3/minute")
    decision = limiter.check("a")
    with pytest.raises(AttributeError):
        decision.allowed = False
    assert repr(limiter) == "Limiter('3/minute')"
    assert repr(decision.outcomes[0]) == "Outcome(allowed=True, limit=3, remaining=2, algorithm='token_bucket')"
    assert repr(MemoryStore()) == "MemoryStore(max_keys=10000000)"
