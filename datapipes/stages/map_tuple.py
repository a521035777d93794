"""One function for each element of a tuple."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from datapipes.on_error import OnError, check_on_error
from datapipes.pipe import MapPipe, functional_form


@functional_form("map_tuple")
class TupleMapper(MapPipe[tuple[Any, ...]]):
    """Takes tuples and yields tuples with each function applied to its element
    (functional name: `map_tuple`).

    Elements without a function, or with None for one, pass unchanged, as in webdataset.

    >>> from datapipes.iter import IterableWrapper
    >>> list(IterableWrapper([("image", 3, "url")]).map_tuple(str.upper, lambda label: label + 1))
    [('IMAGE', 4, 'url')]

    A lambda is fine where the DataLoader forks its workers. Where it spawns them (macOS, Windows, forkserver)
    write the function with `def` at the top of a module, so that it can be pickled.

    Args:
        source_datapipe: Tuples, or lists, which come out as tuples.
        functions: The functions, or None, in the order of the elements.
        on_error: "raise", "skip", or a function (key, error) -> tuple or None.

    Raises:
        TypeError: When a sample is no tuple.
        ValueError: When there are more functions than elements in it.
    """

    runs_user_code = True

    def __init__(
        self, source_datapipe: Any, *functions: Callable[[Any], Any] | None, on_error: OnError = "raise"
    ) -> None:
        check_on_error("map_tuple", on_error)
        for function in functions:
            if function is not None and not callable(function):
                raise TypeError(f"map_tuple: expected functions, or None for an element to leave, got {function!r}")
        self.source_datapipe = source_datapipe
        # `functions` itself is a name that torch keeps for its own register.
        self.element_functions = _Functions(functions)
        self.on_error = on_error

    def sample_function(self) -> Callable[[Any], tuple[Any, ...]]:
        functions = self.element_functions.each
        count = len(functions)

        def apply(sample: Any) -> tuple[Any, ...]:
            if not isinstance(sample, (tuple, list)):
                raise TypeError(
                    f"map_tuple: expected a tuple, got a {type(sample).__name__}; put to_tuple(...) before it"
                )
            if len(sample) < count:
                raise ValueError(f"map_tuple: got {count} functions for a tuple of {len(sample)}; give one an element")
            mapped = [
                element if function is None else function(element) for function, element in zip(functions, sample)
            ]
            return (*mapped, *sample[count:])

        return apply


class _Functions:
    """Holds functions out of sight: torch looks for pipes in a pipe's tuples by pickling them, and a lambda does
    not pickle. So a lambda works in a forked worker."""

    def __init__(self, each: tuple[Callable[[Any], Any] | None, ...]) -> None:
        self.each = each
