"""DataSciCoding in the form of MLE-bench: files, submissions, medals, public and private scores."""

import io

import numpy as np
import pandas as pd
import pytest

from envsuite import registry
from envsuite.envs.datascicoding import datasets
from envsuite.envs.datascicoding.added import competition, leaderboards, programs, storage
from envsuite.envs.datascicoding.added.partition import HOLDOUT, TRAIN, VALIDATION
from envsuite.envs.datascicoding.metrics import METRICS
from envsuite.errors import DataError, UsageError
from envsuite.sandbox import drivers
from envsuite.sandbox.pool import Lease

pytest.importorskip("sklearn", reason="the datascicoding extra is not installed")


@pytest.fixture(scope="module")
def iris() -> competition.Competition:
    return competition.Competition(storage.from_dataset(datasets.load("iris")))


@pytest.fixture(scope="module")
def lease():
    lease = Lease(competition.SPEC, drivers.choose("auto", (*drivers.SAFE, "process")))
    yield lease
    lease.close()


def frames(game: competition.Competition) -> dict[str, pd.DataFrame]:
    return {name: pd.read_csv(io.BytesIO(content)) for name, content in game.files.items()}


@pytest.mark.parametrize(
    ("teams", "positions"),
    [
        (1, (1, 1, 1)), (9, (1, 1, 3)), (50, (5, 10, 20)), (99, (9, 19, 39)), (100, (10, 20, 40)), (249, (10, 49, 99)),
        (250, (10, 50, 100)), (999, (11, 50, 100)), (1000, (12, 50, 100)), (5000, (20, 250, 500)),
    ],
)  # fmt: skip
def test_medals_go_to_the_positions_of_mle_benchs_table(teams, positions):
    assert leaderboards.positions(teams) == positions
    scores = [1 - rank / teams for rank in range(teams)]
    limits = leaderboards.thresholds(scores)
    assert (limits.gold, limits.silver, limits.bronze) == tuple(scores[position - 1] for position in positions)
    assert limits.medal(scores[0]) == "gold"
    assert limits.medal(limits.bronze - 1e-9) == ""


def test_a_leaderboard_is_read_in_the_direction_of_its_metric(tmp_path):
    path = tmp_path / "board.csv"
    path.write_text("team,score\na,0.1\nb,0.2\nc,0.4\n")
    assert leaderboards.read(path, loss=True) == (-0.1, -0.2, -0.4)
    for text, loss, message in (
        ("team,score\na,0.1\nb,0.2\n", False, "must fall"),
        ("team,points\na,1\n", True, "no column 'score'"),
        ("team,score\na,many\n", True, "without a number"),
        ("team,score\n", True, "0 scores"),
        ("team,score\na,nan\n", True, "all finite"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            leaderboards.read(path, loss)


def test_the_files_hold_every_row_once_and_no_answer_of_a_test_row(iris):
    files = frames(iris)
    table = iris.table
    train, test, sample = (files[f"{name}.csv"] for name in ("train", "test", "sample_submission"))
    assert len(train) == (table.parts == TRAIN).sum()
    assert sorted([*train["id"], *test["id"]]) == list(range(150))
    assert list(test["id"]) == list(sample["id"]) == sorted(test["id"])
    assert set(train.columns) - set(test.columns) == {"target"}
    public = table.parts[iris.test_rows] == VALIDATION
    assert 0 < public.sum() < len(test)
    assert (table.parts[iris.test_rows[~public]] == HOLDOUT).all()
    assert abs(np.corrcoef(iris.ids, table.answers)[0, 1]) < 0.2  # iris is sorted by class


def test_public_and_private_scores_come_from_their_own_rows(iris):
    truth = np.eye(3)[iris.table.answers[iris.test_rows].astype(int)]
    public = iris.table.parts[iris.test_rows] == VALIDATION

    def submission(predictions: np.ndarray, order=slice(None)) -> bytes:
        frame = pd.DataFrame(predictions, columns=iris.header[1:])
        frame.insert(0, "id", iris.ids[iris.test_rows])
        return frame.iloc[order].to_csv(index=False).encode()

    assert iris.scores(submission(truth)) == (1.0, 1.0)
    assert iris.scores(submission(truth, slice(None, None, -1))) == (1.0, 1.0)
    assert iris.scores(submission(np.where(public[:, None], truth, 1 - truth))) == (1.0, 0.0)
    assert iris.scores(iris.files["sample_submission.csv"]) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("setosa", "Setosa"), "its columns are id, Setosa, versicolor, virginica, not id, setosa"),
        (lambda text: text + "7,0,0,0\n", "it has 61 rows, not 60"),
        (lambda text: text.rsplit("\n", 2)[0] + "\n", "it has 59 rows"),
        (lambda text: text.replace("0.333333", "nan", 1), "not finite"),
        (lambda text: text.replace("0.333333", "high", 1), "no number"),
        (lambda text: text.replace(",0.333333", "", 1), "no number, or a row of another length"),
        (lambda text: text.replace("\n", "\n5", 2).replace("\n5", "\n", 1), "ids are not those"),
        (lambda text: "", "its columns are none"),
        (lambda text: '"' * 7 + "\n", "its columns"),
    ],
)  # fmt: skip
def test_an_invalid_submission_says_why(iris, change, message):
    with pytest.raises(ValueError, match=message):
        iris.scores(change(iris.files["sample_submission.csv"].decode()).encode())
    with pytest.raises(ValueError, match="no UTF-8"):
        iris.scores(b"\xff\xfe\x00")


