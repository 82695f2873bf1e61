"""Theory in tables (golden `tabular_bad.json`): the trainers' own kernel, iterated, finds what the
papers prove."""

import math

import pytest

torch = pytest.importorskip("torch")

from baselines.math import estimators
from tests.baselines.test_golden_algorithms import T, close, golden  # noqa: F401


class Tokens:
    """A tabular MDP whose actions are strings of tokens, every (state, action) a stream for
    `estimators.gae`."""

    def __init__(self, mdp):
        self.actions = {int(s): [tuple(a) for a in result] for s, result in mdp["actions"].items()}
        self.reward = {(s, k): r for s, k, r in mdp["R"]}
        self.next = {(s, k): result for s, k, result in mdp["P"]}
        self.streams = [(s, k) for s in self.actions for k in range(len(self.actions[s]))]
        self.nodes = sorted({(s, a[:j]) for s, result in self.actions.items() for a in result for j in range(len(a))})
        self.children = {
            (s, prefix): sorted({a[len(prefix)] for a in self.actions[s] if a[: len(prefix)] == prefix})
            for s, prefix in self.nodes
        }

        self.last_place = [len(self.actions[s][k]) - 1 for s, k in self.streams]
        self.prefixes = [[(s, self.actions[s][k][:j]) for j in range(n + 1)] for (s, k), n in self.rows()]
        self.shape = len(self.streams), max(self.last_place) + 1
        self.rewards = torch.zeros(self.shape, dtype=torch.float64)
        self.mask, self.ends = torch.zeros(self.shape, dtype=torch.bool), torch.zeros(self.shape, dtype=torch.bool)
        for row, (stream, last) in enumerate(self.rows()):
            self.mask[row, : last + 1] = True
            self.ends[row, last] = True
            self.rewards[row, last] = self.reward[stream]

    def rows(self):
        """Pairs of a stream and the place of its last token."""
        return zip(self.streams, self.last_place, strict=True)

    def backup(self, values, gamma_token, gamma_step):
        """One step of temporal difference at every token by the kernel: lambda 0, so that A + V is
        its target."""
        width = self.shape[1]
        old = T([[values[node] for node in nodes] + [0.0] * (width - len(nodes)) for nodes in self.prefixes])
        boot = torch.zeros(self.shape, dtype=torch.float64)
        for row, (stream, last) in enumerate(self.rows()):
            boot[row, last] = sum(p * (0.0 if done else values[to, ()]) for p, to, done in self.next[stream])
        result = estimators.gae(
            self.rewards, old, self.ends, self.ends, boot, self.mask, gamma_token, 0.0, gamma_step, 0.0
        )
        targets = (result + old).tolist()
        return {
            (s, self.actions[s][k][:j], self.actions[s][k][j]): targets[row][j]
            for row, ((s, k), last) in enumerate(self.rows())
            for j in range(last + 1)
        }

    def solve(self, gamma_token, gamma_step, value_of):
        """Fixed point of Q = backup(V), V = value_of(node, {token: Q})."""
        values = dict.fromkeys(self.nodes, 0.0)
        while True:
            q = self.backup(values, gamma_token, gamma_step)
            new = {node: value_of(node, {w: q[(*node, w)] for w in self.children[node]}) for node in self.nodes}
            moved = max(abs(new[node] - values[node]) for node in self.nodes)
            values = new
            if moved < 1e-13:
                return q, values

    def greedy(self, q, state):
        prefix = ()
        while prefix not in self.actions[state]:
            prefix += (max(self.children[state, prefix], key=lambda w: q[state, prefix, w]),)
        return self.actions[state].index(prefix)

    def last(self, q, state, k):
        return q[state, self.actions[state][k][:-1], self.actions[state][k][-1]]


best = lambda node, q: max(q.values())


def named(golden, name):  # noqa: F811
    return next(case for case in golden("tabular_bad") if case["name"] == name)


@pytest.mark.parametrize("name", ["hand_flip", "random_positive", "random_negative"])
def test_undiscounted_tokens_find_the_action_level_optimum_and_discounted_ones_another(golden, name):  # noqa: F811
    case = named(golden, name)
    mdp, gamma, expected = Tokens(case["inputs"]["mdp"]), case["params"]["gamma_a"], case["expected"]
    for gamma_token, e in expected["by_gamma_w"].items():
        q, values = mdp.solve(float(gamma_token), gamma, best)
        close([mdp.last(q, s, k) for s, k, _ in e["Q_last_token"]], [v for *_, v in e["Q_last_token"]])
        close([values[s, ()] for s, _ in e["V_first"]], [v for _, v in e["V_first"]])
        for s, prefix, w, value in e.get("Q_all", []):
            assert q[s, tuple(prefix), w] == pytest.approx(value, abs=1e-9)
        assert {int(s): mdp.greedy(q, int(s)) for s in e["greedy"]} == {int(s): k for s, k in e["greedy"].items()}
        if float(gamma_token) == 1.0:  # BAD: the very action-level Q*, and its greedy action
            close([mdp.last(q, s, k) for s, k, _ in expected["Q_action"]], [v for *_, v in expected["Q_action"]])
            assert {str(s): mdp.greedy(q, s) for s in mdp.actions} == expected["greedy_action"]


