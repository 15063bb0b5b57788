"""The answers are those of Rust: random calls are played here and by a program of Rust."""

import itertools
import json
import os
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conftest import IS_SHORT
from tidegate import Limit, Limiter, ManualClock, RedisStore

CALLS = 100
IN_MEMORY = 50 if IS_SHORT else 1000
OVER_REDIS = 4 if IS_SHORT else 50

windows = st.sampled_from(["second", "minute", "hour", "100ms", "7s", "90m"])
counts = st.one_of(st.integers(1, 12), st.sampled_from([100, 1000, 999_999_937]))
algorithms = st.sampled_from(
    [
        ("token_bucket", {}), ("token_bucket", {"max_delay": "3s"}), ("leaky_bucket", {}), ("leaky_bucket", {"shape": False}),
        ("fixed_window", {}), ("fixed_window", {"anchor": "first_request"}), ("sliding_window_log", {}), ("sliding_window_counter", {}),
        ("sliding_window_slots", {}), ("sliding_window_slots", {"slots": 10, "strict": True}),
    ]
)


@st.composite
def limits(draw):
    made, shapes = [], set()
    for _ in range(draw(st.integers(1, 3))):
        (name, options), count, window = draw(algorithms), draw(counts), draw(windows)
        burst = draw(st.none() | st.integers(1, 20)) if name.endswith("bucket") else None
        if "max_delay" in options:
            # More could not be owed.
            count = min(count, 1000)
        if (name, window) in shapes:
            continue
        shapes.add((name, window))
        rate = f"{count}/{window}" + (f" burst {burst}" if burst else "")
        made.append((rate, name, options))
    return made


call = st.tuples(
    st.one_of(st.just(0), st.integers(0, 3_000_000), st.sampled_from([999_999, 1_000_000, 60_000_000, 3_600_000_001])),
    st.sampled_from(["check", "check", "check", "allow", "peek", "settle", "reset"]),
    st.sampled_from(["a", "b", "ünïcode {}", ""]),
    st.one_of(st.just(1), st.integers(0, 15), st.sampled_from([1000, 2**31, 2**50])),
)
games = st.tuples(limits(), st.integers(1_000_000_000, 2_000_000_000), st.lists(call, min_size=CALLS, max_size=CALLS))


class Reference:
    """The program of Rust, which plays a game for each line."""

    def __init__(self, *arguments):
        program = os.environ.get("TIDEGATE_REFERENCE")
        assert program, "run this by ./scripts/python, which builds the program of Rust"
        self.process = subprocess.Popen([program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.calls = 0

    def play(self, made, name, start, calls):
        self.calls += len(calls)
        game = {"limits": made, "name": name, "start": start * 1_000_000, "calls": calls}
        self.process.stdin.write(json.dumps(game) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        assert self.process.wait() == 0


def micros(seconds):
    return None if seconds is None else round(seconds * 1_000_000)


def written(decision):
    def numbers(answer):
        return [answer.allowed, answer.limit, answer.remaining, micros(answer.retry_after), micros(answer.reset_at)]

    outcomes = [[*numbers(outcome), micros(outcome.delay)] for outcome in decision.outcomes]
    return {"allowed": decision.allowed, "delay": micros(decision.delay), "decided": numbers(decision), "outcomes": outcomes}


def compare(limiter, clock, calls, expected):
    for (later, method, key, cost), answer in zip(calls, expected, strict=True):
        # A float holds microseconds exactly for longer than these games last.
        clock.set(micros_later(clock, later) / 1_000_000)
        if method == "reset":
            assert limiter.reset(key) is None and answer is None
        elif method == "allow":
            assert limiter.allow(key, cost) is answer["allowed"], (method, key, cost)
        else:
            answer["decided"].pop()
            assert written(getattr(limiter, method)(key, cost)) == answer, (method, key, cost)


def micros_later(clock, later):
    return round(clock.now() * 1_000_000) + later


def few_checks(number):
    return settings(max_examples=number, deadline=None, database=None, derandomize=IS_SHORT, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def reference():
    playing = Reference()
    yield playing
    playing.end()


def test_answers_in_memory_are_those_of_rust(reference):
    @few_checks(IN_MEMORY)
    @given(games)
    def play(game):
        made, start, calls = game
        clock = ManualClock(start)
        limiter = Limiter([Limit(rate, name, **options) for rate, name, options in made], clock=clock)
        compare(limiter, clock, calls, reference.play(made, "game", start, calls))

    play()
    assert reference.calls >= IN_MEMORY * CALLS
    print(f"{reference.calls} calls in memory, 0 differences")


def test_answers_over_redis_are_those_of_rust(redis):
    reference, numbers = Reference(redis.url, "rust"), itertools.count()
    store = RedisStore(redis.url, namespace="python", deadline=5)
    store.wait_ready(5)

    @few_checks(OVER_REDIS)
    @given(games)
    def play(game):
        made, start, calls = game
        name, clock = f"game-{next(numbers)}", ManualClock(start)
        limiter = Limiter([Limit(rate, algorithm, **options) for rate, algorithm, options in made], clock=clock, store=store, name=name)
        compare(limiter, clock, calls, reference.play(made, name, start, calls))

    play()
    reference.end()
    assert reference.calls >= OVER_REDIS * CALLS
    print(f"{reference.calls} calls over Redis, 0 differences")
