"""Tables that users add: findings, refusals, splits, storage, the command, and episodes."""

import json
import os

import numpy as np
import pandas as pd
import pytest

from envsuite.envs.datascicoding.added import storage
from envsuite.envs.datascicoding.added.partition import HOLDOUT, PARTS, TRAIN
from envsuite.errors import BadKnob, DataError, EnvsuiteError, MissingData, UsageError
from harness.cli import data as command

pytest.importorskip("sklearn", reason="the datascicoding extra is not installed")


def table(rows: int = 300) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.normal(size=rows).round(5)
    label = np.where(x + rng.normal(size=rows) > 0, "ja", "nein")
    return pd.DataFrame({"x": x, "colour": rng.choice(["rot", "grün", "blau"], rows), "answer": label})


@pytest.fixture
def add(tmp_path, monkeypatch):
    """Writes a table as CSV, adds it, and returns it with the findings by (kind, column)."""
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / "cache"))

    def _add(frame: pd.DataFrame, name="mine", target="answer", **options):
        path = tmp_path / f"{name}.csv"
        frame.to_csv(path, index=False)
        stored, findings = storage.add(path, target, name, **options)
        assert all("\n" not in finding.line() for finding in findings)
        return stored, {(finding.kind, finding.column): finding for finding in findings}

    return _add


def test_csv_in_other_dialects_and_parquet_give_the_same_table(add, tmp_path):
    pytest.importorskip("pyarrow", reason="the parquet extra is not installed")
    frame = table()
    plain, _ = add(frame)
    frame.to_csv(tmp_path / "semicolon.csv", index=False, sep=";", decimal=",", encoding="cp1252")
    frame.to_csv(tmp_path / "tabs.tsv", index=False, sep="\t", encoding="utf-16")
    frame.to_parquet(tmp_path / "table.parquet")
    for file, kinds in (
        ("semicolon.csv", {"encoding", "delimiter", "decimal"}),
        ("tabs.tsv", {"encoding", "delimiter"}),
        ("table.parquet", set()),
    ):
        stored, findings = storage.add(tmp_path / file, "answer")
        assert stored.digest == plain.digest
        assert {finding.kind for finding in findings} - {"target"} == kinds


def test_parquet_without_pyarrow_names_the_extra(add, tmp_path, monkeypatch):
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and more")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(EnvsuiteError, match=r"pip install 'envsuite\[parquet\]'"):
        storage.add(tmp_path / "t.parquet", "answer", "mine")


COLUMNS = {
    "constant": ("constant", lambda frame: 1, True),
    "empty": ("constant", lambda frame: np.nan, True),
    "copy": ("copy", lambda frame: frame["x"], True),
    "renamed target": ("leak", lambda frame: frame["answer"].map({"ja": 7, "nein": 3}), True),
    "later": ("leak", lambda frame: (frame["answer"] == "ja") * 5 + np.arange(len(frame)) % 3, False),
    "score": ("leak", lambda frame: (frame["answer"] == "ja") + np.linspace(0, 0.5, len(frame)), False),
    "id": ("id", lambda frame: np.arange(len(frame)) + 1000, True),
    "code": ("id", lambda frame: [f"u{number}" for number in range(len(frame))], True),
    "day": ("date", lambda frame: pd.date_range("2024-01-01", periods=len(frame)).strftime("%Y-%m-%d"), False),
    "essay": ("text", lambda frame: ["word " * (60 + number % 7) for number in range(len(frame))], True),
    "sparse": ("missing", lambda frame: frame["x"].round(1).where(frame.index % 3 == 0), False),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_that_cannot_help_or_gives_the_target_away_is_reported(add, name):
    kind, values, removed = COLUMNS[name]
    frame = table()
    frame.insert(1, name, values(frame))
    stored, findings = add(frame)
    assert findings[kind, name].removed is removed
    assert (name in [column.name for column in stored.columns]) is not removed
    stored, findings = add(frame, "second", keep=[name])
    assert name in [column.name for column in stored.columns]
    assert not any(finding.removed for finding in findings.values())


def test_a_clean_table_has_no_findings_but_its_kind(add):
    _, findings = add(table())
    assert set(findings) == {("target", "answer")}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.assign(answer="ja"), "holds only the value 'ja'"),
        (lambda frame: frame.assign(answer=None), "holds no value"),
        (lambda frame: frame.assign(answer=[f"c{n}" for n in range(len(frame))]), "300 classes; at most 50"),
        (lambda frame: frame.assign(answer=["1.5"] * 290 + ["n.a"] * 10, x=0).assign(answer=[*map(str, range(299)), "n.a."]), r"numbers except for 'n\.a\.'"),
        (lambda frame: frame.assign(answer=["rare"] * 9 + list(frame["answer"][9:])), "'rare' .* 9 rows"),
        (lambda frame: frame.rename(columns={"answer": "anwser"}), "Did you mean 'anwser'"),
        (lambda frame: frame.head(40), "40 rows with a target; at least 50"),
        (lambda frame: frame[["answer"]].assign(constant=1), "No column is left"),
        (lambda frame: frame[["answer"]], "one column"),
        (lambda frame: frame.head(0), "a header and no rows"),
        (lambda frame: frame.rename(columns={"colour": "x "}), "two columns 'x'"),
        (lambda frame: pd.concat([frame, *[frame.tail(1).assign(answer="other")] * 60]), "equal rows stay"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_played_is_one_line_and_stores_nothing(add, change, message):
    with pytest.raises((UsageError, DataError), match=message) as caught:
        add(change(table()))
    assert "\n" not in str(caught.value)
    assert storage.names() == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        (b"", "is empty"),
        (b"\x89PNG\0\0", "null bytes"),
        (b'a,answer\n1,2\n3,4,5,6\n"x', "cannot be read as CSV"),
        (b"PAR1 and nothing else", "cannot be read as Parquet"),
        (b"a|b\n" * 60, "no column 'answer'"),
        (b"x," * 2100 + b"answer\n", "2,101 columns; at most 2,000"),
    ],
)
def test_a_file_that_is_no_table_is_one_line(add, tmp_path, content, message):
    path = tmp_path / "file.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises((UsageError, DataError), match=message) as caught:
        storage.add(path, "answer")
    assert "\n" not in str(caught.value)


