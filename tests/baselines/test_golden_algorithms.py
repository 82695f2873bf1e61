"""Every golden case of the algorithms, in float64 at the tolerance its file states."""

import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import LlamaConfig

from baselines.math import advantages, estimators, losses
from baselines.networks.logprobs import token_logprobs
from baselines.networks.model import actor_logprobs
from baselines.networks.prefix_sharing import distinct_rows
from harness.lm import likelihood
from harness.prompting.prompting import Prompting
from harness.types import Reply, Turn
from tests.conftest import GOLDEN

KINDS = {"kl": "k1", "mse": "k2", "low_var_kl": "k3"}  # verl's older names
T = lambda x: torch.tensor(x, dtype=torch.float64)


COUNTS = {
    "gae_turn": (13, 16),
    "token_gae_ntpo_bad": (11, 15),
    "dual_discount_gae_verlog": (8, 4),
    "masked_token_gae_multiturn": (3, 6),
    "end_to_end_token_ppo": (6, 8),
    "grpo": (10, 11),
    "rloo": (8, 9),
    "gigpo": (12, 8),
    "ppo_policy_loss": (13, 18),
    "value_loss": (6, 7),
    "kl": (9, 10),
    "normalisation_entropy_sft": (5, 5),
    "history_window": (12, 12),
    "tabular_bad": (7, 7),
    "policy_over_admissible_actions": (14, 14),
}
"""cases in each file: committed, and of the reference codes"""


@pytest.fixture(scope="module")
def golden(algorithm_cases):
    """Reads the cases of a file, and checks that none is missing."""
    reference = algorithm_cases != GOLDEN / "algorithms"

    def read(name):
        cases = json.loads((algorithm_cases / f"{name}.json").read_text())["cases"]
        assert len(cases) == COUNTS[name][reference]
        return cases

    read.reference = reference
    return read


def close(got, want, tolerance=1e-9, relative=0.0):
    """Within the tolerance that the files state, 1e-9 but for one of 1e-8."""
    got, want = np.asarray(got, float), np.asarray(want, float)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, atol=tolerance, rtol=relative)


VERL_MEAN = 1e-8
"""relative: verl divides sums by the number of tokens + 1e-8, and here they are divided by the
number"""


def test_the_files_state_the_tolerance_that_is_tested(algorithm_cases):
    stated = {path.stem: json.loads(path.read_text())["tolerance"]["abs"] for path in algorithm_cases.glob("*.json")}
    assert stated.pop("policy_over_admissible_actions") == 1e-8
    assert set(stated.values()) == {1e-9}


def stream(rewards, values, cut, boot, gamma_token, lambda_token, gamma_step, lambda_step, extra=None):
    """The kernel on one ragged stream: values[t][j]; returns ragged advantages."""
    lengths = [len(row) for row in values]
    flat = [x for row in values for x in row]
    n = len(flat)
    ends = np.cumsum(lengths) - 1
    r, e, c, b = np.zeros(n), np.zeros(n, bool), np.zeros(n, bool), np.zeros(n)
    r[ends], e[ends], c[ends], b[ends] = rewards, True, np.array(cut, bool), boot
    if extra is not None:
        r += np.array([x for row in extra for x in row])
    g = np.zeros(n)
    g[ends] = gamma_step
    result = estimators.gae(
        T(r)[None], T(flat)[None], torch.tensor(e)[None], torch.tensor(c)[None], T(b)[None],
        torch.ones(1, n, dtype=torch.bool), gamma_token, lambda_token, T(g)[None], lambda_step,
    )[0].tolist()  # fmt: skip
    return [result[end - length + 1 : end + 1] for end, length in zip(ends, lengths, strict=False)]


def edges(dones, following, n):
    """Returns the cuts of streams that run over several episodes, and the values after them."""
    last = len(dones) - 1
    cut = [bool(row[n]) or t == last for t, row in enumerate(dones)]
    boot = [0.0 if row[n] or t != last else following[n] for t, row in enumerate(dones)]
    return cut, boot


def ragged(got, want):
    assert [len(row) for row in got] == [len(row) for row in want]
    for mine, theirs in zip(got, want, strict=False):
        close(mine, theirs)


