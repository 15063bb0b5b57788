"""The start of the page: the verdict, what is measured, and how to read it."""

from . import promises


def lines(found, rows, drawn):
    text = [
        "# Accuracy",
        "",
        "<!-- Written by `./scripts/accuracy report` from bench/results/accuracy. Do not edit: run the suite again. -->",
        "",
    ]
    if not found:
        return text + ["No results yet: `./scripts/accuracy`."]
    text += verdict(found, rows, drawn)
    text += [
        "## How it is measured",
        "",
        "What Tidegate and other limiters admit of the same arrivals, compared with what they should have admitted. "
        "Arrivals follow from a seed, and time is virtual: each limiter is given the time of each request, so a run takes no waiting, and two runs print the same. "
        "What cannot have virtual time is marked *real time*, and differs a little from run to run.",
        "",
        "- **Limit**: 100 requests per second for each key, buckets with a burst of 100, slots of a tenth of a second; in the case of APISIX 500 per second.",
        "- **Most in a second**: the most that one key was admitted in any interval of one second, wherever it begins. With `shape: true` a request counts when its delay is over.",
        "- **Bound**: the most that the algorithm may admit in any second. It is the limit for the log, strict slots and shaped requests; the others may admit up to twice the limit in the worst case, which is their definition and not an error.",
        "- **Over the promise**: by how many requests the algorithm's own promise was exceeded: its windows, its slots, its bucket, over every interval. Anything but 0 fails the run.",
        "- **Reference**: one pure function for each algorithm, `tidegate_core::algorithm`, on the same arrivals. *Over* and *under* are requests that were admitted beyond it or less than by it, summed over the keys. "
        "A peer is compared with the algorithm that it resembles most. With the same total, some requests may still be decided otherwise, and others in their stead.",
        "- **Ideal**: the same comparison with a log of every request, which admits exactly the limit in any second.",
        "- **Retry exact**: the share of denied requests that are admitted at the time that the limiter named, and the share that are admitted a microsecond before. Exact is 100 % and 0 %. "
        "Of Tidegate requests of cost 1, 5 and 20 are tried: in memory at every denial, on a real Redis at every tenth, on the simulated one three of each cost after a run. "
        "Leased limits are asked again a millisecond after the named time, as an instance runs once in a millisecond there, and with one instance also 3 ms before. Of peers up to 10 in a run are tried; `limits` names a reset time for the whole window, which is what its users send as `Retry-After`.",
        "",
        "The patterns: *Poisson*, independent requests at 50, 90, 100 and 200 % of the limit; *on/off*, half a second at four times the limit and one and a half seconds of silence; "
        "*window edge*, a client that knows where windows and slots begin; *zipf keys*, a thousand keys, a few of them far over their limit.",
        "",
    ]
    text += ["| | |", "| --- | --- |"]
    dates = sorted({result["date"] for result in found.values()})
    text.append(f"| date | {dates[0]}" + (f" to {dates[-1]}" if len(dates) > 1 else "") + " |")
    versions = [f"{name} {version}" for result in found.values() for name, version in result["versions"].items()]
    text.append(f"| versions | {', '.join(dict.fromkeys(versions))} |")
    text += [f"| measured at | {line} |" for line in measured_at(found)]
    text.append("| command | `./scripts/accuracy`, or one group: `./scripts/accuracy NAME`; the page: `./scripts/accuracy report` |")
    return text + [""]


def measured_at(found):
    """The commits of the groups, a line for each."""
    commits = {}
    for name, result in found.items():
        commits.setdefault(result.get("commit", "unknown"), []).append(name)
    return [f"commit {commit}: {', '.join(names)}" for commit, names in commits.items()]


def retries_of(rows):
    """How many requests were admitted at their time, of how many, and how many too early."""
    tried, admitted, early = (sum(row["retries"][index] for row in rows if row["retries"]) for index in range(3))
    return f"{admitted:,} of {tried:,}", f"{early:,}"


def verdict(found, rows, drawn):
    """What was checked of Tidegate, and what of it failed."""
    ours = [row for row in rows if promises.is_ours(row) and promises.is_shared(row)]
    broken = list(promises.judge(found))
    arrivals = sum(row["arrivals"] for row in ours)
    same = [row for row in ours if row["store"] != "leased"]
    exact, leased_too = retries_of(same), retries_of([row for row in ours if row["store"] == "leased"])
    leased = [row for row in ours if row["store"] == "leased" and row["scenario"] in promises.SATURATED]
    text = [
        f"- Of {sum(row['arrivals'] for row in same):,} decisions in memory and exact over Redis, **{sum(row['different'] for row in same):,} differ** from those of the reference.",
        f"- In {len(ours)} runs with {arrivals:,} requests, **{sum(row['over_promise'] > 0 for row in ours)} runs** admitted more than the algorithm promises.",
        "- Of the denied requests **{}** were admitted at their `retry_after`, if no other came, and {} a microsecond before.".format(*exact),
        "",
    ]
    if "edge" in drawn:
        text += ["![Most admitted in any second by a client at the edges of windows](images/accuracy/edge.svg)", ""]
    if leased:
        least = min(row["late"][0] * 100 / row["late"][1] for row in leased)
        text += [f"With `sync: leased`, under saturation and after five seconds, at least {least:.1f} % of what the reference admits is admitted. " + ("Of the denied requests {} were admitted at their `retry_after`, with 1 to 8 instances; with one instance, 3 ms before: {}.".format(*leased_too) if leased_too[0] != "0 of 0" else ""), ""]
    if broken:
        text += [f"**{len(broken)} broken promises:**", "", *[f"- {line}" for line in broken], ""]
    return text
