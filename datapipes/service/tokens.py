"""Bearer tokens: who may read, who may write. Kept and compared as digests, never as they are."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from pathlib import Path
from typing import Literal, TypeAlias

Right: TypeAlias = Literal["read", "write"]


class Tokens:
    """The tokens of one service; without any, everybody may do everything.

    >>> tokens = Tokens([("read", "r4nd0m-token-of-a-reader")])
    >>> tokens.rights_of("Bearer r4nd0m-token-of-a-reader"), tokens.rights_of("Bearer guess")
    ({'read'}, set())
    """

    def __init__(self, tokens: list[tuple[Right, str]]) -> None:
        self._digests = [(right, _digest(token)) for right, token in tokens]

    @classmethod
    def from_file(cls, path: str | Path) -> Tokens:
        """One token a line, `read TOKEN` or `write TOKEN`; a writer may read; `#` starts a comment line."""
        tokens: list[tuple[Right, str]] = []
        for number, line in enumerate(Path(path).read_text().splitlines(), 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 2 or words[0] not in ("read", "write") or len(words[1]) < 16:
                raise ValueError(
                    f"Tokens.from_file: {path} line {number} is not 'read TOKEN' or 'write TOKEN' with a "
                    "token of at least 16 characters; make one with `openssl rand -hex 32`"
                )
            tokens.append(("write" if words[0] == "write" else "read", words[1]))
        if not tokens:
            raise ValueError(f"Tokens.from_file: {path} holds no token; leave --tokens out for an open service")
        return cls(tokens)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def rights_of(self, authorization: str) -> set[Right]:
        """What the sender of this header may do. A wrong token takes as long as a right one."""
        sent = _digest(_token_in(authorization))
        rights: set[Right] = set()
        for right, digest in self._digests:
            if hmac.compare_digest(sent, digest):
                rights |= {"read", "write"} if right == "write" else {"read"}
        return rights


def _token_in(authorization: str) -> str:
    """A bearer token, or the password that a browser asks its user for."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return ""
    return ""


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
