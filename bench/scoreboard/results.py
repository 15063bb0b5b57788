"""The results of each group, kept as JSON in bench/results."""

import datetime
import json
import os
import pathlib
import platform
import re
import subprocess

from . import peers
from .process import Skipped
from .settings import BENCH, RESULTS, ROOT, ROUNDS, SECONDS, tidegate


def save(group, rows, command):
    RESULTS.mkdir(exist_ok=True)
    result = {
        "group": group,
        "command": command,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
        "note": os.environ.get("BENCH_NOTE", ""),
        "rounds": ROUNDS,
        "seconds": SECONDS,
        "rows": [rounded(row) for row in rows],
    }
    text = json.dumps(result, indent=1, ensure_ascii=False)
    (RESULTS / f"{group}.json").write_text(text + "\n")


def rounded(value):
    """Figures with five digits, which are more than are known."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, list) else value


def load_all():
    found = {}
    for file in sorted(RESULTS.glob("*.json")):
        result = json.loads(file.read_text())
        # Others have figures of another form.
        if "rows" in result:
            found[file.stem] = result
    return found


def commit():
    """The commit that is measured, as `scripts/figures` says it."""
    return first_line(str(ROOT / "scripts/figures"), "commit") or "unknown"


def measured_at(result):
    """Which code a group of results is of, when it was measured, and what was particular about it."""
    note = f" {result['note']}" if result.get("note") else ""
    return f"Measured at commit {result.get('commit', 'unknown')}, {result['date']}.{note}"


def machine():
    with open("/proc/cpuinfo") as info:
        models = [line.split(":", 1)[1].strip() for line in info if line.startswith("model name")]
    with open("/proc/meminfo") as info:
        kib = int(info.readline().split()[1])
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(kib / 1024 / 1024),
        "kernel": platform.release(),
    }


def first_line(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return None
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0] if lines else None


def number_in(text):
    found = re.search(r"\d+\.\d+(\.\d+)?", text or "")
    return found[0] if found else None


def versions():
    found = {"tidegate": number_in(first_line(tidegate(), "--version")), "rustc": number_in(first_line("rustc", "--version"))}
    for name, package, flag in (("redis-server", None, "--version"), ("nginx", "nginx-light", "-v"), ("haproxy", None, "-v")):
        try:
            found[name] = number_in(first_line(peers.find_program(name, package), flag))
        except Skipped:
            pass
    for tool, program, flag in (("envoy", "envoy/envoy", "--version"), ("proxies", "proxies/bin/traefik", "version")):
        try:
            path = peers.installed(tool, program)
        except Skipped:
            continue
        found[pathlib.Path(path).name] = number_in(first_line(path, flag).rsplit("ersion:", 1)[-1])
    found["throttlecrab-server"] = peers.THROTTLECRAB
    found["limits (Python)"] = peers.LIMITS
    for name in ("Flask-Limiter", "slowapi", "aiolimiter", "pyrate-limiter", "djangorestframework"):
        found[name] = peers.PYTHON[name]
    found.update(peers.NODE)
    packages = re.findall(r'name = "([^"]+)"\nversion = "([^"]+)"', (BENCH / "Cargo.lock").read_text())
    for name in ("governor", "throttlecrab", "limitador", "axum", "hyper", "tonic"):
        found[name] = next((version for package, version in packages if package == name), None)
    return {name: version for name, version in found.items() if version}
