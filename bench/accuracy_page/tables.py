"""The tables of the page."""

EDGE, APISIX, CONCURRENCY = "window edge", "apisix 13704", "concurrency"
# What the report of apache/apisix#13704 measured: admitted per second of 500, before and after its fix.
REPORTED = (590, 438)
COUNTS = (1, 2, 4, 8)


def instances_of(count):
    return "1 instance" if count == 1 else f"{count} instances"


def number(value):
    return f"{value:,}"


def share(part, whole):
    """A percentage that is 0 or 100 only if it is exactly that."""
    if not whole:
        return "–"
    percent = part * 100 / whole
    return f"{percent:.0f} %" if percent in (0, 100) else f"{percent:.1f} %"


def who(row):
    """The limiter of a row."""
    if row["contender"] != "tidegate":
        return row["contender"] + ("" if row["virtual"] else " *(real time)*")
    store = {"memory": "memory", "exact": "Redis, exact", "leased": "Redis, leased", "real": "a real Redis, exact"}[row["store"]]
    if row["instances"] > 1:
        store += f", {row['instances']} instances" + (" that share nothing" if row["store"] == "memory" else "")
    return f"**Tidegate**, {store}" + ("" if row["virtual"] else " *(real time)*")


def over_under(over, under):
    return "same" if not over and not under else " / ".join(words for words in (f"+{over:,}" if over else "", f"−{under:,}" if under else "") if words)


def reference(row):
    """The comparison with the reference. In real time the order of near requests is not known, so totals are all there is."""
    text = over_under(row["over_reference"], row["under_reference"])
    if not row["virtual"] or not row["different"]:
        return text
    return ("same total" if text == "same" else text) + f"; {row['different']:,} decided otherwise"


def retry(row):
    if not row["retries"] or not row["retries"][0]:
        return "–"
    tried, admitted, early, *after = row["retries"]
    text = f"{share(admitted, tried)}, {share(early, tried)}"
    return text + (f"; {share(after[0], tried)} a microsecond after" if after and after[0] != admitted else "")


