"""Measure a report page of 10,000 queries and five systems.

Times computing, writing, and opening the page in Chromium. Writes REPORT.md.
"""

from __future__ import annotations

import platform
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ragauge import Dataset, Document, Judgments, overview, run
from ragauge.output.page_assets import compress_json
from ragauge.reports.overview_explorer import build_rankings_payload, build_values_payload
from ragauge.reports.registry import REPORT_FORMATS
from ragauge.runs.folder import provenance

QUERIES, DOCUMENTS, SYSTEMS, DEPTH = 10_000, 50_000, 5, 10
Search = Callable[[str, int], list[tuple[str, float]]]


def generate_dataset(rng: random.Random) -> Dataset:
    """Generate texts of random words, as long as passages and no more compressible."""
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9))) for _ in range(20_000)]

    def text(length: int) -> str:
        return " ".join(rng.choices(words, k=length))

    documents = [Document(f"doc{i}", text(90), text(4)) for i in range(DOCUMENTS)]
    queries = {f"q{i}": f"{text(8)} {i}" for i in range(QUERIES)}
    grades = {query: {f"doc{d}": rng.randint(1, 3) for d in rng.sample(range(DOCUMENTS), 5)} for query in queries}
    tags = {query: {"topic": rng.choice("abcd")} for query in queries}
    return Dataset("made up", documents, queries, Judgments(grades), tags=tags)


def make_system(data: Dataset, share: float) -> Search:
    """Return a system that finds this share of the relevant documents."""
    rng = random.Random(share)
    relevant = {text: list(data.judgments.nested[query]) for query, text in data.queries.items()}

    def search(query: str, k: int) -> list[tuple[str, float]]:
        documents = [document for document in relevant[query] if rng.random() < share]
        documents += [f"doc{rng.randrange(DOCUMENTS)}" for _ in range(k)]
        rng.shuffle(documents)
        return sorted(((document, 10 * rng.random()) for document in documents[:k]), key=lambda hit: -hit[1])

    return search


def measure_opening(file: Path) -> tuple[float, float] | None:
    """Return the seconds until queries can be searched, and until charts are drawn.

    Returns None without a browser.
    """
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page()
        start = time.perf_counter()
        page.goto(file.as_uri())
        page.wait_for_selector("html[data-explorer=ready]", timeout=60_000)
        ready = time.perf_counter() - start
        page.wait_for_selector("html[data-charts=drawn]", timeout=60_000)
        return ready, time.perf_counter() - start


def main() -> None:
    data = generate_dataset(random.Random(1))
    systems = {f"system {i}": make_system(data, 0.3 + 0.1 * i) for i in range(SYSTEMS)}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "runs"
        run(data, systems, baseline="system 0", out=folder, k=DEPTH)
        start = time.perf_counter()
        result = overview(folder, audited=False)
        compute_seconds = time.perf_counter() - start
        # The texts are not saved in the folder; the page needs them, so the overview is built from the run itself.
        result = overview(run(data, systems, baseline="system 0", out=folder, k=DEPTH), audited=False)
        render = REPORT_FORMATS["html"].write
        render([result])  # untimed: the first call bundles Vega
        start = time.perf_counter()
        html = render([result])
        write_seconds = time.perf_counter() - start
        file = Path(temporary) / "report.html"
        file.write_text(html, encoding="utf-8")
        opening = measure_opening(file)
        size_mb = file.stat().st_size / 1e6
    machine = provenance()["machine"]
    rows = [
        ("computing scores, intervals, tests, curves and strata", f"{compute_seconds:.1f} s"),
        ("writing the page", f"{write_seconds:.1f} s"),
        ("size of the page", f"{size_mb:.1f} MB"),
        ("size of the scores of all queries", f"{len(compress_json(build_values_payload(result))) / 1e6:.1f} MB"),
        ("size of rankings and texts", f"{len(compress_json(build_rankings_payload(result))) / 1e6:.1f} MB"),
        ("opening the page until queries can be searched", "no browser" if opening is None else f"{opening[0]:.1f} s"),
        ("opening the page until all charts are drawn", "no browser" if opening is None else f"{opening[1]:.1f} s"),
    ]
    lines = [
        "# Time and size of a report page",
        "",
        f"{QUERIES:,} queries, {SYSTEMS} systems, {DEPTH} of {DOCUMENTS:,} documents per query; {machine['cores']} "
        f"cores ({machine['processor']}), Python {platform.python_version()}; headless Chromium.",
        "",
        "| quantity | value |",
        "|---|---:|",
        *(f"| {quantity} | {value} |" for quantity, value in rows),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    (Path(__file__).parent / "REPORT.md").write_text(text)


if __name__ == "__main__":
    main()
