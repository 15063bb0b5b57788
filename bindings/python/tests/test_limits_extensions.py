"""Flask-Limiter and slowapi as they are, with the storages and strategies of the plugin."""

import asyncio
import random
import time

import hiro
import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse
from fastapi.testclient import TestClient
from flask import Flask
from flask_limiter import Limiter as FlaskLimiter
from flask_limiter.commands import cli as limiter_commands
from limits_storages import STRATEGIES, ready
from slowapi import Limiter as SlowLimiter
from slowapi import _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from slowapi.middleware import SlowAPIMiddleware
from test_limits_redis import counted_calls

import tidegate.limits  # noqa: F401


def flask_app(limits="3/minute", **options):
    app = Flask(__name__)
    limiter = FlaskLimiter(lambda: "client", app=app, default_limits=[limits], headers_enabled=True, **options)

    @app.get("/")
    def home():
        return "ok"

    return app, limiter


def slow_app(limits="3/minute", **options):
    app = FastAPI()
    limiter = SlowLimiter(key_func=lambda: "client", headers_enabled=True, **options)
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)

    @app.get("/")
    @limiter.limit(limits)
    async def home(request: Request):
        return PlainTextResponse("ok")

    return app, limiter


def client_of(kind, **options):
    """A client of an application of either framework, and the extension."""
    app, limiter = slow_app(**options) if kind == "slowapi" else flask_app(**options)
    if "127.0.0.1:1" != options["storage_uri"][-11:]:
        ready(limiter._storage)
    return (TestClient(app, raise_server_exceptions=False) if kind == "slowapi" else app.test_client()), limiter


both = pytest.mark.parametrize("kind", ["Flask-Limiter", "slowapi"])


