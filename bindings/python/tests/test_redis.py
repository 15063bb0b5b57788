"""Counters in Redis: shared with a server's rules, one command for each request, and what happens without an answer."""

import subprocess
import time

import pytest
from serving import answered

from tidegate import Gate, Limit, Limiter, RateLimited, RedisStore, StoreError


def test_limiters_share_counters_with_each_other_and_with_rules(redis):
    store = RedisStore(redis.url, deadline=2)
    store.wait_ready(5)
    one, other = Limiter("3/minute", store=store, name="per-user"), Limiter("3/minute", store=RedisStore(redis.url, deadline=2), name="per-user")
    gate = Gate("rules: [{id: per-user, per: [user_id], limit: 3/minute}]", store=store)
    assert (one.check("ada").remaining, other.check("ada").remaining, gate.check({"user_id": "ada"}).remaining) == (2, 1, 0)
    assert not one.allow("ada") and not gate.check({"user_id": "ada"})
    assert "tg:{ada}:per-user@user_id:tb:1m" in redis.ask("keys", "*ada*")
    assert one.stats() == (None, None)


def test_a_secret_attribute_needs_the_secret_of_the_servers(redis):
    with pytest.raises(ValueError, match="key_secret"):
        Limiter("3/minute", store=RedisStore(redis.url, deadline=2), name="per-key", per_attribute="api_key")
    # Servers know headers by their names in lower case, and only then which of them are secret.
    with pytest.raises(ValueError, match="write `header.authorization`"):
        Limiter("3/minute", store=RedisStore(redis.url, deadline=2), name="per-key", per_attribute="header.Authorization")
    for secret in ("hidden", b"hidden"):
        store = RedisStore(redis.url, deadline=2, key_secret=secret)
        limiter = Limiter("30/minute", store=store, name="per-key", per_attribute="api_key")
        gate = Gate("rules: [{id: per-key, per: [api_key], limit: 30/minute}]", store=store)
        before = limiter.peek("k-123").remaining
        assert limiter.allow("k-123") and gate.check({"api_key": "k-123"}).remaining == before - 2
    assert not redis.ask("keys", "*k-123*") and redis.ask("keys", "*per-key@api_key*")


def test_namespaces_are_separate(redis):
    one, other = (Limiter("1/minute", store=RedisStore(redis.url, deadline=2, namespace=name)) for name in ("one", "other"))
    assert one.allow("a") and other.allow("a") and not one.allow("a")


def test_one_command_for_any_number_of_limits(redis):
    limiter = Limiter("100/minute; 50/second; 1000/hour; 10000/day", store=RedisStore(redis.url, deadline=2))
    limiter.check("a")
    before = commands(redis)
    for _ in range(10):
        limiter.check("a")
    assert commands(redis) - before == 10


def commands(redis):
    """How often a script was run. Others, such as announcements, are not counted."""
    lines = redis.ask("info", "commandstats")
    return sum(int(line.split("calls=")[1].split(",")[0]) for line in lines if line.startswith("cmdstat_evalsha:"))


def test_another_algorithm_on_a_redis_in_use_is_no_error(redis):
    for algorithm in ("token_bucket", "leaky_bucket", "fixed_window", "sliding_window_log", "sliding_window_counter", "sliding_window_slots"):
        assert Limiter("3/minute", algorithm=algorithm, store=RedisStore(redis.url, deadline=2)).check("a").remaining == 2


def test_permits_and_acquire(redis):
    limiter = Limiter([Limit.concurrent(1), Limit("100/second")], store=RedisStore(redis.url, deadline=2))
    with limiter.acquire("a") as permit:
        assert permit.renew() and not limiter.allow("a")
        with pytest.raises(RateLimited):
            limiter.acquire("a", timeout=0.1)
    assert not permit.release()
    decision = limiter.check("a")
    assert decision.permit.release()
    slow = Limiter("20/second burst 1", store=RedisStore(redis.url, deadline=2), name="slow")
    began = time.monotonic()
    for _ in range(3):
        slow.acquire("a")
    assert time.monotonic() - began >= 0.09


def test_a_dead_redis_is_an_error_and_certainly_nothing_was_charged():
    began = time.monotonic()
    limiter = Limiter("3/minute", store="redis://127.0.0.1:1")
    for ask in (limiter.check, limiter.allow, limiter.peek, limiter.reset, limiter.acquire):
        with pytest.raises(StoreError) as raised:
            ask("a")
        assert raised.value.charged is False and isinstance(raised.value, ConnectionError)
    assert time.monotonic() - began < 2


