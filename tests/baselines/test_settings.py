"""Ranges of settings, discounts of shaped rewards, steps that a training run needs, and a group of one process."""

import math
from typing import get_args

import pytest

from baselines import ranges
from baselines.algorithms import dual_gae, ppo
from baselines.networks.settings import ModelConfig


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
    assert dual_gae.DualGAE(gamma=0.9, gamma_token=1.0).shaping().gamma == 0.9
    assert dual_gae.DualGAE(gamma=0.9, gamma_token=0.99).shaping() is None
    assert ppo.PPO(gamma=0.9).shaping() is None and ppo.PPO(gamma=0.9, level="turn").shaping().gamma == 0.9


def test_ratios_and_values_are_clipped_at_a_fifth_by_default():
    config = ppo.PPO()
    assert (config.clip_low, config.clip_high, config.value_clip) == (0.2, 0.2, 0.2)


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
    model = Model(tiny_lm(vocabulary=len(tokenizer)), tokenizer, ModelConfig("tiny", critic="none"))
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
