"""Reverse proxies with one limit for each address: one worker each, connections kept, no access log, no request ids."""

import http.client
import json

from . import peers
from .process import Skipped, free_port
from .servers import folder, on_port, tidegate

# Requests per second of an address: more than are ever sent, and few.
EVERYTHING = 1_000_000
FEW = 10
# What a proxy with a limit of `FEW` is asked before anything is measured.
PROBES = 100


def burst(limit):
    """A tenth of a second, and never so few that waiting for the proxy to start uses them up."""
    return max(limit // 10, 5)


def tidegate_gateway(behind, limit=EVERYTHING):
    rules = f"rules:\n  - {{id: per-ip, per: [ip], limit: {limit}/second}}\n"
    return tidegate("gateway", rules=rules, arguments=["--upstream", f"http://{behind}"])


def nginx(behind, limit=EVERYTHING):
    """The same headers as the gateway adds. A denied request is not logged."""
    here, port = folder(), free_port()
    (here / "nginx.conf").write_text(f"""
daemon off; worker_processes 1; pid {here}/nginx.pid; error_log {here}/error.log crit; worker_rlimit_nofile 20000;
events {{ worker_connections 12000; }}
http {{
  access_log off;
  client_body_temp_path {here}/body; proxy_temp_path {here}/proxy;
  fastcgi_temp_path {here}/fastcgi; uwsgi_temp_path {here}/uwsgi; scgi_temp_path {here}/scgi;
  limit_req_zone $binary_remote_addr zone=per_ip:10m rate={limit}r/s;
  limit_req_status 429;
  upstream behind {{ server {behind}; keepalive 128; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port}; keepalive_requests 100000000; keepalive_timeout 600s;
    location / {{
      limit_req zone=per_ip burst={burst(limit)} nodelay;
      proxy_pass http://behind; proxy_http_version 1.1;
      proxy_set_header Connection ""; proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Host $host;
    }}
  }}
}}
""")
    return on_port([peers.find_program("nginx", "nginx-light"), "-p", here, "-c", here / "nginx.conf"], port, "gateway", here)


def haproxy(behind, limit=EVERYTHING):
    """A stick table that counts requests of each address."""
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
  http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {limit} }}
  option forwardfor
  default_backend behind
backend behind
  server s1 {behind}
""")
    return on_port([peers.find_program("haproxy"), "-db", "-f", here / "haproxy.cfg"], port, "gateway", here)


def traefik(behind, limit=EVERYTHING):
    """The middleware `rateLimit`, which counts by the address of the client. Go has one thread on one core."""
    here, port = folder(), free_port()
    (here / "traefik.json").write_text(json.dumps({
        "global": {"checkNewVersion": False, "sendAnonymousUsage": False},
        "log": {"level": "ERROR"},
        "entryPoints": {"web": {"address": f"127.0.0.1:{port}", "transport": {"respondingTimeouts": {"idleTimeout": "600s"}}}},
        "providers": {"file": {"filename": str(here / "dynamic.json"), "watch": False}},
    }))
    (here / "dynamic.json").write_text(json.dumps({"http": {
        "routers": {"all": {"rule": "PathPrefix(`/`)", "entryPoints": ["web"], "middlewares": ["limit"], "service": "behind"}},
        "middlewares": {"limit": {"rateLimit": {"average": limit, "period": "1s", "burst": burst(limit)}}},
        "services": {"behind": {"loadBalancer": {"servers": [{"url": f"http://{behind}"}]}}},
    }}))
    program = peers.installed("proxies", "proxies/bin/traefik")
    server = on_port([program, f"--configFile={here}/traefik.json"], port, "gateway", here)
    # It listens before it has read its routes.
    server.process.wait_until(lambda: status(port) != 404, "has no routes")
    return server


def status(port, client="127.0.0.1"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10, source_address=(client, 0))
    try:
        connection.request("GET", "/v1/users?page=1")
        return connection.getresponse().status
    finally:
        connection.close()


def probe(start, behind):
    """Checks that a proxy denies with 429 what an address sends beyond a small limit, and nothing that another sends."""
    server = start(behind, FEW)
    try:
        answers = [status(server.port("gateway")) for _ in range(PROBES)]
        other = status(server.port("gateway"), "127.0.0.2")
    finally:
        server.stop()
    if set(answers) != {200, 429} or other != 200:
        seen = f"{PROBES} requests of an address were answered with {sorted(set(answers))}, and then one of another with {other}"
        raise Skipped(f"expected 200 and 429, and 200, with a limit of {FEW} a second for each address: {seen}")
