"""Local tar shards: open_tar_shards beside webdataset and plain reads.

Each reader takes the same shards from the page cache, real photographs of 106 KB or samples of 1 KB, each with its
label: as this package writes them, and as webdataset does, which puts a pax header with the time in front of every
member.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import webdataset

from datapipes.iter import IterableWrapper
from datapipes.prepare.shard_writer import ShardWriter
from recipes.benchmarks.harness import Bar, Figures, Table, alternate
from recipes.sample_images import write_sample_images

PACKAGES = ("webdataset", "fastcrc")
PHOTOGRAPHS = 2000
TIMES_OVER = 4
"""So many times each: 850 MB in four shards, which are of a size that is recommended."""
SMALL = 20_000
ROUNDS = 9
PIECE = 1 << 20


def measure() -> Iterable[Table]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        small = [os.urandom(1024) for _ in range(SMALL)]
        repeated = photographs(folder) * TIMES_OVER
        yield local(folder, "106 KB photographs", repeated, wanted=(5.0, 4.0))
        yield local(folder, "1 KB samples", small, wanted=(10.0, 7.0))


def photographs(folder: Path) -> list[bytes]:
    made = write_sample_images(folder / "images", images=PHOTOGRAPHS, val_images=0, size=(500, 375))
    return [path.read_bytes() for path in sorted(Path(made).rglob("*.JPEG"))]


def local(folder: Path, title: str, contents: list[bytes], wanted: tuple[float, float]) -> Table:
    rows: list[list[str]] = []
    bars: list[Bar] = []
    for writer, shards in (("webdataset", by_webdataset(folder, contents)), ("us", by_us(folder, contents))):
        ways: dict[str, Callable[[], object]] = {
            "webdataset": lambda shards=shards: drain(webdataset.WebDataset(shards, shardshuffle=False)),
            "open_tar_shards, headers": lambda shards=shards: drain(stream(shards, checksums=False)),
            "plain reads: the ceiling": lambda shards=shards: read_plainly(shards),
        }
        if writer == "us":
            ways["open_tar_shards, headers and contents"] = lambda shards=shards: drain(stream(shards))
        figures = alternate(ways, ROUNDS)
        for name, figure in figures.items():
            times = times_as_fast(figures, "webdataset", name)
            rows.append([f"{name}; shards of {writer}", *per_sample(figure, len(contents)), f"{times:.1f}x"])
        headers = times_as_fast(figures, "webdataset", "open_tar_shards, headers")
        bars.append(Bar(f"headers verified / webdataset, shards of {writer}", headers, at_least=wanted[0]))
        if writer == "us":
            both = times_as_fast(figures, "webdataset", "open_tar_shards, headers and contents")
            bars.append(Bar("contents verified too / webdataset", both, at_least=wanted[1]))
    return Table(f"Local shards, {title}", ["reader", "us a sample", "CPU us", "webdataset = 1"], rows, bars)


def by_webdataset(folder: Path, contents: list[bytes]) -> list[str]:
    shards = []
    for number in range(4):
        shards.append(f"{folder}/webdataset-{len(contents)}-{number}.tar")
        with webdataset.TarWriter(shards[-1]) as writer:
            for index in range(number, len(contents), 4):
                writer.write(sample(index, contents[index]))
    return shards


def by_us(folder: Path, contents: list[bytes]) -> list[str]:
    target = f"{folder}/us-{len(contents)}"
    with ShardWriter(f"{target}/shard-%06d.tar", maxcount=-(-len(contents) // 4)) as writer:
        for index, content in enumerate(contents):
            writer.write(sample(index, content))
    return [str(path) for path in sorted(Path(target).glob("*.tar"))]


def sample(index: int, content: bytes) -> dict[str, object]:
    return {"__key__": f"n01440764/n01440764_{index}", "jpg": content, "cls": index % 1000}


def stream(shards: list[str], **options: object) -> Iterable[object]:
    return IterableWrapper(shards).open_tar_shards(**options)


def drain(items: Iterable[object]) -> int:
    return sum(1 for _ in items)


def read_plainly(shards: list[str]) -> None:
    piece = bytearray(PIECE)
    for shard in shards:
        with open(shard, "rb", buffering=0) as file:
            while file.readinto(piece):
                pass


def per_sample(figure: Figures, samples: int) -> list[str]:
    return [f"{figure.median_wall_s / samples * 1e6:.1f}", f"{figure.median_cpu_s / samples * 1e6:.1f}"]


def times_as_fast(figures: dict[str, Figures], other: str, name: str) -> float:
    """How much less time `name` takes than `other`: the median of the rounds' own ratios."""
    return median(theirs / ours for theirs, ours in zip(figures[other].wall_s, figures[name].wall_s, strict=True))
