"""What a decision adds to a request through Envoy: calls over gRPC, compared with Envoy alone."""

from .. import envoy, gateways, load, rounds, servers
from ..process import shown
from .gateway import ADMITTED, decided_turn, sent_to

ALONE = "Envoy alone, without limits"
# Requests per second at which latency is measured: few enough that none waits for another.
RATE = 2000
ADDED = ("cpu_us", "p50_us", "p99_us")


class Pair:
    """Envoy, and the service that it calls, on one core."""

    def __init__(self, behind, filters, service=None):
        self.service = service
        services = [envoy.service_cluster([envoy.endpoint(service.addresses["grpc"])])] if service else []
        try:
            self.envoy = envoy.start(behind, filters, *services)
        except Exception:
            if service:
                service.stop()
            raise
        self.processes = [server.process for server in (self.envoy, service) if server]

    def port(self, name):
        return self.envoy.port(name)

    def stop(self):
        self.envoy.stop()
        if self.service:
            self.service.stop()


def tidegate(behind, limit=gateways.EVERYTHING):
    rules = f"""rules:
  - {{id: per-address, match: {{attributes: {{domain: {envoy.DOMAIN}}}}}, per: [remote_address], missing: deny, limit: {limit}/second}}
"""
    return Pair(behind, [envoy.called_service()], servers.tidegate("grpc", rules=rules))


def local(behind, limit=gateways.EVERYTHING):
    return Pair(behind, [envoy.local_limit(limit)])


def tonic(behind):
    return Pair(behind, [envoy.called_service()], servers.bare("tonic"))


def alone(behind):
    return Pair(behind, [])


# Contender, role, how it starts, and whether it decides.
CONTENDERS = [
    ("tidegate, called over gRPC", "tidegate", tidegate, True),
    ("local rate limit of Envoy", "peer", local, True),
    ("bare tonic, called over gRPC", "ceiling", tonic, False),
    (ALONE, "ceiling", alone, False),
]


def pair_turn(pair, sent):
    """CPU time in a closed loop, as everywhere; latency at a fixed rate, where it is not that of a queue."""
    full = decided_turn(pair.processes, sent, ADMITTED)
    slow = decided_turn(pair.processes, [*sent, "--rate", str(RATE)], ADMITTED)
    service = sum(full["others_us"])
    return {
        **full,
        "cpu_us": full["cpu_us"] + service,
        "envoy_us": full["cpu_us"],
        "service_us": service if pair.service else None,
        "slow_cpu_us": slow["cpu_us"] + sum(slow["others_us"]),
        "p50_us": slow["p50_us"],
        "p99_us": slow["p99_us"],
    }


def row(name, role, start, decides, behind):
    def begin():
        if decides:
            gateways.probe(start, behind)
        pair = start(behind)
        sent = sent_to(pair.envoy)
        return rounds.Started(
            turn=lambda: pair_turn(pair, sent),
            stop=pair.stop,
            command="\n$ ".join(shown(process.command) for process in pair.processes),
            load=load.text(sent),
        )

    return rounds.Row(name, begin, role)


def add_differences(rows):
    """What each contender adds to Envoy alone, within each round."""
    reference = next((row["turns"] for row in rows if row["contender"] == ALONE), [])
    for row in rows:
        for turn, base in zip(row["turns"], reference) if row["turns"] is not reference else ():
            for name in (*ADDED, "envoy_us", "slow_cpu_us"):
                turn[f"added_{name}"] = turn[name] - base[name]
    return rows


def measure(_, only):
    upstream = servers.upstream()
    try:
        behind = upstream.addresses["http"]
        rows = [row(*entry, behind) for entry in CONTENDERS if only in entry[0]]
        return add_differences(rounds.run("envoy", rows))
    finally:
        upstream.stop()
