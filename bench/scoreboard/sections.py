"""The page as data: its sections, their groups, and the columns of their tables."""

from .figures import duration, middle, rate, spread


def busy(row):
    share = middle(row, "busy")
    return "–" if share is None else f"{share:.0%}"


def column(name, text=duration):
    return lambda row: text(middle(row, name))


def count(value):
    return "–" if value is None else f"{value:,.0f}"


SPEED = [
    ("CPU per decision", lambda row: spread(row, "cpu_us")),
    ("decisions/s", column("per_second", rate)),
    ("p50", column("p50_us")),
    ("p99", column("p99_us")),
]
SERVER = [*SPEED, ("busy", busy)]
MEMORY = [
    ("bytes per key", lambda row: spread(row, "bytes", count)),
    ("while growing, at most", column("growing_bytes", count)),
    ("process at start", lambda row: f"{middle(row, 'start_bytes') / 2**20:.1f} MiB"),
]
IDLE = [
    ("bytes per idle connection", lambda row: spread(row, "bytes", count)),
    ("right after the request", lambda row: spread(row, "used_bytes", count)),
]
RESERVATIONS = [
    ("CPU of Tidegate per decision", lambda row: spread(row, "cpu_us")),
    ("CPU of Redis per decision", lambda row: spread(row, "redis_us") if middle(row, "redis_us") else "–"),
]
INSTANCES = [
    ("CPU of Tidegate per decision", lambda row: spread(row, "cpu_us")),
    ("CPU of Redis per decision", lambda row: spread(row, "redis_us")),
    ("decisions/s", column("per_second", rate)),
    ("p50", column("p50_us")),
    ("p99", column("p99_us")),
]


def difference(name):
    """A difference that may be negative, of all rounds."""
    return lambda row: spread(row, name, lambda micros: ("−" if micros < 0 else "") + duration(abs(micros)))


ENVOY = [
    ("CPU of Envoy", lambda row: spread(row, "envoy_us")),
    ("of the service", lambda row: spread(row, "service_us")),
    ("added CPU", difference("added_cpu_us")),
    ("requests/s", column("per_second", rate)),
    ("p50", column("p50_us")),
    ("p99", column("p99_us")),
    ("added p50", difference("added_p50_us")),
    ("added p99", difference("added_p99_us")),
    ("added CPU at that rate", difference("added_slow_cpu_us")),
]
# Each case has one of these.
PYTHON_FIGURES = {
    "cpu_us": duration,
    "admitted": lambda value: f"{value:,.0f}",
    "commands": lambda value: f"{value:.3g}",
    "stall_us": duration,
    "failed": lambda value: f"{value:.0%}",
}


def python_figure(row):
    """The figure of a case of the group `python`."""
    for name, text in PYTHON_FIGURES.items():
        if middle(row, name) is not None:
            return spread(row, name, text)
    return "–"


class Group:
    """One file of results: its tables and its chart."""

    def __init__(self, name, alt, **more):
        self.name, self.alt = name, alt
        self.title = self.text = self.chart_case = ""
        self.figure, self.unit, self.columns = "cpu_us", "CPU time of the server per decision; less is better", SERVER
        self.is_growth, self.series, self.names = False, [("*", "cpu_us")], {}
        self.x_label, self.y_label = "", "CPU time per decision, µs"
        self.short = alt
        self.__dict__.update(more)


class Section:
    def __init__(self, title, text, *groups):
        self.title, self.text, self.groups = title, text, groups


def growth(name, alt, x_label, **more):
    return Group(name, alt, is_growth=True, x_label=x_label, columns=more.pop("columns", SPEED), **more)


