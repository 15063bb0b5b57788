"""Capacity planning: what a node, a Redis and a Cluster carry, computed from the measured CPU time of each."""

import math

from .figures import digits, duration, middle, rate

# How busy a core may be on average, so that there is room for peaks.
BUSY = 0.7
SITE = 10_000_000
NODE_CORES = 8
CLUSTERS = (1, 3, 6, 12, 24)


def figure(results, group, contender, name, x=None):
    rows = results.get(group, {}).get("rows", [])
    for row in rows:
        if row["contender"].startswith(contender) and (x is None or row["x"] == x) and row["turns"]:
            return middle(row, name)
    return None


def largest(results, sync):
    """The most instances that were measured."""
    rows = results.get("instances", {}).get("rows", [])
    return max((row["x"] for row in rows if row["turns"] and row["contender"].endswith(sync)), default=None)


def per_second(micros, cores=1):
    return cores * BUSY * 1e6 / micros


def section(results):
    lines = ["## Capacity planning", ""]
    lines += [
        f"Computed from the CPU times above: a core that is {BUSY:.0%} busy decides `{BUSY} / CPU time per decision` times a second. "
        "The servers are assumed to use further cores as they use one, since connections are spread over the cores and share nothing but the store; "
        "the figures were measured on one. Measure your own with [`tidegate bench`](reference/cli.md#bench) and put them in the place of these.",
        "",
    ]
    return lines + nodes(results) + stores(results) + site(results)


def nodes(results):
    fronts = [("HTTP `POST /v1/check`", "http", "tidegate"), ("gRPC `ShouldRateLimit`", "grpc", "tidegate"),
              ("RESP `CL.THROTTLE`, 16 pipelined", "resp", "tidegate"), ("gateway", "gateway", "tidegate")]
    lines = ["### A node", "", f"| counters in memory | CPU per decision | decisions/s of a core | of {NODE_CORES} cores |", "| --- | --- | --- | --- |"]
    for title, group, contender in fronts:
        cost = figure(results, group, contender, "cpu_us")
        if cost:
            lines.append(f"| {title} | {duration(cost)} | {rate(per_second(cost))} | {rate(per_second(cost, NODE_CORES))} |")
    return lines + [""]


def shared(results, sync):
    count = largest(results, sync)
    own = figure(results, "instances", f"tidegate, sync: {sync}", "cpu_us", count)
    redis = figure(results, "instances", f"tidegate, sync: {sync}", "redis_us", count)
    return (count, own, redis) if own and redis else None


def stores(results):
    lines = ["### A Redis, and a Cluster", ""]
    found = {sync: shared(results, sync) for sync in ("exact", "leased")}
    found = {sync: costs for sync, costs in found.items() if costs}
    if not found:
        return lines + ["Not measured: `./scripts/bench instances`.", ""]
    count = next(iter(found.values()))[0]
    lines += [
        f"Redis decides on one core. The CPU times are those with {count} servers on one Redis, 64 requests in flight on each. What a leased decision costs Redis depends on how many "
        "requests of a key fall into one lease, a tenth of a second; here all were for one hot key. For keys of few requests a second, reckon with the figures of `exact`. A Cluster carries as much as its masters together if keys are spread evenly.",
        "",
    ]
    lines += ["| | " + " | ".join(found) + " |", "| --- |" + " --- |" * len(found)]
    lines.append("| CPU of Redis per decision | " + " | ".join(duration(costs[2]) for costs in found.values()) + " |")
    lines.append("| CPU of Tidegate per decision, over HTTP | " + " | ".join(duration(costs[1]) for costs in found.values()) + " |")
    for masters in CLUSTERS:
        name = "one Redis" if masters == 1 else f"a Cluster of {masters} masters"
        lines.append(f"| decisions/s of {name} | " + " | ".join(rate(per_second(costs[2], masters)) for costs in found.values()) + " |")
    return lines + [""]


def site(results):
    lines = [f"### {SITE:,} requests a second", ""]
    plans = []
    http = figure(results, "http", "tidegate", "cpu_us")
    if http:
        plans.append(("counters in memory: each client always at the same server", http, None))
    for sync, words in (("exact", "shared, `sync: exact`"), ("leased", "shared, `sync: leased`, hot keys")):
        costs = shared(results, sync)
        if costs:
            plans.append((words, costs[1], costs[2]))
    if not plans:
        return lines + ["Not measured.", ""]
    lines += [f"| over HTTP, {BUSY:.0%} busy | cores of Tidegate | nodes of {NODE_CORES} cores | masters of Redis | one key, decisions/s |", "| --- | --- | --- | --- | --- |"]
    for words, own, redis in plans:
        cores = SITE / per_second(own)
        masters = f"{math.ceil(SITE / per_second(redis)):,}" if redis else "none"
        key = rate(per_second(redis)) if redis else rate(per_second(own, NODE_CORES))
        lines.append(f"| {words} | {math.ceil(cores):,} | {math.ceil(cores / NODE_CORES):,} | {masters} | {key} |")
    lines.append("")
    return lines + weakest(plans) + [""]


def weakest(plans):
    """The arithmetic for exact decisions, and the link that gives way first."""
    exact = next((plan for plan in plans if "exact" in plan[0]), None)
    leased = next((plan for plan in plans if "leased" in plan[0]), None)
    if not exact:
        return []
    _, own, redis = exact
    lines = [
        f"The arithmetic, for `sync: exact`: {SITE:,} × {digits(own)} µs / {BUSY} = {digits(SITE * own / 1e6 / BUSY)} cores of Tidegate, "
        f"and {SITE:,} × {digits(redis)} µs / {BUSY} = {digits(SITE * redis / 1e6 / BUSY)} masters of Redis, each of which decides on one core.",
        "",
    ]
    if own > redis:
        lines.append(f"Most cores are those of Tidegate, which need nothing from each other: {digits(own / redis)} of them for one of Redis.")
    lines.append(
        f"**The weakest link is the master of the busiest key**: a key is on one master, which decides {rate(per_second(redis))} times a second, "
        f"and neither more masters nor more servers change that. A rule with `per: []`, or a client beyond that rate, needs `sync: leased`"
        + (f", where one master carries {rate(per_second(leased[2]))} decisions a second of hot keys." if leased else ".")
    )
    return lines
