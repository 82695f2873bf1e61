"""Takes the picture of a report for the README: docs/images/report.png. Needs Chromium.

make gallery
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from envsuite import registry
from harness import report
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy

PICTURE = Path(__file__).parent / "images" / "report.png"
TASK = "Overcooked-tomato_lettuce_salad-v0"
SIZE = {"width": 1200, "height": 600}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for model in ("random", "expert"):
            config = RunConfig(registry.TASKS[TASK], model, episodes=10)
            evaluate(config, Path(folder), lambda model=model: make_policy(model))  # type: ignore[misc]
            runs.append(config.folder(Path(folder)))
        page_file = Path(folder) / "report.html"
        page_file.write_text(report.render(report.gather(runs), "Random player and expert in the kitchen", replays=2))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport=SIZE)
            page.goto(f"{page_file.as_uri()}#e=0")
            page.wait_for_timeout(2000)
            page.screenshot(path=PICTURE)
            browser.close()
    print(PICTURE)


if __name__ == "__main__":
    main()
