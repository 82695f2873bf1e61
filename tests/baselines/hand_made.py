"""Hand-made episodes, a language model small enough to differentiate plainly, and losses written
apart from the trainers.

The expected gradient of a test is that of `policy_loss` or `critic_loss`: plain sums over tokens,
each read from a forward pass over one turn alone, without batches, padding, masks or shared
prefixes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from baselines.algorithms.update import UpdateConfig
from baselines.networks.model import Model
from baselines.networks.settings import ModelConfig
from envsuite.types import StopReason, Task
from harness.types import Episode, Reply, Trajectory, Turn

VOCABULARY = 13
START = [3, 7, 1, 9, 4, 4, 12, 2, 8, 5, 11, 6, 1, 10, 3, 2, 7, 5]
"""what every first prompt begins with: long enough to be computed once for all rows"""
OFFSETS = (0.0, -0.5, 0.12, 0.4, -0.07, 1.4)
"""added in turn to the log-probs of the sampled tokens, so that some ratios are clipped and some
are not"""


def tiny_lm(seed: int = 0, vocabulary: int = VOCABULARY) -> LlamaForCausalLM:
    """A Llama with one layer of width 8, in float64."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=512,
        initializer_range=0.7,
    )
    return LlamaForCausalLM(config).double().eval()


def tiny_model(critic: str = "none", reference: bool = False) -> Model:
    """The trainers' model around `tiny_lm`; its critic has opinions, and its actor has left the
    reference."""
    model = Model(tiny_lm(), None, ModelConfig("tiny", critic=critic, critic_hidden=()))
    generator = torch.Generator().manual_seed(1)
    if model.critic is not None:
        with torch.no_grad():
            model.critic.head[-1].weight.copy_(torch.randn(1, 8, generator=generator) / 2)
    if reference:
        model.keep_reference()
        with torch.no_grad():
            for parameter in model.lm.parameters():
                parameter += 0.05 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return model


@dataclass
class Play:
    """One episode as it is written down in a test: for each turn its reply, its reward and what was
    seen."""

    replies: list[list[int]]
    rewards: list[float]
    seen: str = ""
    seed: int = 0
    attempt: int = 0
    truncated: bool = False
    commands: tuple[tuple[int, ...], ...] = ()
    """the tokens of all admissible commands, one of which each reply is; () for free replies"""


def trajectories(model: Model, plays: Sequence[Play]) -> list[Trajectory]:
    """The plays as if the policy had sampled them some updates ago. Each prompt continues the
    conversation."""
    result, offset = [], 0
    for play in plays:
        run = Trajectory(Episode(Task(id="Toy-v0", entry_point=""), "{}", play.seed, play.attempt))
        run.terminated, run.truncated = not play.truncated, play.truncated
        run.stop_reason = StopReason.MAX_TURNS if play.truncated else StopReason.SOLVED
        prompt = [*START, play.seed + 1]
        for turn, (reply, reward) in enumerate(zip(play.replies, play.rewards, strict=True)):
            seen = play.seen[turn] if play.seen else str(turn)
            made = Turn(seen, Reply("", prompt, reply, [0.0] * len(reply)), ("",), reward, {})
            if play.commands:
                made.reply.extra["allowed"] = _allowed(play.commands, reply)
            new, _ = sampled(model.lm, made)
            possible = made.reply.extra.get("allowed", [True] * len(reply))
            shifts = [OFFSETS[(offset + j) % len(OFFSETS)] if possible[j] else 0.0 for j in range(len(reply))]
            made.reply.logprobs = (new.detach() - torch.tensor(shifts, dtype=new.dtype)).tolist()
            offset += len(reply)
            run.turns.append(made)
            prompt = [*prompt, *reply, 2 + turn % 3, 11]
        result.append(run)
    return result


def _allowed(commands: Sequence[tuple[int, ...]], reply: Sequence[int]) -> list[tuple[int, ...]]:
    """The tokens that some command has after the same tokens as the reply; () where there is one."""
    result = []
    for j in range(len(reply)):
        after = {command[j] for command in commands if list(command[:j]) == list(reply[:j]) and len(command) > j}
        result.append(tuple(sorted(after)) if len(after) > 1 else ())
    return result


def turns(runs: Sequence[Trajectory]) -> Iterator[Turn]:
    for run in runs:
        yield from run.turns


def sampled(lm: Any, turn: Turn) -> tuple[Tensor, Tensor]:
    """Log-probs of the reply's tokens, and the entropies where they were drawn. [n], [n]"""
    prompt, reply = list(turn.reply.prompt_ids), list(turn.reply.ids)
    logits = lm(input_ids=torch.tensor([prompt + reply])).logits[0]
    if "allowed" in turn.reply.extra:
        return _sampled_among(logits[len(prompt) - 1 :], reply, turn.reply.extra["allowed"])
    logp = logits.log_softmax(-1)
    places = torch.arange(len(reply)) + len(prompt) - 1
    return logp[places, torch.tensor(reply)], -(logp[places].exp() * logp[places]).sum(-1)


def _sampled_among(logits: Tensor, reply: list[int], allowed: list[tuple[int, ...]]) -> tuple[Tensor, Tensor]:
    """`sampled` for replies whose tokens were drawn among a few each."""
    pairs = []
    for z, token, possible in zip(logits, reply, allowed, strict=False):
        p = z[list(possible or (token,))].exp()
        p = p / p.sum()
        pairs.append((p[list(possible or (token,)).index(token)].log(), -(p * p.log()).sum()))
    return torch.stack([a for a, _ in pairs]), torch.stack([b for _, b in pairs])


