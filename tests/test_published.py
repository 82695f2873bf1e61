"""Published numbers are there, and ours are laid beside them or refused."""

import json

import pytest

from envsuite import registry
from envsuite.errors import UsageError
from harness import published, suites
from harness.published import Cell, verdict


def test_all_published_numbers_are_in_the_package():
    found = published.records()
    assert len(found) == 1687
    assert all(one["source"] and one["paper"] for one in found)


@pytest.mark.parametrize("name", published.tables())
def test_every_column_of_every_table_has_numbers_and_a_task(name):
    found = published.table(name)
    assert found.suite in suites.read()
    for variant, task in found.columns.items():
        assert task in registry.TASKS, task
        assert any(variant in row.cells for row in found.rows), f"{variant} is in no published row"


def test_the_printed_numbers_are_the_papers():
    cells = {row.label: row.cells for row in published.table("guide-1").rows}
    base = next(label for label in cells if "zero-shot" in label)
    assert cells[base]["w2-o3-q4"].value == 0.17


def summary(folder, model, **changes):
    base = {
        "task": "TextWorld-w2-o3-q4-v0", "knobs": {}, "model": model, "metrics": {}, "reward_mode": "sparse",
        "success": {"value": 0.1, "low": 0.05, "high": 0.18, "n": 100},
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps({**base, **changes}))


def test_our_runs_stand_beside_and_two_protocols_are_refused(tmp_path):
    summary(tmp_path / "a", "random")
    ours = [row for row in published.table("guide-1", [tmp_path]).rows if row.ours]
    assert ours[0].cells == {"w2-o3-q4": Cell(0.1, 0.05, 0.18, 100)}
    assert len(published.missing(published.table("guide-1", [tmp_path]), "random")) == 3
    summary(tmp_path / "b", "random", task="TextWorld-w8-o3-q4-v0", max_turns=3)
    with pytest.raises(UsageError, match="differs in protocol"):
        published.table("guide-1", [tmp_path])


def test_verdicts():
    assert verdict(Cell(0.17), Cell(0.15, 0.1, 0.2, 100)) == "within interval"
    assert verdict(Cell(0.17, 0.14, 0.2), Cell(0.15, 0.1, 0.2, 100)) == "reproduced"
    assert verdict(Cell(0.9), Cell(0.15, 0.1, 0.2, 100)) == "deviates"
