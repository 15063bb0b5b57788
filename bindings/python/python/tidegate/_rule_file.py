"""A rule file that is read again when it has changed.

It is looked at when a request comes, at most twice in a second: no thread is needed, none has to end, and a forked process
goes on by itself.
"""

from __future__ import annotations

import logging
import os
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate import Gate

LOOK_EVERY = 0.5
_logger = logging.getLogger("tidegate")


class RuleFile:
    """The file that the rules of a gate come from."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        self._seen = self._signature()
        self._next = monotonic() + LOOK_EVERY

    def read(self) -> str:
        """The text of the file."""
        with open(self._path, encoding="utf-8") as file:
            return file.read()

    def look(self, gate: Gate) -> None:
        """Puts the rules in force if the file has changed. Bad rules are logged once, and those before stay in force."""
        now = monotonic()
        if now < self._next:
            return
        self._next = now + LOOK_EVERY
        seen = self._signature()
        if seen == self._seen:
            return
        # Before they are read: what is written meanwhile is seen the next time.
        self._seen = seen
        try:
            gate.replace(self.read())
        except (OSError, ValueError) as error:
            _logger.error("the rules in %s are not put in force, those before stay: %s", self._path, error)
        else:
            _logger.info("the rules in %s have changed and are in force", self._path)

    def _signature(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
