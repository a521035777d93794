"""What the in-flight window and a transport say to each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    # Imports torch, which a request has no need of.
    from datapipes.pipe import Placed


class Request(NamedTuple):
    """One question to a store. It may ask for several keys, of any places, in any order."""

    places: Sequence[int]
    keys: Sequence[Any]
    detail: Any = None
    """Whatever else its transport needs: an HTTP range, a bound statement."""


class Transport(Protocol):
    """Moves bytes, and does nothing else: the window decides how many, how long, and how often again."""

    def start(self, ticket: int, request: Request) -> None:
        """Send `request` without waiting for anything."""

    def finished(self, timeout_s: float) -> list[tuple[int, Any, Exception | None]]:
        """What came since the last call, waiting at most `timeout_s` for a first answer.

        An answer is `(ticket, results, None)`, results being a sequence with an entry a key (an entry that is
        an exception is the error of that key alone), or `(ticket, None, error)`; the error is a `Transient`
        where the same request may well succeed if sent again.
        """

    def cancel(self, ticket: int) -> None:
        """Forget a request that is under way; its answer, if one comes after all, is dropped."""

    def close(self) -> None:
        """Leave nothing open or running."""


def request_each(placed: Iterator[Placed]) -> Iterator[Request]:
    """A request a key, in the order they come: what a store without multi-key reads is asked.

    >>> list(request_each(iter([(4, "s3://b/1.jpg")])))
    [Request(places=(4,), keys=('s3://b/1.jpg',), detail=None)]
    """
    for place, key in placed:
        yield Request((place,), (key,))