def test_the_kind_follows_from_the_target_or_the_flag(add):
    frame = table().assign(number=np.arange(300) % 30, few=np.arange(300) % 5)
    assert add(frame, "a", target="number")[0].is_regression
    assert add(frame, "b", target="few")[0].classes == ("0", "1", "2", "3", "4")
    assert add(frame, "c", target="few", kind="regression")[0].is_regression
    assert len(add(frame, "d", target="number", kind="classification")[0].classes) == 30
    with pytest.raises(UsageError, match="holds 'ja', which is no number"):
        add(frame, "e", kind="regression")


def test_equal_rows_and_all_classes_are_on_their_sides_of_the_split(add):
    frame = pd.concat([table(1000), table(1000).head(400)])
    frame.loc[frame.index % 50 == 0, "answer"] = "rare"
    stored, findings = add(frame)
    assert ("duplicates", "") in findings
    shares = np.bincount(stored.parts, minlength=3) / len(stored.parts)
    assert shares == pytest.approx([0.6, 0.2, 0.2], abs=0.02)
    rows = [{row.tobytes() for row in stored.values[stored.parts == part]} for part in range(len(PARTS))]
    assert not rows[0] & rows[1]
    assert not rows[0] & rows[2]
    assert not rows[1] & rows[2]
    for part in range(len(PARTS)):
        counts = np.bincount(stored.answers[stored.parts == part].astype(int), minlength=3)
        assert counts / counts.sum() == pytest.approx(np.bincount(stored.answers.astype(int)) / len(frame), abs=0.03)


def test_a_split_by_time_holds_out_the_last_rows(add):
    frame = table().assign(day=pd.date_range("2024-01-01", periods=300).strftime("%Y-%m-%d"))
    stored, _ = add(frame, time="day")
    days = stored.values[:, [column.name for column in stored.columns].index("day")]
    assert days[stored.parts == HOLDOUT].min() > days[stored.parts != HOLDOUT].max()
    for column, message in (("colour", "holds text"), ("size", "no such column")):
        with pytest.raises(UsageError, match=message):
            add(frame, "other", time=column)


