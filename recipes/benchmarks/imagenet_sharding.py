"""Sharding a tar of class tars, beside copying the same bytes; and the memory it takes at two sizes.

    python -m recipes.benchmarks imagenet_sharding

The archives hold photographs of 500x375, 106 kB each, repeated under names of their own: ten classes a GB. Source
and shards lie on one disk, and sources are read from the page cache. Shards are on the disk before they appear, so
the bar is `cp` followed by `sync`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

from recipes.benchmarks.harness import Bar, Table, alternate
from recipes.sample_images import write_sample_images

PACKAGES = ("fastcrc", "numpy")
SOURCE_GB: tuple[float, ...] = (1, 8)
"""The larger is for speed; both are for memory, which has to be the same but for the index."""
ROUNDS = 3
MAX_MB = 300
_CLASSES_A_GB = 10


def measure() -> Iterator[Table]:
    recipe = Path(__file__).parent.parent / "imagenet_sharding.py"
    with tempfile.TemporaryDirectory() as folder:
        photographs = [
            path.read_bytes()
            for path in sorted(write_sample_images(Path(folder, "images"), images=100, size=(500, 375)).rglob("*.JPEG"))
        ]
        sources = {gb: tar_of_tars(Path(folder, f"{gb}.tar"), photographs, gb) for gb in SOURCE_GB}
        yield speed(recipe, sources[max(SOURCE_GB)], Path(folder))
        yield memory(sources, Path(folder))


def tar_of_tars(path: Path, photographs: list[bytes], gb: float) -> Path:
    """An archive of so many GB as ImageNet's: a tar a class, and names like n01440764_10026.JPEG."""
    images = int(gb * 1e9 / (len(photographs[0]) + 1024) / _CLASSES_A_GB / gb)
    with tarfile.open(path, "w") as archive:
        for label in range(int(_CLASSES_A_GB * gb)):
            inner = BytesIO()
            with tarfile.open(fileobj=inner, mode="w", format=tarfile.USTAR_FORMAT) as class_tar:
                for number in range(images):
                    add(class_tar, f"n{label:08}_{number}.JPEG", photographs[(number + label) % len(photographs)])
            add(archive, f"n{label:08}.tar", inner.getvalue())
    return path


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, BytesIO(content))


def speed(recipe: Path, source: Path, folder: Path) -> Table:
    copy, shards = folder / "copy.tar", folder / "shards"

    def cp() -> None:
        copy.unlink(missing_ok=True)
        subprocess.run(["cp", source, copy], check=True)

    def cp_and_flush() -> None:
        cp()
        subprocess.run(["sync", copy], check=True)

    def shard() -> None:
        shutil.rmtree(shards, ignore_errors=True)
        subprocess.run([*sharding(recipe, source, shards), "-s", "500e6"], check=True, stdout=subprocess.DEVNULL)

    contenders: dict[str, Callable[[], object]] = {
        "`cp`": cp,
        "`cp`, `sync`": cp_and_flush,
        "`imagenet_sharding`, one process": shard,
    }
    figures = alternate(contenders, ROUNDS)
    megabytes = source.stat().st_size / 1e6
    flushed, sharded = (figures[name].median_wall_s for name in list(contenders)[1:])
    copy.unlink()
    shutil.rmtree(shards)
    return Table(
        f"{megabytes / 1000:.1f} GB of class tars, start of the process included",
        ["", "MB/s", "CPU, s a GB"],
        [
            [name, f"{megabytes / figure.median_wall_s:,.0f}", f"{figure.median_cpu_s / megabytes * 1000:.2f}"]
            for name, figure in figures.items()
        ],
        [Bar("sharding against `cp` and `sync` of the same bytes", flushed / sharded, at_least=0.5)],
    )


def memory(sources: dict[float, Path], folder: Path) -> Table:
    rows, largest = [], 0.0
    for source in sources.values():
        megabytes = peak_mb(["-d", str(source), "-o", str(folder / "shards")])
        shutil.rmtree(folder / "shards")
        largest = max(largest, megabytes)
        rows.append([f"{source.stat().st_size / 1e9:.1f} GB", f"{megabytes:,.0f}"])
    return Table(
        "Peak memory, one process",
        ["source", "MB"],
        rows,
        [Bar("peak memory in MB", largest, at_most=MAX_MB)],
        "The index adds about 80 bytes an image: 100 MB for the 1.28 million of ImageNet.",
    )


def sharding(recipe: Path, source: Path, target: Path) -> list[str]:
    return [sys.executable, str(recipe), "-d", str(source), "-o", str(target)]


def peak_mb(options: list[str]) -> float:
    """The largest resident set of a run of the recipe. What getrusage says of a child counts its parent, too."""
    program = (
        "import sys; from recipes.imagenet_sharding import main; main(sys.argv[1:])\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    ended = subprocess.run([sys.executable, "-c", program, *options], check=True, capture_output=True, text=True)
    return int(ended.stdout.split()[-1]) * 1024 / 1e6
