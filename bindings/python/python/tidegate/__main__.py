"""Runs the program `tidegate` that is part of the package."""

from __future__ import annotations

import os
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, files


def program() -> str | None:
    """The path of the program: the one that was installed with the package."""
    try:
        installed = [str(file.locate()) for file in files("tidegate") or [] if file.name == "tidegate"]
    except PackageNotFoundError:
        installed = []
    installed.append(os.path.join(sysconfig.get_path("scripts"), "tidegate"))
    for path in installed:
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def main() -> None:
    """Becomes the program."""
    path = program()
    if path is None:
        sys.exit("the program `tidegate` is not part of this installation; install the wheel of `tidegate`")
    os.execv(path, ["tidegate", *sys.argv[1:]])


if __name__ == "__main__":
    main()
