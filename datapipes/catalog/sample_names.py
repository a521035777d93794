"""How a member's name says which sample it belongs to, and as which field: webdataset's rule."""

from __future__ import annotations


def key_and_field(name: str) -> tuple[str, str]:
    """The sample's key and the field: all before the first dot of the base name, and all behind it.

    >>> key_and_field("n01440764/n01440764_10026.JPEG"), key_and_field("a.b/7.seg.png")
    (('n01440764/n01440764_10026', 'jpeg'), ('a.b/7', 'seg.png'))

    A member that is no sample's has no field: what an operating system hides, and what webdataset passes over.

    >>> key_and_field("./._7.jpg"), key_and_field("__meta__/about.json")
    (('./._7.jpg', ''), ('__meta__/about.json', ''))

    Raises:
        ValueError: a name without a dot, which no reader would give to any sample.
    """
    slash = name.rfind("/")
    dot = name.find(".", slash + 1)
    hidden = dot == slash + 1
    if hidden or (name.startswith("__") and name.partition("/")[0].endswith("__")):
        return name, ""
    if dot < 0:
        raise ValueError(
            f"{name!r} has no extension, so it belongs to no sample; name members KEY.FIELD, such as 000001.jpg"
        )
    return name[:dot], name[dot + 1 :].lower()


def check_key(key: str) -> None:
    """Refuse a key that would come back from a shard as another one.

    Raises:
        ValueError: it is empty, holds a dot in its base name, or would not survive in a tar.
    """
    base = key.rpartition("/")[2]
    if not base or "." in base or "\0" in key or key.startswith("__"):
        raise ValueError(
            f"ShardWriter: {key!r} cannot be a key: its base name must hold at least one character and no dot, "
            "for what follows the first dot is the field; replace the dots with _"
        )


def check_field(field: str) -> None:
    """Refuse a field name that would come back as another one, or as none."""
    if not field or field != field.lower() or "/" in field or "\0" in field or field.startswith("__"):
        raise ValueError(
            f"ShardWriter: {field!r} cannot be a field: it is an extension, in lower case, such as jpg or seg.png"
        )
