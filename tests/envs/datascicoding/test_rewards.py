"""DataSciCoding: verdicts on programs, endings and rewards."""

import threading

import pytest

from envsuite.envs.datascicoding import pipelines, scoring
from envsuite.sandbox import HostKill
from tests.envs.datascicoding.programs import CONSTANT, STUMP
from tests.sandbox.killing import kill_sleeper, new_marker

pytest.importorskip("sklearn", reason="the datascicoding extra is not installed")


def test_what_is_shown_comes_from_the_halves_and_what_counts_from_the_holdout(build):
    env = build(task="DataSciCoding-breast-cancer-v0")
    assert "which is not shown" in env.instructions
    env.reset(seed=0)
    text, reward, *_, info = env.step(STUMP)
    score = env._best
    assert f"Mean ROC AUC {score.shown_auc:.4f}" in text
    assert reward == info["auc"] == score.auc != score.shown_auc
    assert f"{score.auc:.4f}" not in text


def test_errors_are_short_and_ascii(build):
    env = build(task="DataSciCoding-iris-v0")
    env.reset(seed=0)
    text = env.step("def build_model(x, y): raise ValueError('ä' + 'x' * 500)")[0]
    assert text.isascii()
    assert len(text) < 200


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
    env = build(penalty=-0.7, splits=1)
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


def test_a_submission_that_the_machine_kills_is_repeated_and_then_a_fault_and_no_score(build):
    env = build(splits=1)
    if env.driver == "process":
        pytest.skip("needs bubblewrap, Landlock or Docker: apt-get install bubblewrap")
    env.reset(seed=0)
    marker = new_marker()
    killer = threading.Thread(target=kill_sleeper, args=(marker, 2))
    killer.start()
    with pytest.raises(HostKill, match="The machine killed a run"):
        env.step(f"import os\nos.execv('/bin/sleep', ['sleep', {marker!r}])")
    killer.join()
