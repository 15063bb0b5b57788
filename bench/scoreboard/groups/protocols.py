"""Servers over HTTP, gRPC and RESP: rows as data, one way to measure them."""

from .. import load, rounds, servers
from ..process import shown

CHECK = '{"attributes":{"ip":"203.0.113.7","user_id":"u{key}","method":"GET","path":"/v1/users"},"cost":1}'
THROTTLE = '{"key":"u{key}","max_burst":1000000,"count_per_period":1000000,"period":1,"quantity":1}'
JSON = ["-H", "content-type: application/json"]


def post(path, body):
    return lambda server: ["url", f"http://{server.addresses['http']}{path}", "--method", "POST", *JSON, "--body", body]


def get(name):
    return lambda server: ["url", f"http://{server.addresses[name]}/v1/users?page=1"]


def grpc(*arguments):
    return lambda server: ["grpc", "--address", server.addresses["grpc"], *arguments, "--in-flight", "16"]


def resp(*arguments):
    return lambda server: ["resp", "--address", server.addresses["resp"], *arguments, "--in-flight", "16"]


FIELDS = ["--field", "1=u{key}", "--field", "2:=1000000", "--field", "3:=1000000", "--field", "4:=1", "--field", "5:=1"]
ENVOY = ["-a", "remote_address=203.0.113.7", "-a", "user_id=u{key}"]
COMMAND = "THROTTLE u{key} 1000000 1000000 1"

# Of each group: the connections, then contender, role, how it starts and what it is sent.
GROUPS = {
    "http": (64, [
        ("tidegate", "tidegate", servers.tidegate, post("/v1/check", CHECK)),
        ("throttlecrab-server", "peer", lambda: servers.throttlecrab("http"), post("/throttle", THROTTLE)),
        ("bare axum, JSON of the same size", "ceiling", lambda: servers.bare("axum"), post("/v1/check", CHECK)),
        ("bare hyper, GET", "ceiling", lambda: servers.bare("hyper"), get("http")),
    ]),
    "grpc": (4, [
        ("tidegate", "tidegate", lambda: servers.tidegate("grpc", rules=servers.RULES_ENVOY), grpc(*ENVOY)),
        ("throttlecrab-server", "peer", lambda: servers.throttlecrab("grpc"),
         grpc("--method", "/throttlecrab.RateLimiter/Throttle", *FIELDS)),
        ("bare tonic, one thread", "ceiling", lambda: servers.bare("tonic"), grpc(*ENVOY)),
    ]),
    "resp": (50, [
        ("tidegate, CL.THROTTLE", "tidegate", lambda: servers.tidegate("resp"), resp("--limit", "1000000", "1000000", "1")),
        ("Redis, INCR", "peer", servers.redis, resp("--command", "INCR u{key}")),
        ("throttlecrab-server, THROTTLE", "peer", lambda: servers.throttlecrab("redis"), resp("--command", COMMAND)),
        ("bare RESP responder", "ceiling", lambda: servers.bare("resp"), resp("--command", "INCR u{key}")),
    ]),
}


def row(contender, role, start, arguments, connections):
    def begin():
        server = start()
        sent = [*arguments(server), "--connections", str(connections)]
        return rounds.Started(
            turn=lambda: load.turn([server.process], sent),
            stop=server.stop,
            command=shown(server.process.command),
            load=load.text(sent),
        )

    return rounds.Row(contender, begin, role)


def measure(group, only):
    connections, contenders = GROUPS[group]
    chosen = [entry for entry in contenders if only in entry[0]]
    rows = [row(*entry, connections) for entry in chosen]
    return rounds.run(group, rows)
