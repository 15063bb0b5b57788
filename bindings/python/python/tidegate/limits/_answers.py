"""Answers of Redis that were given a moment ago in the same context, so that the headers of a response need no second call.

Extensions ask for the usage of a key right after its hit, in the same thread or task. What is kept is in a context variable: no
other request sees it. It is used once, and only for a moment; the next call for the same key replaces it.
"""

from __future__ import annotations

from contextvars import ContextVar
from time import monotonic

from tidegate.limits._counters import Usage

FRESH = 0.25
"""For how many seconds an answer is used. Longer requests can afford another call."""
_MOST = 16
"""How many answers are kept in a context."""

Place = tuple[str, str, str]
"""Where something is counted: the store, the strategy and the key."""

_kept: ContextVar[dict[Place, tuple[float, Usage]]] = ContextVar("tidegate.limits answers", default={})


def keep(place: Place, usage: Usage) -> None:
    """Keeps an answer for this context."""
    now = monotonic()
    # A new dictionary: contexts that were copied from this one have the old one.
    kept = {other: answer for other, answer in _kept.get().items() if now < answer[0] and other != place}
    while len(kept) >= _MOST:
        del kept[next(iter(kept))]
    kept[place] = (now + FRESH, usage)
    _kept.set(kept)


def take(place: Place) -> Usage | None:
    """The answer that was kept, which is then used up."""
    kept = _kept.get()
    if place not in kept:
        return None
    kept = dict(kept)
    until, usage = kept.pop(place)
    _kept.set(kept)
    return usage if monotonic() < until else None


def forget() -> None:
    """Uses up all answers."""
    _kept.set({})
