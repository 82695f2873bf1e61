"""The gradient of one update of each algorithm, against a formula written apart from the trainers.

Episodes are hand-made, the model is tiny and in float64. The expected advantages come from
`tests.golden.formulas` (NumPy), the expected gradient from plain sums in `hand_made`. Every setting
on the way differs from 0, 1 and from the others, so that a swapped, dropped or negated factor
changes the gradient.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from baselines.algorithms import actor_critic, dual_gae, gigpo, grpo, ntpo, poad, ppo, rloo, sft, twosome
from baselines.algorithms.optimisers import Optimisers
from baselines.algorithms.turn_credit import gagpo, graphgpo, hgpo, spa
from baselines.algorithms.update import UpdateInput
from baselines.networks import prefix_sharing
from baselines.networks.model import Model
from baselines.networks.settings import ModelConfig
from harness.lm.likelihood import Candidate
from harness.lm.template import Template
from tests.baselines import hand_made as hand
from tests.baselines.hand_made import Play
from tests.golden import formulas
from tests.lm.tiny import tiny_tokenizer

PLAYS = [
    Play([[4, 6], [5, 1, 8]], [0.3, 1.0]),
    Play([[9], [2, 10, 6], [7, 3]], [-0.2, 0.5, 0.4], truncated=True, seed=1),
    Play([[12, 1, 4, 8], [3]], [0.0, -0.7], seed=2),
]
GROUPS = [
    Play([[4, 6], [5, 1, 8]], [0.3, 1.0], "ab", 0, 0),
    Play([[9], [2, 10, 6], [7, 3]], [-0.2, 0.5, 0.4], "aca", 0, 1),
    Play([[12, 1, 4, 8], [3]], [0.0, -0.7], "ab", 0, 2),
    Play([[5, 5, 2]], [0.6], "a", 1, 0),
    Play([[1, 7], [11, 3]], [-0.1, 0.25], "aa", 1, 1),
    Play([[8], [6, 6, 4]], [0.9, 0.15], "ba", 1, 2),
]
OPEN = {"max_grad_norm": 1e9, "entropy_coef": 0.03}
"""no clipping of the gradient, and a bonus for entropy"""


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    torch.set_num_threads(1)


def updated(algorithm, model, runs, config, prompts=(), step=0):
    """The gradients that one update left in the actor and in the critic."""
    generator = torch.Generator().manual_seed(0)
    algorithm.update(UpdateInput(model, Optimisers(model, config), runs, config, generator, prompts, step=step))
    return hand.left_by(model.actor_parameters()), hand.left_by(model.critic_parameters())


def flat(nested):
    return [x for run in nested for turn in run for x in turn]


def per_token(nested, runs):
    """A number per episode and turn, given to each token of the turn."""
    pairs = [(a, turn) for row, run in zip(nested, runs, strict=True) for a, turn in zip(row, run.turns, strict=True)]
    return [a for a, turn in pairs for _ in turn.reply.ids]


# ---- with a critic


def expected_advantages(model, runs, config, rates, prompts, extra=None, critic=None):
    """Advantages and rollout values per episode, turn and token."""
    critic = critic or model.critic
    with torch.no_grad():
        values = [[hand.values(critic, turn).tolist() for turn in run.turns] for run in runs]
    result = []
    for k, run in enumerate(runs):
        stops = [False] * (len(run.turns) - 1) + [True]
        boot = hand.value_after(critic, prompts[k]) if run.truncated and config.bootstrap else 0.0
        rewards = [turn.reward for turn in run.turns]
        paid = extra and extra[k]
        result.append(formulas.advantages(rewards, values[k], stops, [boot] * len(stops), *rates, token_rewards=paid))
    return result, values


def next_prompts(runs):
    return [[*run.turns[-1].reply.prompt_ids, *run.turns[-1].reply.ids, 12, 9, 5] for run in runs]


def check_critic_method(algorithm, config, rates, reference=False, plays=PLAYS):
    """One update of a method with a critic leaves the expected gradients in the actor and in the
    critic."""
    model = hand.tiny_model("own", reference)
    runs = hand.trajectories(model, plays)
    prompts = next_prompts(runs)
    behind = hand.frozen_copy(model.reference.frozen) if reference else None
    extra = None
    if reference and config.kl_in == "reward":
        ratios = hand.log_ratios(runs, behind)
        extra = [[[-config.kl_coef * x for x in turn] for turn in run] for run in ratios]
    advantage, values = expected_advantages(model, runs, config, rates, prompts, extra)
    targets = [a + v for a, v in zip(flat(advantage), flat(values), strict=True)]
    a = np.array(flat(advantage))
    if config.normalise == "batch":
        a = formulas.whitened(a, np.ones(len(a)))
    loss = hand.policy_loss(model.lm, runs, a.tolist(), config, behind)
    expected = hand.gradient(loss, model.actor_parameters())
    error = hand.critic_loss(model.critic, runs, targets, config)
    expected_critic = hand.gradient(error, model.critic_parameters())
    actor, critic = updated(algorithm, model, runs, config, prompts, step=config.critic_warmup)
    hand.agree(actor, expected)
    hand.agree(critic, expected_critic)


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("normalise", ["none", "batch"])
@pytest.mark.parametrize("bootstrap", [True, False])
def test_ppo(whole, normalise, bootstrap):
    config = ppo.PPO(gamma=0.9, lam=0.7, whole=whole, normalise=normalise, bootstrap=bootstrap, **OPEN)
    check_critic_method(ppo, config, (0.9, 0.7, 0.9, 0.7))


@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
def test_ppo_aggregates_as_it_is_told_in_micro_batches_too(aggregation):
    for micro_rows in (0, 2):
        config = ppo.PPO(gamma=0.9, lam=0.7, aggregation=aggregation, micro_rows=micro_rows, **OPEN)
        check_critic_method(ppo, config, (0.9, 0.7, 0.9, 0.7))


@pytest.mark.parametrize("micro_rows", [0, 2])
def test_the_logged_entropy_is_the_mean_over_tokens(micro_rows):
    model = hand.tiny_model("own")
    runs = hand.trajectories(model, PLAYS)
    with torch.no_grad():
        entropies = torch.cat([hand.sampled(model.lm, turn)[1] for turn in hand.turns(runs)])
    config = ppo.PPO(micro_rows=micro_rows, **OPEN)
    generator = torch.Generator().manual_seed(0)
    log = ppo.update(UpdateInput(model, Optimisers(model, config), runs, config, generator, next_prompts(runs)))
    assert log["entropy"] == pytest.approx(entropies.mean().item(), abs=1e-5)


def test_final_values_are_those_of_each_prompt_alone():
    model = hand.tiny_model("own")
    runs = hand.trajectories(model, [replace(play, truncated=True) for play in PLAYS])
    prompts = next_prompts(runs)
    assert len({len(prompt) for prompt in prompts}) > 1
    config = ppo.PPO()
    inputs = UpdateInput(model, Optimisers(model, config), runs, config, torch.Generator(), prompts)
    expected = [hand.value_after(model.critic, prompt) for prompt in prompts]
    assert actor_critic.final_values(inputs, model.values) == pytest.approx(expected, abs=1e-5)


def test_a_token_numbered_zero_is_no_padding():
    ids = torch.tensor([[3, 0, 5], [3, 0, 0]])
    valid = torch.tensor([[True, True, True], [True, True, False]])
    rows = prefix_sharing.distinct_rows(ids, valid, None, torch.device("cpu"))
    assert torch.equal(rows.valid[rows.source], valid)


def test_ppo_over_turns():
    """Each token of a turn gets the advantage of the turn, and its critic regresses on the turn's
    return."""
    model = hand.tiny_model("own")
    runs = hand.trajectories(model, PLAYS)
    prompts = next_prompts(runs)
    config = ppo.PPO(gamma=0.9, lam=0.7, level="turn", normalise="none", **OPEN)
    advantage, targets = [], []
    for run, prompt in zip(runs, prompts, strict=True):
        with torch.no_grad():
            first = [hand.values(model.critic, turn)[0].item() for turn in run.turns]
        stops = [False] * (len(run.turns) - 1) + [True]
        boot = hand.value_after(model.critic, prompt) if run.truncated else 0.0
        rewards = [turn.reward for turn in run.turns]
        result = formulas.advantages(rewards, [[v] for v in first], stops, [boot] * len(stops), 1, 1, 0.9, 0.7)
        advantage.append([a for (a,) in result])
        targets.append([a + v for (a,), v in zip(result, first, strict=True)])
    loss = hand.policy_loss(model.lm, runs, per_token(advantage, runs), config)
    expected = hand.gradient(loss, model.actor_parameters())
    error = hand.critic_loss(model.critic, runs, per_token(targets, runs), config)
    expected_critic = hand.gradient(error, model.critic_parameters())
    actor, critic = updated(ppo, model, runs, config, prompts)
    hand.agree(actor, expected)
    hand.agree(critic, expected_critic)


@pytest.mark.parametrize("gamma_token", [-1.0, 0.8])
def test_ntpo(gamma_token):
    config = ntpo.NTPO(gamma=0.9, lam=0.7, gamma_token=gamma_token, normalise="none", **OPEN)
    inside = 0.9 if gamma_token < 0 else gamma_token
    check_critic_method(ntpo, config, (inside, 0.7, 0.9, 0.7))


@pytest.mark.parametrize("lambda_token", [-1.0, 1.0, 0.4])
def test_poad(lambda_token):
    config = poad.POAD(gamma=0.9, lam=0.7, lambda_token=lambda_token, normalise="none", **OPEN)
    inside = 0.7 if lambda_token < 0 else lambda_token
    check_critic_method(poad, config, (1.0, inside, 0.9, 0.7))


def test_poad_with_a_target_critic_regresses_on_one_step_targets():
    model = hand.tiny_model("own")
    model.keep_target()
    with torch.no_grad():  # the target lags behind
        for parameter in model.critic.parameters():
            parameter *= 1.1
    runs = hand.trajectories(model, PLAYS)
    prompts = next_prompts(runs)
    config = poad.POAD(gamma=0.9, lam=0.7, target_tau=0.25, value_clip=0.0, normalise="none", **OPEN)
    with torch.no_grad():
        lagging = [[hand.values(model.target, turn).tolist() for turn in run.turns] for run in runs]
    targets = []
    for run, value, prompt in zip(runs, lagging, prompts, strict=True):
        after = hand.value_after(model.target, prompt) if run.truncated else 0.0
        for t, turn in enumerate(run.turns):
            following = value[t + 1][0] if t + 1 < len(run.turns) else after
            targets += [*value[t][1:], turn.reward + 0.9 * following]
    error = hand.critic_loss(model.critic, runs, targets, config)
    expected = hand.gradient(error, model.critic_parameters())
    _, critic = updated(poad, model, runs, config, prompts)
    hand.agree(critic, expected)


def test_dual_gae():
    config = dual_gae.DualGAE(
        gamma=0.9, lam=0.7, gamma_token=0.95, lambda_token=0.8, kl_coef=0.2, value_clip=0.5, max_grad_norm=1e9,
        entropy_coef=0.03,
    )  # fmt: skip
    check_critic_method(dual_gae, config, (0.95, 0.8, 0.9, 0.7), reference=True)


def test_the_dual_clip_bounds_the_loss_of_bad_tokens():
    config = dual_gae.DualGAE(gamma=0.9, lam=0.7, dual_clip=1.5, normalise="none", kl_coef=0.2, **OPEN)
    check_critic_method(dual_gae, config, (1.0, 1.0, 0.9, 0.7), reference=True)


def test_dual_gae_trains_the_critic_alone_while_it_warms_up():
    model = hand.tiny_model("own", reference=True)
    runs = hand.trajectories(model, PLAYS)
    config = dual_gae.DualGAE(critic_warmup=2)
    for step, learns in ((0, False), (1, False), (2, True)):
        actor, critic = updated(dual_gae, model, runs, config, next_prompts(runs), step)
        assert critic.norm() > 0 and bool(actor.norm() > 0) == learns


# ---- over admissible commands

COMMANDS = ["go", "take the key", "look around"]
TOKENS = [(4,), (6, 2, 9), (6, 5)]


def with_choices(model, runs):
    """Gives each turn three admissible commands, of which one was chosen with a probability of some
    updates ago."""
    for k, turn in enumerate(hand.turns(runs)):
        prompt, index = list(turn.reply.prompt_ids), k % 3
        turn.reply.ids, turn.reply.logprobs = list(TOKENS[index]), [0.0] * len(TOKENS[index])
        turn.admissible = COMMANDS
        result = [Candidate(len(prompt), ids) for ids in TOKENS]
        turn.reply.extra = {"prompt": prompt, "candidates": result, "index": index}
    return runs


def command_logprobs(lm, turn, normalisation):
    """Log-probs of the three commands, one forward pass each. [3]"""
    scores = []
    for words, ids in zip(COMMANDS, TOKENS, strict=True):
        alone = replace(turn, reply=replace(turn.reply, ids=list(ids)))
        size = {"sum": 1, "token": len(ids), "word": len(words.split())}[normalisation]
        scores.append(hand.sampled(lm, alone)[0].sum() / size)
    return torch.stack(scores).log_softmax(0)


@pytest.mark.parametrize("normalisation", ["word", "token", "sum"])
@pytest.mark.parametrize("normalise", ["none", "minibatch"])
def test_twosome(normalisation, normalise):
    model = hand.tiny_model("own")
    runs = with_choices(model, hand.trajectories(model, PLAYS))
    config = twosome.TWOSOME(
        gamma=0.9, lam=0.7, normalisation=normalisation, normalise=normalise, bootstrap=True, minibatches=1,
        target_kl=0.0, **OPEN,
    )  # fmt: skip
    all_turns = list(hand.turns(runs))
    logp = [command_logprobs(model.lm, turn, normalisation) for turn in all_turns]
    for k, (turn, row) in enumerate(zip(all_turns, logp, strict=True)):
        turn.reply.extra["logprob"] = row[turn.reply.extra["index"]].item() - hand.OFFSETS[k % len(hand.OFFSETS)]
    prompts = next_prompts(runs)
    advantage, targets = [], []
    for run, prompt in zip(runs, prompts, strict=True):
        value = [hand.value_after(model.critic, turn.reply.prompt_ids) for turn in run.turns]
        stops = [False] * (len(run.turns) - 1) + [True]
        boot = hand.value_after(model.critic, prompt) if run.truncated else 0.0
        rewards = [turn.reward for turn in run.turns]
        result = formulas.advantages(rewards, [[v] for v in value], stops, [boot] * len(stops), 1, 1, 0.9, 0.7)
        advantage += [a for (a,) in result]
        targets += [a + v for (a,), v in zip(result, value, strict=True)]
    a = np.array(advantage)
    a = torch.tensor(a if normalise == "none" else formulas.standardised(a, "sample"))
    ratio = torch.stack([
        (row[turn.reply.extra["index"]] - turn.reply.extra["logprob"]).exp()
        for turn, row in zip(all_turns, logp, strict=True)
    ])  # fmt: skip
    entropy = torch.stack([-(row.exp() * row).sum() for row in logp])
    loss = (-torch.minimum(a * ratio, a * ratio.clamp(0.8, 1.2)) - 0.03 * entropy).mean()
    expected = hand.gradient(loss, model.actor_parameters())
    first = torch.stack([hand.values(model.critic, turn)[0] for turn in all_turns])
    error = config.value_coef * 0.5 * ((first - torch.tensor(targets)) ** 2).mean()
    expected_critic = hand.gradient(error, model.critic_parameters())
    actor, critic = updated(twosome, model, runs, config, prompts)
    hand.agree(actor, expected)
    hand.agree(critic, expected_critic)


# ---- over groups


def check_group_method(algorithm, config, advantages_of, plays=GROUPS, prepare=lambda runs: None):
    """One update of a method without a critic; `advantages_of` maps rewards [E][T] to advantages
    [E][T], and `prepare` changes the episodes before it."""
    model = hand.tiny_model(reference=True)
    runs = hand.trajectories(model, plays)
    prepare(runs)
    behind = hand.frozen_copy(model.reference.frozen)
    rewards = [[turn.reward for turn in run.turns] for run in runs]
    if config.kl_in == "reward":
        for row, ratios in zip(rewards, hand.log_ratios(runs, behind), strict=True):
            row[:] = [reward - config.kl_coef * sum(turn) for reward, turn in zip(row, ratios, strict=True)]
    advantage = per_token(advantages_of(rewards), runs)
    expected = hand.gradient(hand.policy_loss(model.lm, runs, advantage, config, behind), model.actor_parameters())
    actor, _ = updated(algorithm, model, runs, config)
    hand.agree(actor, expected)


OWNERS = [play.seed for play in GROUPS]
PAST_GROUPS = [
    Play([[4, 6], [5, 1, 8], [9]], [0.3, 1.0, -0.2], "aba", 0, 0),
    Play([[9], [2, 10, 6], [7, 3]], [-0.2, 0.5, 0.4], "abb", 0, 1),
    Play([[12, 1, 4, 8], [3], [6, 1]], [0.0, -0.7, 0.8], "aba", 0, 2),
    Play([[5, 5, 2], [10]], [0.6, 0.35], "ca", 1, 0),
    Play([[1, 7], [11, 3]], [-0.1, 0.25], "ba", 1, 1),
    Play([[8], [6, 6, 4]], [0.9, 0.15], "ba", 1, 2),
]
"""pasts of one and two turns that occur again, and turns whose observation alone does"""
PASTS = [list(play.seen) for play in PAST_GROUPS]
GROUP = {"group_size": 3, "kl_coef": 0.2, **OPEN}


def whole_episodes(result, rewards):
    return [[a] * len(row) for a, row in zip(result, rewards, strict=True)]


@pytest.mark.parametrize("kl_in", ["loss", "reward"])
@pytest.mark.parametrize("std", [True, False])
def test_grpo(std, kl_in):
    scored = lambda rewards: whole_episodes(formulas.normalised([sum(row) for row in rewards], OWNERS, std), rewards)
    check_group_method(grpo, grpo.GRPO(std=std, kl_in=kl_in, **GROUP), scored)


def test_dr_grpo():
    """No deviation, and the sum of a row's losses over a constant in place of its length."""
    config = grpo.GRPO(std=False, aggregation="seq-sum-constant", constant=7.0, **GROUP)
    scored = lambda rewards: whole_episodes(formulas.normalised([sum(row) for row in rewards], OWNERS, False), rewards)
    check_group_method(grpo, config, scored)


