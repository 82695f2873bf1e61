"""DataSciCoding: programs with bugs, features, improvement, and the ladder of levels."""

import pytest

from envsuite.envs.datascicoding import pipelines
from envsuite.envs.datascicoding.replies import extract
from tests.envs.datascicoding.programs import CONSTANT, STUMP

pytest.importorskip("sklearn", reason="the datascicoding extra is not installed")


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
        env = build(task=f"DataSciCoding-debug-b{bugs}-v0", mode="sparse", dataset=("iris",), splits=1)
        for seed in range(2):
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


@pytest.mark.parametrize(("splits", "seeds"), [(1, 3), pytest.param(5, 9, marks=pytest.mark.slow)])
def test_every_row_of_the_ladder_is_won_by_the_expert(build, splits, seeds):
    for level in ("easy", "medium", "hard"):
        env = build(task=f"DataSciCoding-{level}-v0", mode="sparse", splits=splits)
        for seed in range(seeds):
            env.reset(seed=seed)
            assert env.step(env.expert())[4]["success"], (level, seed)


def test_improving_counts_the_program_with_the_best_score_shown(build):
    env = build(task="DataSciCoding-improve-v1", dataset=("breast-cancer",))
    env.reset(seed=0)
    rewards = [env.step(code)[1] for code in (STUMP, env.expert(), CONSTANT)]
    assert sum(rewards) == pytest.approx(env._best.auc)
    assert rewards[2] == 0.0


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


def test_the_blend_is_an_expert_and_leaves_the_threshold_as_it_is(build):
    env = build(dataset=("iris",), splits=1)
    env.reset(seed=0)
    threshold = env.threshold()
    *_, info = env.step(env.expert("blend"))
    assert info["success"] and info["auc"] > 0.98
    assert env.threshold() == threshold
    features = build("DataSciCoding-features-v1")
    features.reset(seed=0)
    assert features.expert("blend") == features.expert()
    assert "Torques" in pipelines.ceiling("balance-scale")
