"""Sampling of a token from logits, and the strings that end a reply."""

import math

import pytest
import torch

from harness.lm.decode import Job, Settings, choose

IMPOSSIBLE = -math.inf


def logits_of(*shares):
    return torch.tensor([[math.log(share) if share else IMPOSSIBLE for share in shares]])


def drawn(uniform, *shares, **settings):
    options = {"temperature": 1.0, **settings}
    tokens, logprobs = choose(logits_of(*shares), Settings(**options), torch.tensor([uniform], dtype=torch.float64))
    return tokens.item(), logprobs.item()


def test_settings_are_greedy_by_default():
    assert Settings().temperature == 0.0
    tokens, logprobs = choose(logits_of(0.2, 0.5, 0.3), Settings(), torch.tensor([0.99], dtype=torch.float64))
    assert tokens.item() == 1 and logprobs.item() == pytest.approx(math.log(0.5))


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
def test_a_token_without_probability_is_never_drawn(uniform):
    assert drawn(uniform, 0.0, 0.6, 0.4, 0.0)[0] in (1, 2)
    assert drawn(uniform, 0.0, 0.6, 0.4, 0.0, top_p=0.9)[0] in (1, 2)


@pytest.mark.parametrize(("uniform", "token"), [(0.0, 1), (0.55, 1), (0.58, 2), (0.9, 2), (0.999, 2)])
def test_top_p_draws_from_the_likeliest_tokens_in_their_proportions(uniform, token):
    """With shares 0.4 and 0.3 in the nucleus, the first is drawn in 4 of 7 cases; log-probs belong to the full
    distribution."""
    choice, logprob = drawn(uniform, 0.25, 0.4, 0.3, 0.05, top_p=0.6)
    assert choice == token and logprob == pytest.approx(math.log((0.4, 0.3)[token - 1]))


@pytest.mark.parametrize(("text", "reason"), [("ab", "stop"), ("xb!", "stop"), ("xa", ""), ("b", "")])
def test_each_of_several_strings_ends_a_reply(text, reason):
    job = Job([1], room=9, seed=0)
    for letter in text:
        job.append(ord(letter), -1.0, Settings(stop=("ab", "b!")), lambda ids: "".join(map(chr, ids)))
    assert job.finish_reason == reason
