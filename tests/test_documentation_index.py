"""Documentation is whole: a page a pipe, every page reachable, no link into nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import datapipes.iter  # noqa: F401  (registers every form)
from datapipes.pipe import FUNCTIONAL_FORMS

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("name", sorted(FUNCTIONAL_FORMS))
def test_every_pipe_has_a_page_that_the_index_names(name):
    page = DOCS / "pipes" / f"{name}.md"
    assert f"# {name}\n" in page.read_text()
    assert f"(pipes/{name}.md)" in (DOCS / "index.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_page_is_reachable_from_the_readme():
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in reached:
            continue
        reached.add(page)
        if page.is_dir():
            waiting += page.glob("*.md")
        elif page.suffix == ".md":
            links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text())
            waiting += [page.parent / link for link in links if (page.parent / link).exists()]
    assert {page.resolve() for page in PAGES} - reached == set()
