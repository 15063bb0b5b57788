"""What a store in memory holds."""

from __future__ import annotations

from typing import NamedTuple


class Stats(NamedTuple):
    """How many keys a store in memory holds, and how many in use it had to forget to make room; none over Redis.

    >>> from tidegate import Limiter
    >>> Limiter("10/minute").stats().keys
    0
    """

    keys: int | None
    evictions: int | None