def table(rows, first=who):
    lines = ["| | algorithm | admitted | most in a second | bound | over the promise | reference | ideal | retry exact |", "| --- |" + " --- |" * 8]
    for row in rows:
        cells = [
            first(row),
            f"`{row['algorithm']}`" if row["contender"] == "tidegate" else f"as `{row['algorithm']}`",
            f"{number(row['admitted'])} of {number(row['arrivals'])}",
            number(row["most"]),
            number(row["worst"]),
            number(row["over_promise"]),
            reference(row),
            over_under(row["over_ideal"], row["under_ideal"]),
            retry(row),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def of(rows, scenario):
    """The rows of a scenario: Tidegate's, then peers'; one instance only, as peers in a process have."""
    own = [row for row in rows if row["scenario"] == scenario and row["store"] == "memory" and row["instances"] == 1]
    peers = [row for row in rows if row["scenario"] == scenario and row["contender"] != "tidegate"]
    return own + peers


def image(name, alt, drawn):
    return [f"![{alt}](images/accuracy/{name}.svg)", ""] if name in drawn else []


def window_edge(rows):
    return [
        "## The burst at the edge of a window",
        "",
        "A known weakness of fixed windows: a client sends its whole limit right before the end of a window and again right after, and has twice the limit through in a moment. "
        "The client here also knows slots, and goes on through the next window, which is the worst that can happen to a `sliding_window_counter`. "
        "Choose `sliding_window_log` or `strict: true` where no second may ever have more than the limit. The chart is at the start of this page.",
        "",
        *table(of(rows, EDGE)),
    ]


def apisix(rows, drawn):
    before, after = REPORTED
    own = [row for row in rows if row["scenario"] == APISIX and row["contender"] == "tidegate"]
    shared = [row for row in own if row["instances"] == 2]
    lines = [
        "## 500 per second on two gateways: APISIX 13704",
        "",
        "[apache/apisix#13704](https://github.com/apache/apisix/pull/13704) reports two gateways on one Redis with a sliding window of 500 per second, at 800 requests per second for 30 seconds: "
        f"they admitted about {before} per second before a fix, and about {after} after it. The same arrivals here, in turns to two instances. "
        "The average is that without the first two seconds, in which a bucket has its burst.",
        "",
        *image("apisix", "Admitted in each second of APISIX 13704", drawn),
        "| | algorithm | admitted per second | most in a second | over the promise |",
        "| --- | --- | --- | --- | --- |",
        f"| APISIX before the fix, as reported | sliding window, delayed sync | {before} | – | – |",
        f"| APISIX after the fix, as reported | sliding window, delayed sync | {after} | – | – |",
    ]
    for row in shared:
        lines.append(f"| {who(row)} | `{row['algorithm']}` | {per_second(row):.1f} | {row['most']:,} | {row['over_promise'] if row['store'] != 'memory' else 'not shared'} |")
    lines += ["", "One process, next to libraries that have no shared store:", "", *image("apisix-peers", "Admitted in each second by limiters in one process", drawn), *table(of(rows, APISIX))]
    return lines


def per_second(row):
    """The average of the seconds from the third on, without those in which what was delayed went on."""
    seconds = row["per_second"][2:30]
    return sum(seconds) / len(seconds)


def patterns(rows):
    names = [name for name in dict.fromkeys(row["scenario"] for row in rows) if name not in (EDGE, APISIX, CONCURRENCY)]
    lines = ["## Every pattern, every algorithm", "", "In one process: the memory store and peers.", ""]
    for name in names:
        found = of(rows, name)
        if found:
            lines += ["<details>", f"<summary>{title(name)}: {found[0]['arrivals']:,} requests</summary>", "", *table(found), "</details>", ""]
    return lines


def concurrency(rows):
    lines = []
    for row in (row for row in rows if row["scenario"] == CONCURRENCY):
        lines.append(f"| {who(row)} | {number(row['admitted'])} of {number(row['arrivals'])} | {row['most']} | {row['limit']} | {number(row['different'])} |")
    if not lines:
        return []
    return [
        "## Requests in progress",
        "",
        "`concurrency`: at most 10 at once, at twice as many on average. One client in twenty vanishes and never releases its permit, which ends by itself after a second. The reference is a plain list of who holds a permit until when.",
        "",
        "| | admitted | most at once | limit | not as the reference |",
        "| --- | --- | --- | --- | --- |",
        *lines,
        "",
    ]


def title(name):
    kind, _, percent = name.partition(" ")
    return f"Poisson at {percent} % of the limit" if kind == "poisson" else name


def instances(rows, drawn):
    """Redis: what is used of a limit by how many instances."""
    found = {store: [row for row in rows if row["store"] == store] for store in ("exact", "leased", "real")}
    if not any(found.values()):
        return []
    lines = [
        "## Many instances on one Redis",
        "",
        "Each request goes to one of 1, 2, 4 or 8 instances, which share one Redis. The store, the connections and the scripts are those of production; the server that runs the scripts and the network are simulated, "
        "so that time is virtual: a message takes 100 to 400 µs, and an instance runs once in a millisecond. A request is judged at the time of its decision: Redis's, or the instance's if it decides from a lease.",
        "",
    ]
    if found["exact"]:
        lines += ["### Exact", "", "Every decision is made in Redis, or is a denial that the instance remembers until its `retry_after`. However many instances there are, each decision is the reference's.", ""]
        lines += totals(found["exact"])
    if found["leased"]:
        lines += [
            "### Leased",
            "",
            "Instances take units in advance, so that some lie with an instance that does not need them while another is denied. The limit is never exceeded; what it costs is in these tables: "
            "what was admitted in comparison with the reference, by instances, from the first request on. "
            "`leaky_bucket` with `shape: true` and `sliding_window_log` cannot be leased.",
            "",
            *image("leased", "Under-use of leased limits by instances", drawn),
            *settled(found["leased"]),
        ]
        for scenario in dict.fromkeys(row["scenario"] for row in found["leased"]):
            here = [row for row in found["leased"] if row["scenario"] == scenario]
            lines += ["<details>", f"<summary>{title(scenario)}: {here[0]['arrivals']:,} requests</summary>", "", *by_instances(here), "</details>", ""]
    if found["real"]:
        lines += ["### On a real Redis", "", "A check of the simulation: two instances on a `redis-server`, where each request brings its time.", "", *totals(found["real"])]
    return lines


def settled(rows):
    """What is used under saturation once leases are sized by demand."""
    rows = [row for row in rows if row.get("late") and row["scenario"].endswith(" 200")]
    if not rows:
        return []
    counts = [count for count in COUNTS if any(row["instances"] == count for row in rows)]
    lines = ["Used of what the reference admits, Poisson at 200 % of the limit, from the sixth second on. At least 98 % are promised; above 100 % is what was not used before.", ""]
    lines += ["| algorithm | " + " | ".join(instances_of(count) for count in counts) + " |", "| --- |" + " --- |" * len(counts)]
    for algorithm in dict.fromkeys(row["algorithm"] for row in rows):
        here = {row["instances"]: row["late"] for row in rows if row["algorithm"] == algorithm}
        cells = [f"{here[count][0] * 100 / here[count][1]:.1f} %" if count in here else "–" for count in counts]
        lines.append(f"| `{algorithm}` | " + " | ".join(cells) + " |")
    return [*lines, ""]


def totals(rows):
    """A row for each algorithm, over all patterns and instances."""
    lines = ["| algorithm | runs | requests | over the promise | not as the reference | retry exact |", "| --- |" + " --- |" * 5]
    for algorithm in dict.fromkeys(row["algorithm"] for row in rows):
        here = [row for row in rows if row["algorithm"] == algorithm]
        tried = [row["retries"] or [0, 0, 0] for row in here]
        retries = retry({"retries": [sum(each) for each in zip(*tried)]})
        cells = [f"`{algorithm}`", len(here), number(sum(row["arrivals"] for row in here)), max(row["over_promise"] for row in here), number(sum(row["different"] for row in here)), retries]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return [*lines, ""]


def by_instances(rows):
    """A row for each algorithm: what was admitted by so many instances."""
    counts = [count for count in COUNTS if any(row["instances"] == count for row in rows)]
    lines = ["| algorithm | most in a second | bound | over the promise | " + " | ".join(instances_of(count) for count in counts) + " |"]
    lines.append("| --- | --- | --- | --- |" + " --- |" * len(counts))
    for algorithm in dict.fromkeys(row["algorithm"] for row in rows):
        here = {row["instances"]: row for row in rows if row["algorithm"] == algorithm}
        first = next(iter(here.values()))
        cells = [f"`{algorithm}`", max(row["most"] for row in here.values()), first["worst"], max(row["over_promise"] for row in here.values())]
        cells += [used(here[count]) if count in here else "–" for count in counts]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return [*lines, ""]


def used(row):
    """What was admitted in comparison with the reference."""
    change = row["over_reference"] - row["under_reference"]
    return "same" if not change else f"{change * 100 / row['reference']:+.1f} %".replace("-", "−")


def where_peers_are_better(rows):
    """Rows of peers that keep the reference's total where Tidegate's leased limits do not, or admit less in the worst second."""
    lines = []
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        here = [row for row in rows if row["scenario"] == scenario]
        for peer in (row for row in here if row["contender"] != "tidegate"):
            own = [row for row in here if row["contender"] == "tidegate" and row["algorithm"] == peer["algorithm"]]
            own += [row for row in here if row["contender"] == "tidegate" and peer["algorithm"].startswith("leaky") and row["algorithm"] == "token_bucket"]
            missed = peer["over_reference"] + peer["under_reference"]
            behind = [row for row in own if row["store"] == "leased" and row["under_reference"] * peer["reference"] > missed * row["reference"]]
            if behind:
                worst = max(behind, key=lambda row: row["under_reference"] / row["reference"])
                lines.append(f"- {title(scenario)}: {peer['contender']} in one process is nearer to `{peer['algorithm']}` than Tidegate leased, at most {share(worst['under_reference'], worst['reference'])} under with {instances_of(worst['instances'])}")
    text = ["## Where a peer is better", ""]
    if not lines:
        return [*text, "In no row that was measured.", ""]
    return [*text, "Libraries in one process share nothing, so they have nothing to lease. `exact` admits what the reference admits.", "", *lines, ""]


def in_all(row):
    text = over_under(row["over_reference"], row["under_reference"])
    return "as many as the reference" if text == "same" else f"{text} compared with the reference"


def where_peers_are_over(rows):
    """Rows of peers in virtual time that exceed the promise of the algorithm that they resemble."""
    lines = []
    for row in rows:
        if row["contender"] != "tidegate" and row["virtual"] and row["over_promise"]:
            lines.append(f"- {title(row['scenario'])}: {row['contender']}, {row['over_promise']} over the promise of `{row['algorithm']}`; in all {in_all(row)}")
    if not lines:
        return []
    return ["## Where a peer is over", "", "By the promise of the algorithm of ours that it resembles most, which its project may not make. One over is the rounding of fractions.", "", *lines, ""]


def skipped(rows):
    if not rows:
        return []
    lines = [f"- {row['contender']}" + (f", {row['scenario']}" if "scenario" in row else "") + f": {row['skipped']}" for row in rows]
    return ["## Skipped", "", *lines, ""]