@pytest.mark.parametrize("std", [True, False])
def test_grpo_turn_by_turn(std):
    mode = "grpo_std" if std else "grpo_mean"
    config = grpo.GRPO(std=std, per_turn=True, gamma=0.8, **GROUP)
    check_group_method(grpo, config, lambda rewards: formulas.per_turn(rewards, OWNERS, 0.8, mode))


@pytest.mark.parametrize("kl_in", ["loss", "reward"])
def test_rloo(kl_in):
    scored = lambda rewards: whole_episodes(formulas.leave_one_out([sum(row) for row in rewards], OWNERS), rewards)
    check_group_method(rloo, rloo.RLOO(kl_in=kl_in, **GROUP), scored)


def test_rloo_leaves_out_a_group_of_one():
    """A group that faults reduced to one episode does not change the gradient."""
    model = hand.tiny_model(reference=True)
    config = rloo.RLOO(**GROUP)
    lone = Play([[9, 2], [4]], [5.0, -3.0], "ab", 2, 0)
    expected, _ = updated(rloo, model, hand.trajectories(model, GROUPS), config)
    model = hand.tiny_model(reference=True)
    actual, _ = updated(rloo, model, hand.trajectories(model, [*GROUPS, lone]), config)
    hand.agree(actual, expected)


def test_rloo_turn_by_turn():
    config = rloo.RLOO(per_turn=True, gamma=0.8, **GROUP)
    check_group_method(rloo, config, lambda rewards: formulas.per_turn(rewards, OWNERS, 0.8, "rloo"))


