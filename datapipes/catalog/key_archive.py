"""Key tables as plain arrays, for numpy's archive: a file that no reader has to trust."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from datapipes.catalog.keys import Indices, KeyTable, StrKeys, UuidKeys
from datapipes.catalog.tar_key_archive import packed_tar_keys, unpacked_tar_keys
from datapipes.catalog.tar_keys import TarSampleKeys

_CHUNK = 65_536


def all_keys(keys: KeyTable) -> Iterator[Any]:
    """Every key in order; a chunk of them exists at a time."""
    for start in range(0, len(keys), _CHUNK):
        yield from keys.take(np.arange(start, min(start + _CHUNK, len(keys))))


def select_keys(keys: KeyTable, indices: Indices) -> KeyTable:
    """A table of the keys at `indices`, in that order."""
    if isinstance(keys, UuidKeys):
        return UuidKeys(keys.packed[indices])
    if isinstance(keys, TarSampleKeys):
        return keys.select(indices)
    return StrKeys.of(keys.take(indices))


def key_table_from(keys: Iterable[Any]) -> KeyTable:
    """A table of UUIDs or of text, which may not be mixed; 16-byte rows of numbers are packed UUIDs."""
    if isinstance(keys, np.ndarray) and keys.dtype == np.uint8:
        return UuidKeys(keys)
    listed = list(keys)
    kind = type(listed[0]) if listed else UUID
    if kind not in (UUID, str, np.str_) or not all(type(key) is kind for key in listed):
        odd = next((key for key in listed if type(key) not in (UUID, str)), listed[0])
        raise ValueError(f"keys must all be UUIDs or all text, got {type(odd).__name__} ({odd!r:.80})")
    return UuidKeys.of(listed) if kind is UUID else StrKeys.of(map(str, listed))


def packed_keys(keys: KeyTable) -> dict[str, NDArray[Any]]:
    """A key table as plain arrays, for numpy's archive."""
    if isinstance(keys, UuidKeys):
        return {"row_keys": keys.packed}
    if isinstance(keys, TarSampleKeys):
        return packed_tar_keys(keys)
    texts = [key.encode("utf-8", "surrogateescape") for key in all_keys(keys)]
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    return {"key_text": np.frombuffer(b"".join(texts), np.uint8), "key_lengths": lengths}


def unpacked_keys(arrays: Any) -> KeyTable:
    """The key table that `packed_keys` took apart."""
    if "row_keys" in arrays:
        return UuidKeys(arrays["row_keys"])
    if "tar_shards" in arrays:
        return unpacked_tar_keys(arrays)
    text, ends = arrays["key_text"].tobytes(), np.cumsum(arrays["key_lengths"]).tolist()
    if (ends[-1] if ends else 0) != len(text):
        raise ValueError("its texts and their lengths disagree")
    pairs = zip([0, *ends], ends)
    return StrKeys.of(text[start:end].decode("utf-8", "surrogateescape") for start, end in pairs)


def npz_of(arrays: dict[str, NDArray[Any]]) -> bytes:
    """An archive of these arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def read_npz(content: bytes, name: str) -> dict[str, NDArray[Any]]:
    """Every array of an archive; objects, which would be pickles, are refused.

    Raises:
        ValueError: it is cut short, or holds something else than plain arrays.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {entry: archive[entry] for entry in archive.files}
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, ValueError, OSError, EOFError) as error:
        raise ValueError(f"{name}: not a whole archive of plain arrays: {error}; write it again") from None


def join_keys(tables: list[KeyTable]) -> KeyTable:
    """One table of all the keys of `tables`, which must be of one kind."""
    if len(tables) == 1:
        return tables[0]
    if tables and all(isinstance(table, UuidKeys) for table in tables):
        return UuidKeys(np.concatenate([table.packed for table in tables if isinstance(table, UuidKeys)]))
    if tables and all(isinstance(table, TarSampleKeys) for table in tables):
        return TarSampleKeys.joined(table for table in tables if isinstance(table, TarSampleKeys))
    return key_table_from(key for table in tables for key in all_keys(table))