def test_turn_level_gae(golden):
    cases = golden("gae_turn")
    for case in cases:
        i, p, e = case["inputs"], case["params"], case["expected"]
        if "layout" in i:
            last = len(i["rewards"]) - 1
            cut = [a or b or t == last for t, (a, b) in enumerate(zip(i["terminated"], i["truncated"], strict=False))]
            boot = [0.0 if a else v for a, v in zip(i["terminated"], i["final_values"], strict=False)]
            got = stream(i["rewards"], [[v] for v in i["values"]], cut, boot, 1, 1, p["gamma"], p["lam"])
            close([row[0] for row in got], e["advantages"])
            continue
        for n in range(len(i["rewards"][0])):
            cut, boot = edges(i["dones"], i["next_values"], n)
            column = lambda x, n=n: [row[n] for row in x]
            gamma = p["gamma"] ** np.array(column(i["macro_steps"])) if "macro_steps" in i else p["gamma"]
            got = stream(column(i["rewards"]), [[v] for v in column(i["values"])], cut, boot, 1, 1, gamma, p["lam"])
            close([row[0] for row in got], column(e["advantages"]))


def test_token_level_gae_of_ntpo_and_poad(golden):
    cases = golden("token_gae_ntpo_bad")
    for case in cases:
        i, p, e = case["inputs"], case["params"], case["expected"]
        if "layout" in i:
            got = stream(
                i["rewards"], i["token_values"], i["cut"], i["boot"], p["gamma_w"], p["lam_w"], p["gamma_a"], p["lam_a"]
            )
            ragged(got, e["advantages"])
            continue
        g, lam = p["gamma"], p["lam"]
        for n in range(len(i["next_values"])):
            cut, boot = edges(i["dones"], i["next_values"], n)
            rewards, values = [row[n] for row in i["rewards"]], [row[n] for row in i["token_values"]]
            ragged(stream(rewards, values, cut, boot, g, lam, g, lam), [row[n] for row in e["NTPO"]["advantages"]])
            ragged(stream(rewards, values, cut, boot, 1, lam, g, lam), [row[n] for row in e["POAD"]["advantages"]])


def test_dual_discount_gae(golden):
    """The clean operator; and the reference's, which counts a position more after a reply that is
    not full."""
    cases = golden("dual_discount_gae_verlog")
    for case in cases:
        i, p, e = case["inputs"], case["params"], case["expected"]
        if "layout" in i:
            rates = (p["gamma_w"], p["lam_w"], p["gamma_a"], p["lam_a"])
            got = stream(i["rewards"], i["token_values"], i["cut"], i["boot"], *rates, i.get("token_rewards"))
            ragged(got, e["advantages"])
            continue
        streams, length = p["n_rollouts"], p["episode_len"]
        for extra_position, key in ((0, "clean_advantages_env_turn"), (1, "advantages_raw")):
            for k in range(streams):
                own = [t * streams + k for t in range(length)]
                width = len(i["values"][0])
                sizes = [min(sum(i["response_mask"][row]) + extra_position, width) for row in own]
                values = [i["values"][row][:n] for row, n in zip(own, sizes, strict=False)]
                extra = [i["token_level_rewards"][row][:n] for row, n in zip(own, sizes, strict=False)]
                dones = [bool(i["dones"][row]) for row in own]
                cut = [done or t == length - 1 for t, done in enumerate(dones)]
                edge = i["values"][length * streams + k][0]
                boot = [0.0 if done or t != length - 1 else edge for t, done in enumerate(dones)]
                rates = (p["token_gamma"], p["token_lam"], p["step_gamma"], p["step_lam"])
                got = stream([0.0] * length, values, cut, boot, *rates, extra)
                if key.startswith("clean"):
                    ragged(got, e[key][k])
                else:
                    ragged(got, [e[key][row][:n] for row, n in zip(own, sizes, strict=False)])


