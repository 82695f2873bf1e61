"""Trie-normalised tokens: a distribution over commands, drawn token by token."""

import math
from itertools import pairwise

import pytest
import torch

from harness.lm.likelihood import Candidate, candidates, token_logprobs
from harness.lm.trie import Trie, prefix_free
from harness.policies.score import ScorePolicy
from tests.lm.test_scoring import COMMANDS, MODEL, TOKENIZER, prompt

SEEN = prompt("You see a fridge 1.")
END = TOKENIZER.eos_token_id


def policy(temperature=1.0, **options):
    return ScorePolicy.of(MODEL, TOKENIZER, normalisation="trie", temperature=temperature, **options)


def paths_of(who, commands=COMMANDS):
    """The prompt of SEEN, and the tokens of each distinct command after it."""
    ids, rows = who.tokens(SEEN.messages, commands)
    assert len({row.keeps for row in rows}) == 1
    return ids[: rows[0].keeps], list(dict.fromkeys(row.ids for row in rows))


def one_by_one(ids, paths, path, temperature):
    """The log-prob of a command: each of its tokens from a pass of its own, among those that other
    commands have after the same tokens."""
    total = 0.0
    for length, token in enumerate(path):
        possible = sorted({other[length] for other in paths if other[:length] == path[:length] and len(other) > length})
        with torch.no_grad():
            z = MODEL(input_ids=torch.tensor([[*ids, *path[:length]]])).logits[0, -1, possible] / temperature
        total += float(z.double().log_softmax(-1)[possible.index(token)])
    return total


