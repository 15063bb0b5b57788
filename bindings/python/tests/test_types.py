"""Types: the package is clean for its users and by itself, and the stubs say what there is."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run(*command, **options):
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy_strict():
    run("mypy", "--config-file", "pyproject.toml", "--strict", "--package", "tidegate", cwd=ROOT)


def test_stubtest(tmp_path):
    run("mypy.stubtest", "tidegate", "--allowlist", str(ROOT / "tests/stubtest_allowlist.txt"), "--ignore-unused-allowlist", cwd=tmp_path)


def test_a_program_with_mypy_strict(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        """
from typing import assert_type
import tidegate
from tidegate import AsyncLimiter, Decision, Gate, Limit, Limiter, ManualClock, Permit, RateLimited, StoreError

limiter = Limiter("100/minute", clock=ManualClock(0), on_store_failure="allow")
decision = limiter.check("a", cost=2)
assert_type(decision, Decision)
assert_type(decision.retry_after, float | None)
assert_type(limiter.allow("a"), bool)
with limiter.acquire("a", timeout=1) as permit:
    assert_type(permit, Permit)

@limiter.limit(lambda user: user)
def greet(user: str) -> str:
    return user

assert_type(greet("a"), str)

async def main() -> None:
    asynchronous = AsyncLimiter([Limit("1/second"), Limit.concurrent(2)])
    assert_type(await asynchronous.check("a"), Decision)
    async with asynchronous.acquire("a") as held:
        assert_type(await held.release(), bool)

try:
    Gate([{"id": "all", "per": [], "limit": "1/second"}]).check({"user_id": "a"})
except StoreError as error:
    assert_type(error.charged, bool | None)
except RateLimited as error:
    assert_type(error.retry_after, float | None)
print(tidegate.__version__)
"""
    )
    run("mypy", "--strict", "--python-version", f"{sys.version_info[0]}.{sys.version_info[1]}", str(program), cwd=tmp_path)
