"""The programs of other projects: installed where the registries have them, skipped with a reason where not."""

import functools
import os
import shutil
import subprocess

from .process import Skipped
from .settings import BENCH, PEERS, ROOT, TARGET

THROTTLECRAB = "0.4.40"
LIMITS = "5.8.0"
# What runs next to Tidegate in Python.
PYTHON = {
    "limits": LIMITS,
    "Flask-Limiter": "4.1.1",
    "slowapi": "0.1.10",
    "aiolimiter": "1.3.0",
    "pyrate-limiter": "4.5.1",
    "Flask": "3.1.3",
    "starlette": "1.10.0",
    "Django": "5.2.19",
    "djangorestframework": "3.18.3",
    "redis": "8.1.0",
}
MATURIN = "1.16.0"
# What runs next to Tidegate in Node.
NODE = {
    "express-rate-limit": "8.7.4",
    "hono-rate-limiter": "0.5.4",
    "@fastify/rate-limit": "11.2.0",
    "@nestjs/throttler": "6.7.1",
    "rate-limiter-flexible": "11.4.0",
}
# What they need to be imported.
NODE_NEEDS = {"express": "5.3.0", "hono": "4.13.18", "@nestjs/common": "12.5.0", "@nestjs/core": "12.5.0", "reflect-metadata": "0.2.2", "rxjs": "7.8.2"}


def _run(what, *command):
    print(f"installing {what}: {' '.join(map(str, command))}", flush=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Skipped(f"{what} cannot be installed: {error}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Skipped(f"{what} cannot be installed: {last[:200]}")


@functools.cache
def throttlecrab_server():
    program = PEERS / "bin/throttlecrab-server"
    if not program.exists():
        # Its build needs the compiler of protobuf.
        find_program("protoc", "protobuf-compiler")
        cargo = ["cargo", "install", "throttlecrab-server", "--version", THROTTLECRAB, "--locked", "--quiet"]
        _run("throttlecrab-server", *cargo, "--root", PEERS, "--target-dir", TARGET / "peers")
    return str(program)


@functools.cache
def python_limits():
    """The Python of an environment that has `limits`."""
    python = PEERS / "venv/bin/python"
    if not python.exists():
        _run("a Python environment", "python3", "-m", "venv", PEERS / "venv")
    if subprocess.run([python, "-c", "import limits"], capture_output=True, check=False).returncode:
        _run("limits", python, "-m", "pip", "install", "--quiet", f"limits=={LIMITS}")
    return str(python)


@functools.cache
def python_frameworks():
    """The Python of an environment that has Tidegate's wheel, built for release, and its peers. `TIDEGATE_WHEEL` names another wheel."""
    here = PEERS / "python"
    python = here / "bin/python"
    if not python.exists():
        _run("a Python environment", "python3", "-m", "venv", here)
    wanted = [f"{name}=={version}" for name, version in PYTHON.items()]
    _run("limiters of Python", python, "-m", "pip", "install", "--quiet", f"maturin=={MATURIN}", *wanted)
    wheel = os.environ.get("TIDEGATE_WHEEL")
    if not wheel:
        wheels = TARGET / "wheels-bench"
        shutil.rmtree(wheels, ignore_errors=True)
        manifest = ROOT / "bindings/python/Cargo.toml"
        build = [here / "bin/maturin", "build", "--release", "--locked", "--quiet", "--target-dir", TARGET, "--manifest-path", manifest, "--out", wheels]
        _run("Tidegate for Python", *build)
        wheel = next(wheels.glob("tidegate-*.whl"))
    _run("Tidegate for Python", python, "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", wheel)
    _run("types for Tidegate", python, "-m", "pip", "install", "--quiet", "typing_extensions")
    return str(python)


@functools.cache
def node_frameworks():
    """A folder with Tidegate's package, its peers, and the worker. `TIDEGATE_NPM` names another archive of the package."""
    here = PEERS / "node"
    here.mkdir(parents=True, exist_ok=True)
    archive = os.environ.get("TIDEGATE_NPM")
    if not archive:
        _run("Tidegate for Node", ROOT / "scripts/npm", "--only-pack")
        archive = next((TARGET / "packages").glob("tidegate-[0-9]*.tgz"))
    wanted = [f"{name}@{version}" for name, version in {**NODE, **NODE_NEEDS}.items()]
    # Not as it was installed before: an archive of the same version may have other bytes.
    shutil.rmtree(here / "node_modules/tidegate", ignore_errors=True)
    _run("limiters of Node", "npm", "install", "--prefix", here, "--no-audit", "--no-fund", "--no-save", "--no-package-lock", "--loglevel=error", archive, *wanted)
    shutil.copy(BENCH / "scoreboard/node_worker.mjs", here)
    return here


@functools.cache
def find_program(name, package=None):
    """A program of the distribution."""
    path = os.environ["PATH"] + ":/usr/sbin"
    found = shutil.which(name, path=path)
    if found:
        return found
    if not shutil.which("apt-get"):
        raise Skipped(f"{name} is missing, and there is no apt-get to install it")
    sudo = [] if os.getuid() == 0 else ["sudo", "-n"]
    _run(name, *sudo, "apt-get", "install", "-y", "-qq", package or name)
    found = shutil.which(name, path=path)
    if not found:
        raise Skipped(f"{name} is missing after its installation")
    return found


@functools.cache
def installed(tool, program):
    """A program that the tests use too, in the version that `scripts/install` names."""
    path = ROOT / "target/tools" / program
    if not path.exists():
        _run(path.name, ROOT / "scripts/install", tool)
    return str(path) if path.exists() else find_program(path.name)
