"""Where things are, and how long a run takes. Each figure can be set by an environment variable."""

import os
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
PEERS = BENCH / "peers"
# Where cargo compiles to, for all workspaces.
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
RESULTS = BENCH / "results"

# Rounds of each comparison, and seconds of load in a turn of a round.
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
SECONDS = float(os.environ.get("BENCH_SECONDS", "1"))
# The most keys of the comparisons of memory and of the growth over keys.
MAX_KEYS = int(os.environ.get("BENCH_MAX_KEYS", "10000000"))

# The server runs on one core, and the load and whatever is behind a gateway on the other.
SERVER_CORE = 0
LOAD_CORE = 1 if (os.cpu_count() or 1) > 1 else 0


def tidegate():
    """The program that is measured."""
    return os.environ.get("TIDEGATE_BIN") or str(TARGET / "dist/tidegate")


def load_generator():
    """The program that sends load: `tidegate bench` of this checkout."""
    return os.environ.get("TIDEGATE_LOAD_BIN") or tidegate()


def bench_program(name):
    """A program of the bench workspace."""
    return str(TARGET / "release" / name)
