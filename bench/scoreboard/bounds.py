"""Bounds that Tidegate must keep, most of them in times of another row of the same run. `scripts/bench` fails if one is exceeded."""

from .figures import middle, ratio

# Why the bound of a comparison is above its goal.
GRPC = "most of a call is h2, hyper and the kernel; only an HTTP/2 server of our own could reach it ([015](decisions/015-http2-requests.md))"
RESP = "most of a command is the kernel: the bare responder in the table above decides nothing, and takes nearly as much as the goal allows"
ENVOY = "most of the CPU time is Envoy's, whatever it calls; the figure moves around the goal from run to run"
ZIPF = "most of a check is one cache miss, that of the slot; the figure moves around the goal from run to run"


class Bound:
    """A row that is bounded: by how many times another row, or by a figure of its own if `theirs` is none.

    A row is found by the start of its contender, or by its position on the axis of a chart.
    """

    def __init__(self, group, ours, theirs, goal, case="", most=None, why="", figure="cpu_us", unit="bytes"):
        self.group, self.ours, self.theirs, self.case, self.figure, self.unit = group, ours, theirs, case, figure, unit
        self.goal, self.most, self.why = goal, most or goal, why

    def find(self, rows, which):
        for row in rows:
            is_named = row["x"] == which if isinstance(which, int) else row["contender"].startswith(which)
            if is_named and row["case"].startswith(self.case) and row["turns"]:
                return row
        return None

    def measured(self, rows):
        """What is bounded in words, and its figure; none if it was not measured."""
        ours = self.find(rows, self.ours)
        if not ours:
            return None
        if self.theirs is None:
            return f"{self.group}: {ours['contender']}, {ours['case']}", middle(ours, self.figure)
        theirs = self.find(rows, self.theirs)
        times = ratio(ours, theirs, self.figure) if theirs else None
        if times is None:
            return None
        title = (ours["case"], theirs["case"]) if isinstance(self.theirs, int) else (ours["contender"], theirs["contender"])
        case = f", {self.case}" if self.case else ""
        return f"{self.group}: {title[0]}, compared with {title[1]}{case}", times

    def shown(self, figure):
        return f"{figure:.2f} times" if self.theirs is not None else f"{figure:,.0f} {self.unit}"


def library(case, goal, **more):
    return Bound("library", "tidegate", "governor", goal, case, **more)


BOUNDS = [
    library("1 key, 1 thread", 1.0),
    library("1 key, 2 threads", 1.0),
    library("10,000 keys, 1 thread", 1.0),
    library("10,000 keys, 2 threads", 1.0),
    library("1,000,000 keys, 1 thread", 0.5),
    library("1,000,000 keys, 2 threads", 0.5),
    library("1,000,000 keys, Zipf, 1 thread", 0.5, most=0.6, why=ZIPF),
    library("1,000,000 keys, Zipf, 2 threads", 0.5, most=0.6, why=ZIPF),
    Bound("http", "tidegate", "bare axum", 1.0),
    Bound("grpc", "tidegate", "bare tonic", 0.8, most=1.0, why=GRPC),
    Bound("resp", "tidegate", "Redis", 0.67, most=0.9, why=RESP),
    Bound("gateway", "tidegate", "nginx", 1.2),
    Bound("gateway", "tidegate", "envoy", 0.6),
    Bound("gateway", "tidegate", "traefik", 0.5),
    Bound("envoy", "tidegate", "bare tonic", 1.0, most=1.1, why=ENVOY),
    Bound("memory", "tidegate, server on two cores", None, 60, "1,000,000 keys", figure="bytes"),
    Bound("rules", 1_000, 10, 2.0),
    Bound("python", "tidegate, allow", "limits, hit, fixed-window", 1 / 15, "a decision in memory"),
    Bound("python", "tidegate, check", "limits, hit, fixed-window", 1 / 10, "a decision in memory"),
    Bound("python", "tidegate", "Flask-Limiter", 1 / 10, "what a limit adds to a request of Flask"),
    Bound("python", "tidegate", None, 50, "16 threads", figure="admitted", unit="admitted"),
    Bound("python", "tidegate", None, 1, "commands to Redis", figure="commands", unit="commands"),
    Bound("python", "tidegate", None, 20_000, "the event loop", figure="stall_us", unit="µs"),
    Bound("python", "tidegate", None, 0, "requests that fail", figure="failed", unit="of all requests"),
    Bound("node", "tidegate, check", "express-rate-limit", 1.0, "a check"),
    Bound("node", "tidegate, store of express-rate-limit", "express-rate-limit", 1.0, "a check"),
    Bound("node", "tidegate", "@nestjs/throttler", 1 / 10, "a request to Nest's storage, by the client's requests in the window: 1,000"),
    Bound("node", "tidegate, storage", None, 2.0, "a request to Nest's storage, by the client's requests in the window: 10,000", unit="µs"),
]


def judge(group, rows):
    """Every bound of a group that could be measured, what it is of, and its figure."""
    for bound in BOUNDS:
        measured = bound.measured(rows) if bound.group == group else None
        if measured:
            yield bound, *measured


def section(found):
    lines = ["", "## Bounds", ""]
    lines += ["What a change to Tidegate must keep: `./scripts/bench` fails if the CPU time of a decision is more than so many times that of another row, or if a key takes more memory. "
              "The bound is the goal, unless the last column says why not.", ""]
    lines += ["| | goal | bound | measured | | why the bound is not the goal |", "| --- | --- | --- | --- | --- | --- |"]
    for group, result in found.items():
        for bound, title, figure in judge(group, result["rows"]):
            met = "goal met" if figure <= bound.goal else "within the bound" if figure <= bound.most else "**not met**"
            lines.append(f"| {title} | {bound.shown(bound.goal)} | {bound.shown(bound.most)} | {bound.shown(figure)} | {met} | {bound.why} |")
    return lines
