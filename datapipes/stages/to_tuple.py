"""From a sample's named fields to a tuple, in the order asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from datapipes.on_error import OnError, check_on_error
from datapipes.pipe import MapPipe, functional_form, key_of


@functional_form("to_tuple")
class FieldPicker(MapPipe[tuple[Any, ...]]):
    """Takes samples and yields tuples of the fields named (functional name: `to_tuple`).

    Alternatives stand between semicolons, and the first that the sample has is taken, as in webdataset.

    >>> from datapipes.iter import IterableWrapper
    >>> samples = IterableWrapper([{"__key__": "cat/1", "jpg": "image", "cls": 3}])
    >>> list(samples.to_tuple("png;jpg;jpeg", "cls"))
    [('image', 3)]

    Args:
        source_datapipe: Samples.
        fields: What each element of the tuple is taken from. Capital letters do not matter.
        on_error: "raise", "skip", or a function (key, error) -> tuple or None.

    Raises:
        ValueError: When a sample has none of the alternatives of a field, or None in its place.
    """

    def __init__(self, source_datapipe: Any, *fields: str, on_error: OnError = "raise") -> None:
        check_on_error("to_tuple", on_error)
        if len(fields) == 1:
            fields = tuple(fields[0].split())
        if not fields or not all(name for field in fields for name in field.split(";")):
            raise ValueError(
                f"to_tuple: name at least one field, and no empty alternative, got {fields!r}; "
                f'for instance to_tuple("jpg;png", "cls")'
            )
        self.source_datapipe = source_datapipe
        self.fields = fields
        self.on_error = on_error

    def sample_function(self) -> Callable[[Any], tuple[Any, ...]]:
        alternatives = [tuple(field.split(";")) for field in self.fields]
        return lambda sample: tuple([pick(sample, names) for names in alternatives])


def pick(sample: dict[str, Any], names: tuple[str, ...]) -> Any:
    """The first of the fields `names` that the sample has.

    >>> pick({"PNG": "image"}, ("jpg", "png"))
    'image'
    """
    for name in names:
        value = sample.get(name)
        if value is not None:
            return value
    lowered = {field.lower(): value for field, value in sample.items()}
    for name in names:
        value = lowered.get(name.lower())
        if value is not None:
            return value
    wanted, present = " or ".join(names), ", ".join(sample) or "no field at all"
    raise ValueError(f"to_tuple: {key_of(sample)!r} has no field {wanted}; it has {present}")
