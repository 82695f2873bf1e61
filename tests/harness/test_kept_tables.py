"""Committed paper tables: pages and summaries match their records, and the records replay."""

import json
from pathlib import Path

import pytest

from harness import records
from harness.provenance.replay import check
from harness.stats.summary import summarise
from harness.suites.paper_pages import pages
from harness.suites.published import tables

TABLES = Path(__file__).resolve().parents[2] / "leaderboards" / "tables"
RUNS = sorted(path.parent for path in TABLES.glob("records/*/*/summary.json"))


def test_every_stored_page_equals_the_rendering_of_its_records(monkeypatch):
    monkeypatch.chdir(TABLES.parents[1])  # the pages name skipped runs by their relative path
    rendered = pages(Path("leaderboards"))
    assert len(rendered) == len(tables())
    for path, text in rendered.items():
        assert path.read_text() == text, f"{path} does not match its records: make leaderboards"


def test_every_stored_page_has_our_row_or_the_reason_it_has_none():
    for name in tables():
        page = (TABLES / f"{name}.md").read_text()
        assert ("| ours: " in page) != ("- no row of ours: " in page), name


def to_seven_digits(text: str) -> float:
    """Returns a number as a page could show it: bounds are found by iteration, up to about 1e-10."""
    return round(float(text), 7)


def test_stored_summaries_equal_the_summaries_of_their_records():
    complete = [folder for folder in RUNS if (folder / "results.jsonl.gz").exists()]
    assert len(complete) > 20
    small = [folder for folder in complete if (folder / "results.jsonl.gz").stat().st_size < 20_000][:8]
    for folder in small:
        stored = records.read_results(folder / "results.jsonl.gz")
        summary = json.loads((folder / "summary.json").read_text(), parse_float=to_seven_digits)
        again = json.loads(json.dumps(summarise(stored)), parse_float=to_seven_digits)
        assert {key: summary[key] for key in again} == again, folder
        assert {record["task"] for record in stored} == {summary["task"]}


@pytest.mark.parametrize("name", ["VirtualHome-laundry-v0--expert", "BabyAI-putnext-v0--expert"])
def test_stored_records_replay(name):
    (file,) = (TABLES / "records" / name).glob("*/results.jsonl.gz")
    verdicts = [difference for _, difference in check(file, num_workers=0)]
    assert verdicts and not any(verdicts)


def test_a_truncated_archive_is_named(tmp_path):
    (file,) = (TABLES / "records" / "BabyAI-putnext-v0--expert").glob("*/results.jsonl.gz")
    (tmp_path / "torn.jsonl.gz").write_bytes(file.read_bytes()[:-40])
    with pytest.raises(records.DataError, match=r"torn\.jsonl\.gz is not a whole gzip file"):
        records.read_results(tmp_path / "torn.jsonl.gz")
