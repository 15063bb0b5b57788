"""`python -m tidegate` is the program that was installed with the package."""

import os
import subprocess
import sys

import tidegate.__main__


def test_the_program_is_run_with_its_arguments(tmp_path, monkeypatch):
    program = tmp_path / "tidegate"
    program.write_text('#!/bin/sh\necho "$0" "$@"\nexit 5\n')
    program.chmod(0o755)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(tidegate.__main__, "files", lambda name: [])
    assert tidegate.__main__.program() == str(program)
    code = "import sysconfig, sys, tidegate.__main__ as m; m.files = lambda name: []; sysconfig.get_path = lambda name: sys.argv.pop(1); m.main()"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), "serve", "--help"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()[1:]) == (5, ["serve", "--help"])


def test_an_installation_without_the_program_says_so(tmp_path):
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "tidegate", "--version"], capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        assert "not part of this installation" in done.stderr
    else:
        assert done.stdout.startswith("tidegate ")
