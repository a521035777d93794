"""Samples in, a sharded data set out: shards under both limits, and a manifest that appears last."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from datapipes.catalog.manifest import FILE_NAME, UNFINISHED_NAME, Manifest, Shard
from datapipes.catalog.s3_server import S3Server
from datapipes.catalog.shard_index import SUFFIX
from datapipes.catalog.tar_format import END_OF_ARCHIVE
from datapipes.prepare.shard_file import EncodedSample, ShardFile
from datapipes.prepare.shard_target import TEMPORARY_SUFFIX, target_of

_NUMBER = re.compile(r"%0?\d*d")


class ShardWriter:
    """Writes samples to shards of at most `maxcount` samples and `maxsize` bytes, with index and manifest.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with ShardWriter(f"{folder}/shard-%06d.tar", maxcount=2) as writer:
    ...     for number in range(3):
    ...         writer.write({"__key__": f"cat/{number}", "jpg": b"image", "cls": 7})
    >>> [(shard.name, shard.samples) for shard in writer.manifest.shards]
    [('shard-000000.tar', 2), ('shard-000001.tar', 1)]

    The same samples give the same bytes. Until the manifest is there, the folder holds `unfinished.json`, and
    our readers refuse it; the next writer of the folder goes on with it or clears it away.

    Args:
        pattern: path or URL (S3, or what fsspec writes to) of a shard, with `%06d` for its number.
        maxcount: samples a shard, at most.
        maxsize: bytes a shard file, at most, headers and end included.
        server: of an `s3://` pattern; by default the AWS command line's.
        classes: class names, each at its label's place, kept in the manifest.
        options: how the data set is made, kept in the manifest; JSON.
        replace: take the place of a finished data set in this folder. Its shards are gone then.
        resume: keep the shards that a cut run with the same options and limits has finished; give the samples
            again from number `samples_kept` on.

    Raises:
        FileExistsError: a finished data set is there, and `replace` was not asked for.
        ValueError: a sample larger than `maxsize`, a key twice in a shard, or names that no reader would give back.
    """

    def __init__(
        self,
        pattern: str,
        *,
        maxcount: int = 100_000,
        maxsize: float = 1e9,
        server: S3Server | None = None,
        classes: Sequence[str] | None = None,
        options: Mapping[str, Any] | None = None,
        replace: bool = False,
        resume: bool = False,
    ) -> None:
        folder, _, self._name = str(pattern).rpartition("/")
        if not _NUMBER.search(self._name) or not self._name.endswith(".tar"):
            raise ValueError(f"ShardWriter: pattern must end like shard-%06d.tar, got {pattern!r}")
        if maxcount < 1:
            raise ValueError(f"ShardWriter: maxcount must be at least 1, got {maxcount}")
        self.maxcount, self.maxsize = int(maxcount), int(maxsize)
        self.manifest: Manifest | None = None
        self._classes = None if classes is None else list(classes)
        self._options = {**(options or {}), "maxcount": self.maxcount, "maxsize": self.maxsize}
        self._target = target_of(folder or ".", server=server)
        self._open: ShardFile | None = None
        self._shards = self._begin(replace, resume)

    @property
    def samples_kept(self) -> int:
        """How many samples the shards hold that are finished."""
        return sum(shard.samples for shard in self._shards)

    def write(self, sample: Mapping[str, Any]) -> None:
        """Add one sample: `__key__` and fields by extension; bytes, text, or a whole number."""
        encoded = EncodedSample(sample)
        whole = encoded.nbytes + len(END_OF_ARCHIVE)
        if whole > self.maxsize:
            raise ValueError(
                f"ShardWriter: sample {encoded.key!r} needs {whole} bytes, and maxsize is {self.maxsize}; raise maxsize"
            )
        shard = self._open
        if shard is not None and (len(shard.samples) == self.maxcount or shard.nbytes + whole > self.maxsize):
            self._finish_shard()
        if self._open is None:
            self._open = ShardFile(self._target, self._name % len(self._shards))
        self._open.write(encoded)

    def close(self) -> Manifest:
        """Finish the last shard, remove what earlier runs left, and let the manifest appear."""
        if self.manifest is not None:
            return self.manifest
        self._finish_shard()
        manifest = Manifest(self._shards, self._classes, self._options)
        self._remove_all_but({name for shard in self._shards for name in (shard.name, shard.name + SUFFIX)})
        self._target.put(FILE_NAME, manifest.save())
        self._target.remove(UNFINISHED_NAME)
        self.manifest = manifest
        return manifest

    def abandon(self) -> None:
        """Drop the open shard; what is finished stays for `resume`, and no reader takes it for a data set."""
        if self._open is not None:
            self._open.discard()
            self._open = None

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def _begin(self, replace: bool, resume: bool) -> list[Shard]:
        cut = self._target.read(UNFINISHED_NAME)
        finished = self._target.read(FILE_NAME) is not None
        foreign = cut is None and any(name.endswith(".tar") for name in self._ours())
        if (finished or foreign) and not replace:
            raise FileExistsError(
                f"ShardWriter: {self._target.url} holds a data set; write elsewhere, or give replace=True"
            )
        shards = self._kept(cut) if resume and cut is not None else []
        self._note(shards)
        # From here on the folder counts as unfinished.
        self._target.remove(FILE_NAME)
        if not shards:
            self._remove_all_but(set())
        return shards

    def _kept(self, cut: bytes) -> list[Shard]:
        try:
            noted = json.loads(cut)
            shards = [Shard(**shard) for shard in noted["shards"]]
        except (ValueError, KeyError, TypeError):
            return []
        if noted.get("options") != json.loads(json.dumps(self._options)):
            return []
        sizes = self._target.sizes()
        whole = []
        for shard in shards:
            if sizes.get(shard.name) != shard.nbytes or shard.name + SUFFIX not in sizes:
                break
            whole.append(shard)
        return whole

    def _finish_shard(self) -> None:
        if self._open is not None:
            self._shards.append(self._open.finish())
            self._open = None
            self._note(self._shards)

    def _note(self, shards: list[Shard]) -> None:
        noted = {"options": self._options, "shards": [shard._asdict() for shard in shards]}
        self._target.put(UNFINISHED_NAME, json.dumps(noted).encode())

    def _remove_all_but(self, kept: set[str]) -> None:
        """Shards of an earlier, longer run, and files that a killed one left."""
        for name in self._ours():
            if name not in kept:
                self._target.remove(name)

    def _ours(self) -> list[str]:
        """The files there that are named as this writer names them."""
        before, after = (re.escape(part) for part in _NUMBER.split(self._name, maxsplit=1))
        ours = re.compile(rf"{before}\d+{after}({re.escape(SUFFIX)})?({re.escape(TEMPORARY_SUFFIX)})?")
        return [name for name in self._target.sizes() if ours.fullmatch(name)]
