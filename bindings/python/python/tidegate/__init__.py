"""Exact rate limiting, in memory or Redis."""

from tidegate._errors import LimitError, Problem, RateLimited, RulesError, StoreError
from tidegate._native import Limit, ManualClock, MemoryStore, RedisStore

__all__ = [
    "Limit",
    "LimitError",
    "ManualClock",
    "MemoryStore",
    "Problem",
    "RateLimited",
    "RedisStore",
    "RulesError",
    "StoreError",
]
