"""Draw the picture of the report for README and documentation: the page of `ragauge demo` in headless Chromium.

python tests/jobs/draw_report_picture.py [FILE]        (docs/report.png by default)
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "build" / "demo"
"""Folder of the demo, which is run again each time."""
PICTURE = ROOT / "docs" / "report.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH_PX, HEIGHT_PX = 1280, 800


def draw_picture(page_file: Path, picture: Path, program: str) -> None:
    """Open a page at the size of a laptop screen, without a network, and save what is visible as PNG."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program)
        context = browser.new_context(
            offline=True, viewport={"width": WIDTH_PX, "height": HEIGHT_PX}, color_scheme="light"
        )
        page = context.new_page()
        page.goto(page_file.as_uri())
        page.wait_for_selector("html[data-charts=drawn]", state="attached")
        page.screenshot(path=picture)
        browser.close()


def main() -> None:
    picture = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else PICTURE
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if program is None:
        sys.stderr.write("no Chromium: the picture is not drawn (apt-get install chromium)\n")
        return
    DEMO.parent.mkdir(exist_ok=True)
    picture.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [sys.executable, "-m", "ragauge", "demo", "--fresh", "-o", str(DEMO)], check=True, stdout=subprocess.DEVNULL
    )
    draw_picture(DEMO / "report.html", picture, program)
    sys.stderr.write(f"wrote {picture}\n")


if __name__ == "__main__":
    main()
