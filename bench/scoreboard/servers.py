"""How each server is started: on one core, on ports that are free, with limits that allow everything."""

import os
import pathlib
import shutil
import tempfile

from . import peers
from .process import Process, free_port
from .settings import LOAD_CORE, SERVER_CORE, bench_program, tidegate as tidegate_program

RULES = """rules:
  - {id: per-user, match: {path: /v1/**}, per: [user_id], missing: deny, limit: 1000000/second}
"""
RULES_ENVOY = """rules:
  - {id: per-user, match: {attributes: {domain: bench}}, per: [user_id], missing: deny, limit: 1000000/second}
"""
RULES_IP = "rules:\n  - {id: per-ip, per: [ip], limit: 1000000/second}\n"


class Server:
    """A process with its addresses and its folder."""

    def __init__(self, process, addresses, folder=None):
        self.process, self.addresses, self.folder = process, addresses, folder

    def port(self, name):
        return int(self.addresses[name].rsplit(":", 1)[1])

    def stop(self):
        self.process.stop()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)


def folder():
    return pathlib.Path(tempfile.mkdtemp(prefix="tidegate-bench-"))


def tidegate(*fronts, rules=RULES, arguments=(), core=SERVER_CORE, variables=None):
    """`tidegate serve` with some of `grpc`, `resp` and `gateway` next to HTTP."""
    here = folder()
    (here / "rules.yaml").write_text(rules)
    command = [tidegate_program(), "serve", "--http", "127.0.0.1:0"]
    command += ["--grpc", "127.0.0.1:0" if "grpc" in fronts else "off"]
    for front in ("resp", "gateway"):
        if front in fronts:
            command += [f"--{front}", "127.0.0.1:0"]
    command += ["--log-level", "error", "--data-dir", here / "data", "--rules", here / "rules.yaml", *arguments]
    process = Process(command, core, env={**os.environ, **(variables or {})})
    try:
        return Server(process, process.addresses(["http", *fronts]), here)
    except Exception:
        process.stop()
        raise


def bare(kind, core=SERVER_CORE):
    command = [bench_program("bare"), kind]
    process = Process(command, core)
    return Server(process, process.addresses(["resp" if kind == "resp" else "grpc" if kind == "tonic" else "http"]))


def upstream():
    """What is behind the gateways, on the core of the load."""
    return bare("hyper", LOAD_CORE)


def on_port(command, port, name, here=None):
    process = Process(command)
    try:
        process.wait_for(port)
    except Exception:
        process.stop()
        raise
    return Server(process, {name: f"127.0.0.1:{port}"}, here)


def throttlecrab(front):
    port = free_port()
    command = [peers.throttlecrab_server(), f"--{front}", f"--{front}-host", "127.0.0.1", f"--{front}-port", port]
    return on_port([*command, "--log-level", "error"], port, "resp" if front == "redis" else front)


def redis(core=SERVER_CORE):
    here, port = folder(), free_port()
    command = [peers.find_program("redis-server"), "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", here]
    process = Process(command, core)
    process.wait_for(port)
    return Server(process, {"resp": f"127.0.0.1:{port}"}, here)


def nginx(behind):
    """One worker, connections kept, the same headers as the gateway adds."""
    here, port = folder(), free_port()
    (here / "nginx.conf").write_text(f"""
daemon off; worker_processes 1; pid {here}/nginx.pid; error_log {here}/error.log; worker_rlimit_nofile 20000;
events {{ worker_connections 12000; }}
http {{
  access_log off;
  client_body_temp_path {here}/body; proxy_temp_path {here}/proxy;
  fastcgi_temp_path {here}/fastcgi; uwsgi_temp_path {here}/uwsgi; scgi_temp_path {here}/scgi;
  limit_req_zone $binary_remote_addr zone=per_ip:10m rate=1000000r/s;
  upstream behind {{ server {behind}; keepalive 128; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port}; keepalive_requests 100000000; keepalive_timeout 600s;
    location / {{
      limit_req zone=per_ip burst=100000 nodelay;
      proxy_pass http://behind; proxy_http_version 1.1;
      proxy_set_header Connection ""; proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Host $host;
    }}
  }}
}}
""")
    return on_port([peers.find_program("nginx", "nginx-light"), "-p", here, "-c", here / "nginx.conf"], port, "gateway", here)


def haproxy(behind):
    """One thread, connections kept, a stick table that counts requests of each address."""
    here, port = folder(), free_port()
    (here / "haproxy.cfg").write_text(f"""
global
  nbthread 1
  maxconn 9000
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  timeout http-keep-alive 600s
  http-reuse always
frontend front
  bind 127.0.0.1:{port}
  stick-table type ip size 100k expire 60s store http_req_rate(1s)
  http-request track-sc0 src
  http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt 100000000 }}
  option forwardfor
  default_backend behind
backend behind
  server s1 {behind}
""")
    return on_port([peers.find_program("haproxy"), "-db", "-f", here / "haproxy.cfg"], port, "gateway", here)
