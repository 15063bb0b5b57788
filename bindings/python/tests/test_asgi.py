"""The middleware of ASGI: FastAPI, real servers, WebSockets, permits, delays, paths, a Redis that stands still."""

import asyncio
import concurrent.futures
import contextlib
import time

import pytest
from serving import IS_SHORT, get, serving, within

from tidegate import AsyncGate, Gate, RulesError
from tidegate.asgi import RateLimitMiddleware

ONE = "rules: [{id: one, per: [], algorithm: concurrency, limit: 1}]"


def scope(path="/", **more):
    found = {"type": "http", "method": "GET", "path": path, "raw_path": None, "root_path": "", "query_string": b""}
    return {**found, "headers": [(b"host", b"a.example")], "client": ("203.0.113.7", 5000), **more}


async def hello(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"X-RateLimit-Limit", b"own"), (b"a", b"b")]})
    await send({"type": "http.response.body", "body": b"hello"})


async def call(app, asked):
    """The messages of an answer."""
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "websocket.connect"}

    await app(asked, receive, send)
    return sent


def status(app, asked):
    return asyncio.run(call(app, asked))[0]["status"]


def test_a_limit_counts_by_address_and_a_key_by_what_it_returns():
    app = RateLimitMiddleware(hello, limit="1/minute")
    assert [status(app, scope()) for _ in range(2)] == [200, 429]
    assert status(app, scope(client=("203.0.113.8", 1))) == 200

    async def key(scope):
        return scope["user"]

    for function in (key, lambda scope: scope["user"]):
        app = RateLimitMiddleware(hello, limit="1/minute", key=function)
        assert [status(app, scope(user=user)) for user in ("a", "a", "b")] == [200, 429, 200]


def test_headers_replace_those_of_the_application_and_only_those():
    start, body = asyncio.run(call(RateLimitMiddleware(hello, limit="5/minute"), scope()))
    assert start["headers"][:3] == [(b"a", b"b"), (b"x-ratelimit-limit", b"5"), (b"x-ratelimit-remaining", b"4")]
    assert [name for name, _ in start["headers"][3:]] == [b"x-ratelimit-reset", b"ratelimit-policy", b"ratelimit"]
    assert body["body"] == b"hello"
    start, body = asyncio.run(call(RateLimitMiddleware(hello, rules="rules: [{id: a, per: [], limit: blocked}]"), scope(method="HEAD")))
    assert start["status"] == 403 and body["body"] == b"" and dict(start["headers"])[b"content-length"] != b"0"


def test_a_lifespan_and_what_is_not_known_pass():
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["type"])

    limited = RateLimitMiddleware(app, rules="rules: [{id: a, per: [], limit: blocked}]")
    for kind in ("lifespan", "other"):
        asyncio.run(limited({"type": kind}, None, None))
    assert seen == ["lifespan", "other"]


def test_attributes_and_costs_may_be_coroutines():
    async def attributes(scope):
        return {"user_id": scope.get("user")}

    async def cost(scope):
        return 4

    rules = [{"id": "users", "per": ["user_id"], "limit": "10/minute"}]
    for given in (rules, Gate(rules), AsyncGate(rules)):
        app = RateLimitMiddleware(hello, rules=given, attributes=attributes, cost=cost)
        start, _ = asyncio.run(call(app, scope(user="u1")))
        assert dict(start["headers"])[b"x-ratelimit-remaining"] == b"6"


@pytest.mark.parametrize("wrong", [{"key": lambda _: None}, {"key": lambda _: b"k"}, {"cost": -1}, {"cost": lambda _: 1.5}, {"attributes": lambda _: [1]}])
def test_functions_that_return_something_else_are_errors_of_the_application(wrong):
    with pytest.raises((TypeError, ValueError)):
        asyncio.run(call(RateLimitMiddleware(hello, limit="1/minute", **wrong), scope()))


def test_bad_rules_are_errors_at_the_start(tmp_path):
    (tmp_path / "rules.yaml").write_text("rules: [{id: a, per: [], limit: soon}]")
    with pytest.raises(RulesError):
        RateLimitMiddleware(hello, rules=tmp_path / "rules.yaml")


@pytest.mark.parametrize("asked", [
    scope("/%zz", raw_path=b"/%zz"), scope("/\0"), scope("/\ufffd", raw_path=b"/%ff"), scope("/" + "a" * 100_000),
    scope(headers=[(b"host", b"a.example"), (b"host", b"b.example")]), scope(headers=[(b"host", b"a\x01")]), scope(headers=[(b"a b", b"c")]),
    scope(method="GE T"), scope(headers=[(b"a", b"b")] * 40_000)])
def test_requests_that_cannot_be_understood_get_400(asked):
    app = RateLimitMiddleware(hello, rules="rules: [{id: a, match: {host: '*.example'}, per: [ip], limit: 9/m}]")
    assert status(app, asked) == 400


