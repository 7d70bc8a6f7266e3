"""What a page costs: 10,000 queries by five systems, gathered, written, and opened in a headless Chromium."""

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


def collection(rng: random.Random) -> Dataset:
    """Random words of the length of real passages: nothing that compresses better than real texts do."""
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(3, 9))) for _ in range(20_000)]

    def text(length: int) -> str:
        return " ".join(rng.choices(words, k=length))

    documents = [Document(f"doc{i}", text(90), text(4)) for i in range(DOCUMENTS)]
    queries = {f"q{i}": f"{text(8)} {i}" for i in range(QUERIES)}
    grades = {query: {f"doc{d}": rng.randint(1, 3) for d in rng.sample(range(DOCUMENTS), 5)} for query in queries}
    tags = {query: {"topic": rng.choice("abcd")} for query in queries}
    return Dataset("made up", documents, queries, Judgments(grades), tags=tags)


def system(data: Dataset, share: float) -> Search:
    """Finds this share of what is relevant, at any place."""
    rng = random.Random(share)
    grades = {text: list(data.judgments.nested[query]) for query, text in data.queries.items()}

    def search(query: str, k: int) -> list[tuple[str, float]]:
        found = [doc for doc in grades[query] if rng.random() < share]
        found += [f"doc{rng.randrange(DOCUMENTS)}" for _ in range(k)]
        rng.shuffle(found)
        return sorted(((doc, 10 * rng.random()) for doc in found[:k]), key=lambda hit: -hit[1])

    return search


def opened(file: Path) -> tuple[float, float] | None:
    """Seconds until the queries can be searched, and until every chart is drawn; None without a browser."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tools:
        shown = tools.chromium.launch(executable_path=browser, args=["--no-sandbox"]).new_page()
        began = time.perf_counter()
        shown.goto(file.as_uri())
        shown.wait_for_selector("html[data-queries=ready]", timeout=60_000)
        ready = time.perf_counter() - began
        shown.wait_for_selector("html[data-charts=drawn]", timeout=60_000)
        return ready, time.perf_counter() - began


def main() -> None:
    data = collection(random.Random(1))
    systems = {f"system {i}": system(data, 0.3 + 0.1 * i) for i in range(SYSTEMS)}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "runs"
        run(data, systems, baseline="system 0", out=folder, k=DEPTH)
        began = time.perf_counter()
        found = overview(folder, audited=False)
        gathered = time.perf_counter() - began
        # The texts are not on disk, so that the folder does not know them; the page is to have them all the same.
        found = overview(run(data, systems, baseline="system 0", out=folder, k=DEPTH), audited=False)
        render = REPORT_FORMATS["html"].write
        render([found])  # Vega is bundled once
        began = time.perf_counter()
        text = render([found])
        written = time.perf_counter() - began
        file = Path(place) / "report.html"
        file.write_text(text, encoding="utf-8")
        seen = opened(file)
        size = file.stat().st_size / 1e6
    machine = provenance()["machine"]
    rows = [
        ("gathering: scores, intervals, tests, curves, strata", f"{gathered:.1f} s"),
        ("writing the page", f"{written:.1f} s"),
        ("the page", f"{size:.1f} MB"),
        ("of it the values of all queries", f"{len(compress_json(build_values_payload(found))) / 1e6:.1f} MB"),
        ("of it rankings and texts", f"{len(compress_json(build_rankings_payload(found))) / 1e6:.1f} MB"),
        ("opening it: queries can be searched", "no browser" if seen is None else f"{seen[0]:.1f} s"),
        ("opening it: all charts are drawn", "no browser" if seen is None else f"{seen[1]:.1f} s"),
    ]
    lines = [
        "# What a page costs",
        "",
        f"{QUERIES:,} queries, {SYSTEMS} systems, {DEPTH} documents each of {DOCUMENTS:,}; {machine['cores']} cores "
        f"({machine['processor']}), Python {platform.python_version()}; headless Chromium.",
        "",
        "| what | |",
        "|---|---:|",
        *(f"| {what} | {figure} |" for what, figure in rows),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    (Path(__file__).parent / "REPORT.md").write_text(text)


if __name__ == "__main__":
    main()
