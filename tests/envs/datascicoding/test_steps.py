"""DataSciCoding in the form of CAAFE: feature steps that are kept if validation improves."""

import numpy as np
import pytest

from envsuite.envs.datascicoding.steps import scores
from envsuite.envs.datascicoding.steps.scores import StepScore

pytest.importorskip("sklearn", reason="the datascicoding extra is not installed")
TORQUES = (
    "def transform(df):\n    return df.assign(left=df['left-weight'] * df['left-distance'], "
    "right=df['right-weight'] * df['right-distance'])\n"
)
CONSTANT = "def transform(df):\n    return df.iloc[:, :1] * 0\n"


@pytest.fixture
def env(build):
    env = build("DataSciCoding-caafe-v0", splits=1, downstream=("logistic", "forest"), attempts=4)
    env.text, _ = env.reset(seed=0)
    return env


def test_the_criterion_is_the_gain_in_auc_plus_the_gain_in_accuracy():
    before = StepScore("ok", auc=0.8, accuracy=0.7)
    assert StepScore("ok", auc=0.85, accuracy=0.64).gain(before) == pytest.approx(-0.01)
    assert StepScore("ok", auc=0.78, accuracy=0.73).gain(before) == pytest.approx(0.01)


def test_steps_are_applied_in_turn_with_names_of_their_own():
    import pandas as pd

    codes = [
        "scale = 2\ndef transform(df):\n    return df.assign(b=df['a'] * scale)",
        "scale = 10\ndef transform(df):\n    return df.assign(c=df['b'] * scale)",
    ]
    names = {"np": np, "pd": pd}
    exec(scores.program(codes), names)
    made = names["transform"](pd.DataFrame({"a": [1, 2]}))
    assert made.to_dict("list") == {"a": [1, 2], "b": [2, 4], "c": [20, 40]}


def test_a_step_is_kept_if_it_helps_and_the_final_score_is_of_the_holdout(env):
    start = env._start
    assert f"Validation: ROC AUC {start.auc:.4f}, accuracy {start.accuracy:.4f}." in env.text
    text, reward, _, _, info = env.step(CONSTANT)
    assert "The step is discarded." in text
    assert reward == 0
    assert info["auc"] == start.final
    text, reward, _, _, info = env.step(TORQUES)
    assert "The step is kept." in text
    assert reward == info["auc"] - start.final > 0
    assert env._now.final == pytest.approx(np.mean(env._now.by_classifier))
    text, reward, _, _, info = env.step(TORQUES)  # again: it changes nothing, and so does not count twice
    assert "The step is discarded." in text
    assert reward == 0
    _, _, terminated, _, info = env.step("done")
    assert terminated
    assert info["metrics"]["kept"] == 1
    assert info["metrics"]["gain"] == pytest.approx(env._now.final - start.final)


def test_code_that_fails_costs_a_step_and_changes_nothing(env):
    for code, verdict, word in (
        ("def transform(df):\n    return df['no']", "exception", "KeyError: 'no' (line 2)"),
        ("def transform(df:", "exception", "SyntaxError"),
        ("x = 1", "exception", "no function transform"),
        ("def transform(df):\n    return df.head(3)", "exception", "returned 3 rows for"),
    ):
        text, reward, terminated, _, info = env.step(code)
        assert (info["verdict"], reward, info["is_action_valid"]) == (verdict, 0.0, False)
        assert word in text
    assert terminated
    assert not info["success"]
    assert info["auc"] == env._start.final


def test_no_step_gets_a_label(env):
    spy = "def transform(df):\n    import gc\n    found = [x for x in gc.get_objects() if isinstance(x, dict) and 'y_train' in x]\n    assert not found, 'labels'\n    assert not [name for name in df if 'target' in name]\n    return df\n"
    text, _, _, _, info = env.step(spy)
    assert info["verdict"] == "ok", text