def values(critic: Any, turn: Turn) -> Tensor:
    """The critic's value before each token of the reply. [n]"""
    prompt, reply = list(turn.reply.prompt_ids), list(turn.reply.ids)
    hidden = critic.trunk(input_ids=torch.tensor([prompt + reply])).last_hidden_state[0]
    places = torch.arange(len(reply)) + len(prompt) - 1
    return hidden[places] @ critic.head[-1].weight[0].double()


def value_after(critic: Any, prompt: Sequence[int]) -> float:
    """The critic's value of what a prompt shows, before anything is replied."""
    with torch.no_grad():
        hidden = critic.trunk(input_ids=torch.tensor([list(prompt)])).last_hidden_state[0, -1]
        return float(hidden @ critic.head[-1].weight[0].double())


def old_logprobs(runs: Sequence[Trajectory]) -> Tensor:
    return torch.tensor([x for turn in turns(runs) for x in turn.reply.logprobs], dtype=torch.float64)


def log_ratios(runs: Sequence[Trajectory], reference: Any) -> list[list[list[float]]]:
    """log pi_old - log pi_reference of each token, per episode and turn: the k1 that is paid for."""
    with torch.no_grad():
        return [
            [(torch.tensor(t.reply.logprobs).double() - sampled(reference, t)[0]).tolist() for t in run.turns]
            for run in runs
        ]


def weights(runs: Sequence[Trajectory], whole: bool, how: str, constant: float = 0.0) -> Tensor:
    """Returns the weight of each token's loss in the total. A row is an episode (`whole`) or a
    turn. [N]"""
    rows = [list(run.turns) for run in runs]
    rows = rows if whole else [[turn] for row in rows for turn in row]
    counts = [sum(len(turn.reply.ids) for turn in row) for row in rows]
    each = {
        "token-mean": [1 / sum(counts)] * len(rows),
        "seq-mean-token-mean": [1 / len(rows) / count for count in counts],
        "seq-mean-token-sum": [1 / len(rows)] * len(rows),
        "seq-sum-constant": [1 / len(rows) / (constant or 1.0)] * len(rows),
    }[how]
    return torch.tensor([w for w, count in zip(each, counts, strict=True) for _ in range(count)], dtype=torch.float64)


def policy_loss(
    lm: Any, runs: Sequence[Trajectory], advantage: Sequence[float], config: UpdateConfig, reference: Any = None
) -> Tensor:
    """The clipped surrogate with its bonus and its penalty, one sampled token after the other."""
    pairs = [sampled(lm, turn) for turn in turns(runs)]
    new, entropy = (torch.cat([pair[k] for pair in pairs]) for k in range(2))
    a = torch.tensor(advantage, dtype=torch.float64)
    change = new - old_logprobs(runs)
    if config.ratio == "turn":
        replies = change.split([len(turn.reply.ids) for turn in turns(runs)])
        change = torch.cat([reply.mean().expand(len(reply)) for reply in replies])
    ratio = change.exp()
    gain = torch.minimum(a * ratio, a * ratio.clamp(1 - config.clip_low, 1 + config.clip_high))
    if config.dual_clip:
        gain = torch.where(a < 0, torch.maximum(gain, config.dual_clip * a), gain)
    loss = -gain - config.entropy_coef * entropy
    if reference is not None and config.kl_in == "loss":
        with torch.no_grad():
            behind = torch.cat([sampled(reference, turn)[0] for turn in turns(runs)])
        loss = loss + config.kl_coef * ((behind - new).exp() - (behind - new) - 1)
    whole = config.whole
    return (weights(runs, whole, config.aggregation, config.constant) * loss).sum()


def critic_loss(critic: Any, runs: Sequence[Trajectory], targets: Sequence[float], config: UpdateConfig) -> Tensor:
    """Half the mean squared error of the values of all sampled tokens, times its coefficient."""
    result = torch.cat([values(critic, turn) for turn in turns(runs)])
    return config.value_coef * 0.5 * ((result - torch.tensor(targets, dtype=torch.float64)) ** 2).mean()


def gradient(loss: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """The gradient of a loss by all parameters, in one vector."""
    result = torch.autograd.grad(loss, parameters, allow_unused=True)
    pairs = zip(result, parameters, strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).flatten().double() for g, p in pairs])


def left_by(parameters: Sequence[Tensor]) -> Tensor:
    """The gradient that an update left in the parameters, in one vector; empty where there are
    none."""
    return torch.cat(
        [torch.zeros(0).double()]
        + [(torch.zeros_like(p) if p.grad is None else p.grad).flatten().double() for p in parameters]
    )


def agree(result: Tensor, expected: Tensor) -> None:
    """Equal within the precision of the float32 numbers on the way. A gradient of nothing proves
    nothing."""
    size = float(expected.norm())
    assert size > 1e-3, "the expected gradient vanishes: this case tests nothing"
    torch.testing.assert_close(result, expected, rtol=0, atol=2e-5 * size)


def frozen_copy(lm: Any) -> Any:
    return copy.deepcopy(lm).requires_grad_(False)
