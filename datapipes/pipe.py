"""The base of every pipe and the registration of functional forms.

A pipe is a thin, picklable wrapper: its `__init__` checks and stores, its work is a plain function (a map) or
a plain generator (a flow). The only module that touches torch's private names.
"""

from __future__ import annotations

import copy
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from torch.utils.data import IterDataPipe
from torch.utils.data.datapipes.iter import Batcher, Filter, Mapper, ShardingFilter, Shuffler, UnBatcher

from datapipes.on_error import OnError, Skipped, settle

if TYPE_CHECKING:
    from datapipes.forms import Forms
else:

    class Forms:
        """The functional forms, as methods, are known to type checkers alone."""


T_co = TypeVar("T_co", covariant=True)
PipeClass = TypeVar("PipeClass", bound=type)
Placed: TypeAlias = tuple[int, Any]
"""An item with its place in the epoch's order. Places rise strictly along a flow."""

FUNCTIONAL_FORMS: dict[str, type] = {}


class Pipe(Forms, IterDataPipe[T_co]):
    """An iterable stage of a chain; `source_datapipe` is the stage before it."""

    # Spares torch's hook a hasattr that fails through __getattr__: 200 ns a sample instead of 900.
    _is_child_datapipe = False
    source_datapipe: Any

    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__}: its length is not known before it has run")


class MapPipe(Pipe[T_co]):
    """One sample in, one sample out. `as_dataset` fuses neighbouring maps into one call."""

    on_error: OnError = "raise"
    runs_user_code = False
    """Whether the function may draw random numbers: then it sees a seeded state, and stays out of threads."""

    def sample_function(self) -> Callable[[Any], Any]:
        """The plain function that this pipe applies; opened files and the like belong in here."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[T_co]:
        function = self.sample_function()
        for item in self.source_datapipe:
            try:
                result = function(item)
            except Exception as error:
                result = settle(self.on_error, key_of(item), error)
                if type(result) is Skipped:
                    continue
            yield result

    def __len__(self) -> int:
        return len(self.source_datapipe)


class FlowPipe(Pipe[T_co]):
    """Placed items in, placed items out; what it could not give comes out as `Skipped`, in its place."""

    def flow(self, placed: Iterator[Placed]) -> Iterator[Placed]:
        """The plain generator that this pipe runs. It connects when first asked, and closes what it opened."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[T_co]:
        stream = self.flow(enumerate(self.source_datapipe))
        try:
            for _, item in stream:
                if type(item) is not Skipped:
                    yield item
        finally:
            stream.close()  # type: ignore[attr-defined]

    def __len__(self) -> int:
        return len(self.source_datapipe)


class LoadPipe(FlowPipe[T_co]):
    """A flow that turns keys into payloads; `as_dataset` counts the bytes that come out of it."""

    on_error: OnError = "raise"
    batch_size: int | None = None
    """Set by `as_dataset`: with `ordered=False`, results may overtake each other within so many places."""


def functional_form(name: str) -> Callable[[PipeClass], PipeClass]:
    """Make `pipe.name(...)` build the decorated class with `pipe` as its source."""

    def register(pipe_class: PipeClass) -> PipeClass:
        _import_older_torchdata()
        taken = IterDataPipe.functions.get(name)
        owner = getattr(taken, "__wrapped__", taken)
        module = getattr(owner, "__module__", "") or ""
        if taken is not None and not module.startswith(("torchdata.", "datapipes.")):
            raise ValueError(f"functional_form: {name!r} already belongs to {module}; choose another name")
        IterDataPipe.register_function(name, pipe_class)
        FUNCTIONAL_FORMS[name] = pipe_class
        return pipe_class

    return register


_older_torchdata_seen = False


def _import_older_torchdata() -> None:
    """torchdata <= 0.9 registers the same names and refuses taken ones, so it has to go first."""
    global _older_torchdata_seen
    if _older_torchdata_seen:
        return
    _older_torchdata_seen = True
    if importlib.util.find_spec("torchdata") and importlib.util.find_spec("torchdata.datapipes"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("torchdata.datapipes")


def key_of(item: Any) -> str:
    """The key by which an error names a sample, whatever shape the sample has by now.

    >>> key_of({"__key__": "train/cat/1", "jpg": b""}), key_of(("s3://b/1.jpg", b"")), key_of(7)
    ('train/cat/1', 's3://b/1.jpg', '7')
    >>> key_of({"__key__": "cat/1", "__url__": "s3://b/shard-000000.tar"})
    's3://b/shard-000000.tar: cat/1'
    """
    if isinstance(item, dict):
        key, url = str(item.get("__key__", "")), str(item.get("__url__", ""))
        if key and key not in url:
            return f"{url}: {key}" if url else key
        return url or "sample without __key__"
    if isinstance(item, tuple) and item:
        item = item[0]
    return item if isinstance(item, str) else f"{item!s:.200}"


def sources_of(pipe: Any) -> list[IterDataPipe[Any]]:
    """The pipes that `pipe` reads from directly, ours and core's alike."""
    found: list[IterDataPipe[Any]] = []
    for value in vars(pipe).values():
        if isinstance(value, IterDataPipe):
            found.append(value)
        elif isinstance(value, (list, tuple)) and value and isinstance(value[0], IterDataPipe):
            found.extend(value)
    return found


def upstream(pipe: Any) -> Iterator[IterDataPipe[Any]]:
    """`pipe` and everything before it, nearest first."""
    waiting = [pipe]
    while waiting:
        current = waiting.pop(0)
        yield current
        waiting.extend(sources_of(current))


def core_map_function(pipe: Any) -> Callable[[Any], Any] | None:
    """What core's `map` or `filter` does to one item; a filtered item becomes `Skipped`."""
    if isinstance(pipe, Mapper):
        apply: Callable[[Any], Any] = pipe._apply_fn
        return apply
    if isinstance(pipe, Filter):
        return lambda item: item if pipe._returnIfTrue(item)[0] else Skipped(key_of(item), "filter: left out")
    return None


def core_batch_size(pipe: Any) -> int | None:
    """The size of core's `batch`, None for any other pipe."""
    return int(pipe.batch_size) if isinstance(pipe, Batcher) else None


def reorders_samples(pipe: Any) -> bool:
    """Whether this is one of core's pipes that give samples out of order, or not at all."""
    return isinstance(pipe, (Shuffler, ShardingFilter, UnBatcher))


def fed_by(pipe: Any, source: Any) -> Any:
    """A copy of `pipe` that reads from `source` instead."""
    old = sources_of(pipe)[0]
    fed = copy.copy(pipe)
    for name, value in vars(pipe).items():
        if value is old:
            setattr(fed, name, source)
    return fed
