"""The tar format, read strictly: every header's checksum, every record, and the end of the archive.

The standard library takes a cut or a damaged header for the end of an archive and says nothing, and so does
every reader built on it. Here an archive ends with its two zero blocks, or it is an error that names the
place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from datapipes.catalog.tar_stream import Bytes, Member, Stream, Tail

BLOCK = 512
END_OF_ARCHIVE = bytes(2 * BLOCK)
_ZERO_BLOCK = bytes(BLOCK)
_RECORDS = b"LKxg"
_AGAIN = "fetch or write the shard again"
# A long name is a few hundred bytes; a damaged size that passes for one must not fetch gigabytes.
_MAX_RECORD_BYTES = 1 << 20


class TarDamage(ValueError):
    """An archive that is cut, damaged or of a kind that no sample can be read from."""


def read_members(chunks: Iterable[bytes], *, shard: str) -> Iterator[Member]:
    """The regular files of an archive with their content, in its order. Directories are passed over.

    >>> list(read_members([END_OF_ARCHIVE], shard="empty.tar"))
    []

    Args:
        chunks: the archive's bytes, cut anywhere.
        shard: its name, for errors.

    Raises:
        TarDamage: a cut, a header whose checksum fails, data behind the end, a link or a device.
    """
    return walk(Bytes(chunks), shard=shard)


def walk(stream: Stream, *, shard: str, end: int | None = None, contents: bool = True) -> Iterator[Member]:
    """As `read_members`, from where `stream` stands.

    Args:
        end: offset at which to stop, where a member ends; None = the archive's end, which then has to come.
        contents: False gives the headers alone.
    """
    take, skip = stream.take, stream.skip
    tail_of_file: Tail | None = None
    tail_of_record: Tail | None = None
    long_name: dict[str, str] = {}
    member_start = stream.position
    while end is None or stream.position < end:
        if tail_of_file is not None and contents and member_start == stream.position:
            members = stream.run(tail_of_file, tail_of_record)
            yield from members if end is None else _until(end, members, stream)
            member_start = stream.position
            if member_start == end:
                return
        header = take(BLOCK)
        if header == _ZERO_BLOCK and end is None:
            _check_end(stream, shard)
            return
        if len(header) < BLOCK:
            raise TarDamage(f"{shard}: cut at offset {stream.position}, before the two zero blocks; {_AGAIN}")
        size = _checked_size(header, shard, stream.position - BLOCK)
        if header[156] in _RECORDS:
            long_name |= _read_record(header[156], size, stream, shard)
            if header[156] == ord("x"):
                tail_of_record = Tail(header[156:])
            continue
        name = _name(header)
        if not _is_file(header, name, long_name, shard, member_start):
            member_start, long_name = stream.position, {}
            continue
        if not _has_prefix(header):
            tail_of_file = Tail(header[156:])
        if long_name:
            name, size = long_name.get("path", name), int(long_name.get("size", size))
            long_name = {}
        offset = stream.position
        content = b""
        if contents:
            content = take(size)
        else:
            skip(size)
        if contents and len(content) < size:
            raise TarDamage(
                f"{shard}: cut at offset {stream.position}, inside {name!r}, which has {size} bytes from offset "
                f"{offset} on; {_AGAIN}"
            )
        skip(-size % BLOCK)
        yield name, member_start, offset, size, content
        member_start = stream.position


def _until(end: int, members: Iterator[Member], stream: Stream) -> Iterator[Member]:
    for member in members:
        yield member
        if stream.position >= end:
            return


def _checked_size(header: bytes, shard: str, offset: int) -> int:
    """The size that a header gives, once its checksum holds."""
    stored = _number(header[148:156], shard, offset)
    summed = header[:148] + header[156:]
    unsigned = sum(summed) + 256
    # Old Suns summed signed bytes.
    if stored != unsigned and stored != unsigned - 256 * sum(byte > 127 for byte in summed):
        raise TarDamage(
            f"{shard}: damaged header at offset {offset}: its checksum says {stored}, its bytes say "
            f"{unsigned}; {_AGAIN}"
        )
    return _number(header[124:136], shard, offset)


def _number(field: bytes, shard: str, offset: int) -> int:
    """A number: octal digits, or GNU's base 256 for what does not fit."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.split(b"\0")[0].strip(b" ")
    if digits.strip(b"01234567"):
        raise TarDamage(f"{shard}: damaged header at offset {offset}: {field!r} is no number; {_AGAIN}")
    return int(digits or b"0", 8)


