"""The middleware of Python answers as that of Rust, byte for byte: the same requests to real servers of both."""

import json
import re

import pytest
from serving import IS_SHORT, exchange, reference, serving

RULES = """
rules:
  - {id: login, match: {path: /login}, per: [ip], limit: 2/hour}
  - {id: files, match: {path: /files/**, method: [GET, PUT]}, per: [ip], limit: 2/hour; 9/day}
  - {id: users, match: {path: /users}, per: [user_id], missing: deny, limit: 2/hour}
  - {id: keys, match: {path: /keys}, per: [header.x-api-key], missing: deny, limit: 2/hour}
  - {id: tokens, match: {path: /tokens}, per: [header.authorization], missing: deny, limit: 1/hour}
  - {id: hosts, match: {path: /hosts, host: '*.example'}, per: [host], limit: 1/hour}
  - {id: export, match: {path: /export}, per: [], limit: 3/hour}
  - {id: large, match: {path: /large}, per: [], cost: 5, limit: 3/hour}
  - {id: blocked, match: {path: /blocked}, per: [], limit: blocked}
  - {id: own, match: {path: /own}, per: [], limit: 1/hour, denied: {status: 403, title: 'No {rule}', detail: 'in {retry_after}', headers: {X-Help: '{limit}'}}}
  - {id: when, match: {path: /when, when: 'attributes["method"] == "PUT"'}, per: [], limit: 1/hour}
  - {id: shadow, match: {path: /shadow}, per: [], limit: 1/hour, mode: shadow}
  - {id: post, match: {path: /post}, per: [], limit: 1/hour, denied: {status: 429}}
"""

# Method, target and more headers. `Host` is a.example unless it is given.
REQUESTS = [
    ("GET", "/", {}),
    *[("GET", path, {}) for path in ("/login", "/login?x=1", "/login", "/%6cogin", "//login", "/./login", "/x/../login", "/login;v=1")],
    *[("GET", path, {}) for path in ("/LOGIN", "/login/", "/%2flogin", "/x%2f..%2flogin", "/%zz", "/%00", "/%ff", "/caf%c3%a9", "/a%20b")],
    ("HEAD", "/login", {}),
    ("OPTIONS", "/login", {}),
    *[("GET", "/files/a", {})] * 3,
    *[("PUT", "/files/b%2fc", {})] * 2,
    ("POST", "/files/a", {"Content-Length": "0"}),
    ("GET", "/users", {}),
    *[("GET", "/users", {"X-User": "u1"})] * 3,
    ("GET", "/users", {"X-User": "u2"}),
    ("GET", "/keys", {}),
    *[("GET", "/keys", {"X-Api-Key": "k1"})] * 3,
    ("GET", "/keys", {"X-Api-Key": "  k2  "}),
    ("GET", "/keys", {"X_Api_Key": "k3"}),
    ("GET", "/tokens", {}),
    ("GET", "/tokens", {"Authorization": "Bearer t1"}),
    ("GET", "/tokens", {"Authorization": "bearer  t1"}),
    ("GET", "/hosts", {"Host": "A.Example:80"}),
    ("GET", "/hosts", {"Host": "a.example."}),
    ("GET", "/hosts", {"Host": "b.example"}),
    *[("GET", "/export", {})] * 2,
    ("GET", "/large", {}),
    ("GET", "/blocked", {}),
    *[("GET", "/own", {})] * 2,
    *[("PUT", "/when", {"Content-Length": "0"})] * 2,
    ("GET", "/when", {}),
    *[("GET", "/shadow", {})] * 2,
    *[("GET", "/post", {"Content-Type": "application/grpc"})] * 2,
    *[("GET", "/post", {"Content-Type": "application/grpc-web+proto"})] * 2,
    *[("GET", "/login", {"X-Forwarded-For": "203.0.113.7"})] * 3,
    ("GET", "/login", {"X-Forwarded-For": "6.6.6.6, 203.0.113.7"}),
    ("GET", "/login", {"Forwarded": "for=203.0.113.7"}),
    ("GET", "/login", {"Forwarded": "for=203.0.113.8", "X-Forwarded-For": "203.0.113.7"}),
    ("GET", "/login", {"X-Forwarded-For": "unknown"}),
]
# What servers add by themselves.
OF_SERVERS = {"date", "server", "connection", "transfer-encoding", "content-length"}
# Headers whose value is a time.
IN_TIME = {"retry-after", "x-ratelimit-reset", "grpc-retry-pushback-ms"}


def sent(method, target, headers):
    headers = {"Host": "a.example", "Connection": "close", **headers}
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def comparable(answer):
    """An answer without what servers add, and the times in it apart: time passes between one server and the other."""
    status, headers, body = answer
    found = sorted((name.lower(), value) for name, value in headers if name.lower() not in OF_SERVERS)
    times = []

    def apart(text, pattern=r"(?<=t=)\d+|(?<= in )\d+ seconds?|(?<=\"in )\d+"):
        times.extend(int(number.split()[0]) for number in re.findall(pattern, text))
        return re.sub(pattern, "soon", text)

    # In whole: seconds, seconds since 1970, milliseconds.
    found = [(name, apart(value, r"\d+") if name in IN_TIME else apart(value)) for name, value in found]
    return (status, found, apart(body.decode())), [number / 1000 if number > 10_000 and number < 10_000_000 else number for number in times]


def are_near(times, others):
    return len(times) == len(others) and all(abs(one - other) <= 10 for one, other in zip(times, others))


def test_requests_are_answered_as_by_the_middleware_of_rust(tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    proxies = ["127.0.0.0/8"]
    differences = []
    for server in ("gunicorn", "uvicorn") if IS_SHORT else ("gunicorn", "uvicorn", "hypercorn"):
        # A new reference for each, with nothing used.
        with reference(rules, proxies) as rust, serving(server, RULES=str(rules), PROXIES=" ".join(proxies)) as python:
            exchange(rust, sent("GET", "/ready", {}))
            for number, request in enumerate(REQUESTS):
                raw = sent(*request)
                (expected, times), (found, others) = comparable(exchange(rust, raw)), comparable(exchange(python, raw))
                if expected != found or not are_near(times, others):
                    differences.append(f"{server} {number} {request}:\n  rust   {expected} {times}\n  python {found} {others}")
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("server", ["hypercorn"] if IS_SHORT else ["gunicorn", "uvicorn", "hypercorn"])
def test_no_spelling_of_a_path_escapes_a_rule(server, tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: [{id: login, match: {path: /login}, per: [], limit: 1/day}]")
    spellings = ["/login", "/%6Cogin", "/%6c%6f%67%69%6e", "//login", "///login", "/./login", "/x/%2e%2e/login", "/login;a=b", "/login%3ba=b",
                 "/login?a=b", "/login#a", "/%2flogin", "/x/..%2flogin", "http://a.example/login", "/login%23a", "/login/."]
    with serving(server, RULES=str(rules)) as port:
        assert exchange(port, sent("GET", "/login", {}))[0] == 200
        for target in spellings:
            status, _, body = exchange(port, sent("GET", target, {}))
            # A server may refuse a spelling, and an application may take one for another path than /login.
            assert status == 429 or status == 400 or target in ("/login%23a", "/login/."), f"{target}: {status}"
            if status == 429:
                assert json.loads(body)["violated-policies"] == ["login"]
