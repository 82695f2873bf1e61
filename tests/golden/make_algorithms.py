"""Writes the numeric cases of `algorithms/*.json`: random inputs from a fixed seed, expected values from `formulas.py`.

    python -m tests.golden.make_algorithms

A file holds `description`, `tolerance` and `cases`; a case has `name`, `params`, `inputs` and `expected`. Inputs are
rounded to six decimals before anything is computed from them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden import formulas, make_choices, make_losses, make_tables
from tests.golden.cases import Case, case, draw, plain

FOLDER = Path(__file__).parent / "algorithms"


def ragged(rng: np.random.Generator, counts: list[int]) -> list[list[float]]:
    return [draw(rng, count).tolist() for count in counts]


# ---- critics -----------------------------------------------------------------------------------------

STREAMS = {
    "open_end": (4, []),
    "done_inside_and_at_the_end": (5, [1, 4]),
    "done_at_once": (3, [0]),
    "one_turn": (1, []),
    "one_turn_done": (1, [0]),
}
RATES = [(0.95, 0.95), (0.99, 0.9), (0.9, 1.0), (0.95, 0.0), (1.0, 0.8)]


def following(dones: np.ndarray, ends: np.ndarray, n: int) -> tuple[list[bool], list[float]]:
    """Stops and bootstrap values of stream n of a batch that is cut after its last turn."""
    last = len(dones) - 1
    stops = [bool(dones[t, n]) or t == last for t in range(last + 1)]
    return stops, [0.0 if dones[t, n] else float(ends[n]) for t in range(last + 1)]


def turn_gae(rng: np.random.Generator) -> Iterator[Case]:
    for (name, (length, where)), (gamma, lam) in zip(STREAMS.items(), RATES, strict=True):
        for smdp in (False, True):
            rewards, values, ends = draw(rng, length, 2), draw(rng, length, 2), draw(rng, 2)
            dones = np.zeros((length, 2), int)
            dones[where, 0] = 1
            inputs = {"rewards": rewards, "dones": dones, "values": values, "next_values": ends}
            steps = rng.integers(1, 9, size=(length, 2)) if smdp else np.ones((length, 2), int)
            if smdp:
                inputs["macro_steps"] = steps
            columns = []
            for n in range(2):
                stops, boots = following(dones, ends, n)
                turns = [[v] for v in values[:, n]]
                rates = (1.0, 1.0, gamma ** steps[:, n], lam)
                columns.append([x for (x,) in formulas.advantages(rewards[:, n], turns, stops, boots, *rates)])
            name_ = f"{name}_macro_steps" if smdp else name
            yield case(name_, {"gamma": gamma, "lam": lam}, inputs, {"advantages": np.transpose(columns)})
    for terminated, truncated in (
        ([0, 0, 0, 1], [0, 1, 0, 0]),
        ([0, 1, 0, 1], [0, 1, 1, 1]),
        ([0, 0, 0, 0], [1, 0, 0, 1]),
    ):
        rewards, values, finals = draw(rng, 4), draw(rng, 4), draw(rng, 4)
        stops = [bool(a or b) or t == 3 for t, (a, b) in enumerate(zip(terminated, truncated, strict=True))]
        boots = [0.0 if a else v for a, v in zip(terminated, finals, strict=True)]
        result = formulas.advantages(rewards, [[v] for v in values], stops, boots, 1.0, 1.0, 0.95, 0.9)
        inputs = {"rewards": rewards, "values": values, "terminated": terminated, "truncated": truncated}
        inputs |= {"final_values": finals, "layout": "one stream"}
        name = f"truncated_{truncated}_terminated_{terminated}".replace(", ", "").replace("[", "").replace("]", "")
        yield case(name, {"gamma": 0.95, "lam": 0.9}, inputs, {"advantages": [x for (x,) in result]})


def token_gae(rng: np.random.Generator) -> Iterator[Case]:
    for (name, (length, where)), (gamma, lam) in zip(STREAMS.items(), RATES, strict=True):
        rewards, ends = draw(rng, length, 2), draw(rng, 2)
        dones = np.zeros((length, 2), int)
        dones[where, 1] = 1
        values = [ragged(rng, rng.integers(1, 6, size=2).tolist()) for _ in range(length)]
        expected: dict[str, Any] = {}
        for method, inside in (("NTPO", gamma), ("POAD", 1.0)):
            columns = []
            for n in range(2):
                stops, boots = following(dones, ends, n)
                own = [row[n] for row in values]
                columns.append(formulas.advantages(rewards[:, n], own, stops, boots, inside, lam, gamma, lam))
            expected[method] = {"advantages": [list(pair) for pair in zip(*columns, strict=True)]}
        inputs = {"rewards": rewards, "dones": dones, "token_values": values, "next_values": ends}
        yield case(name, {"gamma": gamma, "lam": lam}, inputs, expected)
    for inside, fade in itertools.product((1.0, 0.99, 0.5), (1.0, 0.95)):
        yield stream_case(rng, f"gamma_token_{inside}_lambda_token_{fade}", (inside, fade, 0.95, 0.9), False)


def dual_gae(rng: np.random.Generator) -> Iterator[Case]:
    for rates in ((1.0, 1.0, 0.99, 0.95), (0.99, 0.97, 0.95, 0.9), (1.0, 0.0, 0.9, 0.0), (0.9, 1.0, 1.0, 1.0)):
        for paid in (False, True):
            yield stream_case(rng, f"rates_{'_'.join(map(str, rates))}{'_token_rewards' * paid}", rates, paid)


def stream_case(rng: np.random.Generator, name: str, rates: tuple[float, ...], paid: bool) -> Case:
    """A stream of five turns: one truncated inside, one terminated inside, the last cut by the edge of the batch."""
    counts = [3, 1, 4, 2, 5]
    stops, boots = [0, 1, 1, 0, 1], [0.0, 0.42, 0.0, 0.0, -0.31]
    rewards, values = draw(rng, 5), ragged(rng, counts)
    extra = ragged(rng, counts) if paid else None
    inputs = {"rewards": rewards, "token_values": values, "cut": stops, "boot": boots, "layout": "one stream"}
    if extra:
        inputs["token_rewards"] = extra
    params = dict(zip(("gamma_w", "lam_w", "gamma_a", "lam_a"), rates, strict=True))
    result = formulas.advantages(rewards, values, stops, boots, *rates, token_rewards=extra)
    return case(name, params, inputs, {"advantages": result})


def masked_gae(rng: np.random.Generator) -> Iterator[Case]:
    for gamma, lam in ((1.0, 1.0), (0.99, 0.95), (0.9, 0.0)):
        mask = (rng.random((4, 16)) < 0.6).astype(int)
        mask[3] = 0
        mask[3, 5] = 1
        rewards = draw(rng, 4, 16) * (rng.random((4, 16)) < 0.3) * mask
        values = draw(rng, 4, 16)
        result = formulas.masked_advantages(rewards, values, mask, gamma, lam)
        expected = {
            "token_level_rewards": rewards,
            "advantages_raw_masked": result,
            "advantages_whitened_masked": formulas.whitened(result, mask),
        }
        inputs = {"response_mask": mask, "values": values}
        yield case(f"gamma_{gamma}_lambda_{lam}", {"gamma": gamma, "lam": lam}, inputs, expected)


def whole_update(rng: np.random.Generator) -> Iterator[Case]:
    """KL in the reward, advantages, whitening, policy loss and value loss, one after the other."""
    methods = {"ntpo": (0.95, 0.95, 0.95, 0.95), "poad": (1.0, 0.95, 0.95, 0.95), "dual": (1.0, 1.0, 0.99, 0.95)}
    for (method, rates), beta in itertools.product(methods.items(), (0.0, 0.05)):
        counts, stops, boots = [2, 3, 1, 4], [0, 1, 0, 1], [0.0, 0.42, 0.0, 0.0]
        names = ("old_values", "new_values", "old_logprobs", "new_logprobs", "ref_logprobs")
        inputs: dict[str, Any] = {name: ragged(rng, counts) for name in names}
        for name in names[2:]:
            inputs[name] = [(-np.abs(row)).tolist() for row in inputs[name]]
        inputs |= {"turn_rewards": draw(rng, 4), "cut": stops, "boot": boots}
        flat = {name: np.concatenate(inputs[name]) for name in names}
        pairs = zip(inputs["old_logprobs"], inputs["ref_logprobs"], strict=True)
        extra = [(-beta * (np.array(a) - np.array(b))).tolist() for a, b in pairs]
        result = formulas.advantages(
            inputs["turn_rewards"], inputs["old_values"], stops, boots, *rates, token_rewards=extra
        )
        advantage = np.concatenate(result)
        white = formulas.whitened(advantage, np.ones(len(advantage)))
        loss, *_ = formulas.clipped_surrogate(flat["new_logprobs"], flat["old_logprobs"], white, 0.2, 0.2)
        target = advantage + flat["old_values"]
        value, _ = formulas.value_loss(flat["new_values"], flat["old_values"], target, 0.5)
        params = dict(zip(("gamma_w", "lam_w", "gamma_a", "lam_a"), rates, strict=True))
        expected = {
            "advantages": result,
            "whitened_flat": white,
            "policy_loss_token_mean": loss.mean(),
            "value_loss": 0.5 * value.mean(),
        }
        params |= {"beta_kl_in_reward": beta, "clip": 0.2, "value_clip": 0.5}
        yield case(f"{method}_beta_{beta}", params, inputs, expected)


# ---- groups ------------------------------------------------------------------------------------------

GROUPS: dict[str, tuple[list[float], list[str]]] = {
    "two_groups_of_wins_and_losses": ([1, 0, 0, 1, 0, 0, 0, 1], list("aaaabbbb")),
    "equal_scores": ([1, 1, 1, 0, 0], list("aaabb")),
    "groups_of_one": ([0.5, -2.0, 3.0], list("abc")),
    "unequal_interleaved": ([0.2, 1.5, -0.7, 0.9, 2.2, -1.1, 0.4], list("abacbab")),
    "pairs": ([1.0, 0.25, -3.0, 4.0], list("abba")),
    "nearly_equal": ([1.0, 1.0 + 1e-7, 1.0 - 1e-7], list("aaa")),
}
TURNS = [[0, 0.5, 0, 1], [0.2, 0, 1], [0, 0, 0, 0, -1], [1], [0.3, -0.3], [0, 2, 0]]


def groups(rng: np.random.Generator, method: str) -> Iterator[Case]:
    for name, (scores, owners) in GROUPS.items():
        rewards = np.zeros((len(scores), 4))
        rewards[:, 1] = rng.integers(-2, 3, size=len(scores))
        rewards[:, 3] = scores - rewards[:, 1]
        total = rewards.sum(1).tolist()
        expected: dict[str, Any] = {}
        if method == "grpo":
            kinds = {"with_std": True, "no_std_dr_grpo": False}
            expected["scalar_advantage"] = {key: formulas.normalised(total, owners, on) for key, on in kinds.items()}
        elif min(owners.count(owner) for owner in owners) > 1:
            expected["scalar_advantage_loop"] = formulas.leave_one_out(total, owners)
        yield case(name, {}, {"token_level_rewards": rewards, "groups": owners}, expected)
    owners = list("aaabba")
    for mode, gamma in itertools.product(("grpo_std", "grpo_mean") if method == "grpo" else ("rloo",), (1.0, 0.9)):
        expected = {"returns_to_go": [formulas.returns_to_go(row, gamma) for row in TURNS]}
        expected["turn_advantages"] = formulas.per_turn(TURNS, owners, gamma, mode)
        inputs = {"turn_rewards": TURNS, "groups": owners}
        yield case(f"per_turn_{mode}_gamma_{gamma}", {"gamma": gamma, "mode": mode, "eps": 1e-6}, inputs, expected)


def gigpo(rng: np.random.Generator) -> Iterator[Case]:
    anchors = [list("sabs"), list("sas"), list("scabb"), list("sx"), list("sx"), list("zs")]
    owners = list("gggghh")
    settings = itertools.product(("mean_std_norm", "mean_norm"), (True, False), ((0.95, 1.0), (1.0, 0.5), (0.6, 1.7)))
    for mode, rows, (gamma, omega) in settings:
        rewards = [np.round(rng.choice([0, 0, 1, -0.1, 0.4], size=len(row)), 6).tolist() for row in anchors]
        scaled = mode == "mean_std_norm"
        result = formulas.group_in_group(rewards, anchors, owners, gamma, omega, scaled, rows)
        episode = [value for value, row in zip(result[0], rewards, strict=True) for _ in row]
        inputs = {
            "group": [owner for owner, row in zip(owners, rewards, strict=True) for _ in row],
            "traj": [f"t{i}" for i, row in enumerate(rewards) for _ in row],
            "anchor_obs": list(itertools.chain(*anchors)),
            "step_rewards": list(itertools.chain(*rewards)),
            "episode_return": [sum(row) for row in rewards for _ in row],
        }
        params = {"gamma": gamma, "omega": omega, "mode": mode, "eps": 1e-6}
        params["episode_stats"] = "over rows" if rows else "over trajectories"
        expected = {
            "episode_advantage": episode,
            "step_advantage": list(itertools.chain(*result[1])),
            "advantage": list(itertools.chain(*result[2])),
        }
        yield case(f"{mode}_{params['episode_stats'].replace(' ', '_')}_gamma_{gamma}", params, inputs, expected)


def windows(rng: np.random.Generator) -> Iterator[Case]:
    for size, full in itertools.product((0, 1, 2, 4), (0, 1, 2)):
        contexts = []
        for turn in range(5):
            context = []
            for past in range(max(0, turn - size), turn):
                context += [f"o{past}", f"plan:p{past}" if turn - past <= full else f"act:a{past}"]
            contexts.append([*context, f"o{turn}"])
        params = {"n": size, "max_cot_history": full}
        yield case(f"window_{size}_reasoning_{full}", params, {"turns": 5}, {"context_per_turn": contexts})


FILES = {
    "gae_turn": (turn_gae, "Turn-level GAE; arrays are [turn, stream]. The last turn is cut by the edge of the batch."),
    "token_gae_ntpo_bad": (token_gae, "Token-level GAE; token_values[turn][stream][token] precede the token."),
    "dual_discount_gae_verlog": (dual_gae, "Dual-discount GAE of one stream of turns, with rewards per token."),
    "masked_token_gae_multiturn": (
        masked_gae,
        "Token GAE over rows that hold the environment's text, which is masked.",
    ),
    "end_to_end_token_ppo": (whole_update, "KL in the reward, advantages, whitening, policy and value loss."),
    "grpo": (lambda rng: groups(rng, "grpo"), "GRPO and Dr. GRPO; a score is the sum of a row's rewards."),
    "rloo": (lambda rng: groups(rng, "rloo"), "RLOO; groups of one have no expected advantage."),
    "gigpo": (gigpo, "GiGPO, one row per turn."),
    "ppo_policy_loss": (
        make_losses.policy_loss,
        "Clipped surrogate, aggregated, and its gradient by the new log-probs.",
    ),
    "value_loss": (make_losses.value_loss, "Clipped value loss and its gradient by the new values."),
    "kl": (make_losses.kl, "KL estimators, their gradients, KL in the reward, and the adaptive coefficient."),
    "normalisation_entropy_sft": (
        make_losses.others,
        "Normalisation of advantages, entropy, and the loss of fine-tuning.",
    ),
    "history_window": (windows, "Which past turns a prompt shows, and which of them with their reasoning."),
    "tabular_bad": (make_tables.cases, "Tabular processes whose actions are strings of tokens, solved exactly."),
    "policy_over_admissible_actions": (make_choices.cases, "Distributions over commands from a bigram model."),
}


def main() -> None:
    for number, (name, (make, description)) in enumerate(FILES.items()):
        result = list(make(np.random.default_rng([20261122, number])))
        head = {"description": description, "tolerance": {"abs": 1e-8 if name.startswith("policy_over") else 1e-9}}
        if name.startswith("policy_over"):
            head |= make_choices.vocabulary()
        rows = ",\n".join(json.dumps(plain(item)) for item in result)
        text = json.dumps(plain(head))[:-1] + f', "cases": [\n{rows}\n]}}\n'
        json.loads(text)
        (FOLDER / f"{name}.json").write_text(text)
        print(f"{name}: {len(result)} cases")


if __name__ == "__main__":
    main()