@pytest.mark.parametrize("kl_in", ["loss", "reward"])
@pytest.mark.parametrize("std", [True, False])
@pytest.mark.parametrize("over_rows", [True, False])
def test_gigpo(std, over_rows, kl_in):
    anchors = [list(play.seen) for play in GROUPS]
    config = gigpo.GiGPO(gamma=0.6, omega=1.7, std=std, over_rows=over_rows, kl_in=kl_in, **GROUP)
    scored = lambda rewards: formulas.group_in_group(rewards, anchors, OWNERS, 0.6, 1.7, std, over_rows)[2]
    check_group_method(gigpo, config, scored)


def test_gigpo_logs_the_share_of_turns_whose_anchor_occurs_again_in_their_group():
    """In the first group 6 of 7 turns share 'a' or 'b', in the second 4 of 5 share 'a'."""
    model = hand.tiny_model(reference=True)
    config = gigpo.GiGPO(**GROUP)
    runs = hand.trajectories(model, GROUPS)
    generator = torch.Generator().manual_seed(0)
    log = gigpo.update(UpdateInput(model, Optimisers(model, config), runs, config, generator, (), step=0))
    assert log["shared_anchors"] == pytest.approx(10 / 12)


@pytest.mark.parametrize("kl_in", ["loss", "reward"])
@pytest.mark.parametrize("std", [True, False])
@pytest.mark.parametrize("history", [0, 1, 3])
def test_hgpo(history, std, kl_in):
    config = hgpo.HGPO(gamma=0.6, history=history, alpha=1.7, std=std, kl_in=kl_in, **GROUP)
    scored = lambda rewards: formulas.hierarchy_of_groups(rewards, PASTS, OWNERS, 0.6, history, 1.7, std)
    check_group_method(hgpo, config, scored, PAST_GROUPS)


