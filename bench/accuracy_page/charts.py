"""The charts of the page."""

from scoreboard import chart

from .tables import APISIX, EDGE, REPORTED, of

SECONDS = 30


def draw(rows):
    """Each chart that the results are enough for: its name and its SVG."""
    edge = of(rows, EDGE)
    if edge:
        bars = [(f"{row['contender']}: {row['algorithm']}" if row["contender"] == "tidegate" else row["contender"], row["most"], "tidegate" if row["contender"] == "tidegate" else "peer", f"{row['most']:,}") for row in edge]
        yield "edge", chart.bars("Most admitted in any second, by a client at the edges of windows", "of a limit of 100 per second", sorted(bars, key=lambda bar: bar[1]))
    ours = [("Tidegate, " + name, line(row)) for name, row in shared(rows)]
    if ours:
        flat = [(f"APISIX {when}, reported", [(second, value, value, value) for second in range(SECONDS)]) for when, value in zip(("before", "after"), REPORTED)]
        yield "apisix", chart.lines("800 requests per second on two instances, limit 500; APISIX: averages as reported", "second", "admitted in the second", ours + flat, is_linear=True)
    peers = [(row["contender"].replace("SlidingWindowCounter", "Counter"), line(row)) for row in rows if row["scenario"] == APISIX and row["contender"] != "tidegate" and row["virtual"] and "Fixed" not in row["contender"]]
    if peers:
        yield "apisix-peers", chart.lines("800 requests per second on one process, limit 500", "second", "admitted in the second", peers[:4], is_linear=True)
    leased = list(under_use(rows))
    if leased:
        yield "leased", chart.lines("Under-use of leased limits, Poisson at 200 % of the limit", "instances on one Redis", "less than the reference admits, %", leased)


def line(row):
    return [(second, value, value, value) for second, value in enumerate(row["per_second"][:SECONDS])]


def shared(rows):
    """Tidegate with two instances on one Redis, by the algorithm that APISIX has."""
    for store in ("exact", "leased"):
        for row in rows:
            if (row["scenario"], row["store"], row["instances"], row["algorithm"]) == (APISIX, store, 2, "sliding_window_counter"):
                yield store, row


def under_use(rows):
    found = [row for row in rows if row["store"] == "leased" and row["scenario"] == "poisson 200" and row["virtual"]]
    wanted = ("token_bucket", "fixed_window, anchor: clock", "sliding_window_counter", "sliding_window_slots")
    for algorithm in wanted:
        points = sorted((row["instances"], row["under_reference"] * 100 / row["reference"]) for row in found if row["algorithm"] == algorithm)
        if points:
            yield algorithm.split(",")[0], [(count, value, value, value) for count, value in points]
