"""Clocks of tests rule the limiter."""

import datetime
import time

import freezegun
import hiro
import pytest
import time_machine

from tidegate import Gate, Limiter, ManualClock, RedisStore


def test_a_manual_clock_stands_still_until_it_is_moved():
    clock = ManualClock(100.25)
    assert clock.now() == 100.25 and repr(clock) == "ManualClock(100.25)"
    clock.advance(0.000001)
    assert clock.now() == 100.250001
    clock.set(5)
    assert clock.now() == 5.0


def test_freezegun_rules_a_limiter_by_the_clock_of_python():
    limiter = Limiter("1/minute", clock="python")
    with freezegun.freeze_time("2030-01-01") as frozen:
        assert limiter.allow("a") and not limiter.allow("a")
        assert limiter.check("a").reset_at == datetime.datetime(2030, 1, 1, 0, 1, tzinfo=datetime.timezone.utc).timestamp()
        frozen.tick(60)
        assert limiter.allow("a")


def test_time_machine_rules_it_too():
    limiter = Limiter("1/minute", clock="python")
    with time_machine.travel(1_900_000_000, tick=False) as traveller:
        assert limiter.allow("a") and not limiter.allow("a")
        traveller.shift(60)
        assert limiter.allow("a")


def test_hiro_rules_it_too():
    limiter = Limiter("1/minute; 5/hour", clock="python")
    with hiro.Timeline().freeze() as timeline:
        assert limiter.allow("a") and not limiter.allow("a")
        timeline.forward(60)
        assert limiter.allow("a")


def test_gates_and_stores_by_the_clock_of_python():
    gate = Gate("rules: [{id: all, per: [], limit: 1/minute}]", clock="python")
    with freezegun.freeze_time("2030-01-01") as frozen:
        assert gate.check({}) and not gate.check({})
        frozen.tick(60)
        assert gate.check({})


def test_a_clock_that_fails_is_an_error_of_python(monkeypatch):
    limiter = Limiter("1/minute", clock="python")
    assert limiter.allow("a")
    monkeypatch.setattr(time, "time", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        limiter.allow("a")
    monkeypatch.setattr(time, "time", lambda: "noon")
    with pytest.raises(TypeError):
        limiter.allow("a")
    monkeypatch.setattr(time, "time", lambda: -5.0)
    with pytest.raises(ValueError):
        limiter.allow("a")


def test_a_clock_rules_a_limiter_over_redis(redis):
    clock = ManualClock(1_800_000_000)
    limiter = Limiter("1/minute", store=RedisStore(redis.url, deadline=2), clock=clock)
    gate = Gate("rules: [{id: all, per: [], limit: 1/minute}]", store=RedisStore(redis.url, deadline=2), clock=clock)
    assert limiter.allow("a") and not limiter.allow("a") and gate.check({}) and not gate.check({})
    clock.advance(60)
    assert limiter.allow("a") and gate.check({})
