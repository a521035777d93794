"""The folders of the package are a flow: a module knows its own folder and those before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import datapipes

ROOT = Path(datapipes.__file__).parent
ORDER = ["transfer", "catalog", "order", "load", "stages", "dataset", "prepare", "service"]


def imported_folders(module: Path) -> Iterator[str]:
    """The folders of ours that it imports from when it runs, wherever in it the import stands."""
    for node in ast.walk(ast.parse(module.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names.append(node.module)
        yield from (name.split(".")[1] for name in names if name.startswith("datapipes."))


def test_every_folder_has_its_place() -> None:
    folders = {path.parent.name for path in ROOT.glob("*/*.py")}
    assert folders == {*ORDER, "iter"}


def test_no_module_knows_a_folder_behind_its_own() -> None:
    wrong = [
        f"{folder}/{module.name} imports {known}"
        for place, folder in enumerate(ORDER)
        for module in (ROOT / folder).glob("*.py")
        for known in imported_folders(module)
        if known in ORDER[place + 1 :]
    ]
    assert not wrong