def test_headers_that_some_frameworks_take_for_others_do_not_reach_the_application():
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["headers"])
        await hello(scope, receive, send)

    headers = [(b"host", b"a.example"), (b"x_api_key", b"k1"), (b"accept", b"a"), (b"accept", b"b")]
    asked = scope(headers=headers)
    limited = RateLimitMiddleware(app, rules="rules: [{id: a, per: [header.x-api-key], limit: 9/m}]")
    assert status(limited, asked) == 200
    assert seen == [[headers[0], *headers[2:]]] and asked["headers"] == headers


@pytest.mark.parametrize("mounted, path, raw", [
    ("", "/login", None), ("", "/login", b"/login"), ("/shop", "/shop/login", None), ("/shop", "/shop/login", b"/shop/login"), ("/shop", "/login", b"/login"),
    ("", "/login", b"/%6cogin"), ("", "//login", b"//login"), ("", "/x/../login", None), ("", "/login#a", b"/login#a"), ("", "/login", b"/elsewhere"),
    ("/other", "/other/login", b"/other/login")])
def test_a_prefix_and_a_spelling_are_no_way_around_a_rule(mounted, path, raw):
    rules = "rules: [{id: login, match: {path: [/login, /shop/login]}, per: [], limit: 1/day}]"
    app = RateLimitMiddleware(hello, rules=rules)
    assert [status(app, scope(path, root_path=mounted, raw_path=raw)) for _ in range(2)] == [200, 429]


@pytest.mark.parametrize("extensions", [None, {}, {"websocket.http.response": {}}])
def test_a_websocket_is_decided_when_it_is_opened(extensions):
    async def app(scope, receive, send):
        await send({"type": "websocket.accept"})

    limited = RateLimitMiddleware(app, limit="1/minute")
    asked = scope(type="websocket", extensions=extensions)
    del asked["method"]
    accepted, = asyncio.run(call(limited, asked))
    assert accepted["type"] == "websocket.accept" and (b"x-ratelimit-remaining", b"0") in accepted["headers"]
    denied = asyncio.run(call(limited, asked))
    if extensions:
        assert [message["type"] for message in denied] == ["websocket.http.response.start", "websocket.http.response.body"]
        assert denied[0]["status"] == 429 and b"over_limit" in denied[1]["body"]
    else:
        assert [(message["type"], message["code"]) for message in denied] == [("websocket.close", 1013)]


