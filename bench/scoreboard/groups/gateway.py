"""Reverse proxies with a limit for each address: requests that all of them admit, and requests that they deny."""

from .. import envoy, gateways, load, rounds, servers
from ..process import Skipped, shown
from .protocols import get, row as protocol_row

CONNECTIONS = 64
ADMITTED, DENIED = "admitted", "denied"

GATEWAYS = [
    ("tidegate", "tidegate", gateways.tidegate_gateway),
    ("nginx, proxy_pass and limit_req", "peer", gateways.nginx),
    ("haproxy, stick table", "peer", gateways.haproxy),
    ("envoy, local rate limit", "peer", envoy.limited),
    ("traefik, rateLimit", "peer", gateways.traefik),
]


def sent_to(server):
    return [*get("gateway")(server), "--connections", str(CONNECTIONS)]


def decided_turn(processes, arguments, case):
    """A turn whose requests all had the answer that the case is about; of denied ones, all but the few within the limit."""
    turn = load.turn(processes, arguments)
    if turn["denied"] > 0 if case == ADMITTED else turn["denied"] < 0.9:
        raise Skipped(f"{turn['denied']:.1%} of the requests were denied")
    return turn


def row(name, role, start, case, behind):
    def begin():
        if case == ADMITTED:
            gateways.probe(start, behind)
        server = start(behind, gateways.EVERYTHING if case == ADMITTED else gateways.FEW)
        sent = sent_to(server)
        return rounds.Started(
            turn=lambda: decided_turn([server.process], sent, case),
            stop=server.stop,
            command=shown(server.process.command),
            load=load.text(sent),
        )

    return rounds.Row(name, begin, role, case)


def measure(_, only):
    upstream = servers.upstream()
    try:
        behind = upstream.addresses["http"]
        rows = [row(*entry, case, behind) for case in (ADMITTED, DENIED) for entry in GATEWAYS if only in entry[0]]
        direct = "bare hyper, without a gateway"
        if only in direct:
            bare = protocol_row(direct, "ceiling", lambda: servers.bare("hyper"), get("http"), CONNECTIONS)
            bare.case = ADMITTED
            rows.insert(len(rows) // 2, bare)
        return rounds.run("gateway", rows)
    finally:
        upstream.stop()
