"""A folder uploaded as one archive: unpacked aside, checked, and moved into the data set file by file."""

from __future__ import annotations

import io
import secrets
from contextlib import closing
from dataclasses import dataclass

from datapipes.service.archives import members
from datapipes.service.names import check_path
from datapipes.service.storage import STAGING, ReaderStream, Store


@dataclass(frozen=True)
class Unpacked:
    files: int
    bytes: int


def unpack(store: Store, archive: str, filename: str, folder: str, into: str) -> Unpacked:
    """Put the files of the staged archive into `folder`/`into`; none of them if one is refused.

    Each file appears whole; the folder as a whole is not one step, as a reader that lists it meanwhile may
    see.
    """
    aside = f"unpacked-{secrets.token_hex(8)}"
    count = size = 0
    found = False
    try:
        with closing(store.reader(STAGING, archive)) as reader:
            stream = io.BufferedReader(ReaderStream(reader), 1 << 20)
            for path, chunks in members(stream, filename):
                check_path(f"{into}/{path}" if into else path)
                writer = store.writer(STAGING, f"{aside}/{path}")
                try:
                    for chunk in chunks:
                        writer.write(chunk)
                        size += len(chunk)
                except BaseException:
                    writer.discard()
                    raise
                writer.commit()
                found = True
        for file in store.walk(STAGING, under=aside) if found else ():
            path = file.path.removeprefix(f"{aside}/")
            store.move(file.path, folder, f"{into}/{path}" if into else path)
            count += 1
    finally:
        store.discard_staged(aside)
    return Unpacked(count, size)