def test_metrics_agree_with_scikit_learn():
    from sklearn import metrics

    rng = np.random.default_rng(0)
    answers, numbers = rng.integers(3, size=200).astype(float), rng.normal(size=200)
    shares = rng.dirichlet([1, 1, 1], size=200)
    predicted = (numbers + rng.normal(size=200))[:, None]
    for name, expected in (
        ("auc", metrics.roc_auc_score(answers, shares, multi_class="ovo")),
        ("accuracy", metrics.accuracy_score(answers, shares.argmax(axis=1))),
        ("log_loss", -metrics.log_loss(answers, shares)),
    ):
        assert METRICS[name].score(answers, shares) == pytest.approx(expected, abs=1e-12)
    for name, expected in (
        ("r2", metrics.r2_score(numbers, predicted[:, 0])),
        ("rmse", -metrics.root_mean_squared_error(numbers, predicted[:, 0])),
        ("mae", -metrics.mean_absolute_error(numbers, predicted[:, 0])),
    ):
        assert METRICS[name].score(numbers, predicted) == pytest.approx(expected, abs=1e-12)


def test_scripts_that_hand_in_nothing_fail_and_leave_nothing_behind(lease):
    env = registry.build("DataSciCoding-mle-v0", "dense", dataset=("balance-scale",), sandbox=lease.driver)
    try:
        env.reset(seed=0)
        for script, verdict in (
            ("print('done')", "bad_return"),
            ("open('submission.csv', 'w').write('id\\n')\nraise SystemExit(3)", "exit"),
            ("import os\nos._exit(0)", "exit"),
            ("def f(:", "syntax_error"),
            (
                "open('train.csv').read(); open('/etc/shadow').read()" if lease.driver != "process" else "1/0",
                "exception",
            ),
        ):
            text, reward, _, _, info = env.step(script)
            assert (info["verdict"], reward, info["medal"]) == (verdict, -1.0, ""), text
    finally:
        env.close()


def test_the_expert_wins_gold_and_the_sample_submission_nothing(lease, tmp_path, monkeypatch):
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=400), "b": rng.choice(["u", "v"], 400)})
    frame["price"] = frame["a"] + 2 * (frame["b"] == "u") + rng.normal(size=400)
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(UsageError, match="A regression has no metric 'auc'"):
        storage.add(tmp_path / "t.csv", "price", metric="auc")
    storage.add(tmp_path / "t.csv", "price", metric="rmse")
    monkeypatch.setattr(programs, "reference", lambda classes: programs.linear("numbers"))  # a fast one
    env = registry.build("DataSciCoding-mle-v0", "dense", table="t", mode="improve", sandbox=lease.driver)
    try:
        _, info = env.reset(seed=0)
        assert "The metric is rmse; lower is better." in info["objective"]
        assert info["labels"]["medals_from"] == "baselines"
        text, reward, _, _, info = env.step(programs.SAMPLE)
        assert (reward, info["medal"], info["is_action_valid"]) == (0.0, "", True)
        text, reward, _, _, info = env.step(env.expert())
        assert (reward, info["medal"]) == (1.0, "gold")
        public = float(text.split("Public score ")[1].split()[0])
        _, _, terminated, _, info = env.step("done")
        assert terminated
        assert info["success"]
        assert info["metrics"]["public_score"] == pytest.approx(public, abs=1e-4)
        assert info["metrics"]["private_score"] == -env.thresholds().gold != info["metrics"]["public_score"]
    finally:
        env.close()
