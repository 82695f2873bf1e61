"""The expected update of a played game climbs what it should climb, to the last digit.

A model plays games of one turn with four commands, so that the expectation over its own replies is a
sum of four terms. Whether training works then depends on no seed: the gradients that updates leave,
weighted by the probabilities of the replies, are the gradient of an objective that is written down
here.
"""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from baselines import recipe as recipes
from baselines.algorithms import grpo, poad, ppo, rloo
from baselines.algorithms.optimisers import Optimisers
from baselines.algorithms.turn_credit import sdar
from baselines.algorithms.update import UpdateInput
from baselines.batch import ADVISED
from baselines.collection.actor import Actor
from baselines.networks.model import Model, ModelConfig
from baselines.studies import tiny_model
from envsuite import registry
from harness.prompting.prompting import Prompting
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.types import episode
from tests import toys
from tests.baselines import hand_made as hand

PROMPTING = Prompting("bare", False, 1, admissible="none")
GAMES, ATTEMPTS = 4, 60
OPEN = {
    "aggregation": "seq-mean-token-sum",
    "kl_coef": 0.0,
    "max_grad_norm": 1e9,
    "learning_rate": 0.0,
    "critic_learning_rate": 0.0,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("model") / "tiny"
    corpus = [
        "Say the word. Objective: Say it. north east south west red blue green black Yes. The expert's next command:"
    ]
    tiny_model.make(path, corpus * 20, "xxs", vocabulary=300, context=256)
    return path


def load(folder, critic="none"):
    """Returns a model in float64 that prefers some commands to others."""
    model = Model.load(ModelConfig(str(folder), critic=critic, critic_hidden=()))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.lm.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    model.lm.double()
    return model


def played(folder, task, advisor=""):
    """Returns for each game one episode of one turn per command."""
    actor = Actor(load(folder), recipes.Acting(choose="trie"), PROMPTING, 1.0, advisor=advisor)
    seeds = itertools.product(range(GAMES), range(ATTEMPTS))
    todo = [episode(registry.TASKS[task], seed, attempt, max_steps=1) for seed, attempt in seeds]
    games = [{} for _ in range(GAMES)]
    for run in rollout(actor, todo, LocalExecutor(16, advice_kind=advisor), PROMPTING):
        run.terminated, run.truncated = True, False
        if advisor:
            run.turns[0].reply.extra[ADVISED] = actor.advised_prompts(run)[0]
        games[run.episode.seed].setdefault(run.turns[0].commands[0], run)
    return [[game[word] for word in toys.Signpost.words] for game in games]


@pytest.fixture(scope="module")
def games(folder):
    return played(folder, "Signpost-v0")


@pytest.fixture(scope="module")
def advised_games(folder):
    """Games that show a colour; a prompt with the expert's command names the word."""
    return played(folder, "Coloured-v0", "expert")


def log_prob(lm, run, prompt=None):
    """The log-probability of the command of an episode of one turn, after its own prompt or another."""
    (turn,) = run.turns
    prompted = replace(turn, reply=replace(turn.reply, prompt_ids=prompt or turn.reply.prompt_ids))
    return hand.sampled(lm, prompted)[0].sum()


def expected_update(algorithm, config, model, groups, weights):
    """The mean gradient that updates on single groups leave in the actor, weighted by their probabilities."""
    total = 0.0
    for group, weight in zip(groups, weights, strict=True):
        numbered = [replace(run, episode=replace(run.episode, attempt=k)) for k, run in enumerate(group)]
        inputs = UpdateInput(model, Optimisers(model, config), numbered, config, torch.Generator().manual_seed(0))
        algorithm.update(inputs)
        total = total + weight * hand.left_by(model.actor_parameters())
    return total


def probabilities(model, games):
    with torch.no_grad():
        return [[log_prob(model.lm, run).exp().item() for run in game] for game in games]


def minus_success(model, games):
    """The negative share of won games, exactly."""
    won = [log_prob(model.lm, run).exp() for game in games for run in game if run.success and run.turns[0].reward]
    assert len(won) == len(games)
    return -sum(won) / len(games)


def test_the_policy_plays_as_the_formula_says(folder, games):
    for row, game in zip(probabilities(load(folder), games), games, strict=True):
        assert sum(row) == pytest.approx(1.0) and min(row) > 0.01
        assert [sum(run.turns[0].reply.logprobs) for run in game] == pytest.approx(torch.tensor(row).log().tolist())


@pytest.mark.parametrize("algorithm", [ppo, poad])
def test_with_a_critic_the_expected_update_climbs_the_success_rate(folder, games, algorithm):
    """The critic's values begin at 0, so that an advantage is the reward."""
    model = load(folder, critic="own")
    config = algorithm.Config(normalise="none", gamma=1.0, lam=1.0, **OPEN)
    weights = [p / GAMES for row in probabilities(model, games) for p in row]
    expected = hand.gradient(minus_success(model, games), model.actor_parameters())
    singles = [[run] for game in games for run in game]
    hand.agree(expected_update(algorithm, config, model, singles, weights), expected)


@pytest.mark.parametrize(
    ("algorithm", "config", "factor"),
    [(rloo, rloo.Config(group_size=2, **OPEN), 1.0), (grpo, grpo.Config(group_size=2, std=False, **OPEN), 0.5)],
)
def test_with_groups_the_expected_update_climbs_the_success_rate(folder, games, algorithm, config, factor):
    """A baseline without the episode itself changes nothing; the mean of a group of two halves the step."""
    model = load(folder)
    rows = probabilities(model, games)
    pairs = [list(itertools.product(game, repeat=2)) for game in games]
    weights = [a * b / GAMES for row in rows for a, b in itertools.product(row, repeat=2)]
    expected = hand.gradient(minus_success(model, games), model.actor_parameters())
    groups = [pair for game in pairs for pair in game]
    hand.agree(expected_update(algorithm, config, model, groups, weights), factor * expected)


@pytest.mark.parametrize("teacher", ["first", "present"])
def test_without_any_reward_the_expected_update_closes_the_gap_to_the_advised_self(folder, advised_games, teacher):
    """Self-distillation (OPSD) descends the KL divergence of the student to the model that reads the expert's
    command."""
    model, games = load(folder), copy.deepcopy(advised_games)
    model.keep_reference()
    before = hand.frozen_copy(model.lm)
    if teacher == "first":
        with torch.no_grad():
            for parameter in model.lm.parameters():
                parameter *= 1.01
        for run in itertools.chain.from_iterable(games):  # as the moved student would have sampled it
            run.turns[0].reply.logprobs = hand.sampled(model.lm, run.turns[0])[0].tolist()
    divergence = 0.0
    for run in itertools.chain.from_iterable(games):
        with torch.no_grad():
            of_teacher = log_prob(before, run, run.turns[0].reply.extra[ADVISED])
        of_student = log_prob(model.lm, run)
        divergence = divergence + of_student.exp() * (of_student - of_teacher) / GAMES
    expected = hand.gradient(divergence, model.actor_parameters())
    config = sdar.Config(group_size=1, policy_weight=0.0, distillation="kl", distil_coef=1.0, teacher=teacher, **OPEN)
    weights = [p / GAMES for row in probabilities(model, games) for p in row]
    singles = [[run] for game in games for run in game]
    hand.agree(expected_update(sdar, config, model, singles, weights), expected)