@pytest.mark.parametrize("temperature", [1.0, 0.7, 3.0])
def test_the_product_over_tokens_is_the_probability_of_the_command_and_all_sum_to_one(temperature):
    who = policy(temperature)
    ids, paths = paths_of(who)
    chosen = {}
    for seed in range(60):
        reply = who.act([SEEN._replace(seed=seed)])[0]
        assert reply.extra["logprob"] == pytest.approx(sum(reply.logprobs), abs=1e-12)
        assert tuple(reply.ids) in paths and list(reply.prompt_ids) == ids
        chosen[tuple(reply.ids)] = reply.extra["logprob"]
    expected = {path: one_by_one(ids, paths, path, temperature) for path in paths}
    assert math.fsum(map(math.exp, expected.values())) == pytest.approx(1.0, abs=1e-9)
    for path, logprob in chosen.items():
        assert logprob == pytest.approx(expected[path], abs=1e-5)
    probability = torch.tensor(list(expected.values())).exp()
    assert reply.extra["entropy"] == pytest.approx(-float((probability * probability.log()).sum()), abs=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_any_log_probs_become_a_distribution_over_commands(seed):
    """The identity needs no model: random commands, random numbers, in float64."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda high, size: tuple(torch.randint(high, (size,), generator=generator).tolist())
    commands = prefix_free([7] * 9, [Candidate(9, draw(3, 1 + k % 4)) for k in range(25)], end=99)
    trie = Trie(commands)
    known: dict[tuple[int, ...], float] = {}  # the number of a token after the same tokens is the same
    number = lambda path: known.setdefault(path, float(torch.randn((), generator=generator)) * 5)
    raw = [torch.tensor([number(row.ids[: k + 1]) for k in range(len(row.ids))]) for row in commands]
    result = trie.choice(trie.logprobs(raw))
    assert len({row.ids for row in commands}) < len(commands), "some commands are equal"
    assert float(result.logprobs.exp().sum()) == pytest.approx(1.0, abs=1e-12)
    for k, row in enumerate(commands):
        first = next(place for place, other in enumerate(commands) if other.ids == row.ids)
        assert (result.logprobs[k] == -torch.inf) == (first != k)
        for token, possible in zip(row.ids, trie.allowed(k), strict=True):
            assert possible == () or (token in possible and len(possible) > 1 and list(possible) == sorted(possible))


def test_a_command_that_begins_another_ends_with_the_end_token():
    who = policy()
    _, paths = paths_of(who, ["look", "look around", "go to fridge 1"])
    look, around, go = paths
    assert look[-1] == END and around[: len(look) - 1] == look[:-1] and around[-1] != END and go[-1] != END
    for first, second in pairwise(sorted(paths)):
        assert second[: len(first)] != first
    assert paths_of(who, ["look", "go to fridge 1"])[1][0] == look[:-1], "nothing to tell apart, no end token"


def test_a_command_that_contains_the_end_token_begins_no_other_either():
    rows = prefix_free([1, 2], [Candidate(2, (5,)), Candidate(2, (5, 9, 6)), Candidate(2, (5, 9))], end=9)
    assert [row.ids for row in rows] == [(5, 9, 9), (5, 9, 6), (5, 9, 9)]


def test_commands_that_merge_with_the_end_of_the_prompt_begin_at_the_same_token():
    text = "You see a cabinet 1, open fri"
    ids = TOKENIZER(text)["input_ids"]
    rows = candidates(TOKENIZER, 0, text, ["dge 1", "cabinet 1"])
    assert rows[0].keeps < rows[1].keeps
    aligned = prefix_free(ids, rows, END)
    for before, after in zip(rows, aligned, strict=True):
        assert after.keeps == rows[0].keeps
        assert [*ids[: after.keeps], *after.ids] == [*ids[: before.keeps], *before.ids]
    with torch.no_grad():
        raw, _ = token_logprobs(MODEL, ids, aligned)
    trie = Trie(aligned)
    assert float(trie.choice(trie.logprobs(raw)).logprobs.exp().sum()) == pytest.approx(1.0, abs=1e-12)


def test_a_token_without_an_alternative_is_certain():
    reply = policy().act([prompt("x", commands=["take apple 1 from fridge 1"])])[0]
    assert set(reply.logprobs) == {0.0} and reply.extra["entropy"] == 0.0
    assert reply.extra["allowed"] == [()] * len(reply.ids)


def test_frequencies_of_draws_agree_with_the_probabilities():
    """Pearson's chi-square over 2,000 seeds; temperature 8 makes the sharp random model's commands
    all likely enough."""
    who = policy(8.0)
    draws, commands = 2000, list(dict.fromkeys(COMMANDS))
    counts, probabilities = dict.fromkeys(commands, 0), {}
    for seed in range(draws):
        reply = who.act([SEEN._replace(seed=seed)])[0]
        counts[reply.commands[0]] += 1
        probabilities[reply.commands[0]] = math.exp(reply.extra["logprob"])
    assert math.fsum(probabilities.values()) == pytest.approx(1.0, abs=1e-9), "each was drawn at least once"
    assert min(probabilities.values()) * draws > 5
    statistic = sum((counts[c] - draws * p) ** 2 / (draws * p) for c, p in probabilities.items())
    assert len(commands) == 6 and statistic < 20.5, "the 99.9 % quantile at five degrees of freedom"


def test_the_greedy_choice_is_the_likeliest_command():
    who = policy(0.0)
    ids, paths = paths_of(who)
    best = max(paths, key=lambda path: one_by_one(ids, paths, path, 1.0))
    assert tuple(who.act([SEEN])[0].ids) == best


def test_scoring_in_parts_and_from_a_cached_prefix_gives_the_same(monkeypatch):
    alone = policy(prefix_reuse=False).act([SEEN])[0]
    monkeypatch.setattr("harness.policies.score.MAX_NODES", 12)
    who = policy()
    who.act([prompt("You see", key="a")])
    again = who.act([SEEN._replace(key="a")])[0]
    assert again.commands == alone.commands and again.extra["allowed"] == alone.extra["allowed"]
    assert again.logprobs == pytest.approx(alone.logprobs, abs=1e-5)
