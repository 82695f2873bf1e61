"""Choice among admissible commands by their likelihood under a model."""

import json

import pytest
import torch
from tokenizers.processors import TemplateProcessing
from torch import nn

from envsuite.errors import UsageError
from harness.lm.likelihood import Candidate, candidates, choice, token_logprobs, token_logprobs_apart
from harness.policies.score import ScorePolicy, _draw
from harness.types import Prompt
from tests.lm.tiny import tiny_model, tiny_tokenizer

TOKENIZER = tiny_tokenizer()
MODEL = tiny_model(len(TOKENIZER))
COMMANDS = [
    "look",
    "go to fridge 1",
    "go to cabinet 1",
    "go to sink basin 1",
    "take apple 1 from fridge 1",
    "look around",
    "look",
]


def prompt(*seen, seed=0, key="", turn=0, commands=COMMANDS):
    messages = [{"role": "system", "content": "You are in the middle of a room."}]
    for place, text in enumerate(seen):
        messages.append({"role": "assistant" if place % 2 else "user", "content": text})
    return Prompt(messages, admissible=commands, seed=seed, key=key, turn=turn)


def cases(folder, kind):
    golden = json.loads((folder / "policy_over_admissible_actions.json").read_text())
    return golden, [case for case in golden["cases"] if case["name"].startswith(kind)]


def test_the_choice_distribution_equals_the_golden_data(algorithm_cases):
    _, golden_cases = cases(algorithm_cases, "twosome")
    assert len(golden_cases) == 9
    for case in golden_cases:
        values = zip(case["inputs"]["token_logps"], case["inputs"]["n_words"], case["expected"], strict=True)
        for logps, words, expected in values:
            sums = torch.tensor([sum(row) for row in logps], dtype=torch.float64)
            result = choice(sums, [len(row) for row in logps], words, case["params"]["normalisation"])
            assert result.scores.tolist() == pytest.approx(expected["scores"], abs=1e-8)
            assert result.logprobs.tolist() == pytest.approx(expected["log_probs"], abs=1e-8)
            assert float(result.entropy) == pytest.approx(expected["entropy"], abs=1e-8)


class Bigrams(nn.Module):
    """Bigram model of the golden data: the next token depends only on the last token."""

    def __init__(self, table):
        super().__init__()
        self.table = nn.Parameter(torch.tensor(table))
        self.config = MODEL.config
        self.device = self.table.device

    def forward(self, input_ids, logits_to_keep, **_):
        return type("Output", (), {"logits": self.table[input_ids][:, -logits_to_keep:]})


@pytest.mark.parametrize(
    "scored", [lambda *args: token_logprobs(*args)[0], token_logprobs_apart], ids=["tree", "apart"]
)
def test_token_log_probs_equal_the_golden_data(algorithm_cases, scored):
    golden, golden_cases = cases(algorithm_cases, "twosome_sum")
    piece = {word: number for number, word in enumerate(golden["pieces"])}

    def spell(text):
        return [piece[part] for word in text.split() for part in golden["words"][word]]

    for case in golden_cases:
        inputs = case["inputs"]
        network = Bigrams(golden["bigram_tables"][inputs["bigram_table"]])
        for text, actions, expected in zip(inputs["prompts"], inputs["actions"], inputs["token_logps"], strict=True):
            ids = [1, *spell(text)]
            each = scored(network, ids, [Candidate(len(ids), tuple(spell(action))) for action in actions])
            assert [len(row) for row in each] == [len(row) for row in expected]
            for row, numbers in zip(each, expected, strict=True):
                assert row.tolist() == pytest.approx(numbers, abs=2e-6)


@pytest.mark.parametrize("covered", [0, 5, 40, 10_000])
def test_tree_scores_equal_scores_of_each_command_alone(covered):
    ids, head, tail = ScorePolicy.of(MODEL, TOKENIZER).template.open_end(prompt("You see a fridge 1. " * 5).messages)
    rows = candidates(TOKENIZER, head, tail, COMMANDS)
    with torch.no_grad():
        _, cache = token_logprobs(MODEL, ids, rows)
        layers = [(layer.keys[0, :, : len(ids)], layer.values[0, :, : len(ids)]) for layer in cache.layers]
        each, _ = token_logprobs(MODEL, ids, rows, layers, min(covered, len(ids)))
        unpaired = token_logprobs_apart(MODEL, ids, rows)
    for row, reference in zip(each, unpaired, strict=True):
        assert row.tolist() == pytest.approx(reference.tolist(), abs=1e-5)


def test_candidates_that_merge_with_the_end_of_the_prompt_are_scored_from_the_merge():
    ids = TOKENIZER("You see a cabinet 1, open fri")["input_ids"]
    rows = candidates(TOKENIZER, 0, "You see a cabinet 1, open fri", ["dge 1", "cabinet 1"])
    assert rows[0].keeps < len(ids), "a token spans the end of the prompt"
    for row, command in zip(rows, ["dge 1", "cabinet 1"], strict=True):
        assert TOKENIZER.decode([*ids[: row.keeps], *row.ids]) == "You see a cabinet 1, open fri" + command
    with torch.no_grad():
        each, _ = token_logprobs(MODEL, ids, rows)
        unpaired = token_logprobs_apart(MODEL, ids, rows)
    for row, reference in zip(each, unpaired, strict=True):
        assert row.tolist() == pytest.approx(reference.tolist(), abs=1e-5)


