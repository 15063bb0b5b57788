"""Asks Tidegate whether each of four logins may go on. Without an answer in time they go on: it fails open."""

import http.client
import json
import os
import sys
import threading
import urllib.parse

URL = urllib.parse.urlsplit(os.environ.get("TIDEGATE_URL", "http://127.0.0.1:8080"))
TOKEN = os.environ.get("TIDEGATE_TOKEN", "")
TIMEOUT = float(os.environ.get("TIDEGATE_TIMEOUT", "1"))  # seconds, for each read and write
PASSED_ON = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset", "ratelimit", "ratelimit-policy", "retry-after")

local = threading.local()  # a connection for each thread, which stays open between checks


def ask(body):
    """The status, headers and body of the answer. A kept connection that the server has closed is opened again, once."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    for is_kept in (hasattr(local, "connection"), False):
        if not is_kept:
            kind = http.client.HTTPSConnection if URL.scheme == "https" else http.client.HTTPConnection
            local.connection = kind(URL.netloc, timeout=TIMEOUT)
        try:
            local.connection.request("POST", "/v1/check", body, headers)
            answer = local.connection.getresponse()
            return answer.status, answer.headers, answer.read()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            if not is_kept:
                raise


def check(**attributes):
    """What the client gets: 200 to go on, or 429 or 503; and the headers of its response."""
    try:
        status, headers, body = ask(json.dumps({"attributes": attributes}))
        if status not in (200, 429, 503):  # a mistake in this program or its token, and no decision
            raise ValueError(f"{status} {body.decode()}")
    except (OSError, http.client.HTTPException, ValueError) as error:
        local.__dict__.pop("connection", None)
        print(f"no decision: {error}", file=sys.stderr)
        return 200, {}
    return status, {name: headers[name] for name in PASSED_ON if name in headers}


for _ in range(4):
    status, headers = check(path="/login", method="POST", ip="203.0.113.2")
    name = "x-ratelimit-remaining" if status == 200 else "retry-after"
    print(status, f"{name}: {headers[name]}" if name in headers else "")
