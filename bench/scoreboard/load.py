"""Load from `tidegate bench`, the same for every contender, on the other core."""

import json
import os
import subprocess

from .process import Skipped, shown
from .settings import LOAD_CORE, SECONDS, load_generator


def command(arguments, seconds=None, requests=None):
    words = [load_generator(), "bench", *arguments, "--warm-up", "0s", "--json"]
    if requests:
        return [*words, "--requests", str(requests)]
    return [*words, "--duration", f"{int((seconds or SECONDS) * 1000)}ms"]


def text(arguments):
    """The load as a person would write it."""
    return f"taskset -c {LOAD_CORE} " + shown(command(arguments))


def send(arguments, seconds=None, requests=None):
    """Sends load. The report; a contender that does not answer everything is not measured."""
    run = subprocess.run(
        command(arguments, seconds, requests),
        capture_output=True,
        text=True,
        timeout=600,
        preexec_fn=lambda: os.sched_setaffinity(0, {LOAD_CORE}),
    )
    if run.returncode == 2:
        raise Skipped("load failed: " + (run.stderr.strip() or "no reason given")[:300])
    report = json.loads(run.stdout)
    if report["errors"]:
        raise Skipped(f"errors under load: {report['errors']}")
    return report


def turn(processes, arguments, seconds=None, requests=None):
    """One turn of load: what a row of a table needs, CPU time first."""
    before = [process.cpu() for process in processes]
    report = send(arguments, seconds, requests)
    used = [process.cpu() - start for process, start in zip(processes, before)]
    answered = report["allowed"] + report["denied"]
    return {
        "cpu_us": used[0] / answered * 1e6,
        "others_us": [other / answered * 1e6 for other in used[1:]],
        "per_second": report["per_second"],
        "p50_us": report["latency"]["p50"] * 1e6,
        "p99_us": report["latency"]["p99"] * 1e6,
        "busy": used[0] / report["seconds"],
        "denied": report["denied"] / answered,
    }