COMMANDS_DONE = [
    ["go", "open", "take"],
    ["go", "look", "open"],
    ["go", "open", "wait"],
    ["x", "y"],
    ["z", "y"],
    ["z", "w"],
]
FINAL = [None, "b", "d", "c", None, "a"]
"""commands and last states of PAST_GROUPS; None: the goal"""


def in_a_graph(runs):
    for run, commands, final in zip(runs, COMMANDS_DONE, FINAL, strict=True):
        run.success, run.final_observation = final is None, final or "Won."
        for turn, command in zip(run.turns, commands, strict=True):
            turn.commands = (command,)


@pytest.mark.parametrize(("episode", "graph"), [(0.7, 1.3), (1.0, 0.0), (0.0, 1.0)])
@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("std", [True, False])
def test_graphgpo(std, merge, episode, graph):
    config = graphgpo.GraphGPO(
        decay=0.4, episode_weight=episode, graph_weight=graph, merge=merge, std=std, kl_in="reward", **GROUP
    )
    transitions = [
        list(zip(states, [(command,) for command in commands], [*states[1:], final], strict=True))
        for states, commands, final in zip(PASTS, COMMANDS_DONE, FINAL, strict=True)
    ]
    scored = lambda rewards: formulas.graph_credit(rewards, transitions, OWNERS, 0.4, (episode, graph), merge, std)
    check_group_method(graphgpo, config, scored, PAST_GROUPS, in_a_graph)