def test_discounted_tokens_flip_the_greedy_action_to_the_short_one(golden):  # noqa: F811
    mdp = Tokens(named(golden, "hand_flip")["inputs"]["mdp"])
    chosen = [mdp.actions[0][mdp.greedy(mdp.solve(gamma_token, 0.95, best)[0], 0)] for gamma_token in (1.0, 0.95)]
    assert [len(action) for action in chosen] == [5, 1]


def returns(counts, rewards, gamma_token, gamma_step):
    """Discounted returns along one stream, by the kernel with lambda 1 and no values."""
    n = sum(counts)
    ends, paid = torch.zeros(n, dtype=torch.bool), torch.zeros(n, dtype=torch.float64)
    place = torch.tensor(counts).cumsum(0) - 1
    ends[place], paid[place] = True, T(rewards)
    cut = torch.zeros_like(ends)
    cut[-1] = True
    nothing = torch.zeros(1, n, dtype=torch.float64)
    mask = torch.ones(1, n, dtype=torch.bool)
    return estimators.gae(
        paid[None], nothing, ends[None], cut[None], nothing, mask, gamma_token, 1.0, gamma_step, 1.0
    )[0].tolist()  # fmt: skip


def test_the_gap_to_the_action_level_grows_with_the_tokens_that_are_left(golden):  # noqa: F811
    for n, gamma_token, q, gap in named(golden, "bandit_discrepancy")["expected"]["table"]:
        first = returns([n], [1.0], gamma_token, 0.95)[0]
        assert (first, 1 - first) == pytest.approx((q, gap), abs=1e-9)


def test_returns_along_a_trajectory_have_their_closed_form(golden):  # noqa: F811
    case = named(golden, "trajectory_closed_form")
    for row in case["expected"]["rows"]:
        result = returns(case["inputs"]["token_counts"], case["inputs"]["rewards"], row["gamma_w"], row["gamma_a"])
        close(result, [value for *_, value in row["V"]])


def test_token_advantages_add_up_to_the_actions_and_have_its_gradient(golden):  # noqa: F811
    case = named(golden, "policy_evaluation_and_gradient")
    mdp, e = Tokens(case["inputs"]["mdp"]), case["expected"]
    pi = {(s, tuple(prefix), w): p for s, prefix, w, p in case["inputs"]["policy"]}
    mean = lambda node, q: sum(pi[(*node, w)] * value for w, value in q.items())
    q, values = mdp.solve(1.0, case["params"]["gamma_a"], mean)
    close([values[s, ()] for s in sorted(mdp.actions)], e["V"])
    close([mdp.last(q, s, k) for s, k, _ in e["Q_action"]], [v for *_, v in e["Q_action"]])
    close([values[s, tuple(prefix)] for s, prefix, _ in e["V_prefix"]], [v for *_, v in e["V_prefix"]])
    for item in e["telescoping"]:
        s, action = item["state"], mdp.actions[item["state"]][item["action"]]
        each = [q[s, action[:j], action[j]] - values[s, action[:j]] for j in range(len(action))]
        close(each, item["token_advantages"])
        assert sum(each) == pytest.approx(item["action_advantage"], abs=1e-9)
        assert sum(each) == pytest.approx(mdp.last(q, s, item["action"]) - values[s, ()], abs=1e-9)
    for item in e["policy_gradient"]:
        node = item["state"], tuple(item["prefix"])
        logits = T([math.log(pi[(*node, w)]) for w in item["tokens"]]).requires_grad_()
        advantage = T([q[(*node, w)] - values[node] for w in item["tokens"]])
        reach = math.prod(pi[node[0], node[1][:j], node[1][j]] for j in range(len(node[1])))
        logp = logits.log_softmax(-1)
        (reach * (logp.detach().exp() * advantage * logp).sum()).backward()
        close(logits.grad, item["grad"])


def test_the_soft_backup_of_tokens_is_that_of_actions(golden):  # noqa: F811
    case = named(golden, "soft_bad")
    mdp, e, beta = Tokens(case["inputs"]["mdp"]), case["expected"], case["params"]["beta"]

    def soft(node, q):  # the reference is uniform over the tokens that may follow
        return beta * (torch.logsumexp(T(list(q.values())) / beta, 0).item() - math.log(len(q)))

    q, values = mdp.solve(1.0, case["params"]["gamma_a"], soft)
    close([values[s, ()] for s, _ in e["V_soft"]], [v for _, v in e["V_soft"]])
    close([mdp.last(q, s, k) for s, k, _ in e["Q_soft_action"]], [v for *_, v in e["Q_soft_action"]])
    close([values[s, tuple(prefix)] for s, prefix, _ in e["V_soft_prefix"]], [v for *_, v in e["V_soft_prefix"]])


def test_every_case_of_the_file_is_here(golden):  # noqa: F811
    assert {case["name"] for case in golden("tabular_bad")} == {
        "hand_flip", "random_positive", "random_negative", "bandit_discrepancy",
        "trajectory_closed_form", "policy_evaluation_and_gradient", "soft_bad",
    }  # fmt: skip
