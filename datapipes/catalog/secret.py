"""A value that reaches worker processes and nothing else: no repr, no log, no file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from multiprocessing.context import get_spawning_popen
from typing import Any

_TELLING = re.compile(r"key|secret|token|password|passwd|credential|auth", re.IGNORECASE)


class Secret:
    """A password or key. `reveal()` gives its text; nothing else does.

    A pickle carries the text only while multiprocessing starts a process (`spawn`, `forkserver`), where it
    goes straight to the child through a pipe; multiprocessing guards its own authentication keys that way.
    Any other pickle, a checkpoint or a cache say, carries an empty `Secret` that explains itself when used.

    >>> secret = Secret("hunter2")
    >>> secret, f"{secret}", secret.reveal()
    (Secret(***), 'Secret(***)', 'hunter2')
    """

    __slots__ = ("_text",)

    def __init__(self, text: str | None):
        self._text = text

    def reveal(self) -> str:
        """The text itself.

        Raises:
            ValueError: this secret has been through a pickle that was not made for a worker process.
        """
        if self._text is None:
            raise ValueError(
                "Secret: it was left out of a pickle, for a pickle could end in a file; "
                "build the server object anew here, or let it find its secret in the environment or a profile"
            )
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> tuple[type[Secret], tuple[str | None]]:
        return Secret, (self._text if get_spawning_popen() is not None else None,)


def as_secret(value: str | Secret | None) -> Secret | None:
    """What a server's constructor does with a secret that its user wrote as text."""
    return Secret(value) if isinstance(value, str) else value


def hide_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options for some client, each text whose name tells of a secret made a `Secret`.

    >>> hide_secrets({"anon": False, "secret": "hunter2", "client_kwargs": {"password": "hunter2"}})
    {'anon': False, 'secret': Secret(***), 'client_kwargs': {'password': Secret(***)}}
    """
    return {
        name: hide_secrets(value)
        if isinstance(value, Mapping)
        else Secret(value)
        if isinstance(value, str) and _TELLING.search(name)
        else value
        for name, value in options.items()
    }


def reveal_secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options as the client takes them: what `hide_secrets` was given."""
    return {
        name: reveal_secrets(value)
        if isinstance(value, Mapping)
        else value.reveal()
        if isinstance(value, Secret)
        else value
        for name, value in options.items()
    }