@pytest.mark.parametrize("ratio", ["token", "turn"])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("std", [True, False])
def test_gagpo(std, whole, ratio):
    config = gagpo.GAGPO(gamma=0.6, lam=0.8, std=std, whole=whole, ratio=ratio, kl_in="reward", **GROUP)
    scored = lambda rewards: formulas.grouped_temporal(rewards, PASTS, OWNERS, 0.6, 0.8, std)
    check_group_method(gagpo, config, scored, PAST_GROUPS)


def test_the_ratio_of_a_reply_in_micro_batches():
    config = gagpo.GAGPO(gamma=0.6, lam=0.8, micro_rows=2, **GROUP)
    scored = lambda rewards: formulas.grouped_temporal(rewards, PASTS, OWNERS, 0.6, 0.8, True)
    check_group_method(gagpo, config, scored, PAST_GROUPS)


@pytest.mark.parametrize("micro_rows", [0, 2])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("std", [True, False])
def test_spa(std, whole, micro_rows):
    """The actor learns from redistributed rewards, the estimator from the outcomes."""
    model = hand.tiny_model("own", reference=True)
    runs = hand.trajectories(model, GROUPS)
    for k, turn in enumerate(hand.turns(runs)):
        turn.fault = "invalid" if k % 3 == 1 else ""
    behind = hand.frozen_copy(model.reference.frozen)
    config = spa.SPA(gamma=0.8, contribution=1.3, grounding=0.4, std=std, whole=whole, micro_rows=micro_rows, **GROUP)

    def contribution(turn):
        """What the critic makes of the last token of a reply."""
        ids = torch.tensor([[*turn.reply.prompt_ids, *turn.reply.ids]])
        hidden = model.critic.trunk(input_ids=ids).last_hidden_state[0, -1]
        return hidden @ model.critic.head[-1].weight[0].double()

    parts = [[contribution(turn) for turn in run.turns] for run in runs]
    paid = [
        [1.3 * c.item() + 0.4 * (not turn.fault) for c, turn in zip(row, run.turns, strict=True)]
        for row, run in zip(parts, runs, strict=True)
    ]
    advantage = formulas.per_turn(paid, OWNERS, 0.8, "grpo_std" if std else "grpo_mean")
    loss = hand.policy_loss(model.lm, runs, per_token(advantage, runs), config, behind)
    expected = hand.gradient(loss, model.actor_parameters())
    error = sum((sum(row) - run.total_reward) ** 2 for row, run in zip(parts, runs, strict=True)) / len(runs)
    expected_estimator = hand.gradient(error, model.critic_parameters())
    actor, estimator = updated(spa, model, runs, config)
    hand.agree(actor, expected)
    hand.agree(estimator, expected_estimator)


