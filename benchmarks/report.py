"""Size and load time of a report with ten thousand episodes in one HTML file.

    python -m benchmarks.report [--write]

Measures two data sets. `one task`: records of 50 real games (random player, BabyAI goto), repeated with
other seeds to two runs of 5,000. `mixed`: 50 real games of each of four families, stored under 50 model
names each: 200 runs. Chromium opens the file from disk; times are taken by the page's clock from the
start of navigation. CPU times of the writer and of the page's process are printed too, as wall-clock
times mean little on a busy machine.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, sync_playwright

from envsuite import registry
from harness import records, report
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy

EPISODES, RUNS, GAMES = 10_000, 2, 50
MIXED = ("BabyAI-goto-v0", "ALFWorld-generated-v0", "Overcooked-easy-v0", "VirtualHome-food_preparation-v0")


def real(task: str, root: Path) -> tuple[dict[str, Any], list[records.Record]]:
    """Plays 50 games; returns (configuration, records)."""
    config = RunConfig(registry.TASKS[task], "random", episodes=GAMES)
    evaluate(config, root, lambda: make_policy("random"))
    folder = config.folder(root)
    return json.loads((folder / "config.json").read_text()), records.read_results(folder / "results.jsonl")


def keep(folder: Path, config: dict[str, Any], lines: Iterable[records.Record]) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "results.jsonl").write_bytes(b"".join(map(records.dump, lines)))
    return folder


def one_task(root: Path) -> list[Path]:
    config, lines = real(MIXED[0], root / "real")
    each = EPISODES // RUNS
    return [
        keep(
            root / f"run{number}",
            config,
            ({**lines[(7 * seed + number) % GAMES], "seed": seed} for seed in range(each)),
        )
        for number in range(RUNS)
    ]


def mixed(root: Path) -> list[Path]:
    folders = []
    for task in MIXED:
        config, lines = real(task, root / "real")
        for number in range(EPISODES // GAMES // len(MIXED)):
            name = f"model-{number}"
            folder = root / f"{task}--{name}"
            folders.append(keep(folder, {**config, "model": name}, ({**line, "model": name} for line in lines)))
    return folders


def measure(folders: list[Path], replays: int, browser: Browser, word: str, file: Path) -> dict[str, str]:
    began, spent = time.perf_counter(), time.process_time()
    page_text = report.render(report.gather(folders), replays=replays)
    writing, spent = time.perf_counter() - began, time.process_time() - spent
    print(f"{len(folders)} runs written in {writing:.0f} s", flush=True)
    file.write_text(page_text)
    raw = sum((folder / "results.jsonl").stat().st_size for folder in folders)
    page = browser.new_page()
    page.set_default_timeout(0)  # on a busy machine a search takes minutes
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def cpu() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(next(metric["value"] for metric in metrics if metric["name"] == "ProcessTime"))

    before = cpu()
    page.goto(file.as_uri(), wait_until="commit")
    page.wait_for_selector("html[data-ready]")
    reading = cpu() - before
    print(f"read with {reading:.2f} s of CPU", flush=True)
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
    page.fill("#search", word)
    began, before = time.perf_counter(), cpu()
    page.locator("#deep").click()
    page.locator("#count", has_text="found in transcripts").wait_for()
    searching, sought = time.perf_counter() - began, cpu() - before
    page.close()
    return {
        "runs": f"{len(folders)}",
        "episodes played again, for pictures": f"{replays * len(folders)}",
        "results.jsonl together": f"{raw / 2**20:.1f} MB",
        "the file": f"{len(page_text.encode()) / 2**20:.1f} MB",
        "written in (CPU)": f"{writing:.1f} s ({spent:.1f} s)",
        "first paint": f"{painted / 1000:.2f} s",
        "summary and table ready (CPU)": f"{ready / 1000:.2f} s ({reading:.2f} s)",
        "a filter": f"{filtering:.0f} ms",
        "opening an episode, its chunk decoded": f"{opening:.0f} ms",
        "searching all transcripts (CPU)": f"{searching:.1f} s ({sought:.1f} s)",
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as name, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        columns = []
        for make, replays, word in ((one_task, 10, "a red ball"), (mixed, 0, "a tomato")):
            root = Path(name) / make.__name__
            root.mkdir()
            columns.append(measure(make(root), replays, browser, word, root / "report.html"))
        browser.close()
    text = f"# A report of {EPISODES:,} episodes\n\n"
    text += (
        "Random player. One task: BabyAI goto, two runs. Mixed: four families, 200 runs. Chromium, headless, file from "
        "disk; load of the machine "
        + f"{os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
        + ". `python -m benchmarks.report --write`\n\n"
    )
    text += "| | one task | mixed |\n|---|--:|--:|\n"
    text += "".join(f"| {label} | {value} | {columns[1][label]} |\n" for label, value in columns[0].items())
    print(text)
    if "--write" in sys.argv:
        Path(__file__).with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
