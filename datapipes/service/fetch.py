"""Bring a data set of a service into a folder: side by side, verified, and going on where it was cut.

    python -m datapipes.service.fetch my_dataset /datasets/my_dataset --service http://datasets:8080

A second run fetches only what differs: a file of the same size and time is taken to be the same, or with
`--checksum` one of the same SHA-256. Files that the service does not have are left alone.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from datapipes.catalog.dataset_service import DatasetService
from datapipes.service.client import Brought, Client, bring_each, file_address
from datapipes.service.command import command_parser, run_command

CHUNK_BYTES = 1 << 20
UNFINISHED = ".fetch"
_FUNCTION = "fetch"


def fetch(
    dataset: str, folder: str | Path, server: DatasetService, *, checksum: bool = False, progress: bool = False
) -> Brought:
    """Make `folder` hold the files of `dataset`. A second process on the same folder waits, then finds them.

    Raises:
        FileNotFoundError: no such data set.
        PermissionError: the service wants a token, or another one.
        OSError: a file arrived damaged twice, or cannot be written.
    """
    target = Path(folder)
    unfinished = target / UNFINISHED
    unfinished.mkdir(parents=True, exist_ok=True)
    client = Client(server, dataset, _FUNCTION)
    with (unfinished / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        total = client.ask("GET", "/summary").json()["bytes"] if progress else None

        def bring(file: dict[str, Any]) -> tuple[bool, int]:
            place = place_of(target, file["path"])
            if _is_same(client, place, file, checksum):
                return False, file["size"]
            _bring(client, file, place, unfinished)
            return True, file["size"]

        fetched = bring_each(bring, client.files(), title=dataset, total=total)
        for left in unfinished.glob("*.part"):
            left.unlink()  # of versions that the service no longer has
    return fetched


def _bring(client: Client, file: dict[str, Any], place: Path, unfinished: Path) -> None:
    """One file, through a part file whose name tells the version, so that a later run can go on with it."""
    name = hashlib.sha256(f"{file['path']} {file['etag']}".encode()).hexdigest()[:32]
    part = unfinished / f"{name}.part"
    for attempt in (1, 2):
        got, expected = _continue_part(client, file, part)
        if got == expected:
            break
        part.unlink()
        if attempt == 2:
            raise OSError(
                f"{_FUNCTION}: {file['path']}: SHA-256 {got} arrived twice where the service has {expected}; "
                "see whether its disk or the network is at fault"
            )
    modified_ns = _modified_ns(file)
    os.utime(part, ns=(modified_ns, modified_ns))
    place.parent.mkdir(parents=True, exist_ok=True)
    os.replace(part, place)


def _continue_part(client: Client, file: dict[str, Any], part: Path) -> tuple[str, str]:
    """The digests of what has arrived and of what should have."""
    with part.open("a+b") as out:
        digest = hashlib.sha256()
        out.seek(0)
        while chunk := out.read(CHUNK_BYTES):
            digest.update(chunk)
        have = out.tell()
        headers = {"Want-Repr-Digest": "sha-256=1"}
        if 0 < have < file["size"]:
            headers |= {"Range": f"bytes={have}-", "If-Range": file["etag"]}
        answer = client.ask("GET", file_address(file["path"]), headers=headers, accept=(200, 206), stream=True)
        try:
            if answer.status == 200:
                out.truncate(0)
                digest = hashlib.sha256()
            for chunk in answer.stream(CHUNK_BYTES, decode_content=False):
                digest.update(chunk)
                out.write(chunk)
            expected = answer.headers["Repr-Digest"].split(":")[1]
        finally:
            answer.release_conn()
    return digest.hexdigest(), base64.b64decode(expected).hex()


def _is_same(client: Client, place: Path, file: dict[str, Any], checksum: bool) -> bool:
    try:
        status = place.stat()
    except OSError:
        return False
    if status.st_size != file["size"]:
        return False
    if not checksum:
        return status.st_mtime_ns // 1000 == _modified_ns(file) // 1000
    with place.open("rb") as content:
        digest = hashlib.sha256()
        while chunk := content.read(CHUNK_BYTES):
            digest.update(chunk)
    answer = client.ask("HEAD", file_address(file["path"]), headers={"Want-Repr-Digest": "sha-256=1"})
    return base64.b64decode(answer.headers["Repr-Digest"].split(":")[1]) == digest.digest()


def _modified_ns(file: dict[str, Any]) -> int:
    modified = datetime.fromisoformat(file["modified"])
    return int(modified.timestamp()) * 1_000_000_000 + modified.microsecond * 1000


def place_of(target: Path, path: str) -> Path:
    """Where a file goes; a service is not trusted to stay inside the folder."""
    parts = path.split("/")
    if parts[0] == UNFINISHED or any(part in ("", ".", "..") for part in parts) or "\0" in path:
        raise ValueError(f"{_FUNCTION}: the service names a file {path!r}, which no folder can hold; rename it there")
    return target.joinpath(*parts)


def main(argv: list[str] | None = None) -> None:
    parser = command_parser("fetch", __doc__)
    parser.add_argument("dataset", metavar="NAME", help="the data set")
    parser.add_argument("folder", metavar="FOLDER", help="where its files go, e.g. /datasets/NAME")
    parser.add_argument("--checksum", action="store_true", help="compare by SHA-256, not by size and time")
    args = parser.parse_args(argv)

    def bring(server: DatasetService) -> Brought:
        return fetch(args.dataset, args.folder, server, checksum=args.checksum, progress=not args.quiet)

    run_command(bring, args, where=args.folder, done="fetched")


if __name__ == "__main__":
    main()