def test_masked_gae_skips_the_environments_text(golden):
    result = golden("masked_token_gae_multiturn")
    cases = [case for case in result if "response_mask" in case["inputs"]]
    left_out = [case["name"] for case in result if case not in cases]  # what a reference's layout does to its masks
    for case in cases:
        i, p, e = case["inputs"], case["params"], case["expected"]
        mask = torch.tensor(i["response_mask"], dtype=torch.bool)
        # One gamma and one lambda throughout, no bootstrap at the end: turns make no difference.
        nothing = torch.zeros_like(mask)
        got = estimators.gae(
            T(e["token_level_rewards"]), T(i["values"]), nothing, nothing, torch.zeros(mask.shape, dtype=torch.float64),
            mask, p["gamma"], p["lam"], 1.0, 1.0,
        )  # fmt: skip
        close(got, e["advantages_raw_masked"])
        close(advantages.whiten(got, mask), e["advantages_whitened_masked"])
    assert left_out == (["prompt_width_quirk", "response_overflow"] if golden.reference else [])


@pytest.mark.parametrize("name", ["grpo", "rloo"])
def test_group_advantages(golden, name):
    cases, left_out = golden(name), []
    for case in cases:
        i, p, e = case["inputs"], case.get("params", {}), case["expected"]
        if "turn_rewards" in i:
            got = [advantages.returns_to_go(row, p["gamma"]) for row in i["turn_rewards"]]
            ragged(got, e["returns_to_go"])
            if p["mode"] == "rloo" and "turn_advantages" not in e:
                left_out.append(case["name"])  # returns alone
                continue
            ragged(advantages.per_turn(i["turn_rewards"], i["groups"], p["gamma"], p["mode"]), e["turn_advantages"])
            continue
        scores = T(i["token_level_rewards"]).sum(-1)
        if name == "grpo":
            close(advantages.group_normalised(scores, i["groups"]), e["scalar_advantage"]["with_std"])
            close(
                advantages.group_normalised(scores, i["groups"], std=False),
                e["scalar_advantage"]["no_std_dr_grpo"],
            )
        elif min(map(len, advantages.members(i["groups"]))) < 2:
            with pytest.raises(ValueError, match="two or more"):
                advantages.leave_one_out(scores, i["groups"])
        else:
            close(advantages.leave_one_out(scores, i["groups"]), e["scalar_advantage_loop"])
    assert left_out == []


def test_gigpo(golden):
    cases, left_out = golden("gigpo"), []
    for case in cases:
        i, p, e = case["inputs"], case["params"], case["expected"]
        order = list(dict.fromkeys(i["traj"]))
        rows = [[k for k, name in enumerate(i["traj"]) if name == item] for item in order]
        if "step_rewards" not in i:
            left_out.append(case["name"])
            continue
        rewards = [[i["step_rewards"][k] for k in row] for row in rows]
        anchors = [[i["anchor_obs"][k] for k in row] for row in rows]
        if any(abs(sum(r) - i["episode_return"][row[0]]) > 1e-9 for r, row in zip(rewards, rows, strict=False)):
            left_out.append(case["name"])
            continue  # the reference's penalty, subtracted from a row's score alone: ours is a reward like any other
        got = estimators.gigpo(
            rewards, anchors, [i["group"][row[0]] for row in rows], p["gamma"], p["omega"],
            p["mode"] == "mean_std_norm", p["eps"], p["episode_stats"].startswith("over rows"),
        )  # fmt: skip
        for n, row in enumerate(rows):
            for t, k in enumerate(row):
                close(got[0][n], e["episode_advantage"][k])
                close(got[1][n][t], e["step_advantage"][k])
                close(got[2][n][t], e["advantage"][k])
    assert left_out == []


def test_policy_losses_and_their_gradients(golden):
    cases = golden("ppo_policy_loss")
    for case in cases:
        i, p, e = case["inputs"], case["params"], case["expected"]
        new = T(i["new_logprobs"]).requires_grad_()
        loss, active = losses.clipped_surrogate(
            new, T(i["old_logprobs"]), T(i["advantages"]), p["clip_low"], p["clip_high"], p.get("dual_clip_c")
        )
        mask = T(i["mask"]) if "mask" in i else torch.ones_like(loss)
        if "dual_clip_c" in p:
            how = p["agg"]
            if how == "seq-mean-token-sum-norm":
                total = aggregated = (loss * mask).sum() / loss.shape[-1]
            else:
                total = aggregated = losses.aggregate(loss, mask, how, p.get("constant"))
            close(aggregated.detach(), e["loss"], relative=VERL_MEAN)
            close(losses.aggregate(active.to(torch.float64), mask), e["clip_fraction"], relative=VERL_MEAN)
        else:
            total = losses.aggregate(loss - p["entropy_coef"] * T(i["entropy"]), mask)
            close(total.detach(), e["loss"])
            close(
                losses.aggregate(losses.early_stop_kl(new, T(i["old_logprobs"])), mask).detach(),
                e["approx_kl_k3_early_stop"],
            )
        gradient = next((e[key] for key in e if key.startswith("grad")), None)
        if gradient is not None:
            total.backward()
            close(new.grad, gradient, relative=VERL_MEAN if "dual_clip_c" in p else 0.0)


