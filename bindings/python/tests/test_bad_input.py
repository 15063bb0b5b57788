"""Bad input is a clear error of Python, and never a panic."""

import decimal
import fractions

import pytest

from tidegate import Gate, Limit, Limiter, ManualClock, MemoryStore, RedisStore, RulesError

STRANGE = [None, True, b"x", bytearray(b"x"), 1, -1, 2**70, -(2**70), 1.5, float("nan"), float("inf"), "", "x", "\udcff", [], {}, object(), print, fractions.Fraction(1, 2), decimal.Decimal(1), "x" * 100_000, "\x00"]


@pytest.mark.parametrize("method", ["check", "allow", "peek", "settle", "reset", "acquire"])
def test_a_key_is_a_text(method):
    limiter = Limiter("10/minute")
    cost = (1,) if method == "settle" else ()
    for key in (None, b"user", 5, 5.0, ["user"], object()):
        with pytest.raises(TypeError, match="a key is a `str`"):
            getattr(limiter, method)(key, *cost)
    with pytest.raises(UnicodeEncodeError):
        getattr(limiter, method)("\ud800", *cost)
    for key in ("", "\x00", "ünïcode \U0001f600", "x" * 1_000_000):
        getattr(limiter, method)(key, *cost)


@pytest.mark.parametrize("method", ["check", "allow", "peek", "settle", "acquire"])
def test_a_cost_is_a_whole_number(method):
    limiter = Limiter("10/minute")
    ask = getattr(limiter, method)
    for cost in (True, False, 1.0, "1", b"1", [1], object(), decimal.Decimal(1)):
        with pytest.raises(TypeError, match="a cost is an `int`"):
            ask("a", cost)
    for cost in (-1, -(2**70), 2**50 + 1, 2**64, 2**1000):
        with pytest.raises(ValueError, match=r"from 0 to 2\^50"):
            ask("a", cost)
    if method != "acquire":
        ask("a", 2**50)
        ask("a", 0)


def test_nothing_panics_whatever_it_is_given():
    """Every argument of every class is given everything. Only errors of Python may come of it."""
    limiter, gate, clock = Limiter("10/minute"), Gate("rules: []"), ManualClock(0)
    calls = [
        lambda x: Limiter(x), lambda x: Limiter("1/second", algorithm=x), lambda x: Limiter("1/second", store=x),
        lambda x: Limiter("1/second", name=x), lambda x: Limiter("1/second", max_wait=x),
        lambda x: Limiter("1/second", on_store_failure=x), lambda x: Limiter("1/second", clock=x),
        lambda x: Limiter("1/second", per_attribute=x), lambda x: Limiter([x]),
        lambda x: Limit(x), lambda x: Limit("1/second", x), lambda x: Limit("1/second", anchor=x),
        lambda x: Limit("1/second", "sliding_window_slots", slots=x), lambda x: Limit("1/second", "sliding_window_slots", strict=x),
        lambda x: Limit("1/second", max_delay=x), lambda x: Limit("1/second", "leaky_bucket", shape=x),
        lambda x: Limit("1", "concurrency", lease_ttl=x), lambda x: Limit.concurrent(x),
        lambda x: MemoryStore(x), lambda x: MemoryStore(max_keys=x),
        lambda x: RedisStore(x), lambda x: RedisStore("redis://127.0.0.1", namespace=x), lambda x: RedisStore("redis://127.0.0.1", key_secret=x),
        lambda x: RedisStore("redis://127.0.0.1", deadline=x), lambda x: RedisStore("redis://127.0.0.1", connect_timeout=x),
        lambda x: RedisStore("redis://127.0.0.1", tls_ca=x), lambda x: RedisStore("redis://127.0.0.1", tls_cert=x, tls_key=x),
        lambda x: ManualClock(x), clock.advance, clock.set,
        limiter.check, lambda x: limiter.check("a", x), lambda x: limiter.acquire("a", timeout=x), lambda x: limiter.limit(x),
        lambda x: limiter.check("a").headers(x), lambda x: limiter.limit("a", cost=x), lambda x: limiter.limit("a", wait=x),
        lambda x: Gate(x), lambda x: Gate([x]), lambda x: Gate({"rules": x}), lambda x: Gate([{"id": x, "per": [], "limit": x}]),
        Gate.from_file, gate.check, lambda x: gate.check({"user_id": x}), lambda x: gate.check({x: "a"} if x.__hash__ else x), lambda x: gate.check({}, x),
        gate.replace, gate.explain,
    ]
    for number, call in enumerate(calls):
        for strange in STRANGE:
            if number in (18, 19) and isinstance(strange, int) and not isinstance(strange, bool) and 0 < strange < 2**64:
                continue
            try:
                call(strange)
            except (TypeError, ValueError, OverflowError, OSError):
                pass
    clock.advance(2**33)
    clock.set(0)


def test_time_that_cannot_be_counted_is_refused():
    for seconds in (-1, float("nan"), float("inf"), -0.001):
        with pytest.raises(ValueError, match="0 or more"):
            ManualClock(seconds)
    with pytest.raises(OverflowError):
        ManualClock(1e30)
    clock = ManualClock(8.9e9)
    limiter = Limiter("1/minute", clock=clock)
    assert limiter.allow("a")
    clock.advance(8e6)
    assert limiter.allow("a")
    for timeout in (-1, "1", None.__class__):
        with pytest.raises((TypeError, ValueError)):
            limiter.acquire("b", timeout=timeout)


def test_rules_have_all_their_problems():
    with pytest.raises(RulesError) as raised:
        Gate("rules:\n  - {id: one, per: [], limit: soon}\n  - {id: two, per: [], limit: 5/minute, color: red}\n")
    problems = raised.value.problems
    assert [(problem.line, problem.column) for problem in problems] == [(2, 31), (3, 41)]
    assert "soon" in problems[0].message and "color" in problems[1].message
    assert "soon" in str(raised.value) and isinstance(raised.value, ValueError)
    for rules in (None, b"rules: []", 5, [5], "rules: 5", "[", "rules: [{id: a}]", [{"id": {1, 2}}]):
        with pytest.raises((RulesError, TypeError)):
            Gate(rules)


def test_attributes_are_texts():
    gate = Gate("rules: [{id: a, per: [user_id], limit: 5/minute}]")
    for attributes in (None, [], "user_id", {"user_id": None}, {"user_id": 5}, {"user_id": b"a"}, {5: "a"}):
        with pytest.raises(TypeError):
            gate.check(attributes)
    with pytest.raises(ValueError, match="address"):
        gate.check({"ip": "nowhere"})


def test_a_store_says_what_is_wrong_with_it(tmp_path):
    for options in ({"url": "http://host"}, {"url": "redis://host:0x/"}, {"url": "redis://h", "namespace": "no spaces"}, {"url": "redis://h", "deadline": 0}, {"url": "redis://h", "tls_cert": tmp_path}):
        with pytest.raises(ValueError):
            RedisStore(**options)
    with pytest.raises(OSError):
        RedisStore("rediss://h", tls_ca=tmp_path / "missing.pem")
    for make in (MemoryStore, Limit.concurrent, lambda n: Limit("1/second", "sliding_window_slots", slots=n)):
        for number in (0, -1, 2**70):
            with pytest.raises(ValueError, match="from 1"):
                make(number)
        for number in (True, 1.0, "1"):
            with pytest.raises(TypeError, match="int"):
                make(number)
    with pytest.raises(ValueError, match="slots"):
        Limit("1/second", "sliding_window_slots", slots=2**40)
    assert "secret" not in repr(RedisStore("redis://user:secret@127.0.0.1:6379"))
