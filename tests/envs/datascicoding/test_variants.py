"""DataSciCoding: improvement, the blend, and the ladder of levels."""

import pytest

from envsuite.envs.datascicoding import pipelines
from tests.envs.datascicoding.programs import CONSTANT, STUMP

pytest.importorskip("sklearn", reason="the datascicoding extra is not installed")


@pytest.mark.parametrize(("splits", "seeds"), [(1, 3), pytest.param(5, 9, marks=pytest.mark.slow)])
def test_every_row_of_the_ladder_is_won_by_the_expert(build, splits, seeds):
    for level in ("easy", "medium", "hard"):
        env = build(task=f"DataSciCoding-{level}-v0", mode="sparse", splits=splits)
        for seed in range(seeds):
            env.reset(seed=seed)
            assert env.step(env.expert())[4]["success"], (level, seed)


def test_improving_counts_the_program_with_the_best_score_shown(build):
    env = build(task="DataSciCoding-improve-v0", dataset=("breast-cancer",))
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
    assert "Torques" in pipelines.ceiling("balance-scale")
