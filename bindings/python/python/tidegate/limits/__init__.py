"""The plugin of `limits`: its storages and strategies, for Flask-Limiter, slowapi and others.

Importing it registers the schemes `tidegate://` (memory), `tidegate+redis://`, `tidegate+rediss://`,
`tidegate+unix://`, `tidegate+redis+sentinel://` and `tidegate+redis+cluster://`, each also with `async+` in front, and the
strategies `token-bucket` and `sliding-window-log`.

>>> import tidegate.limits
>>> from limits import parse
>>> from limits.storage import storage_from_string
>>> from limits.strategies import STRATEGIES
>>> limiter = STRATEGIES["token-bucket"](storage_from_string("tidegate://"))
>>> item = parse("2/minute")
>>> [limiter.hit(item, "user_42") for _ in range(3)]
[True, True, False]
"""

from tidegate.limits import _version  # noqa: F401  # First: it refuses versions that the others cannot be imported with.
from tidegate.limits import aio
from tidegate.limits._storage import TidegateStorage
from tidegate.limits._strategies import SlidingWindowLogRateLimiter, TokenBucketRateLimiter
from tidegate.limits.aio import AsyncTidegateStorage

__all__ = [
    "AsyncTidegateStorage",
    "SlidingWindowLogRateLimiter",
    "TidegateStorage",
    "TokenBucketRateLimiter",
    "aio",
]