def test_without_an_answer_it_is_not_known_whether_it_was_charged(own_redis):
    limiter = Limiter("3/minute", store=RedisStore(own_redis.url, deadline=0.5))
    assert answered(limiter.allow, "a")
    with own_redis.stopped():
        began = time.monotonic()
        with pytest.raises(StoreError) as raised:
            limiter.check("a")
        assert raised.value.charged is None
        assert 0.4 < time.monotonic() - began < 10


def test_a_limiter_goes_on_without_its_store():
    allowing = Limiter("3/minute; 100/hour", store="redis://127.0.0.1:1", on_store_failure="allow")
    decision = allowing.check("a")
    assert decision.allowed and decision.degraded and decision.limit == 3 and decision.retry_after == 0.0
    assert allowing.allow("a") and allowing.peek("a") and allowing.settle("a", 5) and allowing.reset("a") is None
    with allowing.acquire("a") as permit:
        assert permit.decision.degraded and not permit.release()
    denying = Limiter("3/minute", store="redis://127.0.0.1:1", on_store_failure="deny")
    decision = denying.check("a")
    assert not decision and decision.degraded and decision.retry_after == 1.0 and decision.reason == "store_unavailable"
    assert not denying.allow("a")
    with pytest.raises(RateLimited) as raised:
        denying.acquire("a")
    assert raised.value.decision.degraded


def test_a_gate_does_not_fail_without_its_store():
    for policy, allowed in (("allow", True), ("deny", False), ("local", True)):
        gate = Gate([{"id": "all", "per": [], "limit": "3/minute", "on_store_failure": policy}], store="redis://127.0.0.1:1")
        decision = gate.check({})
        assert decision.allowed is allowed and decision.degraded and decision.rule == "all"


def test_a_closed_store_has_no_connections(own_redis):
    with RedisStore(own_redis.url, deadline=2) as store:
        limiter = Limiter("3/minute", store=store)
        gate = Gate("rules: [{id: all, per: [], limit: 3/minute}]", store=store)
        assert limiter.allow("a") and gate.check({})
        assert len(own_redis.ask("client", "list")) >= 2
    end = time.monotonic() + 5
    while len(own_redis.ask("client", "list")) > 1:
        assert time.monotonic() < end, own_redis.ask("client", "list")
        time.sleep(0.02)
    with pytest.raises(StoreError, match="closed") as raised:
        limiter.check("a")
    assert raised.value.charged is False
    with pytest.raises(StoreError):
        gate.check({})
    assert Limiter("3/minute", store=store, on_store_failure="allow").check("a").degraded
    store.close()


def test_wait_ready(own_redis):
    assert RedisStore(own_redis.url, deadline=2).wait_ready(5) is None
    began = time.monotonic()
    with pytest.raises(StoreError):
        RedisStore("redis://127.0.0.1:1").wait_ready(0.2)
    assert 0.15 < time.monotonic() - began < 2
    for timeout in (-1, "1", None):
        with pytest.raises((TypeError, ValueError)):
            RedisStore("redis://127.0.0.1:1").wait_ready(timeout)


def test_redis_over_tls_and_a_socket(tmp_path):
    key, certificate, socket = tmp_path / "key.pem", tmp_path / "certificate.pem", tmp_path / "redis.sock"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", certificate], check=True, capture_output=True)
    from conftest import RedisServer

    plain = RedisServer()
    port = plain.port
    plain.end()
    options = ["--port", "0", "--tls-port", str(port), "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-ca-cert-file", certificate, "--tls-auth-clients", "no", "--unixsocket", socket, "--save", "", "--bind", "127.0.0.1", "--dir", tmp_path]
    server = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
    try:
        stores = [RedisStore(f"rediss://127.0.0.1:{port}", tls_ca=certificate, deadline=2), RedisStore(f"unix://{socket}", deadline=2)]
        for index, store in enumerate(stores):
            store.wait_ready(10)
            assert Limiter("3/minute", store=store).check("a").remaining == 2 - index
        with pytest.raises(StoreError):
            RedisStore(f"rediss://127.0.0.1:{port}").wait_ready(0.5)
    finally:
        server.kill()
        server.wait()
