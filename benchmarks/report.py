"""Ten thousand episodes in one HTML file: how large it is, and how soon a browser can use it.

    python -m benchmarks.report [--write]

Records of two runs of 50 real games (random player, BabyAI goto) are repeated under other seeds to 10,000
episodes. Chromium opens the file from disk; times are of the page's own clock, from the start of navigation.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from envsuite import registry
from harness import records, report
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy

EPISODES, RUNS = 10_000, 2


def material(root: Path) -> list[Path]:
    config = RunConfig(registry.TASKS["BabyAI-goto-v0"], "random", episodes=50)
    evaluate(config, root / "real", lambda: make_policy("random"))
    real = config.folder(root / "real")
    lines = records.read_results(real / "results.jsonl")
    folders = []
    for number in range(RUNS):
        folder = root / f"run{number}"
        folder.mkdir()
        shutil.copy(real / "config.json", folder)
        each = EPISODES // RUNS
        many = ({**lines[(7 * seed + number) % len(lines)], "seed": seed} for seed in range(each))
        (folder / "results.jsonl").write_bytes(b"".join(map(records.dump, many)))
        folders.append(folder)
    return folders


def main() -> None:
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        root = Path(name)
        folders = material(root)
        began = time.perf_counter()
        page_text = report.render(report.gather(folders), replays=10)
        writing = time.perf_counter() - began
        file = root / "report.html"
        file.write_text(page_text)
        raw = sum((folder / "results.jsonl").stat().st_size for folder in folders)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(file.as_uri(), wait_until="commit")
        page.wait_for_selector("html[data-ready]")
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN"
        painted = page.evaluate(paint)
        ready = page.evaluate("performance.getEntriesByName('ready')[0].startTime")
        timed = """async act => { const t = performance.now(); act === 'open'
            ? document.querySelector('#table tbody tr:nth-child(9)').click()
            : document.querySelector('#by-ending').dispatchEvent(new Event('change'));
            while (act === 'open' && !document.querySelector('dialog[open]')) await new Promise(r => setTimeout(r, 1));
            return performance.now() - t }"""
        filtering, opening = page.evaluate(timed, "filter"), page.evaluate(timed, "open")
        page.keyboard.press("Escape")
        page.fill("#search", "a red ball")
        began = time.perf_counter()
        page.locator("#deep").click()
        page.locator("#count", has_text="found in transcripts").wait_for()
        searching = time.perf_counter() - began
        browser.close()
    rows = [
        ("results.jsonl together", f"{raw / 2**20:.1f} MB"),
        ("the file", f"{len(page_text.encode()) / 2**20:.1f} MB"),
        ("written in", f"{writing:.1f} s"),
        ("first paint", f"{painted / 1000:.2f} s"),
        ("summary and table ready", f"{ready / 1000:.2f} s"),
        ("a filter", f"{filtering:.0f} ms"),
        ("opening an episode, its chunk decoded", f"{opening:.0f} ms"),
        ("searching all transcripts", f"{searching:.1f} s"),
    ]
    text = f"# A report of {EPISODES:,} episodes\n\n"
    text += "BabyAI goto, random player, 20 episodes with pictures; Chromium, headless, file from disk. `python -m benchmarks.report --write`\n\n"
    text += "| | |\n|---|---|\n" + "".join(f"| {what} | {value} |\n" for what, value in rows)
    print(text)
    print(json.dumps(dict(rows)), file=sys.stderr)
    if "--write" in sys.argv:
        Path(__file__).with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
