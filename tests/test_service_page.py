"""The page, in a real browser that has no network but this service."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import expect, sync_playwright
from service_fixtures import ask, new_dataset

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="module")
def browser():
    """The system's Chromium: `apt-get install chromium`."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    assert found, "no Chromium found: install it (apt-get install chromium), or name it in $CHROMIUM"
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, headless=True, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def page(browser, service):
    """A page whose every request elsewhere, and every message on its console, fails the test."""
    context = browser.new_context(viewport={"width": 1100, "height": 900})
    opened = context.new_page()
    opened.set_default_timeout(15_000)
    strayed: list[str] = []
    said: list[str] = []
    opened.on("request", lambda request: strayed.append(request.url) if outside(request.url, service.url) else None)
    opened.on("console", lambda message: said.append(message.text) if "status of 4" not in message.text else None)
    opened.on("pageerror", lambda error: said.append(str(error)))
    yield opened
    context.close()
    assert strayed == [] and said == []


def outside(url: str, service_url: str) -> bool:
    return not url.startswith((service_url, "data:", "blob:"))


def keep(page, name: str) -> None:
    """A picture for who wants to look: `SCREENSHOTS=folder make test`."""
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=Path(folder, f"{name}.png"), full_page=True)


def test_the_data_sets_with_what_they_hold(page, service, samples):
    page.goto(service.url)
    card = page.locator(".card", has_text="imagenet")
    expect(card).to_contain_text("60 files")
    expect(card).to_contain_text("4 classes")
    keep(page, "index")
    card.click()
    expect(page).to_have_title("imagenet · Data sets")
    rows = page.locator(".histogram th[scope=row]")
    assert rows.count() == 8
    expect(page.locator(".pictures img")).to_have_count(8 * 8 - 4 * 5)
    broken = page.evaluate(
        """async () => {
            const images = [...document.querySelectorAll('.pictures img')];
            images.forEach((image) => { image.loading = 'eager'; });
            await Promise.all(images.map((image) => image.decode().catch(() => {})));
            return images.filter((image) => !image.naturalWidth).length;
        }"""
    )
    assert broken == 0
    keep(page, "dataset")


def test_a_person_makes_a_data_set_and_uploads_a_folder(page, service, samples):
    page.goto(service.url)
    page.get_by_label("New data set").fill("from-the-page")
    page.get_by_role("button", name="Create").click()
    page.wait_for_url("**/browse/from-the-page")
    with page.expect_navigation():
        page.locator("#folder").set_input_files(samples / "val")
    expect(page.locator(".totals")).to_contain_text("12")
    uploaded = Path(service.root, "from-the-page", "val")
    assert sorted(p.read_bytes() for p in uploaded.rglob("*.JPEG")) == sorted(
        p.read_bytes() for p in (samples / "val").rglob("*.JPEG")
    )


def test_dropped_files_show_their_progress_and_refusals(page, service, tmp_path):
    new_dataset(service.url, "dropped-on-page")
    page.goto(f"{service.url}/browse/dropped-on-page")
    page.evaluate(
        """() => {
            const transfer = new DataTransfer();
            transfer.items.add(new File(['a,b'], 'table.csv'));
            transfer.items.add(new File(['not a tar'], 'broken.tar'));
            const drop = new DragEvent('drop', { dataTransfer: transfer, bubbles: true, cancelable: true });
            document.getElementById('upload').dispatchEvent(drop);
        }"""
    )
    expect(page.locator("#failures li")).to_contain_text("broken.tar")
    expect(page.locator("#failures li")).to_contain_text("cannot be unpacked")
    expect(page.locator("#status")).to_contain_text("1 of 2 files, 1 failed, 100 %")
    keep(page, "failed-upload")
    assert ask(service.url, path="/datasets/dropped-on-page/files/table.csv").body == b"a,b"


def test_a_name_that_is_taken_is_told(page, service):
    page.goto(service.url)
    page.get_by_label("New data set").fill("imagenet")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#message")).to_have_text(
        "'imagenet' is already there; choose another name, or delete it first"
    )


@pytest.mark.parametrize("where", ["/", "/browse/imagenet", "/docs"])
def test_a_phone_shows_every_page_without_scrolling_sideways(page, service, where):
    page.set_viewport_size({"width": 375, "height": 740})
    page.goto(service.url + where)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    keep(page, "phone-" + (where.strip("/").replace("/", "-") or "index"))


def test_names_of_files_are_text_and_nothing_else(page, service):
    new_dataset(service.url, "odd-names")
    name = "<img src=x onerror=alert(1)>&\"'"
    folder = Path(service.root, "odd-names", name)
    folder.mkdir()
    (folder / f"{name}.txt").write_bytes(b"1")
    page.goto(f"{service.url}/browse/odd-names")
    assert page.locator(".histogram th[scope=row]").inner_text() == name
    assert page.locator("main img").count() == 0
    link = page.locator(".files a").get_attribute("href")
    assert ask(service.url, path=link, encode=False).body == b"1"
