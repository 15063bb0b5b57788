"""Exact rate limiting, in memory or Redis."""

from tidegate._native import Limit

__all__ = ["Limit"]
