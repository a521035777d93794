"""Bring a folder into a data set of a service: side by side, verified, large files in parts that can wait.

    python -m datapipes.service.push /data/my_images my_dataset --service http://datasets:8080

Creates the data set if it is not there. A second run sends only what differs, and goes on with large files
where the first was cut. Files that the folder does not have are left alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from datapipes.catalog.dataset_service import DatasetService
from datapipes.service.client import Brought, Client, bring_each, file_address
from datapipes.service.command import command_parser, run_command

PART_BYTES = 64 << 20
_FUNCTION = "push"


def push(
    folder: str | Path,
    dataset: str,
    server: DatasetService,
    *,
    part_bytes: int = PART_BYTES,
    progress: bool = False,
) -> Brought:
    """Make `dataset` hold the files of `folder`. Links are followed; what is hidden goes too.

    Raises:
        FileNotFoundError: no such folder.
        PermissionError: the service wants a token that may write.
        OSError: the service refused a file, in its words.
    """
    source = Path(folder)
    if not source.is_dir():
        raise FileNotFoundError(f"{_FUNCTION}: {folder} is no folder; give the one that holds the files")
    client = Client(server, dataset, _FUNCTION)
    body = json.dumps({"name": dataset}).encode()
    client.ask("POST", "..", body=body, headers={"Content-Type": "application/json"}, accept=(201, 409))
    there = {file["path"]: file for file in client.files()}
    paths = sorted(_files(source))
    total = sum((source / path).stat().st_size for path in paths) if progress else None

    def bring(path: str) -> tuple[bool, int]:
        size = (source / path).stat().st_size
        known = there.get(path)
        if known and known["size"] == size and known["sha256"] == _sha256(source / path):
            return False, size
        if size > part_bytes:
            _send_in_parts(client, source / path, path, size, part_bytes)
        else:
            _send(client, (source / path).read_bytes(), path)
        return True, size

    return bring_each(bring, paths, title=dataset, total=total)


def _send(client: Client, content: bytes, path: str) -> None:
    client.ask("PUT", file_address(path), body=content, headers=_digest_of(hashlib.sha256(content).digest()))


def _send_in_parts(client: Client, file: Path, path: str, size: int, part_bytes: int) -> None:
    """Send the parts that the service does not have yet; an upload that was cut earlier is taken up again."""
    upload = _upload_under_way(client, path, size)
    address = f"/uploads/{upload['id']}"
    arrived = {part["number"]: part for part in upload["parts"]}
    whole = hashlib.sha256()
    with file.open("rb") as content:
        number = 0
        while part := content.read(part_bytes):
            number += 1
            whole.update(part)
            digest = hashlib.sha256(part)
            known = arrived.get(number)
            if not known or known["size"] != len(part) or known["sha256"] != digest.hexdigest():
                client.ask("PUT", f"{address}/{number}", body=part, headers=_digest_of(digest.digest()))
    client.ask("POST", f"{address}/complete", headers=_digest_of(whole.digest()))


def _upload_under_way(client: Client, path: str, size: int) -> dict[str, Any]:
    for upload in client.ask("GET", "/uploads").json()["uploads"]:
        if upload["path"] == path and upload["size"] == size:
            found: dict[str, Any] = upload
            return found
    begin = json.dumps({"path": path, "size": size}).encode()
    begun: dict[str, Any] = client.ask(
        "POST", "/uploads", body=begin, headers={"Content-Type": "application/json"}
    ).json()
    return begun


def _files(source: Path) -> Iterator[str]:
    for folder, _, names in os.walk(source, followlinks=True):
        for name in names:
            yield Path(folder, name).relative_to(source).as_posix()


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as content:
        while chunk := content.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _digest_of(digest: bytes) -> dict[str, str]:
    return {"Repr-Digest": f"sha-256=:{base64.b64encode(digest).decode()}:"}


def main(argv: list[str] | None = None) -> None:
    parser = command_parser("push", __doc__)
    parser.add_argument("folder", metavar="FOLDER", help="the files to send")
    parser.add_argument("dataset", metavar="NAME", help="the data set; made if it is not there")
    args = parser.parse_args(argv)

    def bring(server: DatasetService) -> Brought:
        return push(args.folder, args.dataset, server, progress=not args.quiet)

    run_command(bring, args, where=args.dataset, done="sent")


if __name__ == "__main__":
    main()
