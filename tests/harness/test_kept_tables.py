"""The tables under leaderboards/ are what their records give, and the records are what is played."""

import json
from pathlib import Path

import pytest

from harness import records
from harness.cli.common.paper_tables import as_markdown
from harness.replay import check
from harness.stats.summary import summarise
from harness.suites.published import table, tables

KEPT = Path(__file__).resolve().parents[2] / "leaderboards" / "tables"
RUNS = sorted(path.parent for path in KEPT.glob("records/*/*/summary.json"))


def test_every_kept_page_is_byte_for_byte_what_its_records_print(monkeypatch):
    monkeypatch.chdir(
        KEPT.parents[1]
    )  # runs that are left out are named by their path, as the pages' command spells it
    kept = Path("leaderboards/tables")
    for name in tables():
        found = table(name, [kept / "records"], studies=kept.parent / "training")
        assert (kept / f"{name}.md").read_text() == as_markdown(found) + "\n", name


def test_every_kept_page_has_a_row_of_ours_or_says_why_there_is_none():
    for name in tables():
        page = (KEPT / f"{name}.md").read_text()
        assert ("| ours: " in page) != ("- no row of ours: " in page), name


def test_kept_summaries_are_the_numbers_of_their_records():
    whole = [folder for folder in RUNS if (folder / "results.jsonl.gz").exists()]
    assert len(whole) > 20
    small = [folder for folder in whole if (folder / "results.jsonl.gz").stat().st_size < 20_000][:8]
    for folder in small:
        found = records.read_results(folder / "results.jsonl.gz")
        kept = json.loads((folder / "summary.json").read_text())
        again = json.loads(json.dumps(summarise(found)))
        assert {key: kept[key] for key in again} == again, folder
        assert {one["task"] for one in found} == {kept["task"]}


@pytest.mark.parametrize("name", ["VirtualHome-laundry-v0--expert", "BabyAI-putnext-v0--expert"])
def test_kept_records_replay(name):
    (file,) = (KEPT / "records" / name).glob("*/results.jsonl.gz")
    verdicts = [difference for _, difference in check(file, num_workers=0)]
    assert verdicts and not any(verdicts)


def test_a_torn_archive_is_named(tmp_path):
    (file,) = (KEPT / "records" / "BabyAI-putnext-v0--expert").glob("*/results.jsonl.gz")
    (tmp_path / "torn.jsonl.gz").write_bytes(file.read_bytes()[:-40])
    with pytest.raises(records.DataError, match=r"torn\.jsonl\.gz is not a whole gzip file"):
        records.read_results(tmp_path / "torn.jsonl.gz")
