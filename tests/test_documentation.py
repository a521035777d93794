"""Every example runs: docstrings' `>>>`, and the ```python blocks of the README and docs/, top to bottom.

The blocks of a page share one namespace and one empty folder. A page whose first line is
`<!-- needs: s3, samples -->` gets what it names: see NEEDS. A ```bash block runs only after a line
`<!-- run: bash -->`; from its folder `recipes` is found.
"""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import datapipes

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(datapipes.__path__, "datapipes.")
    if not module.name.endswith("__main__")
)
NEEDS: dict[str, Callable[[pytest.FixtureRequest], dict[str, Any]]] = {
    "s3": lambda request: {"server": request.getfixturevalue("s3").server},
    "samples": lambda request: {"samples": str(request.getfixturevalue("samples"))},
    "cassandra": lambda request: {"cassandra": request.getfixturevalue("cassandra").server},
    "service": lambda request: {"service": request.getfixturevalue("service")},
}
_BLOCK = re.compile(r"^(<!-- run: bash -->\n)?```(python|bash|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    code: str
    line: int


def blocks_of(text: str) -> Iterator[Block]:
    """The blocks of a page that run, with the line that each starts at."""
    for found in _BLOCK.finditer(text):
        wanted, language, code = found.groups()
        if language == "python" or (language == "bash" and wanted):
            yield Block(language, code, text.count("\n", 0, found.start(3)) + 1)


def needs_of(page: str, text: str) -> list[str]:
    found = re.match(r"<!-- needs: (.*) -->$", text.partition("\n")[0])
    names = [name.strip() for name in found[1].split(",")] if found else []
    for name in names:
        if name not in NEEDS:
            raise ValueError(f"{page}: it needs {name!r}; known are {', '.join(NEEDS)}")
    return names


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", sysconfig.get_path("scripts") + os.pathsep + os.environ["PATH"])
    return tmp_path


@pytest.mark.parametrize("module_name", MODULES)
def test_docstring_examples_run(module_name, folder):
    module = importlib.import_module(module_name)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.testmod(module, optionflags=flags).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_page_examples_run(page, folder, request, monkeypatch):
    text = page.read_text()
    names = needs_of(page.name, text)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for name in names:
        namespace |= NEEDS[name](request)
    if "s3" in names:
        for variable, value in request.getfixturevalue("s3").local.environment.items():
            monkeypatch.setenv(variable, value)
    for block in blocks_of(text):
        run(block, page, namespace)


def run(block: Block, page: Path, namespace: dict[str, Any]) -> None:
    if block.language == "python":
        # The empty lines let a traceback name the page's own line.
        exec(compile("\n" * (block.line - 1) + block.code, str(page), "exec"), namespace)
        return
    ended = subprocess.run(["bash", "-e", "-c", block.code], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, f"{page}:{block.line}:\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"


PAGE = """\
<!-- needs: samples -->
Text
```python
import pathlib
x = len(list(pathlib.Path(samples).glob("val/*/*")))
```
```bash
exit 1
```
<!-- run: bash -->
```bash
python -c "import recipes, sys; print(sys.prefix)" > prefix.txt
```
```python
assert x == 12
raise KeyError(pathlib.Path("prefix.txt").read_text().strip())
```
"""


def test_blocks_run_in_order_in_one_folder_and_failures_name_the_line(folder, samples):
    page = folder / "page.md"
    namespace = {"samples": str(samples)}
    first, second, third = blocks_of(PAGE)
    run(first, page, namespace)
    run(second, page, namespace)
    with pytest.raises(KeyError, match=re.escape(sys.prefix)) as caught:
        run(third, page, namespace)
    assert (str(caught.traceback[-1].path), caught.traceback[-1].lineno + 1) == (str(page), 16)


def test_a_page_that_needs_the_unknown_fails():
    assert needs_of("page.md", PAGE) == ["samples"]
    assert needs_of("page.md", "# Title\n<!-- needs: s3 -->") == []
    with pytest.raises(ValueError, match=r"page\.md: it needs 'kafka'; known are s3, samples"):
        needs_of("page.md", "<!-- needs: samples, kafka -->\n")
