"""The manifest of a sharded data set: which shards it is made of, and what they hold. It is written last."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

FILE_NAME = "manifest.json"
UNFINISHED_NAME = "unfinished.json"
FORMAT = "remote-datapipes shards"
VERSION = 1


class Shard(NamedTuple):
    """A shard as the manifest knows it. `index_crc32c` is the checksum of its index file."""

    name: str
    samples: int
    nbytes: int
    crc32c: int
    index_crc32c: int


@dataclass(frozen=True)
class Manifest:
    """A whole data set.

    >>> manifest = Manifest([Shard("shard-000000.tar", 2, 10240, 1, 2)], classes=["ostrich", "tench"])
    >>> Manifest.load(manifest.save(), name="manifest.json") == manifest, manifest.samples
    (True, 2)

    Args:
        shards: in the data set's order; names are relative to the manifest.
        classes: class names, each at its label's place; None where nobody said.
        options: how the data set was made, for whoever wonders later.
    """

    shards: list[Shard]
    classes: list[str] | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        return sum(shard.samples for shard in self.shards)

    @property
    def nbytes(self) -> int:
        return sum(shard.nbytes for shard in self.shards)

    def save(self) -> bytes:
        """The bytes of manifest.json."""
        content = {
            "format": FORMAT,
            "version": VERSION,
            "samples": self.samples,
            "bytes": self.nbytes,
            "options": self.options,
            "classes": self.classes,
            "shards": [shard._asdict() for shard in self.shards],
        }
        return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def load(cls, content: bytes, *, name: str) -> Manifest:
        """Read what `save` gave.

        Raises:
            ValueError: it is no manifest, contradicts itself, or is of a later version.
        """
        try:
            found = json.loads(content)
            if found["format"] != FORMAT or found["version"] > VERSION:
                raise ValueError(f"format {found['format']!r}, version {found['version']}")
            shards = [Shard(**shard) for shard in found["shards"]]
            manifest = cls(shards, found["classes"], found["options"])
            if manifest.samples != found["samples"] or manifest.nbytes != found["bytes"]:
                raise ValueError("its totals are not those of its shards")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{name}: not a manifest of shards ({error!r}); write it with index_shards") from None
        return manifest
