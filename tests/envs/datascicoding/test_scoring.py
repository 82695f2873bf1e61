"""DataSciCoding: AUC, splits, holdout and the knobs of difficulty."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envsuite.envs.datascicoding import datasets, instances, metrics
from envsuite.errors import UsageError
from tests.envs.datascicoding.programs import PLAIN, game

pytest.importorskip("sklearn", reason="the datascicoding extra is not installed")


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 5), st.integers(0, 2**32 - 1), st.booleans())
def test_the_auc_is_scikit_learns(classes, seed, ties):
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), rng.integers(classes, size=40)])
    values = rng.dirichlet(np.ones(classes), size=len(labels))
    if ties:
        values = values.round(1) + 0.01
        values /= values.sum(axis=1, keepdims=True)
    ours = metrics.mean_auc(labels, values, np.arange(classes))
    if classes == 2:
        theirs = roc_auc_score(labels, values[:, 1])
    else:
        theirs = roc_auc_score(labels, values, multi_class="ovo", average="macro")
    assert ours == pytest.approx(theirs, abs=1e-12)


def test_a_class_that_the_test_rows_lack_is_left_out():
    labels, values = np.array([0, 0, 1]), np.array([[0.8, 0.1, 0.1], [0.7, 0.2, 0.1], [0.2, 0.7, 0.1]])
    assert metrics.mean_auc(labels, values, np.arange(3)) == 1.0
    assert metrics.mean_auc(np.zeros(3, int), values, np.arange(3)) == 0.5


def test_the_splits_are_the_papers_with_shuffled_rows_and_a_fresh_index():
    from sklearn.model_selection import train_test_split

    made = game("iris")
    rows = {tuple(row): number for number, row in enumerate(made.features.to_numpy())}
    for number, (x_train, y_train, x_test, y_test) in enumerate(made.splits(5)):
        train, test = train_test_split(np.arange(150), test_size=0.5, random_state=number)
        paper = [sorted(map(tuple, made.features.to_numpy()[part])) for part in (train, test)]
        assert [sorted(map(tuple, part.to_numpy())) for part in (x_train, x_test)] == paper
        assert list(x_train.index) == list(range(75))
        for part, labels in ((x_train, y_train), (x_test, y_test)):
            assert all(
                made.labels[rows[tuple(row)]] == label for row, label in zip(part.to_numpy(), labels, strict=True)
            )
        assert [rows[tuple(row)] for row in x_test.to_numpy()] != list(test)


@pytest.mark.parametrize(
    ("positive", "negative", "area"),
    [([0.9, 0.8], [0.1, 0.2], 1.0), ([0.1], [0.9], 0.0), ([0.5, 0.9], [0.5], 0.75), ([], [0.3], 0.5), ([0.3], [], 0.5)],
)
def test_the_area_under_the_curve_counts_pairs_and_ties_half(positive, negative, area):
    assert metrics._auc(np.array(positive), np.array(negative)) == area


def held_rows(instance) -> set[tuple]:
    return set(map(tuple, instance.held_out()[0].to_numpy()))


def test_the_same_rows_are_held_out_whatever_the_seed_and_the_sample():
    everything = held_rows(game("breast-cancer", holdout=0.3))
    assert 100 < len(everything) < 240
    for seed, knobs in ((1, {}), (2, {"rows": 150}), (3, {"imbalance": 3.0})):
        assert held_rows(game("breast-cancer", seed, holdout=0.3, **knobs)) <= everything


def test_no_held_out_row_is_in_any_split_and_equal_rows_are_on_the_same_side():
    for name in ("breast-cancer", "iris", "wine"):
        instance = game(name, holdout=0.3)
        held = held_rows(instance)
        for x_train, _, x_test, _ in instance.splits(5):
            assert not held & {tuple(row) for part in (x_train, x_test) for row in part.to_numpy()}


def test_without_a_holdout_no_row_is_held_out():
    features, labels = game("iris").held_out()
    assert len(features) == len(labels) == 0


def test_each_knob_does_what_it_says():
    assert len(game(rows=100).labels) == 100
    noisy = game(noise=3).features
    assert noisy.shape[1] == 33
    assert sum(name.startswith("extra_") for name in noisy) == 3
    assert 0.08 < game(missing=0.1).features.isna().mean().mean() < 0.12
    text = game(categorical=0.5).features
    assert sum(text[name].dtype == object for name in text) == 15
    assert set(text.select_dtypes("object").stack()) <= set(instances.BANDS)
    counts = np.bincount(game(imbalance=5.0).labels)
    assert 4.5 < counts.max() / counts.min() < 5.5
    assert game().digest == game(seed=7).digest  # nothing is left to chance
    assert game(rows=100).digest != game(rows=100, seed=7).digest
    with pytest.raises(UsageError, match="set more rows"):
        game("iris", rows=6)


def test_text_columns_of_a_file_are_codes_unless_asked_for_as_text():
    import pandas as pd

    ships = {
        "Ship": [f"s{k}" for k in range(60)],
        "Planet": [("Earth", "Mars", "Europa", None)[k % 4] for k in range(60)],
        "Asleep": [k % 3 == 0 for k in range(60)],
        "Cabin": [f"{'BFG'[k % 3]}/{k % 5}" for k in range(60)],
        "Age": [20 + k % 7 for k in range(60)],
    }
    arrived = pd.Series([k % 2 == 0 for k in range(60)])
    table = datasets.Dataset("ships", "", pd.DataFrame(ships), arrived)
    codes = instances.instance(table, SimpleNamespace(**PLAIN), 0).features
    assert all(kind.kind == "f" for kind in codes.dtypes)
    assert codes["Planet"].isna().sum() == 15
    text = instances.instance(table, SimpleNamespace(**{**PLAIN, "categorical": 0.3}), 0).features
    assert [name for name in text if text[name].dtype == object] == ["Ship", "Planet"]
    assert set(text["Planet"].dropna()) == {"Earth", "Europa", "Mars"}
