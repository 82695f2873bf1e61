"""Ranges of settings, discounts of shaped rewards, steps that a training run needs, and a group of one process."""

import math
from typing import get_args

import pytest

from baselines import configs
from baselines.configs import ranges
from baselines.studies.curves import steps_to


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("Count", (1, 2), (0, -1, math.inf)),
        ("Natural", (0, 1), (-1, math.nan)),
        ("NonNegative", (0.0, 0.5), (-1e-9, math.inf)),
        ("Positive", (1e-9, 2.0), (0.0, -1.0)),
        ("Share", (0.0, 0.5, 1.0), (-1e-9, 1 + 1e-9, "1")),
        ("PositiveShare", (1e-9, 1.0), (0.0, 1 + 1e-9)),
    ],
)
def test_ranges_hold_their_bounds(name, inside, outside):
    _, limits = get_args(getattr(ranges, name))
    assert [value in limits for value in (*inside, *outside)] == [True] * len(inside) + [False] * len(outside)


def test_shaped_rewards_have_the_learners_discount_where_tokens_are_not_discounted():
    assert configs.DualGAE(gamma=0.9, gamma_token=1.0).shaping().gamma == 0.9
    assert configs.DualGAE(gamma=0.9, gamma_token=0.99).shaping() is None
    assert configs.PPO(gamma=0.9).shaping() is None and configs.PPO(gamma=0.9, level="turn").shaping().gamma == 0.9


@pytest.mark.parametrize(
    ("success", "steps"),
    [((0.0, 0.5, 0.5, 1.0), 30), ((0.5, 0.5), 20), ((0.9, 0.0, 0.9), math.inf), ((1.0,), math.inf)],
)
def test_the_steps_to_a_share_end_with_two_successive_updates_that_have_it_on_average(success, steps):
    updates = [{"env_steps": 10 * (place + 1), "success": value} for place, value in enumerate(success)]
    assert steps_to({"updates": updates}, 0.5) == steps


@pytest.mark.parametrize(
    ("history", "choose", "reuses"), [(0, "free", False), (-1, "free", True), (0, "admissible", True)]
)
def test_prompts_are_cached_where_they_share_a_beginning(history, choose, reuses):
    pytest.importorskip("torch")
    from baselines.collection.actor import Actor
    from baselines.networks.model import Model
    from baselines.recipe import Acting
    from harness.prompting.prompting import Prompting
    from tests.baselines.hand_made import tiny_lm
    from tests.lm.tiny import tiny_tokenizer

    tokenizer = tiny_tokenizer()
    model = Model(tiny_lm(vocabulary=len(tokenizer)), tokenizer, configs.ModelConfig("tiny", critic="none"))
    prompting = Prompting(grammar="bare", thinking=False, history=history, admissible="none")
    assert Actor(model, Acting(choose=choose), prompting, 1.0).policy.prefix_reuse is reuses


def test_the_only_process_of_a_group_writes_files_and_has_the_whole_share():
    pytest.importorskip("torch")
    import torch.distributed as dist

    from baselines.distributed import collectives

    assert collectives.first() and collectives.size() == 1
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        assert collectives.first() and collectives.size() == 1 and collectives.share([1, 2]) == [1, 2]
    finally:
        collectives.leave()
    assert not dist.is_initialized()