def test_a_permit_is_held_until_the_body_was_sent_or_the_application_ends():
    gate = Gate(ONE)
    is_free = lambda: bool(gate.explain({})["decision"])

    async def parts(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await scope["go_on"].wait()
        if scope["fails"]:
            raise RuntimeError("no")
        await send({"type": "http.response.body", "body": b"two"})
        await scope["end"].wait()

    async def story(end):
        go_on, last = asyncio.Event(), asyncio.Event()
        asked = scope(go_on=go_on, end=last, fails=end == "fails")
        task = asyncio.create_task(call(RateLimitMiddleware(parts, rules=gate), asked))
        await asyncio.to_thread(within, 5, lambda: not is_free())
        if end == "cancelled":
            task.cancel()
        go_on.set()
        # The application may go on after its answer.
        await asyncio.to_thread(within, 5, is_free)
        last.set()
        with contextlib.suppress(RuntimeError, asyncio.CancelledError):
            await task

    for end in ("sent", "fails", "cancelled"):
        asyncio.run(story(end))


def test_a_delayed_request_does_not_block_the_loop_and_gives_back_if_it_is_cancelled():
    app = RateLimitMiddleware(hello, rules="rules: [{id: paced, per: [], limit: 10/second burst 1, max_delay: 5s}]")

    async def story():
        gaps, began = [], time.monotonic()
        tasks = [asyncio.create_task(call(app, scope())) for _ in range(4)]
        while not all(task.done() for task in tasks):
            before = time.monotonic()
            await asyncio.sleep(0.001)
            gaps.append(time.monotonic() - before)
        took = time.monotonic() - began
        assert took >= 0.3 and sorted(gaps)[len(gaps) // 2] < 0.1
        cancelled = [asyncio.create_task(call(app, scope())) for _ in range(20)]
        await asyncio.sleep(0.01)
        for task in cancelled:
            task.cancel()
        await asyncio.gather(*cancelled, return_exceptions=True)
        await asyncio.sleep(0.3)
        began = time.monotonic()
        await call(app, scope())
        assert time.monotonic() - began < 1.5

    asyncio.run(story())


def test_a_client_that_leaves_while_it_waits_gives_back_and_others_send_their_body():
    rules = "rules: [{id: paced, per: [], limit: 1/4s burst 1, max_delay: 9s}]"
    bodies = []

    async def echo(scope, receive, send):
        parts = [await receive()]
        while parts[-1].get("more_body"):
            parts.append(await receive())
        bodies.append(b"".join(part["body"] for part in parts))
        await hello(scope, receive, send)

    app = RateLimitMiddleware(echo, rules=rules)

    async def request(*messages):
        queue, sent = list(messages), []

        async def receive():
            if queue:
                return queue.pop(0)
            await asyncio.Event().wait()

        async def send(message):
            sent.append(message)

        await app(scope(), receive, send)
        return sent

    async def story():
        whole = {"type": "http.request", "body": b"all"}
        await request(whole)
        began = time.monotonic()
        assert await request(whole, {"type": "http.disconnect"}) == []
        assert time.monotonic() - began < 3.5
        await asyncio.sleep(0.05)
        parts = [{"type": "http.request", "body": b"one", "more_body": True}, {"type": "http.request", "body": b"two"}]
        assert (await request(*parts))[0]["status"] == 200
        # Its turn was that of the client that left.
        assert time.monotonic() - began < 7.5
        assert (await request(whole))[0]["status"] == 200
        assert bodies == [b"all", b"onetwo", b"all"]
        await asyncio.sleep(0.01)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(story())


def test_a_rule_file_is_read_again(tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text("rules: [{id: a, per: [], limit: 5/hour}]")
    app = RateLimitMiddleware(hello, rules=file)
    assert status(app, scope()) == 200
    file.write_text("rules: [{id: a, per: [], limit: blocked}]")
    within(10, lambda: status(app, scope()) == 403)


def test_trio():
    trio = pytest.importorskip("trio")
    app = RateLimitMiddleware(hello, rules="rules: [{id: paced, per: [], limit: 10/second burst 1, max_delay: 1s}]")

    async def story():
        return [(await call(app, scope()))[0]["status"] for _ in range(3)]

    assert trio.run(story) == [200, 200, 200]


def test_fastapi():
    fastapi = pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient

    app = fastapi.FastAPI()
    rules = "rules:\n- {id: orders, match: {path: '/orders/*'}, per: [ip], limit: 2/minute}\n- {id: live, match: {path: /live}, per: [], limit: 1/minute}"
    app.add_middleware(RateLimitMiddleware, rules=rules, attributes=lambda scope: {"ip": "203.0.113.7"})
    app.get("/orders/{number}")(lambda number: {"order": number})

    @app.websocket("/live")
    async def live(socket: fastapi.WebSocket):
        await socket.accept()
        await socket.send_text("hello")

    client = TestClient(app, root_path="/shop")
    answers = [client.get("/orders/7") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].json() == {"order": "7"} and answers[0].headers["x-ratelimit-remaining"] == "1"
    assert answers[2].json()["violated-policies"] == ["orders"]
    with client.websocket_connect("/live") as socket:
        assert socket.receive_text() == "hello"
    with pytest.raises(Exception) as raised, client.websocket_connect("/live"):
        pass
    assert getattr(raised.value, "status_code", None) == 429 or getattr(raised.value, "code", None) == 1013


@pytest.mark.parametrize("server", ["uvicorn"] if IS_SHORT else ["uvicorn", "hypercorn"])
def test_servers(server, tmp_path):
    from websockets.exceptions import InvalidStatus
    from websockets.sync.client import connect

    rules = tmp_path / "rules.yaml"
    rules.write_text("rules:\n- {id: all, match: {path: /}, per: [ip], limit: 50/hour burst 50}\n- {id: slow, match: {path: /slow}, per: [], limit: 1, algorithm: concurrency}\n"
                     "- {id: live, match: {path: /live}, per: [], limit: 1/hour}\n- {id: paced, match: {path: /paced}, per: [], limit: 2/second burst 1, max_delay: 5s}")
    with serving(server, RULES=str(rules)) as port, concurrent.futures.ThreadPoolExecutor(16) as pool:
        statuses = list(pool.map(lambda _: get(port)[0], range(80)))
        assert statuses.count(200) == 50 and statuses.count(429) == 30
        slow = [pool.submit(get, port, "/slow?5") for _ in range(2)]
        assert sorted(answer.result()[0] for answer in slow) == [200, 429]
        within(20, lambda: get(port, "/slow?0")[0] == 200)
        paced = [pool.submit(get, port, "/paced") for _ in range(3)]
        began = time.monotonic()
        assert get(port)[0] == 429 and time.monotonic() - began < 3
        assert [answer.result()[0] for answer in paced] == [200] * 3
        with connect(f"ws://127.0.0.1:{port}/live") as socket:
            assert socket.recv() == "hello"
        with pytest.raises(InvalidStatus) as raised:
            connect(f"ws://127.0.0.1:{port}/live")
        assert raised.value.response.status_code == 429
        assert raised.value.response.headers["content-type"] == "application/problem+json"