def _has_prefix(header: bytes) -> bool:
    return header[257:263] == b"ustar\0" and header[345] != 0


def _name(header: bytes) -> str:
    name = header[:100].split(b"\0", 1)[0]
    if _has_prefix(header):
        name = header[345:500].split(b"\0", 1)[0] + b"/" + name
    return name.decode("utf-8", "surrogateescape")


def _is_file(header: bytes, name: str, long_name: dict[str, str], shard: str, offset: int) -> bool:
    """True for a regular file, False for a directory; nothing else may be in a shard."""
    kind = header[156:157]
    name = long_name.get("path", name)
    if kind == b"5" or (kind == b"\0" and name.endswith("/")):
        return False
    if kind not in (b"0", b"\0", b"7") or "GNU.sparse" in long_name:
        what = {b"1": "a hard link", b"2": "a symbolic link"}.get(kind, "a sparse file or a device")
        raise TarDamage(
            f"{shard}: {name!r} at offset {offset} is {what}, which holds no sample's data; "
            "pack again with tar --dereference --hard-dereference and without --sparse"
        )
    return True


def _read_record(kind: int, size: int, stream: Stream, shard: str) -> dict[str, str]:
    """What the record in front of a member says of it: `path`, `size`, `GNU.sparse`."""
    offset = stream.position
    if size > _MAX_RECORD_BYTES:
        raise TarDamage(f"{shard}: a name of {size} bytes at offset {offset}; {_AGAIN}")
    record = stream.take(size)
    if len(record) < size:
        raise TarDamage(f"{shard}: cut at offset {stream.position}, inside a long name; {_AGAIN}")
    stream.skip(-size % BLOCK)
    if kind == ord("L"):
        return {"path": record.split(b"\0")[0].decode("utf-8", "surrogateescape")}
    # Most pax headers hold only times to the nanosecond, one in front of every member.
    if kind == ord("x") and (b"path=" in record or b"size=" in record or b"GNU.sparse" in record):
        return _pax_records(record, shard, offset)
    return {}


def _pax_records(body: bytes, shard: str, offset: int) -> dict[str, str]:
    """The `length key=value` lines of a pax header that bear on a member's content."""
    records = {}
    point = 0
    while point < len(body):
        digits, _, _ = body[point : point + 20].partition(b" ")
        end = point + int(digits) if digits.isdigit() else point
        key, equals, value = body[point + len(digits) + 1 : end - 1].partition(b"=")
        if not equals or body[end - 1 : end] != b"\n" or (key == b"size" and not value.isdigit()):
            raise TarDamage(f"{shard}: damaged pax header at offset {offset}; {_AGAIN}")
        if key.startswith(b"GNU.sparse"):
            key = b"GNU.sparse"
        if key in (b"path", b"size", b"GNU.sparse"):
            records[key.decode()] = value.decode("utf-8", "surrogateescape")
        point = end
    return records


def _check_end(stream: Stream, shard: str) -> None:
    """Two zero blocks, and nothing but zeros behind them."""
    offset = stream.position - BLOCK
    if stream.take(BLOCK) != _ZERO_BLOCK:
        raise TarDamage(f"{shard}: one zero block at offset {offset} where an archive ends with two; {_AGAIN}")
    while rest := stream.take(1 << 16):
        if rest.strip(b"\0"):
            raise TarDamage(
                f"{shard}: data behind the archive's end at offset {offset}; archives joined with cat cannot be "
                "read, join them with tar --concatenate"
            )