def test_value_losses(golden):
    cases, left_out = golden("value_loss"), []
    for case in cases:
        i, p, e = case["inputs"], case["params"], case["expected"]
        if "delta" in p:
            left_out.append(case["name"])
            continue  # a defect of a reference, documented there
        per = losses.clipped_value_loss(T(i["values_new"]), T(i["values_old"]), T(i["returns"]), p["clip"])
        mask = T(i["mask"]) if "mask" in i else torch.ones_like(per)
        if "first_token_weight" in p:
            per = torch.cat([per[:, :1] * p["first_token_weight"], per[:, 1:]], dim=1)
        close(p["factor"] * losses.aggregate(per, mask), e["loss"])
    assert left_out == (["adrl_huber_defect"] if golden.reference else [])


def test_kl_estimators_and_kl_in_the_reward(golden):
    checked = Counter()
    for case in golden("kl"):
        i, p, e = case["inputs"], case.get("params", {}), case["expected"]
        if p.get("kind") == "abs":
            continue  # an estimator of a reference code that no paper here uses
        if case["name"].startswith("kl_in_reward"):
            kl = losses.kl_estimate(T(i["old_logprobs"]), T(i["ref_logprobs"]), KINDS.get(p["kind"], p["kind"])) * T(
                i["mask"]
            )
            close(T(i["token_level_scores"]) - p["beta"] * kl, e["token_level_rewards"])
            checked["in the reward"] += 1
        elif case["name"].startswith("kl_"):
            close(
                losses.kl_estimate(T(i["logprobs"]), T(i["ref_logprobs"]), KINDS.get(p["kind"], p["kind"])), e["value"]
            )
            checked["estimators"] += 1
    assert checked == {"estimators": 3, "in the reward": 4 if golden.reference else 3}


def test_the_kl_penalty_moves_to_its_target(golden):
    (case,) = (case for case in golden("kl") if case["name"] == "adaptive_controller")
    p, coef = case["params"], case["params"]["init"]
    for (kl, episodes), target in zip(case["inputs"]["updates"], case["expected"]["beta_after"], strict=True):
        coef = losses.adapted_kl_coef(coef, kl, p["target"], episodes, p["horizon"])
        close(T(coef), target)


def test_kl_gradients_and_expectations(golden):
    for case in golden("kl"):
        i, e = case["inputs"], case["expected"]
        if "grad_of_masked_sum" in e:
            mask, kind = T(i["mask"]), case["params"]["kind"]
            if kind == "abs":
                continue
            target = {kind: e["grad_of_masked_sum"]}
            if "straight_through_grad" in e:
                target[f"{kind}+"] = e["straight_through_grad"]
            for name, gradient in target.items():
                new = T(i["logprobs"]).requires_grad_()
                value = losses.kl_estimate(new, T(i["ref_logprobs"]), name)
                close(value.detach(), e["value"])
                close(losses.aggregate(value, mask).detach(), e["loss_token_mean"], relative=VERL_MEAN)
                (value * mask).sum().backward()
                close(new.grad, gradient)
        elif case["name"] == "expectations_exact":
            p, q = T(i["logp"]), T(i["logq"])
            for kind in ("k1", "k2", "k3"):
                close((p.exp() * losses.kl_estimate(p, q, kind)).sum(), e[f"E_{kind}"])


def entropy_of(logits):
    """The entropy as the trainers compute it, beside the log-prob of some token. [..., V] -> [...]"""
    rows = logits.reshape(-1, logits.shape[-1])
    return token_logprobs(rows, torch.zeros(len(rows), dtype=torch.long))[1].reshape(logits.shape[:-1])