@both
@pytest.mark.parametrize("place", ["memory", "redis"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_requests_are_limited_and_headers_are_right(kind, place, strategy, redis):
    uri = "tidegate://" if place == "memory" else f"tidegate+{redis.url}"
    options = {} if place == "memory" else {"storage_options": {"deadline": 2.0, "namespace": "tests"}}
    client, _ = client_of(kind, limits="3/day", storage_uri=uri, strategy=strategy, **options)
    for status, left in ((200, 2), (200, 1), (200, 0), (429, 0), (429, 0)):
        response = client.get("/")
        assert (response.status_code, response.headers["X-RateLimit-Remaining"]) == (status, str(left))
        assert response.headers["X-RateLimit-Limit"] == "3"
        assert 0 <= float(response.headers["X-RateLimit-Reset"]) - time.time() < 86_403
        assert 0 <= int(response.headers["Retry-After"]) <= 86_401


@both
@pytest.mark.parametrize("strategy", STRATEGIES[:3])
def test_headers_are_those_of_the_memory_of_limits_while_the_clock_stands_still(kind, strategy):
    chance = random.Random(kind + strategy)
    with hiro.Timeline().freeze() as timeline:
        options = {"limits": "2/second; 5 per minute; 40/hour", "strategy": strategy}
        clients = [client_of(kind, storage_uri=uri, **options)[0] for uri in ("memory://", "tidegate://?clock=python")]
        for _ in range(40):
            # Whole microseconds that a float has exactly.
            timeline.forward(chance.choice([0, 13, 77, 331, 3911, 25999]) / 64)
            wanted, got = (client.get("/") for client in clients)
            assert got.status_code == wanted.status_code
            for name in ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After"):
                if strategy == "sliding-window-counter" and name in ("X-RateLimit-Reset", "Retry-After"):
                    # They differ by a microsecond, which may be the one that makes a second.
                    assert float(got.headers[name]) == pytest.approx(float(wanted.headers[name]), rel=0, abs=1.001)
                else:
                    assert got.headers[name] == wanted.headers[name], name


@both
def test_a_token_bucket_says_when_to_come_again(kind):
    with hiro.Timeline().freeze() as timeline:
        client, _ = client_of(kind, limits="3/minute", storage_uri="tidegate://?clock=python", strategy="token-bucket")
        assert [client.get("/").status_code for _ in range(4)] == [200, 200, 200, 429]
        # Extensions add a second.
        wait = int(client.get("/").headers["Retry-After"])
        assert wait in (20, 21)
        timeline.forward(wait)
        assert [client.get("/").status_code for _ in range(2)] == [200, 429]


@both
@pytest.mark.parametrize("strategy", ["fixed-window", "token-bucket", "sliding-window-log"])
def test_a_request_with_headers_is_one_call_for_each_limit(kind, strategy, redis):
    for limits, count in (("1000/day", 1), ("1000/day; 500/hour; 400/minute", 3)):
        uri = f"tidegate+{redis.url}?deadline=2"
        client, _ = client_of(kind, limits=limits, storage_uri=uri, strategy=strategy)
        client.get("/")
        with counted_calls(redis) as calls:
            for _ in range(20):
                assert client.get("/").status_code == 200
        # A request that took longer than an answer is fresh asks again.
        assert 20 * count <= len(calls) <= 20 * count + 3


@both
def test_another_strategy_on_a_redis_in_use_is_no_error(kind, redis):
    for strategy in STRATEGIES * 2:
        client, _ = client_of(kind, storage_uri=f"tidegate+{redis.url}?deadline=2", strategy=strategy)
        assert client.get("/").status_code == 200, strategy


@both
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_while_redis_is_dead_the_extension_counts_in_memory(kind, strategy, own_redis):
    uri = f"tidegate+{own_redis.url}?deadline=2"
    client, limiter = client_of(kind, storage_uri=uri, strategy=strategy, in_memory_fallback_enabled=True)
    assert client.get("/").status_code == 200
    own_redis.end()
    assert [client.get("/").status_code for _ in range(4)] == [200, 200, 200, 429]
    assert limiter._storage_dead


@both
def test_without_a_fallback_a_dead_redis_is_an_error(kind):
    client, _ = client_of(kind, storage_uri="tidegate+redis://127.0.0.1:1", strategy="token-bucket")
    assert client.get("/").status_code == 500


def test_flask_limiter_can_let_requests_pass_while_redis_is_dead():
    app, _ = flask_app(storage_uri="tidegate+redis://127.0.0.1:1", strategy="token-bucket", swallow_errors=True)
    assert app.test_client().get("/").status_code == 200


@both
def test_an_extension_is_reset(kind, redis):
    for uri in ("tidegate://", f"tidegate+{redis.url}?deadline=2"):
        for strategy in STRATEGIES:
            client, limiter = client_of(kind, limits="1/day", storage_uri=uri, strategy=strategy)
            assert [client.get("/").status_code for _ in range(2)] == [200, 429]
            limiter.reset()
            assert client.get("/").status_code == 200, strategy


def test_flask_limiter_shows_its_storage_without_secrets():
    app, _ = flask_app(storage_uri="tidegate+redis://127.0.0.1:1", strategy="token-bucket")
    shown = app.test_cli_runner(env={"COLUMNS": "200"}).invoke(limiter_commands, ["config"])
    assert shown.exit_code == 0, shown.output
    assert "TidegateStorage" in shown.output and "tidegate+redis://127.0.0.1:1" in shown.output
    assert "TokenBucketRateLimiter" in shown.output


def test_flask_limiter_clears_and_deducts_conditionally():
    app = Flask(__name__)
    limiter = FlaskLimiter(lambda: "client", app=app, storage_uri="tidegate://", strategy="token-bucket")
    status = 200

    @app.get("/login")
    @limiter.limit("2/day", deduct_when=lambda response: response.status_code == 401)
    def login():
        return "", status

    client = app.test_client()
    assert [client.get("/login").status_code for _ in range(5)] == [200] * 5
    status = 401
    assert [client.get("/login").status_code for _ in range(3)] == [401, 401, 429]
    cleared = app.test_cli_runner().invoke(limiter_commands, ["clear", "--key=client", "-y"])
    assert cleared.exit_code == 0, cleared.output
    assert client.get("/login").status_code == 401


def test_slowapi_counts_costs_and_names_its_keys():
    app = FastAPI()
    limiter = SlowLimiter(key_func=lambda: "mock", storage_uri="tidegate://")
    app.state.limiter = limiter
    app.add_middleware(SlowAPIMiddleware)

    @app.get("/costs")
    @limiter.limit("50/minute", cost=lambda request: int(request.headers["weight"]) * 1.5)
    def costs(request: Request):
        return PlainTextResponse("ok")

    client = TestClient(app)
    assert [client.get("/costs", headers={"weight": "5"}).status_code for _ in range(6)] == [200] * 6
    assert limiter._storage.get("LIMITER/mock//costs/50/1/minute") == 48
    assert client.get("/costs", headers={"weight": "5"}).status_code == 429


def test_the_event_loop_of_slowapi_waits_for_redis_no_longer_than_the_deadline(own_redis):
    async def longest_hit():
        app, limiter = slow_app(limits="1000/day", storage_uri=f"tidegate+{own_redis.url}", in_memory_fallback_enabled=True)
        ready(limiter._storage)
        hit, durations = limiter._limiter.hit, []

        def timed(*arguments, **options):
            before = time.perf_counter()
            try:
                return hit(*arguments, **options)
            finally:
                durations.append(time.perf_counter() - before)

        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            assert (await client.get("/")).status_code == 200
            limiter._limiter.hit = timed
            with own_redis.stopped():
                for _ in range(10):
                    assert (await client.get("/")).status_code == 200
        return max(durations)

    # The deadline is 15 ms, but the machine may be busy. A storage that waits for Redis would not return at all.
    assert any(asyncio.run(longest_hit()) < 0.2 for _ in range(5))
