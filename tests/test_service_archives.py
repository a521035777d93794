"""Folders that come as archives: unpacked when they are what they seem, refused as a whole when not."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest
import zstandard
from service_fixtures import Answer, ask, new_dataset

FILES = {"train/cat/1.jpg": b"cat" * 1000, "train/dog/2.jpg": b"dog", "empty": b""}


def tar_of(*members: tuple[str, bytes] | tarfile.TarInfo, format: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=format) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member, io.BytesIO(bytes(member.size)))
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return out.getvalue()


def zip_of(*members: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def device(name: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.devmajor = tarfile.CHRTYPE, 1
    return info


def zip_link(name: str, target: bytes) -> bytes:
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o120777 << 16
    return zip_of(("a", b"1"), (info, target))


def pax_bomb() -> bytes:
    header = tarfile.TarInfo("bomb")
    header.type, header.size = tarfile.XHDTYPE, 1 << 40
    return header.tobuf(tarfile.GNU_FORMAT) + bytes(4096)


def send(url: str, name: str, filename: str, archive: bytes, into: str = "") -> Answer:
    return ask(
        url,
        "PUT",
        f"/datasets/{name}?unpack=true&into={into}",
        archive,
        Content_Disposition=f'attachment; filename="{filename}"',
    )


ARCHIVES = {
    "x.tar": tar_of(*FILES.items()),
    "x.tar.gz": gzip.compress(tar_of(*FILES.items())),
    "x.TGZ": gzip.compress(tar_of(*FILES.items(), format=tarfile.GNU_FORMAT)),
    "x.tar.zst": zstandard.compress(tar_of(*FILES.items())),
    "x.zip": zip_of(*FILES.items()),
}


@pytest.mark.parametrize("filename", ARCHIVES)
def test_a_folder_comes_as_an_archive(service, filename):
    name = "unpacked-" + filename.lower()
    new_dataset(service.url, name)
    answer = send(service.url, name, filename, ARCHIVES[filename])
    assert (answer.status, answer.json()) == (200, {"files": 3, "bytes": 3003})
    assert send(service.url, name, filename, ARCHIVES[filename], into="deep/er").status == 200
    found = {p.relative_to(Path(service.root, name)).as_posix(): p.read_bytes() for p in files(service, name)}
    assert found == FILES | {f"deep/er/{path}": content for path, content in FILES.items()}


def test_a_data_set_of_many_files_comes_back_as_a_tar(service):
    new_dataset(service.url, "to-tar")
    send(service.url, "to-tar", "x.tar", ARCHIVES["x.tar"])
    answer = ask(service.url, path="/dataset/to-tar")
    assert answer.headers["content-disposition"] == 'attachment; filename="to-tar.tar"'
    with tarfile.open(fileobj=io.BytesIO(answer.body)) as archive:
        assert {m.name: archive.extractfile(m).read() for m in archive} == FILES


HOSTILE = {
    "traversal.tar": tar_of(("fine", b"1"), ("../../escaped", b"2")),
    "absolute.tar": tar_of(("fine", b"1"), ("/tmp/escaped", b"2")),
    "backslash.zip": zip_of(("fine", b"1"), ("..\\..\\escaped", b"2")),
    "traversal.zip": zip_of(("fine", b"1"), ("a/../../escaped", b"2")),
    "symlink.tar": tar_of(("fine", b"1"), link("escape", "/etc"), ("escape/passwd", b"2")),
    "hardlink.tar": tar_of(("fine", b"1"), link("passwd", "/etc/passwd", tarfile.LNKTYPE)),
    "symlink.zip": zip_link("escape", b"/etc"),
    "device.tar": tar_of(("fine", b"1"), device("zero")),
    "bomb.tar.gz": gzip.compress(tar_of(("fine", b"1"), ("zeros", bytes(20 << 20)))),
    "bomb.tar.zst": zstandard.compress(tar_of(("fine", b"1"), ("zeros", bytes(20 << 20)))),
    "bomb.zip": zip_of(("fine", b"1"), ("zeros", bytes(20 << 20))),
    "header.tar": tar_of(("fine", b"1"))[:1024] + pax_bomb(),
    "cut.tar": tar_of(("fine", b"1"), ("long", bytes(9000)))[:5000],
    "cut.tar.gz": gzip.compress(tar_of(("fine", b"1"), ("long", bytes(range(256)) * 900)))[:-300],
    "cut.zip": zip_of(("fine", b"1"))[:-10],
    "noise.tar.zst": b"not zstandard at all",
    "unknown.rar": b"Rar!",
}


@pytest.mark.parametrize("filename", HOSTILE)
def test_a_hostile_or_damaged_archive_leaves_nothing(service, filename):
    name = "hostile-" + filename
    new_dataset(service.url, name)
    answer = send(service.url, name, filename, HOSTILE[filename])
    assert answer.status == 400, answer.body
    assert answer.json()["detail"]
    assert files(service, name) == []
    staged = Path(service.root, ".uploads")
    assert not [p for p in staged.iterdir() if p.name.startswith(("unpacked-", "archive-", "incoming-"))]


def files(service, name: str) -> list[Path]:
    return [p for p in Path(service.root, name).rglob("*") if not p.is_dir() or p.is_symlink()]
