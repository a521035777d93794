"""Pickles from elsewhere, read without running what they say: arrays, UUIDs and plain containers only.

A pickle is a program: `pickle.load` calls any function that it names. Split files are pickles by tradition;
the unpickler here knows the few names that such a file needs, and refuses every other one.
"""

from __future__ import annotations

import copyreg
import importlib
import io
import pickle
import uuid
from typing import Any

import numpy as np

# numpy 2 renamed numpy.core to numpy._core, and files of either age are read by either.
_CORES = ("numpy.core", "numpy._core")
_core = importlib.import_module(_CORES[int(np.__version__.split(".")[0]) >= 2])


_NDARRAY = object()  # stands for numpy.ndarray, which a pickle could call with a shape of terabytes


def _encode(text: str, encoding: str) -> bytes:
    """Bytes as protocols 0 to 2 spell them. The real `_codecs.encode` also finds codecs that decompress."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes in encoding {encoding!r}")
    return text.encode("latin1")


def _reconstruct(kind: object, shape: tuple[int, ...], typecode: bytes) -> Any:
    """An empty array, which the pickle's next step fills."""
    if kind is not _NDARRAY or tuple(shape) != (0,):
        raise pickle.UnpicklingError(f"an array of shape {shape!r} to begin with")
    return np.ndarray((0,), dtype=bytes(typecode).decode("ascii"))


def _rebuilt(kind: type, base: type, state: object) -> Any:
    if kind is not uuid.UUID or base is not object:
        raise pickle.UnpicklingError(f"an object of kind {kind!r}")
    return copyreg._reconstructor(kind, base, state)  # type: ignore[attr-defined]


_ADMITTED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): np.dtype,
    ("uuid", "UUID"): uuid.UUID,
    ("uuid", "SafeUUID"): uuid.SafeUUID,
    ("_codecs", "encode"): _encode,
    ("copyreg", "_reconstructor"): _rebuilt,
    ("copy_reg", "_reconstructor"): _rebuilt,
    ("builtins", "object"): object,
    ("__builtin__", "object"): object,
}
for _name in _CORES:
    _ADMITTED[f"{_name}.multiarray", "_reconstruct"] = _reconstruct
    _ADMITTED[f"{_name}.multiarray", "scalar"] = _core.multiarray.scalar
    _ADMITTED[f"{_name}.numeric", "_frombuffer"] = _core.numeric._frombuffer


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ADMITTED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError(f"it asks for the object {pid!r:.80} from outside the file")


def load_safe_pickle(content: bytes, *, name: str) -> Any:
    """What a pickle of arrays, UUIDs, dicts, lists, tuples, numbers and text holds.

    >>> load_safe_pickle(pickle.dumps({"row_keys": np.arange(3)}), name="a.pckl")
    {'row_keys': array([0, 1, 2])}
    >>> load_safe_pickle(pickle.dumps(print), name="a.pckl")
    Traceback (most recent call last):
    ValueError: a.pckl: refused as a pickle: it asks for builtins.print; such a file holds numpy arrays, \
UUIDs and plain containers: write it again with create_split.py or cache_uuids.py

    Args:
        content: the whole file.
        name: the file's name, for errors.

    Raises:
        ValueError: the pickle names anything else, or is cut short, or is no pickle.
    """
    try:
        return _Unpickler(io.BytesIO(content)).load()
    except pickle.UnpicklingError as error:
        reason = str(error)
    except EOFError:
        reason = f"it ends after {len(content):,} bytes, before it is whole"
    except Exception as error:  # a broken pickle can raise anything: IndexError, TypeError, MemoryError, ...
        reason = f"{type(error).__name__}: {error}"
    raise ValueError(
        f"{name}: refused as a pickle: {reason}; such a file holds numpy arrays, UUIDs and plain containers: "
        "write it again with create_split.py or cache_uuids.py"
    )
