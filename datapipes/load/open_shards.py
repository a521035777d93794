"""`open_tar_shards`: whole shards in, their samples out, streaming."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from datapipes.catalog.s3_server import S3Server
from datapipes.catalog.shard_store import is_shard, list_shards, local_path, manifest_of
from datapipes.load.cached_ranges import MIN_CACHE_BYTES
from datapipes.load.local_shards import local_samples
from datapipes.load.remote_shards import remote_samples
from datapipes.load.shard_chunks import ShardParts
from datapipes.load.window import REQUEST_TIMEOUT_S, check_window
from datapipes.on_error import OnError, Skipped, check_on_error
from datapipes.pipe import LoadPipe, Placed, functional_form

MAX_BYTES = 128 << 20
_FUNCTION = "open_tar_shards"


@functional_form("open_tar_shards")
class TarShardReader(LoadPipe[Any]):
    """Paths or URLs of tar shards in, their samples out (functional name: `open_tar_shards`).

    Streams each shard once, `interleave` shards side by side, and reads what webdataset, tarp and
    `tar --sort=name` write; `.tar.gz` and `.tar.zst` too. A sample is a dict: `__key__`, `__url__` (the shard),
    and the fields by extension, bytes except for `cls`, which is a whole number.

    >>> import tempfile
    >>> from datapipes.iter import IterableWrapper
    >>> from datapipes.prepare.shard_writer import ShardWriter
    >>> folder = tempfile.mkdtemp()
    >>> with ShardWriter(f"{folder}/shard-%06d.tar") as writer:
    ...     writer.write({"__key__": "cat/1", "jpg": b"image", "cls": 7})
    >>> [(sample["__key__"], sample["cls"]) for sample in IterableWrapper([folder]).open_tar_shards()]
    [('cat/1', 7)]

    Every header's checksum is verified, and a shard has to end as an archive does. Where an index lies beside
    a shard (`shard-000000.tar.npz`) every field's checksum is verified too: 4 us for 110 KB.

    Args:
        source_datapipe: shards, or folders of them; a folder with a manifest is the shards in it.
        server: of `s3://` URLs; by default what the AWS command line would use.
        interleave: how many shards are read side by side. Memory: a part of each, 512 KiB or, remote, 8 MiB.
        checksums: verify contents against the index where there is one. Costs a request a shard if remote.
        max_bytes: bound on what is on its way from a remote store, in this process.
        cache_dir: a local folder that keeps what was fetched, in parts of 4 MiB with checksums. The processes of
            a node share it, and fetch each part once; a second epoch fetches nothing that still is there.
        cache_bytes: how much the folder may hold. What was used longest ago goes first.
        request_timeout_s: deadline of an attempt to fetch a part.
        on_error: "raise", "skip", or a callable (key, error) -> sample or None. A content that fails its
            checksum costs its sample; an archive that is cut or has a damaged header, the rest of its shard.

    Raises:
        ValueError: while iterating: damage, naming shard and offset; a key twice in a shard; an unfinished folder.
        FileNotFoundError, PermissionError, ConnectionError, TimeoutError: the shard cannot be had.
    """

    expands = True

    def __init__(
        self,
        source_datapipe: Any,
        *,
        server: S3Server = S3Server(),
        interleave: int = 4,
        checksums: bool = True,
        cache_dir: str | None = None,
        cache_bytes: float = 100e9,
        max_bytes: int = MAX_BYTES,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        on_error: OnError = "raise",
    ) -> None:
        if interleave < 1:
            raise ValueError(f"{_FUNCTION}: interleave must be at least 1, got {interleave}")
        check_window(_FUNCTION, None, max_bytes, request_timeout_s)
        check_on_error(_FUNCTION, on_error)
        if cache_bytes < MIN_CACHE_BYTES:
            raise ValueError(f"{_FUNCTION}: cache_bytes must be at least {MIN_CACHE_BYTES}, got {cache_bytes}")
        self.source_datapipe = source_datapipe
        self.server = server
        self.interleave = interleave
        self.checksums = checksums
        self.cache_dir = cache_dir
        self.cache_bytes = cache_bytes
        self.max_bytes = max_bytes
        self.request_timeout_s = request_timeout_s
        self.on_error = on_error

    def flow(self, placed: Iterator[Placed]) -> Iterator[Placed]:
        """As any flow, except that a shard gives many samples, so that places are counted anew."""
        shards = self._shards(placed)
        first = next(shards, None)
        if first is None:
            return
        shards = _of_one_store(chain([first], shards), local=local_path(first) is not None)
        if local_path(first) is not None:
            yield from enumerate(
                local_samples(shards, interleave=self.interleave, checksums=self.checksums, on_error=self.on_error)
            )
            return
        source = ShardParts(
            shards,
            interleave=self.interleave,
            checksums=self.checksums,
            server=self.server,
            max_bytes=self.max_bytes,
            request_timeout_s=self.request_timeout_s,
            function=_FUNCTION,
            cache_dir=self.cache_dir,
            cache_bytes=self.cache_bytes,
        )
        yield from enumerate(remote_samples(source, on_error=self.on_error))

    def _shards(self, placed: Iterator[Placed]) -> Iterator[str]:
        for _, url in placed:
            if type(url) is Skipped:
                continue
            if is_shard(url):
                yield url
                continue
            manifest = manifest_of(url, server=self.server, function=_FUNCTION)
            if manifest is None:
                yield from list_shards(url, server=self.server, function=_FUNCTION)
            else:
                yield from (f"{url.rstrip('/')}/{shard.name}" for shard in manifest.shards)

    def __len__(self) -> int:
        raise TypeError("open_tar_shards: how many samples are in the shards is not known before they are read")


def _of_one_store(shards: Iterable[str], local: bool) -> Iterator[str]:
    for shard in shards:
        if (local_path(shard) is not None) != local:
            raise ValueError(
                f"{_FUNCTION}: {shard} is {'remote' if local else 'local'}, and the shards before it are not; use a "
                "chain for each store"
            )
        yield shard
