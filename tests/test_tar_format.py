"""The tar reader against tarfile, tar and webdataset: the same contents, or an error that names the place."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest
import webdataset
from fastcrc.crc32 import iscsi as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from datapipes.catalog.tar_format import END_OF_ARCHIVE, TarDamage, read_members, walk
from datapipes.catalog.tar_stream import File
from datapipes.iter import IterableWrapper

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
PARTS = st.text(st.characters(codec="utf-8", exclude_characters="/\0."), min_size=1, max_size=60)
NAMES = st.builds(lambda parts, field: "/".join(parts) + "." + field, st.lists(PARTS, min_size=1, max_size=3),
                  st.sampled_from(["jpg", "cls", "seg.png"]))  # fmt: skip
CONTENTS = st.one_of(st.binary(max_size=40), st.integers(500, 1600).map(bytes), st.binary(min_size=500, max_size=530))


def packed(members: dict[str, bytes], format: int = tarfile.PAX_FORMAT, mtime: float = 0) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), mtime
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def in_chunks(archive: bytes, size: int) -> list[bytes]:
    return [archive[start : start + size] for start in range(0, len(archive), size)]


def read(archive: bytes, chunk: int = 1 << 20) -> dict[str, bytes]:
    return {name: content for name, _, _, _, content in read_members(in_chunks(archive, chunk), shard="a.tar")}


def read_as_file(archive: bytes, path: Path) -> dict[str, bytes]:
    path.write_bytes(archive)
    file = os.open(path, os.O_RDONLY)
    try:
        return {name: content for name, _, _, _, content in walk(File(file), shard="a.tar")}
    finally:
        os.close(file)


def test_checksums_are_castagnolis() -> None:
    """The examples of RFC 3720, B.4; and each length up to beyond what one vector step takes, bit by bit."""
    known = {bytes(32): 0x8A9136AA, b"\xff" * 32: 0x62A8AB43, bytes(range(32)): 0x46DD794E, b"123456789": 0xE3069283}
    assert {data: crc32c(data) for data in known} == known
    data, register = os.urandom(5000), 0xFFFFFFFF
    for length, byte in enumerate(data, 1):
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
        assert crc32c(memoryview(data)[:length]) == register ^ 0xFFFFFFFF
        assert crc32c(data[length // 2 : length], crc32c(data[: length // 2])) == register ^ 0xFFFFFFFF


@settings(max_examples=150, deadline=None)
@given(
    members=st.dictionaries(NAMES, CONTENTS, max_size=6),
    format=st.sampled_from(["gnu", "pax"]),
    mtime=st.sampled_from([0, 1.5]),
    chunk=st.sampled_from([1, 100, 512, 700, 1 << 20]),
)
def test_any_archive_reads_back_as_tarfile_reads_it(
    members: dict[str, bytes], format: str, mtime: float, chunk: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    archive = packed(members, FORMATS[format], mtime)
    assert read(archive, chunk) == members
    assert read_as_file(archive, tmp_path_factory.getbasetemp() / "any.tar") == members


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_cut_archive_never_reads_without_an_error(data: st.DataObject) -> None:
    members = data.draw(st.dictionaries(NAMES, CONTENTS, min_size=1, max_size=4))
    archive = packed(members)
    end = archive.rindex(archive.rstrip(b"\0")[-1:]) + 1
    whole = -(-end // 512) * 512 + len(END_OF_ARCHIVE)
    cut = data.draw(st.integers(0, whole - 1))
    with pytest.raises(TarDamage, match=r"a\.tar"):
        read(archive[:cut])


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_a_changed_header_byte_is_an_error(data: st.DataObject) -> None:
    members = data.draw(st.dictionaries(NAMES, CONTENTS, min_size=2, max_size=4))
    archive = bytearray(packed(members, FORMATS["gnu"]))
    with tarfile.open(fileobj=io.BytesIO(bytes(archive))) as known:
        places = [info.offset for info in known]
    # Behind the numbers come fields that no reader uses, and the checksum's own last two bytes are not summed.
    place = data.draw(st.sampled_from(places)) + data.draw(st.integers(0, 511).filter(lambda at: at not in (154, 155)))
    archive[place] ^= data.draw(st.integers(1, 255))
    try:
        found = read(bytes(archive))
    except TarDamage as error:
        assert "offset" in str(error)
    else:
        assert found == members


@pytest.mark.parametrize("end", [None, -2048, 150_000, 90_200])
def test_pieces_read_as_the_whole_does_cut_or_not(end: int | None, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for number, size in enumerate((40_000, 1, 50_000, 700, 0, 90_000)):
            member = tarfile.TarInfo(f"{number}.jpg")
            member.size = size
            archive.addfile(member, io.BytesIO(bytes([number]) * size))
    content = (tmp_path / "a.tar").read_bytes()[:end]

    def outcome(chunk: int) -> object:
        try:
            return read(content, chunk)
        except ValueError as error:
            return str(error)

    assert outcome(16_384) == outcome(5_000) == outcome(len(content))


@pytest.mark.parametrize("format", FORMATS)
def test_long_names_and_prefixes_are_read(format: str, tmp_path: Path) -> None:
    members = {f"{'d' * 90}/{'e' * 60}/{n:03d}.jpg": bytes([n]) * 700 for n in range(3)}
    assert read(packed(members, FORMATS[format])) == members
    assert read_as_file(packed(members, FORMATS[format]), tmp_path / "a.tar") == members


def test_sizes_in_base_256_are_read() -> None:
    archive = bytearray(packed({"a.jpg": b"image"}, FORMATS["gnu"]))
    archive[124:136] = b"\x80" + (5).to_bytes(11, "big")
    archive[148:156] = b"%06o\0 " % (sum(archive[:148]) + sum(archive[156:512]) + 256)
    assert read(bytes(archive)) == {"a.jpg": b"image"}


@pytest.mark.parametrize(
    ("kind", "told"),
    [(tarfile.SYMTYPE, "symbolic link"), (tarfile.LNKTYPE, "hard link"), (tarfile.FIFOTYPE, "device")],
)
def test_what_holds_no_data_is_an_error(kind: bytes, told: str) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        info = tarfile.TarInfo("a.jpg")
        info.type, info.linkname = kind, "b.jpg"
        archive.addfile(info)
    with pytest.raises(TarDamage, match=told):
        read(file.getvalue())


def test_archives_joined_with_cat_are_an_error() -> None:
    with pytest.raises(TarDamage, match="data behind the archive's end at offset 1024"):
        read(packed({"a.jpg": b"image"}) + packed({"b.jpg": b"image"}))


def test_one_zero_block_is_no_end() -> None:
    archive = packed({"a.jpg": b"image"})
    with pytest.raises(TarDamage, match="one zero block at offset 1024"):
        read(archive[:1536] + b"x" * 512)


def test_what_gnu_tar_packs_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "data" / ("long-" * 18) / ("longer-" * 9)
    folder.mkdir(parents=True)
    for number in range(4):
        (folder / f"{number}.jpg").write_bytes(os.urandom(3000))
        (folder / f"{number}.cls").write_text(f"{number}\n")
    for format in ("gnu", "posix", "ustar"):
        shard = tmp_path / f"{format}.tar"
        command = ["tar", f"--format={format}", "--sort=name", "-C", str(tmp_path / "data"), "-cf", str(shard), "."]
        subprocess.run(command, check=True)
        samples = list(IterableWrapper([str(shard)]).open_tar_shards())
        assert [sample["cls"] for sample in samples] == [0, 1, 2, 3]
        assert samples[2]["jpg"] == (folder / "2.jpg").read_bytes()


def test_what_webdataset_writes_is_read(tmp_path: Path) -> None:
    samples = [{"__key__": f"a/{n}", "jpg": os.urandom(2000), "cls": n, "seg.png": b"mask"} for n in range(5)]
    with webdataset.TarWriter(str(tmp_path / "a.tar"), encoder=True) as writer:
        for sample in samples:
            writer.write(sample)
    found = list(IterableWrapper([str(tmp_path / "a.tar")]).open_tar_shards())
    assert [{**sample, "__url__": str(tmp_path / "a.tar")} for sample in samples] == found
