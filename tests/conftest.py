"""Shared fixtures: paths of real datasets, a faulty chat server, a Dask cluster, PostgreSQL and Chromium."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from chat_server import serving_chat
from ragauge.core.secrets import forget_secrets
from suites import COLLECTED, mark_expensive

os.environ["NUMBA_DISABLE_JIT"] = "1"  # ranx takes seconds without compilation, and minutes with it
settings.register_profile("ragauge", deadline=None, max_examples=100)
settings.load_profile("ragauge")

DATA = Path(os.environ.get("RAGAUGE_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark expensive tests by what they use, and store the markers of all tests before any is deselected."""
    for item in items:
        mark_expensive(item)
        # The garbage collector finds open sockets of killed workers later, and warns in the test that runs then.
        if item.get_closest_marker("cluster"):
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
    config.stash[COLLECTED] = {item.nodeid: {marker.name for marker in item.iter_markers()} for item in items}


def pytest_collection_finish():
    """Exclude all loaded objects from later garbage collections, because they stay until the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def shared():
    """Function that returns the path of a shared dataset, and skips the test if it is absent."""

    def find(name: str) -> Path:
        path = DATA / name
        if not path.exists():
            pytest.skip(f"{name} is not in {DATA} (set RAGAUGE_DATA to the folder of datasets)")
        return path

    return find


@pytest.fixture(autouse=True)
def no_registered_secrets():
    """Forget the secrets that other tests registered for redaction."""
    forget_secrets()


@pytest.fixture
def chat_server():
    """Server with OpenAI's protocol that returns faults on request."""
    with serving_chat() as server:
        yield server


@pytest.fixture(scope="module")
def workers():
    """Dask cluster of two worker processes."""
    pytest.importorskip("distributed")
    from worker_tasks import start_cluster

    with start_cluster() as cluster:
        yield cluster
    gc.collect()


@pytest.fixture(scope="module")
def dsn():
    """DSN of a PostgreSQL server with pgvector: RAGAUGE_DSN, or an embedded server in a temporary folder."""
    pytest.importorskip("psycopg")
    pytest.importorskip("pgvector")
    from ragauge.stores import postgres

    if os.environ.get("RAGAUGE_DSN"):
        yield os.environ["RAGAUGE_DSN"]
        return
    pytest.importorskip("fasteners")
    folder = Path(tempfile.mkdtemp(prefix="ragauge-test-"))
    folder.chmod(0o755)  # as root, the server runs as another user, who needs access to the folder
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAGAUGE_CACHE", str(folder))
        try:
            yield postgres.resolve_dsn()
        finally:
            postgres.stop_embedded_server()
            shutil.rmtree(folder)


BROWSERS = ("chromium", "chromium-browser", "google-chrome")
HEADERS_NOT_ABOVE_ROWS = """() => [...document.querySelectorAll("table")].filter(table => {
  const head = table.tHead?.getBoundingClientRect(), body = table.tBodies[0]?.getBoundingClientRect();
  return head?.height && body?.height && (head.bottom > body.top + 2 || head.right <= body.left);
}).map(table => table.textContent.trim().slice(0, 80))"""


@pytest.fixture(scope="module")
def browser():
    """Chromium without a window."""
    playwright = pytest.importorskip("playwright.sync_api")
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=program)
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(browser):
    """Function that opens a file offline in the browser.

    At the end of the test the pages must have no console messages, errors, dialogs or other requests, and no table
    header may overlap its rows.
    """
    contexts, messages, requests, files = [], [], [], []

    def open_file(file, *, charts=False, view="", size=(1280, 800), scheme="light", **options):
        width, height = size
        viewport = {"width": width, "height": height}
        context = browser.new_context(offline=True, viewport=viewport, color_scheme=scheme, **options)
        contexts.append(context)
        context.set_default_timeout(120_000)  # ms: a busy machine is slow
        page = context.new_page()
        page.on("console", lambda message: messages.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("dialog", lambda dialog: (messages.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: requests.append(request.url.partition("#")[0]))
        files.append(file.as_uri())
        page.goto(f"{file.as_uri()}#{view}" if view else file.as_uri())
        page.wait_for_selector(f"html[data-{'charts=drawn' if charts else 'explorer=ready'}]", state="attached")
        return page

    yield open_file
    pages = [page for context in contexts for page in context.pages]
    hidden_rows = [table for page in pages for table in page.evaluate(HEADERS_NOT_ABOVE_ROWS)]
    for context in contexts:
        context.close()
    assert messages == []
    assert requests == files
    assert hidden_rows == []
