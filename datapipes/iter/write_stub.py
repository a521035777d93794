"""Writes datapipes/forms.pyi: every functional form with its types, so that editors and mypy know them.

Run it as `python -m datapipes.iter.write_stub` after adding or changing a pipe; a test holds the file to it.
"""

from __future__ import annotations

import builtins
import inspect
import re
import sys
import typing
from pathlib import Path
from typing import Any

import datapipes.iter  # noqa: F401  (registers every form)
from datapipes.pipe import FUNCTIONAL_FORMS

STUB = Path(__file__).parents[1] / "forms.pyi"
_LINE_LENGTH = 120

_HEAD = '''"""Functional forms of every pipe. Written by datapipes/iter/write_stub.py; do not edit."""
'''

# Core's forms that return one pipe, with core's own signatures, so that a chain stays typed behind them.
_CORE_FORMS = """\
    def batch(self, batch_size: int, drop_last: bool = False, wrapper_class: Any = ...) -> Pipe[Any]: ...
    def collate(self, conversion: Any = ..., collate_fn: Callable[..., Any] | None = None) -> Pipe[Any]: ...
    def filter(self, filter_fn: Callable[..., Any], input_col: Any = None) -> Pipe[Any]: ...
    def map(self, fn: Callable[..., Any], input_col: Any = None, output_col: Any = None) -> Pipe[Any]: ...
    def sharding_filter(self, sharding_group_filter: Any = None) -> Pipe[Any]: ...
    def shuffle(self, *, buffer_size: int = 10000, unbatch_level: int = 0) -> Pipe[Any]: ...
"""


def stub() -> str:
    """The text of forms.pyi for the forms registered now."""
    imports: dict[str, set[str]] = {
        "typing": {"Any"},
        "collections.abc": {"Callable"},
        "datapipes.pipe": {"Pipe"},
    }
    forms = []
    for name, pipe_class in sorted(FUNCTIONAL_FORMS.items()):
        module = sys.modules[pipe_class.__module__]
        parameters = list(inspect.signature(pipe_class).parameters.values())[1:]
        for parameter in parameters:
            for word in re.findall(r"[A-Za-z_]\w*", str(parameter.annotation)):
                origin = _origin(module, word)
                if origin:
                    imports.setdefault(origin, set()).add(word)
        forms.append(_form(name, parameters))
    lines = [f"from {origin} import {', '.join(sorted(names))}" for origin, names in sorted(imports.items())]
    return "\n".join([_HEAD, *lines, "", "class Forms:", _CORE_FORMS + "\n".join(forms)]) + "\n"


def _form(name: str, parameters: list[inspect.Parameter]) -> str:
    parts = ["self"]
    keyword_only = False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            parts.append("*")
        keyword_only |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        star = "*" * (parameter.kind is parameter.VAR_POSITIONAL) + "**" * (parameter.kind is parameter.VAR_KEYWORD)
        part = f"{star}{parameter.name}: {parameter.annotation}"
        if parameter.default is not parameter.empty:
            plain = parameter.default is None or isinstance(parameter.default, (bool, int, float, str))
            part += f" = {parameter.default!r}" if plain else " = ..."
        parts.append(part)
    line = f"    def {name}({', '.join(parts)}) -> Pipe[Any]: ..."
    if len(line) <= _LINE_LENGTH:
        return line
    return f"    def {name}(\n" + "".join(f"        {part},\n" for part in parts) + "    ) -> Pipe[Any]: ..."


def _origin(module: Any, word: str) -> str | None:
    """The module that defines the name `word` of `module`; None for builtins and words inside strings."""
    if hasattr(builtins, word) or not hasattr(module, word):
        return None
    value = getattr(module, word)
    if hasattr(typing, word) and getattr(typing, word) is value:
        return "typing"
    defined_in = getattr(value, "__module__", None)
    if isinstance(value, type) and defined_in:
        return str(defined_in)
    if getattr(sys.modules.get("collections.abc"), word, None) is value:
        return "collections.abc"
    for name, candidate in sorted(sys.modules.items()):
        if name.startswith("datapipes.") and word in getattr(candidate, "__annotations__", {}):
            return name
    return str(module.__name__)


if __name__ == "__main__":
    STUB.write_text(stub())
    print(f"wrote {STUB.name}: {len(FUNCTIONAL_FORMS)} forms")
