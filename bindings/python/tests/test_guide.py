"""The programs of docs/guides/python.md, as they are printed there, with real frameworks and servers."""

import http.server
import pathlib
import re
import subprocess
import sys
import threading
import time

import pytest
from serving import ROOT, SERVERS, get, serving

EXAMPLES = ROOT / "examples/python"
GUIDE = (ROOT / "docs/guides/python.md").read_text()


def test_the_programs_of_the_guide_are_those_that_are_run():
    files = sorted(EXAMPLES.glob("*.*"))
    assert len(files) == 5
    for file in files:
        language = {".py": "python", ".yaml": "yaml"}[file.suffix]
        text = file.read_text()
        assert f"```{language}\n{text}```\n" in GUIDE, file
        assert len([line for line in text.splitlines() if line]) <= 10, file


def login_until_denied(port):
    answers = [get(port, "/login", method="POST", Host="127.0.0.1", Content_Length="0") for _ in range(4)]
    assert [status for status, _, _ in answers] == [200, 200, 200, 429]
    assert b"welcome" in answers[0][2]
    status, headers, body = answers[3]
    headers = {name.lower(): value for name, value in headers}
    shown = GUIDE.split("HTTP/1.1 429 Too Many Requests\n")[1].split("```")[0]
    head, shown_body = shown.strip().split("\n\n")
    # Time has passed meanwhile.
    plain = lambda text: re.sub(r"\b(1\d|20)( seconds)?\b", "20", text)
    for line in head.splitlines():
        name, value = line.split(": ", 1)
        assert plain(headers[name]) == plain(value), name
    assert plain(body.decode()) == plain(shown_body)


@pytest.mark.parametrize("server, program", [("uvicorn", "fastapi_app:app"), ("gunicorn", "django_app"), ("gunicorn", "flask_app:app")])
def test_a_service_of_the_guide(server, program, monkeypatch):
    monkeypatch.setattr("serving.TESTS", EXAMPLES)
    with serving([*SERVERS[server][:-1], program]) as port:
        login_until_denied(port)


def test_flask_by_its_own_server():
    command = [sys.executable, "-m", "flask", "--app", "flask_app", "run", "--port", "0"]
    process = subprocess.Popen(command, cwd=EXAMPLES, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        lines = iter(process.stderr.readline, "")
        port = next(int(found[1]) for line in lines if (found := re.search(r"http://127\.0\.0\.1:(\d+)", line)))
        login_until_denied(port)
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_the_worker_waits_for_its_turn():
    times = []

    class Api(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            times.append(time.monotonic())
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api) as api:
        threading.Thread(target=api.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{api.server_address[1]}"
        done = subprocess.run([sys.executable, "worker.py", url], cwd=EXAMPLES, capture_output=True, text=True, timeout=60, check=True)
        api.shutdown()
    assert (done.stdout, done.stderr) == ("1 200\n2 200\n3 200\n", "")
    assert times[2] - times[0] > 0.15


def test_the_readme_and_the_index_lead_to_the_guide():
    assert "docs/guides/python.md" in (ROOT / "README.md").read_text()
    assert "guides/python.md" in pathlib.Path(ROOT / "docs/README.md").read_text()
