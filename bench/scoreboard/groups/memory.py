"""Memory of a key that is live: servers over RESP as a user sees them, libraries in a process of their own."""

import time

from .. import load, rounds, servers
from ..process import Skipped, shown
from ..settings import LOAD_CORE, MAX_KEYS, ROUNDS, SERVER_CORE
from ..worker import Worker

# A limit under which no key becomes idle while others are added.
LIMIT = ["100", "10", "86400"]
# The default is room for ten million keys, of which some would be evicted before the last comes.
MORE_KEYS = {"TIDEGATE_MAX_KEYS": "20000000"}
SERVERS = [
    ("tidegate, server", "tidegate", lambda: servers.tidegate("resp", variables=MORE_KEYS), ["--limit", *LIMIT]),
    ("tidegate, server on two cores", "tidegate", lambda: servers.tidegate("resp", core=TWO_CORES, variables=MORE_KEYS), ["--limit", *LIMIT]),
    ("Redis, a number with an expiry", "peer", servers.redis, ["--command", "SET u{key} 1 EX 86400"]),
    ("throttlecrab-server", "peer", lambda: servers.throttlecrab("redis"), ["--command", "THROTTLE u{key} " + " ".join(LIMIT)]),
]
# A server has a thread for each core, and memory that one thread frees can wait for another to use it.
TWO_CORES = {SERVER_CORE, LOAD_CORE}
# How long a server may take to be filled, in seconds.
LONGEST_FILL = 180
LIBRARIES = [("tidegate", "tidegate"), ("governor", "peer"), ("throttlecrab", "peer"), ("limitador", "peer"), ("bare", "ceiling")]


def bytes_per_key(process, start, keys):
    return {
        "bytes": (process.memory() - start) / keys,
        "growing_bytes": (process.memory("VmHWM") - start) / keys,
        "start_bytes": start,
    }


# Seconds that a server needed for a key so far, to know whether more keys take too long.
_fill_seconds = {}


def server_row(name, role, start, arguments, keys):
    def begin():
        needed = _fill_seconds.get(name, 0) * keys
        if needed > LONGEST_FILL:
            raise Skipped(f"it would take about {needed / 60:.0f} minutes to fill")

        def turn():
            server = start()
            try:
                sent = ["resp", "--address", server.addresses["resp"], *arguments]
                sent += ["--connections", "50", "--in-flight", "16", "--in-order", "--keys", str(keys)]
                # What a server takes once it works, such as the heaps of its threads, belongs to no key.
                load.send(sent, requests=1_000)
                time.sleep(1)
                before, begun = server.process.memory(), time.monotonic()
                load.send(sent, requests=keys)
                _fill_seconds[name] = (time.monotonic() - begun) / keys
                row.command, row.load = shown(server.process.command), load.text(sent)
                return bytes_per_key(server.process, before, keys)
            finally:
                server.stop()

        return rounds.Started(turn, lambda: None)

    row = rounds.Row(name, begin, role, f"{keys:,} keys", keys)
    return row


# Bytes per key of the libraries so far, to know whether more keys fit.
_known = {}


def require_memory(name, keys):
    needed = _known.get(name, 0) * keys
    with open("/proc/meminfo") as info:
        available = next(int(line.split()[1]) * 1024 for line in info if line.startswith("MemAvailable"))
    if needed > available * 0.7:
        raise Skipped(f"needs about {needed / 2**30:.0f} GiB, and {available / 2**30:.0f} GiB are available")


def library_row(name, role, keys):
    def begin():
        require_memory(name, keys)

        def turn():
            worker = Worker(name, keys, 1)
            try:
                before = worker.process.memory()
                worker.fill(0, keys)
                row.command, row.load = worker.command, f"fill 0 {keys}"
                measured = bytes_per_key(worker.process, before, keys)
                _known[name] = measured["bytes"]
                return measured
            finally:
                worker.stop()

        return rounds.Started(turn, lambda: None)

    title = "bare map of numbers with locks" if name == "bare" else f"{name}, in process"
    row = rounds.Row(title, begin, role, f"{keys:,} keys", keys)
    return row


def measure(_, only):
    measured = []
    for keys in (MAX_KEYS // 10, MAX_KEYS):
        rows = [server_row(*entry, keys) for entry in SERVERS]
        rows += [library_row(*entry, keys) for entry in LIBRARIES]
        rows = [row for row in rows if only in row.contender]
        # With several threads memory varies from turn to turn; that of all others does not.
        varying = [row for row in rows if row.contender.endswith("on two cores")]
        measured += rounds.run("memory", [row for row in rows if row not in varying], rounds=1, warm=False)
        measured += rounds.run("memory", varying, rounds=ROUNDS if keys < MAX_KEYS else 1, warm=False)
    return measured
