"""tinker-cookbook's own groups, rollouts and training data, from the games of the adapter."""

import asyncio
import json
from importlib.metadata import version

import pytest
from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.rl.data_processing import trajectory_to_data
from tinker_cookbook.rl.rollouts import do_group_rollout
from tinker_cookbook.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder

from envsuite.errors import UsageError
from harness.interop.chat_game import rows
from harness.interop.tinker import dataset_builder
from tests.interop.reference import GAMES, Reference
from tests.lm.tiny import tiny_tokenizer

RENDERER = "qwen3_instruct"  # ChatML without reasoning, as the tiny tokenizer's template
FLAGS = {"reward": "dense", "max_turns": 12}


class Player(TokenCompleter):
    def __init__(self, reference):
        self.reference = reference

    async def __call__(self, model_input, stop, *, max_tokens=None):
        reply = self.reference.reply(model_input.to_ints())
        return TokensWithLogprobs(tokens=list(reply.ids), maybe_logprobs=list(reply.logprobs))


@pytest.mark.parametrize("task", GAMES)
def test_groups_have_the_tokens_masks_and_rewards_of_our_rollout(task, tmp_path):
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    reference = Reference(tokenizer, task, 5, thoughts=False, **FLAGS)  # the renderer drops them from the history
    builder = dataset_builder(task, str(tmp_path), RENDERER, 1, batch_size=5, group_size=2, **FLAGS)
    assert isinstance(builder, RLDatasetBuilder)
    train, test = asyncio.run(builder())
    assert isinstance(train, RLDataset) and len(train) == 1 and test is None
    for row, group in zip(rows(task, count=5, **FLAGS), train.get_batch(0), strict=True):
        assert isinstance(group, EnvGroupBuilder) and group.logging_tags() == [task]
        seed = json.loads(row["game"])["seed"]
        run = reference.runs[seed]
        ids, sampled, logprobs = reference.tokens(seed)
        played = asyncio.run(do_group_rollout(group, Player(reference)))
        assert played.get_total_rewards() == pytest.approx([run.total_reward] * 2)
        for trajectory in played.trajectories_G:
            assert [step.reward for step in trajectory.transitions] == [turn.reward for turn in run.turns]
            assert trajectory.stop_reason == str(run.stop_reason)
            (datum,) = trajectory_to_data(trajectory, 1.0)
            targets = {name: value.tolist() for name, value in datum.loss_fn_inputs.items()}
            assert datum.model_input.to_ints() == ids[:-1] and targets["target_tokens"] == ids[1:]
            assert targets["mask"] == [float(flag) for flag in sampled[1:]]
            assert targets["logprobs"] == pytest.approx(logprobs[1:], abs=1e-6)
    reference.count("tinker-cookbook", version("tinker-cookbook"))


def test_bad_settings_are_refused_before_training(tmp_path):
    with pytest.raises(UsageError, match="group_size must be at least 1"):
        dataset_builder(GAMES[0], str(tmp_path), RENDERER, 1, group_size=0)
