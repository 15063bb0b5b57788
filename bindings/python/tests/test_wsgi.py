"""The middleware of WSGI: Flask, Django, servers with threads and processes, permits, delays, paths."""

import concurrent.futures
import doctest
import importlib
import io
import logging
import pathlib
import threading
import time

import pytest
from serving import IS_SHORT, get, serving, within

from tidegate import AsyncGate, Gate, LimitError, ManualClock, MemoryStore, RulesError
from tidegate.wsgi import RateLimitMiddleware

ONE = "rules: [{id: one, per: [], algorithm: concurrency, limit: 1}]"


def environ(path="/", **more):
    found = {"REQUEST_METHOD": "GET", "SCRIPT_NAME": "", "PATH_INFO": path, "QUERY_STRING": "", "HTTP_HOST": "a.example", "REMOTE_ADDR": "203.0.113.7"}
    return {**found, "wsgi.input": io.BytesIO(), "wsgi.errors": io.StringIO(), "wsgi.url_scheme": "http", **more}


def call(app, request):
    """The status, the headers and the body of an answer, closed as a server does."""
    answer = {}

    def start_response(status, headers, exc_info=None):
        answer.update(status=int(status[:3]), headers=headers)
        return lambda data: None

    body = app(request, start_response)
    try:
        text = b"".join(body)
    finally:
        if hasattr(body, "close"):
            body.close()
    return answer["status"], answer["headers"], text


def hello(_, start_response):
    start_response("200 OK", [("Content-Type", "text/plain"), ("X-RateLimit-Limit", "own"), ("Retry-After", "own")])
    return [b"hello"]


def test_a_limit_counts_by_address_and_a_key_by_what_it_returns():
    app = RateLimitMiddleware(hello, limit="1/minute")
    assert [call(app, environ())[0] for _ in range(2)] == [200, 429]
    assert call(app, environ(REMOTE_ADDR="203.0.113.8"))[0] == 200
    app = RateLimitMiddleware(hello, limit="1/minute; 1/second", key=lambda request: request["HTTP_X_USER"])
    assert [call(app, environ(HTTP_X_USER=user))[0] for user in ("a", "a", "b")] == [200, 429, 200]