def test_normalisation_and_entropy(golden):
    result = {case["name"]: case for case in golden("normalisation_entropy_sft")}
    for name, kind in (("adrl_token_norm", "population"), ("adrl_twosome_action_norm", "sample")):
        x, y = T(result[name]["inputs"]["x"]), T(result[name]["expected"]["y"])
        seen = (
            x != 0 if kind == "population" else torch.ones_like(x, dtype=torch.bool)
        )  # zeros are masked here, scaled there
        close(advantages.standardise(x, seen, kind), y * seen)
    case = result["verl_masked_whiten"]
    x, mask = T(case["inputs"]["x"]), torch.tensor(case["inputs"]["mask"], dtype=torch.bool)
    close(advantages.whiten(x, mask), np.array(case["expected"]["y"]) * mask.numpy())
    close(entropy_of(T(result["entropy"]["inputs"]["logits"])), result["entropy"]["expected"]["entropy"])
    case = result["entropy"]
    mean = losses.aggregate(entropy_of(T(case["inputs"]["logits"])), T(case["inputs"]["mask"]))
    close(mean, case["expected"]["token_mean"], relative=VERL_MEAN)


def test_fine_tuning_learns_the_tokens_that_the_mask_marks(golden):
    """The library's own column convention: token l is foretold at l - 1, and the mask marks tokens."""
    case = next(case for case in golden("normalisation_entropy_sft") if case["name"] == "sft")
    i, e = case["inputs"], case["expected"]

    class Fixed(torch.nn.Module):
        """A model with the file's logits for its answer."""

        config = LlamaConfig()
        device = torch.device("cpu")
        head = torch.nn.Identity()

        def get_output_embeddings(self):
            return self.head

        def forward(self, input_ids, logits_to_keep, **options):
            rows = [i["input_ids"].index(row) for row in input_ids.tolist()]
            return SimpleNamespace(logits=self.head(T(i["logits"])[rows]))

    ids, mask = torch.tensor(i["input_ids"]), torch.tensor(i["loss_mask"], dtype=torch.bool)
    mask[:, 0] = False  # nothing foretells the first token
    rows = distinct_rows(ids, torch.ones_like(mask), None, torch.device("cpu"))
    logprobs, _ = actor_logprobs(Fixed().eval(), rows, 1.0, False)
    close(-logprobs[:, 1:], e["nll"])
    close(losses.aggregate(-logprobs, mask), e["loss_label_mask"])


def test_token_ppo_end_to_end(golden):
    cases = golden("end_to_end_token_ppo")
    for case in cases:
        i, p, e = case["inputs"], case["params"], case["expected"]
        extra = [
            (-p["beta_kl_in_reward"] * losses.kl_estimate(T(old), T(ref), "k1")).tolist()
            for old, ref in zip(i["old_logprobs"], i["ref_logprobs"], strict=False)
        ]
        got = stream(
            i["turn_rewards"],
            i["old_values"],
            i["cut"],
            i["boot"],
            p["gamma_w"],
            p["lam_w"],
            p["gamma_a"],
            p["lam_a"],
            extra,
        )
        ragged(got, e["advantages"])
        flat = lambda rows: T([x for row in rows for x in row])
        mask = torch.ones(len(flat(got)), dtype=torch.bool)
        advantage = advantages.whiten(flat(got), mask)
        close(advantage, e["whitened_flat"])
        surrogate, _ = losses.clipped_surrogate(
            flat(i["new_logprobs"]), flat(i["old_logprobs"]), advantage, p["clip"], p["clip"]
        )
        close(surrogate.mean(), e["policy_loss_token_mean"])
        old = flat(i["old_values"])
        value = losses.clipped_value_loss(flat(i["new_values"]), old, flat(got) + old, p["value_clip"])
        close(0.5 * value.mean(), e["value_loss"])