def test_gradients_flow_through_every_command():
    model = tiny_model(len(TOKENIZER), seed=3)
    ids = TOKENIZER("You see a fridge 1.")["input_ids"]
    rows = candidates(TOKENIZER, 0, "You see a fridge 1.", [" look", " go to fridge 1", " go to cabinet 1"])

    def gradient(scored):
        model.zero_grad()
        sums = torch.stack([row.sum() for row in scored])
        choice(sums, [len(row.ids) for row in rows], [1, 4, 4], "word").logprobs[1].backward()
        return torch.cat([weights.grad.flatten() for weights in model.parameters()])

    tree, unpaired = gradient(token_logprobs(model, ids, rows)[0]), gradient(token_logprobs_apart(model, ids, rows))
    assert tree.abs().max() > 0
    assert torch.allclose(tree, unpaired, atol=1e-4 * float(unpaired.abs().max()))


@pytest.mark.parametrize("normalisation", ["sum", "token", "word"])
def test_the_greedy_choice_is_the_most_likely_command(normalisation):
    who = ScorePolicy.of(MODEL, TOKENIZER, normalisation=normalisation)
    reply = who.act([prompt("You see a fridge 1.")])[0]
    ids, rows = who.tokens(prompt("You see a fridge 1.").messages, COMMANDS)
    with torch.no_grad():
        sums = torch.stack([row.sum() for row in token_logprobs_apart(MODEL, ids, rows)])
    words = [len(command.split()) for command in COMMANDS]
    result = choice(sums, [len(row.ids) for row in rows], words, normalisation)
    assert reply.commands[0] == COMMANDS[int(result.logprobs.argmax())] == COMMANDS[reply.extra["index"]]
    assert reply.extra["logprob"] == pytest.approx(float(result.logprobs.max()), abs=1e-5)
    assert reply.extra["entropy"] == pytest.approx(float(result.entropy), abs=1e-5)
    assert reply.text == reply.commands[0]


def test_sampled_choices_follow_the_probabilities_and_repeat_with_the_seed():
    who = ScorePolicy.of(MODEL, TOKENIZER, temperature=1.0, normalisation="token")
    commands = ["look", "go to fridge 1", "take apple 1 from fridge 1"]
    replies = [who.act([prompt("x", seed=seed, key="a", commands=commands)])[0] for seed in range(300)]
    again = [who.act([prompt("x", seed=seed, commands=commands)])[0].commands[0] for seed in range(5)]
    assert again == [reply.commands[0] for reply in replies[:5]]
    for index in range(3):
        mine = [reply for reply in replies if reply.extra["index"] == index]
        likely = mine[0].extra["logprob"] if mine else -9.0
        likelihood = float(torch.tensor(likely).exp())
        assert len(mine) / 300 == pytest.approx(likelihood, abs=4 * (0.25 / 300) ** 0.5)


def test_a_conversation_reads_only_new_tokens():
    who = ScorePolicy.of(MODEL, TOKENIZER)
    first = who.act([prompt("a fridge 1", key="a")])[0]
    second = who.act([prompt("a fridge 1", first.text, "a cabinet 1", key="a", turn=1)])[0]
    alone = ScorePolicy.of(MODEL, TOKENIZER, prefix_reuse=False).act(
        [prompt("a fridge 1", first.text, "a cabinet 1", turn=1)]
    )[0]
    assert second.cached_tokens >= first.input_tokens - 1
    assert alone.cached_tokens == 0
    assert second.commands[0] == alone.commands[0]
    assert second.logprobs == pytest.approx(alone.logprobs, abs=1e-5)


def test_many_commands_are_scored_in_parts(monkeypatch):
    reply = ScorePolicy.of(MODEL, TOKENIZER).act([prompt("x")])[0]
    monkeypatch.setattr("harness.policies.score.MAX_NODES", 12)
    parts = ScorePolicy.of(MODEL, TOKENIZER).act([prompt("x")])[0]
    assert parts.commands[0] == reply.commands[0]
    assert parts.extra["logprob"] == pytest.approx(reply.extra["logprob"], abs=1e-5)


def test_a_full_context_drops_the_oldest_turns():
    who = ScorePolicy.of(MODEL, TOKENIZER, context=90)
    reply = who.act([prompt(*["You see a fridge 1. " * 2] * 7)])[0]
    assert reply.dropped_turns > 0
    assert reply.commands[0] in COMMANDS
    assert who.act([prompt("look " * 200)])[0].finish_reason == "context"


def test_a_prompt_without_admissible_commands_raises():
    with pytest.raises(UsageError, match="lists none"):
        ScorePolicy.of(MODEL, TOKENIZER).act([prompt("x", commands=[])])


def test_lead_and_close_frame_the_command_and_are_not_scored():
    who = ScorePolicy.of(MODEL, TOKENIZER, lead="<action>", close="</action>")
    reply = who.act([prompt("x")])[0]
    assert reply.text == f"<action>{reply.commands[0]}</action>"
    assert TOKENIZER.decode([*reply.prompt_ids, *reply.ids]).endswith(f"assistant\n<action>{reply.commands[0]}")
    assert TOKENIZER.decode(reply.ids).strip("<>") in (reply.commands[0], f"action>{reply.commands[0]}")


def test_draws_follow_the_probabilities():
    likelihood = torch.tensor([0.2, 0.3, 0.1, 0.4])
    drawn = torch.bincount(torch.tensor([_draw(likelihood.log(), seed) for seed in range(4000)]), minlength=4)
    assert (drawn / 4000 - likelihood).abs().max() < 0.03  # four standard errors
    assert _draw(torch.zeros(1), 7) == 0


def test_commands_have_no_token_that_begins_a_text():
    tokenizer, plain = tiny_tokenizer(), tiny_tokenizer()
    first = ("<|endoftext|>", tokenizer.convert_tokens_to_ids("<|endoftext|>"))
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[first]
    )  # fmt: skip
    assert tokenizer("look")["input_ids"][0] == first[1]
    commands = ["look", "go to fridge 1"]
    assert candidates(tokenizer, 3, "user: ", commands) == candidates(plain, 3, "user: ", commands)