def test_headers_replace_those_of_the_application_and_only_those():
    app = RateLimitMiddleware(hello, limit="5/minute")
    _, headers, body = call(app, environ())
    assert body == b"hello"
    assert [name for name, _ in headers] == [
        "Content-Type", "Retry-After", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit-policy", "ratelimit"]
    assert dict(headers)["ratelimit-policy"] == '"limit";q=5;w=60'
    for chosen, expected in (((), ["X-RateLimit-Limit"]), (["x"], ["x-ratelimit-limit"]), (["draft-10"], ["X-RateLimit-Limit"])):
        _, headers, _ = call(RateLimitMiddleware(hello, limit="5/minute", headers=chosen), environ())
        assert [name for name, _ in headers if name.lower() == "x-ratelimit-limit"] == expected
        assert ("ratelimit" in dict(headers)) == (chosen == ["draft-10"])


def test_what_no_rule_is_about_is_passed_on_as_it_is():
    app = RateLimitMiddleware(hello, rules="rules: [{id: login, match: {path: /login}, per: [ip], limit: 1/day}]")
    started = []
    assert app(environ("/other"), lambda *answer: started.append(answer)) == [b"hello"]
    assert started == [("200 OK", [("Content-Type", "text/plain"), ("X-RateLimit-Limit", "own"), ("Retry-After", "own")])]


def test_attributes_are_added_and_a_cost_is_charged():
    rules = [{"id": "users", "per": ["user_id"], "limit": "10/minute"}]
    app = RateLimitMiddleware(hello, rules=rules, attributes=lambda request: {"user_id": request.get("HTTP_X_USER")}, cost=4)
    assert dict(call(app, environ(HTTP_X_USER="u1"))[1])["x-ratelimit-remaining"] == "6"
    assert "x-ratelimit-remaining" not in dict(call(app, environ())[1])
    app = RateLimitMiddleware(hello, rules=Gate(rules), attributes=lambda _: {"user_id": "u1"}, cost=lambda request: int(request["HTTP_X_COST"]))
    assert dict(call(app, environ(HTTP_X_COST="3"))[1])["x-ratelimit-remaining"] == "7"
    assert call(RateLimitMiddleware(hello, rules=AsyncGate(rules)), environ())[0] == 200


@pytest.mark.parametrize("wrong", [
    {}, {"rules": ONE, "limit": "1/s"}, {"rules": ONE, "key": str}, {"rules": Gate(ONE), "store": MemoryStore()}, {"limit": "1/s", "trusted_proxies": "10.0.0.0/8"},
    {"limit": "1/s", "headers": "x"}, {"limit": "1/s", "key": "user"}, {"limit": "1/s", "attributes": {}}, {"limit": 5.0}, {"rules": 5}, {"limit": "1/s", "store": 5}])
def test_parameters_that_do_not_fit_are_errors_at_the_start(wrong):
    with pytest.raises((TypeError, ValueError)):
        RateLimitMiddleware(hello, **wrong)


@pytest.mark.parametrize("wrong", [
    {"limit": "1/s", "headers": ["y"]}, {"limit": "1/s", "trusted_proxies": ["proxy"]}, {"limit": "1/s", "store": "http://127.0.0.1"},
    {"rules": "rules: [{id: a}]"}, {"rules": "rules:\n- {id: a, per: [], limit: soon}"}])
def test_bad_values_are_errors_at_the_start(wrong):
    with pytest.raises(ValueError):
        RateLimitMiddleware(hello, **wrong)


def test_bad_rules_and_a_missing_file_are_errors_at_the_start(tmp_path):
    file = tmp_path / "rules.yaml"
    with pytest.raises(OSError):
        RateLimitMiddleware(hello, rules=file)
    with pytest.raises(OSError):
        RateLimitMiddleware(hello, rules="rules.yaml")
    file.write_text("rules: [{id: a, per: [], limit: soon}]")
    with pytest.raises(RulesError) as raised:
        RateLimitMiddleware(hello, rules=str(file))
    assert raised.value.problems


@pytest.mark.parametrize("wrong", [
    {"key": lambda _: None}, {"key": lambda _: b"k"}, {"key": lambda _: 7}, {"cost": lambda _: -1}, {"cost": -1}, {"cost": 1.5}, {"cost": lambda _: "1"},
    {"cost": True}, {"cost": 1 << 60}, {"attributes": lambda _: "user"}, {"attributes": lambda _: {"user_id": 7}}, {"attributes": lambda _: {7: "u"}},
    {"attributes": lambda _: {"user_id": b"u"}}, {"attributes": lambda _: 1 // 0}])
def test_functions_that_return_something_else_are_errors_of_the_application(wrong):
    app = RateLimitMiddleware(hello, limit="1/minute", **wrong)
    with pytest.raises((TypeError, ValueError, ZeroDivisionError)):
        call(app, environ())


@pytest.mark.parametrize("more", [
    {"PATH_INFO": "/%zz"}, {"PATH_INFO": "/\0"}, {"PATH_INFO": "/\xff"}, {"HTTP_HOST": "a b"}, {"REQUEST_METHOD": "GE T"}, {"PATH_INFO": "/" + "a" * 100_000},
    {"HTTP_X_KEY": "a\x01b"}, {"RAW_URI": "/%ff", "PATH_INFO": "/\xff"}])
def test_requests_that_cannot_be_understood_get_400(more):
    app = RateLimitMiddleware(hello, rules="rules: [{id: a, match: {host: '*.example'}, per: [header.x-key], limit: 9/m}]")
    more = {"RAW_URI": "/%zz", **more} if more.get("PATH_INFO") == "/%zz" else more
    status, headers, body = call(app, environ(**more))
    assert (status, dict(headers)["content-type"]) == (400, "application/problem+json"), body


def test_a_head_request_that_is_denied_gets_no_body():
    app = RateLimitMiddleware(hello, rules="rules: [{id: a, per: [], limit: blocked}]")
    status, headers, body = call(app, environ(REQUEST_METHOD="HEAD"))
    assert (status, body) == (403, b"") and int(dict(headers)["content-length"]) > 0


@pytest.mark.parametrize("mounted, path, raw", [
    ("", "/login", None), ("/shop", "/login", None), ("/shop", "/login", "/shop/login"), ("/shop", "/login", "/login"), ("", "/login", "/%6cogin"), ("", "//login", None),
    ("", "/x/../login", None), ("", "/login;a", None), ("", "/login", "/elsewhere"), ("", "/login", "http://a.example/login?x=1"), ("/x", "/../login", None),
    ("", "/shop/login", None), ("/%73hop", "/login", "/%2573hop/login")])
def test_a_prefix_and_a_spelling_are_no_way_around_a_rule(mounted, path, raw):
    rules = "rules: [{id: login, match: {path: [/login, /shop/login]}, per: [], limit: 1/day}]"
    more = {} if raw is None else {"RAW_URI": raw}
    app = RateLimitMiddleware(hello, rules=rules)
    assert [call(app, environ(path, SCRIPT_NAME=mounted, **more))[0] for _ in range(2)] == [200, 429]


def test_a_permit_is_held_until_the_body_has_ended_or_is_closed_or_has_failed():
    def parts(_, start_response):
        start_response("200 OK", [])
        yield b"one"
        yield b"two"

    gate = Gate(ONE)
    is_free = lambda: bool(gate.explain({})["decision"])
    app = RateLimitMiddleware(parts, rules=gate)
    for end in ("read", "closed", "dropped"):
        body = app(environ(), lambda *_: None)
        assert next(iter(body)) == b"one"
        assert not is_free(), end
        if end == "read":
            assert list(body) == [b"two"]
        elif end == "closed":
            body.close()
        del body
        within(5, is_free)

    def fails(_, start_response):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        call(RateLimitMiddleware(fails, rules=gate), environ())
    within(5, is_free)


def test_a_delayed_request_waits_in_its_thread_and_keeps_its_turn():
    rules = "rules: [{id: paced, per: [], limit: 20/second burst 1, max_delay: 5s}]"
    app = RateLimitMiddleware(hello, rules=rules)
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        statuses = [answer[0] for answer in pool.map(lambda _: call(app, environ()), range(8))]
    assert statuses == [200] * 8 and time.monotonic() - began >= 7 / 20


def test_threads_are_admitted_exactly():
    app = RateLimitMiddleware(hello, limit="50/hour burst 50")
    begin, found = threading.Barrier(16), []

    def ask():
        begin.wait()
        found.extend(call(app, environ())[0] for _ in range(20))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.count(200) == 50 and found.count(429) == 16 * 20 - 50


def test_a_rule_file_is_read_again_and_bad_rules_are_logged_once(tmp_path, caplog):
    file = tmp_path / "rules.yaml"
    file.write_text("rules: [{id: a, per: [], limit: 5/hour}]")
    app = RateLimitMiddleware(hello, rules=str(file))
    limit = lambda: dict(call(app, environ())[1])["x-ratelimit-limit"]
    assert limit() == "5"
    file.write_text("rules: [{id: a, per: [], limit: 77/hour}]")
    within(10, lambda: limit() == "77")
    with caplog.at_level(logging.ERROR, "tidegate"):
        file.write_text("rules: [{id: a, per: [], limit: soon}]")
        within(10, lambda: limit() == "77" and caplog.records)
        time.sleep(1.2)  # Two more looks.
        assert limit() == "77" and len(caplog.records) == 1 and str(file) in caplog.text
        pathlib.Path(file).unlink()
        within(10, lambda: limit() and len(caplog.records) == 2)
    file.write_text("rules: [{id: a, per: [], limit: 88/hour}]")
    within(10, lambda: limit() == "88")


def test_time_is_that_of_the_gate():
    clock = ManualClock(1_800_000_000)
    app = RateLimitMiddleware(hello, rules=Gate([{"id": "a", "per": ["ip"], "limit": "1/minute"}], clock=clock))
    assert [call(app, environ())[0] for _ in range(2)] == [200, 429]
    clock.advance(60)
    assert call(app, environ())[0] == 200


@pytest.mark.parametrize("module", ["asgi", "wsgi"])
def test_the_examples_of_a_module_run(module):
    found = doctest.testmod(importlib.import_module(f"tidegate.{module}"))
    assert found.attempted > 5 and found.failed == 0


def test_flask():
    flask = pytest.importorskip("flask")
    app = flask.Flask("shop")
    app.get("/orders/<number>")(lambda number: f"order {number}")
    app.wsgi_app = RateLimitMiddleware(app.wsgi_app, rules="rules: [{id: orders, match: {path: '/orders/*'}, per: [ip], limit: 2/minute}]")
    client = app.test_client()
    answers = [client.get("/orders/7") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].text == "order 7" and answers[0].headers["x-ratelimit-remaining"] == "1"
    assert answers[2].json["violated-policies"] == ["orders"] and answers[2].mimetype == "application/problem+json"
    assert client.get("/").status_code == 404


def test_requests_without_an_address_are_logged_once(caplog):
    app = RateLimitMiddleware(hello, limit="1/day")
    with caplog.at_level(logging.WARNING, "tidegate"):
        assert [call(app, environ(REMOTE_ADDR=""))[0] for _ in range(3)] == [200] * 3
    assert len(caplog.records) == 1 and "address" in caplog.text


@pytest.mark.parametrize("server", ["gunicorn-threads"] if IS_SHORT else ["gunicorn", "gunicorn-threads"])
def test_gunicorn(server, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules:\n- {id: all, match: {path: /}, per: [ip], limit: 50/hour burst 50}\n- {id: slow, match: {path: /slow}, per: [], limit: 1, algorithm: concurrency}")
    with serving(server, RULES=str(rules)) as port, concurrent.futures.ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(lambda _: get(port)[0], range(80)))
        assert statuses.count(200) == 50 and statuses.count(429) == 30
        if server == "gunicorn-threads":
            slow = [pool.submit(get, port, "/slow?5") for _ in range(2)]
            assert sorted(answer.result()[0] for answer in slow) == [200, 429]
            within(20, lambda: get(port, "/slow?0")[0] == 200)
        # Read again in a process that was forked.
        rules.write_text("rules: [{id: all, match: {path: /}, per: [ip], limit: blocked}]")
        within(5, lambda: get(port)[0] == 403)


def test_a_malformed_limit_is_a_limit_error():
    for limit in ("soon", "", "1/fortnight"):
        with pytest.raises(LimitError):
            RateLimitMiddleware(hello, limit=limit)
