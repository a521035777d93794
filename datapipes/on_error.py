"""What happens to one bad sample: raise, skip and count, or ask the user's function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

OnError: TypeAlias = Literal["raise", "skip"] | Callable[[str, Exception], Any]


class Skipped(NamedTuple):
    """Stands in a flow where a sample would have stood, so that its batch knows that it is one short."""

    key: str
    reason: str


def check_on_error(function: str, on_error: OnError) -> None:
    """Refuse at construction what could only fail at the first bad sample, hours later."""
    if on_error not in ("raise", "skip") and not callable(on_error):
        raise ValueError(
            f"{function}: on_error must be 'raise', 'skip' or a callable (key, error) -> sample or None, "
            f"got {on_error!r}"
        )


def settle(on_error: OnError, key: str, error: Exception) -> Any:
    """Raise `error`, or give the item that takes the place of the sample it spoilt.

    >>> settle("skip", "train/cat/1.jpg", OSError("decode: image file is truncated"))
    Skipped(key='train/cat/1.jpg', reason='decode: image file is truncated')
    """
    if on_error == "raise":
        raise error
    if on_error != "skip":
        replacement = on_error(key, error)
        if replacement is not None:
            return replacement
    return Skipped(key, str(error))


def said_by(function: str, error: Exception) -> Exception:
    """The error with the function's name before its message, which whoever found the fault may not have known.

    >>> said_by("open_tar_shards", EOFError("train-000003.tar: cut at offset 512"))
    EOFError('open_tar_shards: train-000003.tar: cut at offset 512')
    """
    if str(error).startswith(function):
        return error
    try:
        named = type(error)(f"{function}: {error}")
    except TypeError:  # a UnicodeDecodeError, for one, is made of more than a message
        return error
    return named.with_traceback(error.__traceback__)
