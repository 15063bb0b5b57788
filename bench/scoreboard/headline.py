"""The first lines of the page: the figures that are asked for most, and one chart."""

from . import chart
from .capacity import BUSY, figure, per_second
from .figures import digits, duration, middle, rate, values

CHART = "overview"
FRONT_ENDS = (("HTTP", "http"), ("gRPC", "grpc"), ("RESP", "resp"), ("gateway", "gateway"))


def lines(found):
    """Three sentences, each only if its figures were measured, and the commits that they are of."""
    http, resp, gateway = (front_end(found, name) for name in ("http", "resp", "gateway"))
    hot, many = (in_process(found, case) for case in ("1 key, 1 thread", "1,000,000 keys, 1 thread"))
    shared = [figure(found, "instances", "tidegate, sync: exact", name, 1) for name in ("cpu_us", "redis_us")]
    key = memory(found)
    envoy = [figure(found, "envoy", "tidegate", name) for name in ("added_envoy_us", "service_us", "added_p50_us")]
    text = []
    if http and resp and gateway:
        text.append(
            f"- **A core decides {rate(http[1])} checks a second over HTTP**, {duration(http[0])} of CPU time each (plan with {rate(per_second(http[0]))}, which keep it {BUSY:.0%} busy); {rate(resp[1])} a second over the Redis protocol, pipelined, "
            f"and {rate(gateway[1])} requests a second through the gateway."
        )
    if hot and many and all(shared):
        text.append(
            f"- In process a check takes **{duration(hot)}** on a hot key and {duration(many)} with a million keys; "
            f"shared and exact over Redis, a check over HTTP takes {duration(shared[0])} of Tidegate and {duration(shared[1])} of Redis."
        )
    if key and all(envoy):
        text.append(
            f"- A key takes **{digits(key)} bytes** of memory with ten million keys, in a server; a decision over gRPC adds **{duration(envoy[0] + envoy[1])}** of CPU time "
            f"to a request through a busy Envoy ({duration(envoy[0])} of Envoy, {duration(envoy[1])} of Tidegate), and {duration(envoy[2])} to the median latency."
        )
    if not text:
        return []
    commits = {found[name].get("commit", "unknown"): None for name in ("http", "library", "instances", "memory", "envoy") if name in found}
    text += ["", f"On one core of two, at the commits {', '.join(commits)}; each section has its own, and what other machines carry is [computed below](#capacity-planning).", ""]
    return text + [f"![CPU time of a decision, by front end](images/performance/{CHART}.svg)", ""]


def front_end(found, group):
    cost, each = (figure(found, group, "tidegate", name) for name in ("cpu_us", "per_second"))
    return (cost, each) if cost and each else None


def in_process(found, case):
    rows = found.get("library", {}).get("rows", [])
    return next((middle(row, "cpu_us") for row in rows if row["contender"].startswith("tidegate") and row["case"] == case), None)


def memory(found):
    rows = found.get("memory", {}).get("rows", [])
    return next((middle(row, "bytes") for row in rows if row["contender"] == "tidegate, server" and row["x"] == 10_000_000), None)


def overview(found):
    """The chart: Tidegate and its peers, by front end."""
    rows = [(title, row) for title, group in FRONT_ENDS for row in found.get(group, {}).get("rows", []) if row["role"] != "ceiling" and row["case"] != "denied" and values(row, "cpu_us")]
    bars = [(f"{title}: {row['contender']}", middle(row, "cpu_us"), row["role"], duration(middle(row, "cpu_us"))) for title, row in rows]
    return chart.bars("CPU time of a decision, by front end", "of the server or the proxy, on one core; less is better", bars) if bars else None