def test_spa_trains_the_estimator_alone_while_it_warms_up():
    model = hand.tiny_model("own", reference=True)
    runs = hand.trajectories(model, GROUPS)
    config = spa.SPA(estimator_warmup=1, **GROUP)
    for step, learns in ((0, False), (1, True)):
        actor, estimator = updated(spa, model, runs, config, step=step)
        assert estimator.norm() > 0 and bool(actor.norm() > 0) == learns


# ---- on demonstrations


@pytest.mark.parametrize("last_only", [False, True])
@pytest.mark.parametrize("micro_rows", [0, 1])
def test_sft(last_only, micro_rows):
    """The mean over the assistant's tokens and the token that ends each message; nothing else is
    learnt."""
    tokenizer = tiny_tokenizer()
    model = Model(hand.tiny_lm(vocabulary=len(tokenizer)), tokenizer, ModelConfig("tiny", critic="none"))
    talks = [[("look", "go to fridge 1"), ("a fridge 1", "open fridge 1")], [("north", "take apple 1 from fridge 1")]]
    spell = lambda text: tokenizer(text, add_special_tokens=False)["input_ids"]
    end = tokenizer.eos_token_id
    losses = []
    for talk in talks:
        ids = []
        for number, (observation, answer) in enumerate(talk):
            opening = "\n" if number else ""
            ids = ids + spell(f"{opening}<|im_start|>user\n{observation}<|im_end|>\n<|im_start|>assistant\n")
            reply = [*spell(answer), end]
            if not last_only or number == len(talk) - 1:
                logp = model.lm(input_ids=torch.tensor([ids + reply])).logits[0].log_softmax(-1)
                losses += [-logp[len(ids) - 1 + j, token] for j, token in enumerate(reply)]
            ids = ids + reply
    expected = hand.gradient(torch.stack(losses).mean(), model.actor_parameters())
    messages = [
        list(chain(*([{"role": "user", "content": u}, {"role": "assistant", "content": a}] for u, a in talk)))
        for talk in talks
    ]
    config = sft.SFTConfig(rows=2, micro_rows=micro_rows, last_only=last_only, max_grad_norm=1e9)
    template = Template(tokenizer, [end])
    (log,) = sft.FineTuning(model, messages, template, config, torch.Generator().manual_seed(0)).run()
    hand.agree(hand.left_by(model.actor_parameters()), expected)
    assert log["tokens"] == len(losses)
    assert log["loss"] == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)
