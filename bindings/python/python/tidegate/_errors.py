"""The errors of the package. The native module raises them, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tidegate._native import Decision


class LimitError(ValueError):
    """A limit is malformed. The message says what is accepted.

    >>> from tidegate import Limiter, LimitError
    >>> try:
    ...     Limiter("100/fortnight")
    ... except LimitError as error:
    ...     print("refused")
    refused
    """


class Problem(NamedTuple):
    """One problem of a rule file. Lines and columns start at 1 and are 0 where nothing was written.

    >>> from tidegate import Gate, RulesError
    >>> try:
    ...     Gate("rules: [{id: all, per: [], limit: soon}]")
    ... except RulesError as error:
    ...     print(error.problems[0].line, error.problems[0].column)
    1 35
    """

    line: int
    column: int
    message: str


class RulesError(ValueError):
    """Rules are malformed. `problems` has all of them.

    >>> from tidegate import Gate, RulesError
    >>> try:
    ...     Gate("rules: [{id: all, per: []}]")
    ... except RulesError as error:
    ...     print(len(error.problems))
    1
    """

    problems: list[Problem]

    def __init__(self, message: str, problems: list[Problem] | None = None) -> None:
        super().__init__(message)
        self.problems = problems if problems is not None else []


class RateLimited(Exception):
    """A request would have to wait for too long. Nothing was charged.

    >>> from tidegate import Limiter, RateLimited
    >>> limiter = Limiter("1/hour")
    >>> with limiter.acquire("user_42"):
    ...     print("the first")
    the first
    >>> try:
    ...     limiter.acquire("user_42", timeout=0.1)
    ... except RateLimited as error:
    ...     print(error.decision.remaining, error.retry_after > 3000)
    0 True
    """

    decision: Decision | None
    retry_after: float | None

    def __init__(
        self, message: str, decision: Decision | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.decision = decision
        self.retry_after = retry_after


class StoreError(ConnectionError):
    """Redis did not answer within the deadline. `charged` is false if certainly nothing was charged, else none.

    >>> from tidegate import Limiter, StoreError
    >>> limiter = Limiter("10/minute", store="redis://127.0.0.1:1")
    >>> try:
    ...     limiter.check("user_42")
    ... except StoreError as error:
    ...     print(error.charged)
    False
    """

    charged: bool | None

    def __init__(self, message: str, charged: bool | None = None) -> None:
        super().__init__(message)
        self.charged = charged
