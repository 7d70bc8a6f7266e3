"""Vector stores on real vectors: every store there is, swept over its options, with the frontier drawn.

Takes folders of vectors, or those of RAGAUGE_DATA that are known here; writes STORES.md beside this file and charts
into docs/. What was measured stays in bench/, so that a second call only writes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from ragauge import StoreBenchmark, bench, report
from ragauge.core import plugins
from ragauge.runs.folder import provenance

HERE = Path(__file__).parent
METRICS = {"ann_bigann10k": "l2", "ann_glove50_10k": "cosine"}


def main() -> None:
    """Measure, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--quick", action="store_true", help="fewer values of each option, into another folder")
    given = parser.parse_args()
    data = Path(os.environ.get("RAGAUGE_DATA", HERE.parents[1] / "shared" / "data"))
    folders = given.folders or [data / name for name in METRICS if (data / name).is_dir()]
    if not folders:
        sys.exit("no vectors: name folders with base.*, query.* and groundtruth.*, or set RAGAUGE_DATA")
    out = HERE.parent / "bench" / ("quick" if given.quick else "stores")
    parts = []
    for folder in folders:
        began = time.perf_counter()
        result = measured(folder, out / folder.name, quick=given.quick)
        charts, page = out / folder.name / "charts", out / folder.name / "report.md"
        report(result, [page.with_suffix(".html"), page], charts=charts)
        name = f"{folder.name}.png"
        if not given.quick:
            (HERE.parent / "docs" / name).write_bytes((charts / "bench-frontier.png").read_bytes())
        print(f"{folder.name}: {len(result.points)} configurations in {time.perf_counter() - began:.0f} s")
        parts.append(f"{page.read_text(encoding='utf-8')}\n![Recall and queries per second](../docs/{name})\n")
    if not given.quick:
        (HERE / "STORES.md").write_text(f"{head()}\n" + "\n".join(parts), encoding="utf-8")


def measured(folder: Path, out: Path, *, quick: bool) -> StoreBenchmark:
    """Every store but the one that does nothing."""
    stores = [name for name in plugins.plugin_names("stores") if name != "null"]
    return bench(
        str(folder),
        stores,
        metric=METRICS.get(folder.name),
        folder=out,
        timeout=180.0,
        quick=quick,
        filters=[0.5, 0.1, 0.01, 0.001],
        progress=lambda step: print(
            f"\r{step.subject} {step.action} {step.done}/{step.total}".ljust(79)[:79], end="", file=sys.stderr
        ),
    )


def head() -> str:
    """Where this comes from."""
    machine = provenance()["machine"]
    return (
        f"# Vector stores\n\nMade by `benchmarks/stores.py` on {machine['cores']} cores of {machine['processor']}, "
        "one thread for each store.\n"
    )


if __name__ == "__main__":
    main()
