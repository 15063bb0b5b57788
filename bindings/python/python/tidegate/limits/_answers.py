"""Answers of Redis that were given a moment ago to the same thread or task, so that the headers of a response need no second
call.

Extensions ask for the usage of a key right after its hit, in the same thread or task. What is kept is in a context variable and
belongs to the thread or task that asked: no other request sees it. It is used once, and only for a moment; the next call for the
same key replaces it.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from threading import get_ident
from time import monotonic
from typing import Any, NamedTuple
from weakref import ref

from tidegate.limits._counters import Usage

FRESH = 0.25
"""For how many seconds an answer is used. Longer requests can afford another call."""
_MOST = 16
"""How many answers are kept in a context."""

Place = tuple[str, str, str]
"""Where something is counted: the store, the strategy and the key."""

Owner = tuple[int, "ref[asyncio.Task[Any]] | None"]
"""A thread, and a task if it runs one."""


class _Answer(NamedTuple):
    usage: Usage
    owner: Owner
    until: float


# Its dictionaries are never changed: contexts that were copied have the same.
_kept: ContextVar[dict[Place, _Answer]] = ContextVar("answers of tidegate.limits", default={})


def _owner() -> Owner:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return get_ident(), ref(task) if task else None


def keep(place: Place, usage: Usage) -> None:
    """Keeps an answer for the thread or task that runs."""
    now = monotonic()
    kept = {other: answer for other, answer in _kept.get().items() if now < answer.until and other != place}
    while len(kept) >= _MOST:
        del kept[next(iter(kept))]
    kept[place] = _Answer(usage, _owner(), now + FRESH)
    _kept.set(kept)


def take(place: Place) -> Usage | None:
    """The answer that was kept, which is then used up."""
    kept = dict(_kept.get())
    answer = kept.pop(place, None)
    if answer is None:
        return None
    _kept.set(kept)
    if monotonic() < answer.until and answer.owner == _owner():
        return answer.usage
    return None


def forget() -> None:
    """Uses up all answers."""
    _kept.set({})
