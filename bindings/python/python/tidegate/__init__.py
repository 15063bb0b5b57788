"""Exact rate limiting: in memory or Redis, for threads and asyncio.

>>> from tidegate import Limiter
>>> limiter = Limiter("100/minute burst 20; 5/second")
>>> decision = limiter.check("user_42")
>>> decision.allowed, decision.remaining
(True, 4)
"""

from tidegate._asynchronous import Acquiring, AsyncGate, AsyncLimiter, AsyncPermit
from tidegate._errors import LimitError, Problem, RateLimited, RulesError, StoreError
from tidegate._native import (
    Decision,
    Gate,
    Limit,
    Limiter,
    ManualClock,
    MemoryStore,
    Outcome,
    Permit,
    RedisStore,
    __version__,
)
from tidegate._stats import Stats

__all__ = [
    "Acquiring",
    "AsyncGate",
    "AsyncLimiter",
    "AsyncPermit",
    "Decision",
    "Gate",
    "Limit",
    "LimitError",
    "Limiter",
    "ManualClock",
    "MemoryStore",
    "Outcome",
    "Permit",
    "Problem",
    "RateLimited",
    "RedisStore",
    "RulesError",
    "Stats",
    "StoreError",
    "__version__",
]