SECTIONS = [
    Section(
        "In process",
        "The call that each project's README shows, with one limit that allows everything; formatting the key is counted for all. The ceiling is a map of a number for each key in 64 parts with a lock each, "
        "Rust's standard map and hash: it decides nothing. With two threads both cores work, and wall time is that of the slower one. One check in 64 is timed for p50 and p99.",
        Group("library", "CPU time of a check in process", short="in process", columns=SPEED,
              unit="CPU time per check; less is better", chart_case="1,000,000 keys, 1 thread"),
    ),
    Section(
        "HTTP",
        "`POST /v1/check` with four attributes and one rule that matches, 64 connections with one request in flight each, 10,000 keys. throttlecrab-server is sent its own `POST /throttle`.",
        Group("http", "HTTP, CPU time of a check", short="HTTP"),
        Group("reservations", "Reserve and settle, CPU time", title="Reserve and settle", short="reserve and settle", columns=RESERVATIONS,
              text="`POST /v1/reserve` of 60 and the settlement with 25, two calls that count as one decision, next to `POST /v1/check`: one rule, 16 connections, 10,000 keys. "
              "The load is one thread of Python for both, and slower than the server, so that only CPU time is shown. The server and Redis share one core.", chart_case="in memory"),
    ),
    Section(
        "gRPC",
        "`ShouldRateLimit` with one descriptor, 4 connections with 16 calls in flight on each. throttlecrab-server has a protocol of its own, with a smaller message. The ceiling is tonic with a service that reads the message and answers with one of the same size.",
        Group("grpc", "gRPC, CPU time of a call", short="gRPC"),
    ),
    Section(
        "RESP",
        "The Redis protocol, 50 connections with 16 commands pipelined on each, 10,000 keys. `INCR` of Redis counts and decides nothing.",
        Group("resp", "RESP, CPU time of a command", short="RESP"),
    ),
    Section(
        "Gateway",
        "A small GET through a reverse proxy with one limit for each address, 64 connections. Each proxy has one worker, writes no access log, and keeps its connections to the server behind. That server and the load share the other core. "
        "Before the run each is started with a limit of 10 a second, and skipped unless it denies what an address sends beyond that with 429, and admits another address. *Admitted*: the limit allows everything. *Denied*: 10 a second are allowed, and nothing else reaches the server behind.",
        Group("gateway", "Gateway, CPU time of a request", short="gateway", unit="CPU time of the proxy per request; less is better", chart_case="admitted"),
        Group("envoy", "Envoy, CPU time of a request with a decision over gRPC", title="What a decision adds to Envoy", short="Envoy", columns=ENVOY,
              text="The same GET through Envoy with one worker, which calls a service over gRPC for each request. CPU time is measured in a closed loop with 64 connections, latency and the last column at 2,000 requests a second in an open loop, where requests do not wait for each other. Envoy and the service share one core, so both figures include switching between them. "
              "*Added* is the difference to Envoy alone within each round. A call that is not answered would fail the request, so none was admitted without a decision; the limits are checked as above.",
              unit="CPU time of Envoy and of the service that it calls per request; less is better"),
        Group("idle", "Gateway, memory of an idle connection", title="Memory of an idle connection", short="idle connection of the gateway",
              text="2,000 HTTP/1.1 connections without TLS, one request on each: growth of resident memory after five seconds, divided by their number. Tidegate frees the buffers of a connection that was idle for a second, so the memory right after the requests is shown too.",
              figure="bytes", unit="bytes per connection; less is better", columns=IDLE),
    ),
    Section(
        "Python",
        "The package for Python next to other limiters, each as its own documentation shows it, in one process and thread. A decision is of one of 1,000 keys by a limit that allows everything; `limits` is what Flask-Limiter and slowapi count with. "
        "What a limit adds to a request is the difference to the same application without it, measured in turns within each round; the application is called by itself, without a server, and answers have headers. Threads are switched at the usual and at a short interval. Redis is stopped for a second with a signal; the longest pause of the event loop counts. Of the commands those are left out by which a process says every now and then that it is there.",
        Group("python", "Python, CPU time of a decision", short="Python", columns=[("median (least – most)", python_figure)],
              unit="CPU time per decision; less is better", chart_case="a decision in memory"),
    ),
    Section(
        "Limiters of Node",
        "The npm package next to other limiters, in one process. A check is of one of 10,000 clients, drawn at random, by a limit that allows everything; its key is a string that was made for it, as a framework makes it, which is not counted. Stores are called as their libraries call them, and what these await is awaited. "
        "Nest's own storage keeps a list of all requests in the window and looks at each of them.",
        Group("node", "Node, CPU time of a check", short="Node", columns=[("median (least – most)", lambda row: spread(row, "cpu_us"))],
              unit="CPU time per check; less is better", chart_case="a check of one of 10,000 clients"),
    ),
    Section(
        "Memory of a key",
        "Resident memory less that of the server after its first thousand requests (libraries: at the start), divided by the number of keys, all of them live: after all keys were added, and the most that was seen until then. Servers are filled over RESP (`CL.THROTTLE`), pinned to one core as everywhere on this page, and Tidegate once more on two, as it runs without being pinned. "
        "Redis stores a number with an expiry under each key, as `INCR` and `EXPIRE` leave it. The ceiling has no state of a limit.",
        Group("memory", "Memory of a key", short="memory", figure="bytes", unit="bytes per key; less is better", columns=MEMORY, chart_case="10,000,000 keys"),
    ),
    Section(
        "How the cost grows",
        "Keys, rules and limits: `Gate::decide` of the library in process, one thread. Vertical lines are the least and the most of all rounds.",
        growth("keys", "Cost of a decision against keys", "keys", title="With keys", text="One rule, keys drawn uniformly: most of the growth is the memory that no longer fits into the caches."),
        growth("rules", "Cost of a decision against rules", "rules", title="With rules", text="One of the rules matches; the others have another path each."),
        growth("limits", "Cost of a decision against limits of a request", "limits that apply to a request", title="With limits of a request", text="All of them are charged, or none."),
        growth("connections", "Cost of a decision against connections", "open connections", title="With connections",
               text="`POST /v1/check` over HTTP. The cost of connecting is left out: it is the difference of a short and a longer load, divided by that of their requests."),
        growth("instances", "Cost of a decision against instances on one Redis", "instances on one Redis", title="With instances on one Redis",
               text="`POST /v1/check` over HTTP, 64 connections to each instance, one hot key for all, which is what `sync: leased` is for: with many keys of few requests each, a lease is used up by a request or two and saves nothing. The servers and Redis share one core, so that throughput is that of one core for all.", columns=INSTANCES,
               series=[("exact", "cpu_us"), ("exact", "redis_us"), ("leased", "cpu_us"), ("leased", "redis_us")],
               names={("exact", "cpu_us"): "Tidegate, exact", ("exact", "redis_us"): "Redis, exact",
                      ("leased", "cpu_us"): "Tidegate, leased", ("leased", "redis_us"): "Redis, leased"}),
    ),
]
