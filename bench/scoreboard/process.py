"""Processes on a core of their own: their CPU time, their memory, and their end."""

import atexit
import ctypes
import os
import re
import signal
import socket
import subprocess
import time

from .settings import SERVER_CORE

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_running = []


class Skipped(Exception):
    """Why a contender cannot be measured."""


class Process:
    """A program, ended by `stop` or at the latest when the runner ends."""

    def __init__(self, command, core=SERVER_CORE, stdin=None, cwd=None, env=None):
        self.command = [str(word) for word in command]

        def prepare():
            # Not a name for several cores: the number of threads of many servers follows from it.
            os.sched_setaffinity(0, core if isinstance(core, set) else {core})
            _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

        try:
            self.child = subprocess.Popen(
                self.command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                preexec_fn=prepare,
                cwd=cwd,
                env=env,
                text=True,
            )
        except OSError as error:
            raise Skipped(f"`{self.command[0]}` does not start: {error.strerror}") from error
        _running.append(self)

    def addresses(self, names):
        """Reads lines `listening NAME=ADDRESS` until all names were there."""
        found = {}
        while not set(names) <= found.keys():
            line = self.child.stdout.readline()
            if not line:
                raise Skipped(f"`{self.command[0]}` ended at its start")
            name, _, address = line.strip().removeprefix("listening ").partition("=")
            found[name] = address
        return found

    def wait_until(self, is_ready, complaint, seconds=10):
        """Waits until the program is ready; the complaint is about one that is not in time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.child.poll() is not None:
                raise Skipped(f"`{self.command[0]}` ended at its start, with code {self.child.returncode}")
            if is_ready():
                return
            time.sleep(0.02)
        raise Skipped(f"`{self.command[0]}` {complaint}")

    def wait_for(self, port):
        """Waits until the program accepts connections."""
        self.wait_until(lambda: accepts(port), f"does not listen on port {port}")

    def _family(self):
        """The process and its children, which nginx has."""
        found, todo = [], [self.child.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            try:
                with open(f"/proc/{pid}/task/{pid}/children") as children:
                    todo += [int(word) for word in children.read().split()]
            except OSError:
                pass
        return found

    def cpu(self):
        """User and system time so far, of all threads and of the children, in seconds."""
        total = 0.0
        for pid in self._family():
            try:
                # The clock of another process's CPU time, see clock_getcpuclockid(3): to the nanosecond.
                total += time.clock_gettime((~pid << 3) | 2)
            except OSError:
                pass
        return total

    def memory(self, field="VmRSS"):
        """Resident memory in bytes, now (`VmRSS`) or at most so far (`VmHWM`)."""
        total = 0
        for pid in self._family():
            try:
                with open(f"/proc/{pid}/status") as status:
                    lines = [line for line in status if line.startswith(field + ":")]
            except OSError:
                continue
            total += sum(int(line.split()[1]) * 1024 for line in lines)
        return total

    def stop(self):
        if self in _running:
            _running.remove(self)
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(5)
            except subprocess.TimeoutExpired:
                self.child.kill()
                self.child.wait()
        for stream in (self.child.stdin, self.child.stdout):
            if stream:
                stream.close()


@atexit.register
def stop_all():
    for process in list(_running):
        process.stop()


def accepts(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def shown(command):
    """A command as a person would write it."""
    from .settings import PEERS, ROOT

    words = []
    for word in map(str, command):
        word = word.replace(str(PEERS) + "/bin/", "").replace(str(ROOT) + "/", "")
        word = re.sub(r"/\S*/tidegate-bench-[^/]+", "DIR", word)
        if word.endswith("/tidegate"):
            word = "tidegate"
        words.append(f"'{word}'" if set(word) & set(" {}\"$*") else word)
    return " ".join(words)