def test_the_window_of_history(golden):
    cases = golden("history_window")
    for case in cases:
        p, count = case["params"], case["inputs"]["turns"]
        turns = [
            Turn(f"o{t}", Reply(f"<think>p{t}</think><action>a{t}</action>"), (f"a{t}",), 0.0, {}) for t in range(count)
        ]
        prompting = Prompting(history=p["n"], history_reasoning=p["max_cot_history"], admissible="none")
        for t in range(count):
            conversation = prompting.messages("rules", "", turns[:t], f"o{t}", ())[1:]
            spelled = [
                message["content"]
                .replace(f"<think>p{k}</think><action>a{k}</action>", f"plan:p{k}")
                .replace(f"<action>a{k}</action>", f"act:a{k}")
                for message in conversation
                for k in [int("".join(filter(str.isdigit, message["content"]))[0])]
            ]
            assert spelled == case["expected"]["context_per_turn"][t]


def test_policies_over_admissible_commands(golden):
    cases, left_out = golden("policy_over_admissible_actions"), []
    for case in cases:
        i, e = case["inputs"], case["expected"]
        if case["name"].startswith("twosome"):
            for tokens, commands, want in zip(i["token_logps"], i["actions"], e, strict=False):
                sums = T([sum(row) for row in tokens])
                lengths, words = [len(row) for row in tokens], [likelihood.word_count(command) for command in commands]
                got = likelihood.choice(sums, lengths, words, case["params"]["normalisation"])
                close(got.scores, want["scores"], 1e-8)
                close(got.logprobs, want["log_probs"], 1e-8)
                close(got.entropy, want["entropy"], 1e-8)
        elif case["name"] == "glam_scores":  # the paper's version; the code's sums raw logits
            got = likelihood.choice(T([sum(row) for row in i["token_logps"]]), [1] * 3, [1] * 3, "sum")
            close(got.scores, e["paper_scores"], 1e-8)
            close(got.logprobs, e["paper_log_probs"], 1e-8)
        elif case["name"] == "action_level_ratio":
            loss, _ = losses.clipped_surrogate(
                T(i["new_log_probs"]), T(i["old_log_probs"]), T(i["advantages"]), i["clip"], i["clip"]
            )
            close(loss, e["per_action_loss"], 1e-8)
        else:
            left_out.append(case["name"])  # ADRL's tokens: the test below
    assert left_out == (["adrl_choice0", "adrl_choice1", "adrl_choice2"])


def test_tokens_of_admissible_commands_have_the_log_probs_of_the_whole_vocabulary(algorithm_cases):
    """ADRL's ratio is over plain token log-probs, each read at the token before; TWOSOME's sums are
    of the same."""
    result = json.loads((algorithm_cases / "policy_over_admissible_actions.json").read_text())
    piece = {name: k for k, name in enumerate(result["pieces"])}
    spell = lambda text: [piece[part] for word in text.split() for part in result["words"][word]]

    class Bigram(torch.nn.Module):
        """The file's model: what follows a token depends on it alone."""

        device = torch.device("cpu")

        def __init__(self, table):
            super().__init__()
            self.table = T(table)

        def forward(self, input_ids, logits_to_keep=0, **options):
            return SimpleNamespace(logits=Wide(self.table[input_ids][:, -logits_to_keep:]))

    class Wide(torch.Tensor):  # scoring works in float32, the file in float64
        def float(self):
            return self.as_subclass(torch.Tensor)

    checked = 0
    for case in result["cases"]:
        i = case["inputs"]
        if case["name"].startswith("twosome"):
            sets, target = i["actions"], i["token_logps"]
        elif case["name"].startswith("adrl"):
            sets, target = (
                [[item] for item in i["chosen"]],
                [[row] for row in case["expected"]["ratio_token_log_probs"]],
            )
        else:
            continue
        network = Bigram(result["bigram_tables"][i.get("bigram_table", "old")])
        for prompt, commands, want in zip(i["prompts"], sets, target, strict=False):
            before = [1, *spell(prompt)]
            tokens = [likelihood.Candidate(len(before), tuple(spell(command))) for command in commands]
            got = likelihood.token_logprobs_apart(network, before, tokens)
            ragged([row.tolist() for row in got], want)
            if case["name"].startswith("adrl"):  # where the value of each token is read
                place = i["prompts"].index(prompt)
                reads = [len(before) - 1 + j for j in range(len(tokens[0].ids))]
                assert reads == case["expected"]["value_read_at_input_position"][place]
            checked += 1
    assert checked == 24
