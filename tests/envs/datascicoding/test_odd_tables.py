"""Odd files that users add as tables, names that are used again, and submissions of competitions with odd numbers."""

import os
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from envsuite.envs.datascicoding import datasets
from envsuite.envs.datascicoding.added import competition, preparation, storage
from envsuite.envs.datascicoding.added.reading import Format
from envsuite.errors import DataError, UsageError
from envsuite.sandbox import drivers

pytest.importorskip("sklearn", reason="the datascicoding extra is not installed")


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / "cache"))

    def _write(rows, header="x,y", name="t.csv"):
        path = tmp_path / name
        path.write_text("".join(f"{row}\n" for row in [header, *rows]))
        return path

    return _write


def rows(seed: int) -> list[str]:
    return [f"{x:.4f},{int(x > 0)}" for x in np.random.default_rng(seed).normal(size=200)]


def test_rows_that_are_longer_than_the_header_are_refused_because_columns_would_shift(write):
    for longer in ([f"{row}," for row in rows(0)], [f"row {row},{row}" for row in rows(0)]):
        with pytest.raises(DataError, match="more cells in its rows than names in its header"):
            storage.add(write(longer), "y")


def test_a_wrong_delimiter_and_a_long_cell_are_refused_in_one_line(write):
    for delimiter in ("||", '"', "\n"):
        with pytest.raises(UsageError, match="--delimiter"):
            storage.add(write(rows(0)), "y", options=Format(delimiter=delimiter))
    with pytest.raises(DataError, match="cannot be read as CSV: field larger"):
        storage.add(write(["a" * 200_000 + ",1", *rows(0)]), "y")


def test_a_csv_is_never_unpacked(write):
    assert len(storage.add(write(rows(0), name="t.csv.zst"), "y")[0].answers) == 200


def test_texts_of_numbers_are_a_target_of_regression(write):
    spelled = [f"{row.partition(',')[0]},1_{number:03}" for number, row in enumerate(rows(0))]
    with pytest.raises(UsageError, match="use --kind regression"):
        storage.add(write(spelled), "y")
    table, _ = storage.add(write(spelled), "y", kind="regression")
    assert table.answers.tolist() == [1000.0 + number for number in range(200)]


def test_decimals_of_parquet_are_numbers(write, tmp_path):
    pytest.importorskip("pyarrow", reason="the parquet extra is not installed")
    prices = [Decimal(number) / 8 for number in range(200)]
    weights = np.random.default_rng(0).normal(size=200)
    write([])
    pd.DataFrame({"price": prices, "weight": weights}).to_parquet(tmp_path / "t.parquet")
    table, _ = storage.add(tmp_path / "t.parquet", "price")
    assert table.is_regression
    assert table.answers.tolist() == [float(price) for price in prices]
    table, _ = storage.add(tmp_path / "t.parquet", "weight", "other")
    assert table.columns[0].categories is None


def test_zeros_of_either_sign_are_equal_rows():
    first, second = preparation.row_hashes(np.array([[0.0, 1.0], [-0.0, 1.0]]))
    assert first == second


def test_a_removed_name_can_be_used_for_another_table_at_once(write):
    earlier, _ = storage.add(write(rows(0)), "y", "mine")
    assert storage.load("mine") is storage.load("mine")
    storage.remove("mine")
    later, _ = storage.add(write(rows(1)), "y", "mine")
    assert later.digest != earlier.digest
    assert later.digest in storage.describe("mine")
    assert os.listdir(storage.cache_root() / "datascicoding" / "tables") == ["mine"]


def test_what_a_killed_add_left_is_no_table(write):
    storage.add(write(rows(0)), "y", "mine")
    folder = storage.cache_root() / "datascicoding" / "tables"
    (folder / "mine").rename(folder / ".new-abc")
    assert storage.names() == []


def test_submissions_whose_squares_overflow_are_refused():
    game = competition.Competition(storage.from_dataset(datasets.load("iris")))
    submission = game.files["sample_submission.csv"].decode()
    for number in ("1e200", "-1e101", "nan", "inf"):
        with pytest.raises(ValueError, match="not finite or beyond 1e\\+100"):
            game.scores(submission.replace("0.333333", number, 1).encode())
    assert all(map(np.isfinite, game.scores(submission.replace("0.333333", "1e100", 1).encode())))


def test_classes_that_end_with_a_space_and_used_names_of_ids_can_be_submitted(write):
    letters = np.random.default_rng(0).choice(["a ", "b", "c"], 300)
    values = [f"{number % 7},{number % 5},{number % 3},{letter}" for number, letter in enumerate(letters)]
    path = write(values, header="id,row_id,submission_id,answer")
    table, _ = storage.add(path, "answer", keep=("id", "row_id", "submission_id"))
    game = competition.Competition(table)
    assert game.header == ["id_2", "a ", "b", "c"]
    assert game.scores(game.files["sample_submission.csv"]) == (0.5, 0.5)


def test_every_form_marks_its_results_under_a_driver_that_hides_no_labels(build):
    for task in ("DataSciCoding-iris-v0", "DataSciCoding-generated-easy-v0"):
        env = build(task, "sparse")
        env.reset(seed=0)
        assert env.labels()["leaky"] == str(drivers.is_leaky(env.driver)).lower()
        env.driver = "process"
        assert env.labels()["leaky"] == "true"
