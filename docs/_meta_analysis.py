"""Writes docs/explanation/meta-analysis.md and its pictures from the stored numbers: `make meta-analysis`."""

from __future__ import annotations

from pathlib import Path

from envsuite.cache import write_atomically
from harness.suites import leaderboard_pages, meta_analysis
from harness.suites.forest_plot import draw

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanation" / "meta-analysis.md"
TASKS = ("TextWorld-w2-o3-q4-v0", "BabyAI-goto-v0", "ALFWorld-valid_seen-v0")
INTRODUCTION = """# Everything about one task

Each picture shows every published number that one of our tables maps to a task, and every run of ours
on it. Blue: published, with the 95 % interval that the source allows. Hollow: the source gives neither
games nor a spread. Orange: ours. [Statistics](statistics.md#comparing-with-a-published-number)
explains the intervals and the words; [Suites and tables](../reference/suites.md) the protocols.

`envsuite table --task TASK` prints the same for any task of the tables, with your own runs.
"""


def files() -> dict[Path, str]:
    """Returns the page and its pictures by path."""
    sections = []
    pictures = {}
    for task in TASKS:
        boards = leaderboard_pages.folders(ROOT / "leaderboards")
        entries = meta_analysis.collect(task, [ROOT / "leaderboards" / "tables" / "records"], boards)
        picture = ROOT / "docs" / "images" / f"meta-{task}.svg"
        pictures[picture] = draw(f"{task}: published numbers and our runs", meta_analysis.lines(entries))
        sections.append(meta_analysis.page(task, entries, f"../images/{picture.name}"))
    return {PAGE: "\n".join([INTRODUCTION, *sections]).rstrip() + "\n", **pictures}


def main() -> None:
    for path, text in files().items():
        write_atomically(path, text)
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
