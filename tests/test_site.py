"""Documentation site: links, search, dark mode and the width of a phone."""

from __future__ import annotations

import functools
import re
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

import build_site
import ragauge


class SilentHandler(SimpleHTTPRequestHandler):
    """File server that logs nothing."""

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Address and folder of the built site."""
    pytest.importorskip("zensical")
    build_site.build_site()
    handler = functools.partial(SilentHandler, directory=str(build_site.SITE))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_find_broken_links_reports_links_anchors_and_external_scripts(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="b.html">gone</a><a href="#top">here</a><a href="#none">no</a>'
        '<script src="https://example.org/x.js"></script><a href="https://example.org">elsewhere</a>'
    )
    assert build_site.find_broken_links(tmp_path) == [
        "a.html: loads https://example.org/x.js",
        "a.html: b.html does not exist",
        "a.html: #none has no such anchor",
    ]


def test_rewrite_links_replaces_source_links_by_code(tmp_path, monkeypatch):
    monkeypatch.setattr(build_site, "SOURCE", tmp_path)
    (tmp_path / "page.md").write_text("[code](../src/ragauge/x.py) [rules](../CONVENTIONS.md#ties) [b](b.md)")
    assert build_site.rewrite_links(tmp_path / "page.md") == "`code` [rules](CONVENTIONS.md#ties) [b](b.md)"


def test_python_reference_lists_every_public_name_once():
    listed = [name for _, names in build_site.PYTHON_PAGES.values() for name in names]
    assert sorted(listed) == sorted(set(ragauge.__all__) - build_site.OTHER_NAMES)


@pytest.fixture
def page_timeout_error():
    """Exception class of Playwright for a wait that takes too long."""
    return pytest.importorskip("playwright.sync_api").TimeoutError


def open_search(page, timeout_error):
    """Press Ctrl+K until the script of the page responds and the search dialog has the focus."""
    for _ in range(24):
        page.keyboard.press("Control+k")
        try:
            page.wait_for_function("document.activeElement.shadowRoot !== null", timeout=5_000)
            return
        except timeout_error:
            continue
    raise AssertionError("the search dialog does not open")


@pytest.mark.docs
@pytest.mark.browser
def test_site_has_working_pages_search_and_dark_mode(site, browser, page_timeout_error):
    requested = []
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="dark")
    page = context.new_page()
    page.set_default_timeout(120_000)  # ms: a busy machine is slow
    page.on("request", lambda request: requested.append(request.url))
    page.goto(f"{site}/index.html")
    assert "ragauge" in page.inner_text("h1")
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(int(part) for part in dark.removeprefix("rgb(").rstrip(")").split(",")[:3]) < 200, dark
    page.goto(f"{site}/tutorial_folder.html")
    assert "Your own folder" in page.inner_text("h1")
    open_search(page, page_timeout_error)
    page.keyboard.type("bootstrap")
    page.locator("a:visible", has_text=re.compile("bootstrap", re.IGNORECASE)).first.wait_for()
    assert all(url.startswith((site, "data:", "blob:")) for url in requested), requested
    context.close()


@pytest.mark.docs
@pytest.mark.browser
@pytest.mark.parametrize("name", ["index", "tutorial_folder", "reference_commands"])
def test_site_fits_phone_width(site, browser, name):
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.goto(f"{site}/{name}.html")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()