def test_a_stored_table_is_found_again_until_it_is_changed_or_removed(add):
    stored, _ = add(table())
    with pytest.raises(UsageError, match="already there as 'mine'"):
        add(table())
    with pytest.raises(UsageError, match="another table 'mine'"):
        add(table(200))
    assert storage.names() == ["mine"]
    frame = stored.frame(np.arange(300))
    assert frame["colour"].tolist() == table()["colour"].tolist()
    folder = storage._folder("mine")
    values = np.load(folder / "values.npy")
    values[0, 0] += 1
    np.save(folder / "values.npy", values)
    storage._load.cache_clear()
    with pytest.raises(DataError, match="was changed"):
        storage.load("mine")
    storage.remove("mine")
    with pytest.raises(MissingData, match="envsuite data add FILE --target COLUMN"):
        storage.load("mine")


def test_what_a_killed_process_left_is_removed_after_a_day(add):
    parent = storage._folder("mine").parent
    old, new = parent / ".new-old", parent / ".new-new"
    for folder in (old, new):
        folder.mkdir(parents=True)
    os.utime(old, (0, 0))
    add(table())
    assert not old.exists()
    assert new.exists()
    assert storage.names() == ["mine"]


@pytest.mark.parametrize("name", ["../up", "Upper", "", "iris", "a" * 50])
def test_a_name_that_is_no_folder_is_refused(add, name, tmp_path):
    table().to_csv(tmp_path / "t.csv", index=False)
    if name:
        with pytest.raises(UsageError, match=r"cannot be called|is a data set of envsuite"):
            storage.add(tmp_path / "t.csv", "answer", name)
    with pytest.raises(MissingData, match="There is no table" if name else "No table is named"):
        storage.load(name)


def test_the_command_adds_lists_and_removes(add, tmp_path, capsys):
    table().to_csv(tmp_path / "My Table.csv", index=False)

    def run(*words: str) -> str:
        try:
            command.main(list(words))
        except SystemExit as end:
            if end.code:
                return capsys.readouterr().err
        return capsys.readouterr().out

    file = str(tmp_path / "My Table.csv")
    assert "needs --target" in run("add", file)
    assert "takes one file" in run("add", "mine", file, "--target", "answer")
    assert "holds 2 different values" in run("add", file, "--target", "answer")
    assert run("list").startswith("my-table ")
    assert "300 rows (179 train, 60 validation, 61 holdout), 2 columns" in run("list")
    assert "removed" in run("remove", "my-table")
    assert "There is no table" in run("remove", "my-table")


def test_an_episode_scores_the_holdout_and_shows_the_validation_rows(build, add):
    add(table())
    env = build("DataSciCoding-local-v0", table="mine", margin=0.05)
    text, info = env.reset(seed=0)
    assert "x_train has 179 rows and 2 columns" in text
    assert info["labels"]["digest"] == env.table.digest
    command = env.expert()
    text, reward, terminated, _, info = env.step(command)
    assert terminated
    assert info["success"]
    assert f"ROC AUC {info['metrics']['validation']:.4f} on the validation rows" in text
    assert reward == info["metrics"]["auc"] != info["metrics"]["validation"]
    json.dumps(info["metrics"])


def test_a_target_of_numbers_is_scored_by_r2(build, add):
    frame = table()
    frame["price"] = 2 * frame["x"] + (frame["colour"] == "rot") + np.random.default_rng(1).normal(size=300)
    add(frame.drop(columns="answer"), target="price")
    env = build("DataSciCoding-local-v0", table="mine", attempts=3)
    env.reset(seed=0)
    constant = "from sklearn.dummy import DummyRegressor\ndef build_model(x, y):\n    return DummyRegressor().fit(x, y)"
    _, reward, _, _, info = env.step(constant)
    assert reward == 0
    assert not info["success"]
    env.reset(seed=0)
    assert not env.step("def build_model(x, y):\n    return y.mean()")[4]["is_action_valid"]
    _, reward, _, _, info = env.step(env.expert())
    assert info["success"]
    assert 0.5 < reward < 0.95


def test_no_row_of_the_holdout_or_the_validation_part_is_for_training(build, add):
    stored, _ = add(pd.concat([table(200), table(200)]))
    env = build("DataSciCoding-local-v0", table="mine", rows=60)
    for seed in range(3):
        env.reset(seed=seed)
        assert set(env.game.train) <= set(stored.rows(TRAIN))
        assert len(env.game.train) == 60
    assert len({env.game.digest for seed in range(3) if env.reset(seed=seed)}) == 3


def test_the_table_must_be_named(build, add):
    with pytest.raises(MissingData, match="No table is named: write --set table=NAME"):
        build("DataSciCoding-local-v0")
    with pytest.raises(BadKnob):
        build("DataSciCoding-local-v0", dataset="iris")
