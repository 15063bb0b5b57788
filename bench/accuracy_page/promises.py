"""What Tidegate promises of every row. `scripts/accuracy` fails if one is broken."""

# What leased limits use of what the reference admits, at least, under saturation and after five seconds.
LEAST_USED = 0.98
SATURATED = ("poisson 200", "apisix 13704")


def is_ours(row):
    return row["contender"] == "tidegate" and not row.get("skipped")


def is_shared(row):
    """Whether all instances of the row count together."""
    return row["store"] != "memory" or row["instances"] == 1


def broken(row):
    """What a row of Tidegate breaks, in words."""
    if not is_ours(row):
        return
    if is_shared(row):
        if row["over_promise"]:
            yield f"{row['over_promise']} over the promise of the algorithm"
        if row["most"] > row["worst"]:
            yield f"{row['most']} admitted in a window, at most {row['worst']} are promised"
        if row["store"] != "leased" and row["different"]:
            yield f"{row['different']} decisions are not those of the reference"
        if row["store"] == "leased" and row["scenario"] in SATURATED and row["late"][0] < row["late"][1] * LEAST_USED:
            yield f"{row['late'][0]} admitted after five seconds, where the reference admits {row['late'][1]}"
    if row["retries"]:
        tried, admitted, early = row["retries"]
        if admitted != tried:
            yield f"{tried - admitted} of {tried} requests denied again at their retry_after"
        if early:
            yield f"{early} of {tried} requests admitted before their retry_after"


def judge(found):
    """Every broken promise of the results, with its row."""
    for group, result in found.items():
        for row in result["rows"]:
            for what in broken(row):
                yield f"{group}: {row['scenario']}, {row['algorithm']}, {row['store']}, {row['instances']} instances: {what}"
