"""HFPolicy, a local model as policy: tokens, log-probs, prefix reuse and context limits."""

import gc
import itertools
import weakref

import pytest
import torch

from envsuite.errors import UsageError
from harness.policies.hf import HFPolicy, pick_device
from harness.policies.score import ScorePolicy
from harness.types import Prompt
from tests.lm.tiny import tiny_model, tiny_tokenizer

TOKENIZER = tiny_tokenizer()
MODEL = tiny_model(len(TOKENIZER))
TALK = [
    ["You are in the middle of a room.", "You open the fridge 1.", "Nothing happens.", "You pick up the apple 1."],
    ["go north", "A wall.", "A much longer observation: " + "you see a cabinet 1, a sink basin 1, " * 9, "Look."],
    ["x", "y", "z", "The end is near, said the fridge."],
]


def policy(**options):
    return HFPolicy.of(MODEL, TOKENIZER, **{"max_tokens": 12, **options})


def play(who, talks, turns=4, together=True):
    """Plays several conversations with fixed observations; returns the replies of each."""
    histories = [[] for _ in talks]
    for turn in range(turns):
        prompts = []
        for number, observations in enumerate(talks):
            messages = [{"role": "system", "content": "You see a room. Answer with a command."}]
            for reply, seen in zip(histories[number], observations, strict=False):
                messages += [{"role": "user", "content": seen}, {"role": "assistant", "content": reply.text}]
            messages.append({"role": "user", "content": observations[turn]})
            prompts.append(
                Prompt(messages, key=f"talk {observations}", seed=1000 * turn + len(observations[0]), turn=turn)
            )
        replies = who.act(prompts) if together else [who.act([prompt])[0] for prompt in prompts]
        for number, reply in enumerate(replies):
            histories[number].append(reply)
    return histories


def ids(replies):
    return [[(reply.prompt_ids, reply.ids) for reply in talk] for talk in replies]


@pytest.mark.parametrize("options", [{}, {"temperature": 0.7}, {"temperature": 1.3, "top_p": 0.8}])
def test_stored_log_probs_equal_those_of_a_plain_forward(options):
    for talk in play(policy(**options), TALK):
        for reply in talk:
            ids = torch.tensor([[*reply.prompt_ids, *reply.ids]])
            with torch.no_grad():
                logits = MODEL(ids).logits[0, len(reply.prompt_ids) - 1 : -1]
            expected = (logits / options.get("temperature", 1.0)).log_softmax(-1)
            reference = expected.gather(-1, torch.tensor(reply.ids)[:, None])[:, 0]
            assert torch.tensor(reply.logprobs) == pytest.approx(reference, abs=1e-4)


@pytest.mark.parametrize("options", [{}, {"temperature": 1.0}, {"temperature": 0.9, "top_p": 0.7}])
def test_replies_do_not_depend_on_the_batch_or_on_prefix_reuse(options):
    options = {"max_tokens": 6, **options}
    expected = ids(play(policy(prefix_reuse=False, **options), TALK, together=False))
    assert ids(play(policy(**options), TALK)) == expected
    assert ids(play(policy(prefix_reuse=False, **options), TALK)) == expected
    assert ids(play(policy(**options), TALK, together=False)) == expected
    assert ids(play(policy(**options), TALK[::-1])) == expected[::-1]
    assert ids(play(policy(cache_gb=1e-4, **options), TALK)) == expected, (
        "with a cache that holds at most one conversation"
    )


def test_replies_depend_on_the_seed_only():
    message = [{"role": "user", "content": "go"}]
    who = policy(temperature=1.0)
    first, second, third = who.act([Prompt(message, seed=seed) for seed in (1, 2, 1)])
    assert first.ids == third.ids != second.ids


def test_each_prompt_contains_the_sampled_tokens_of_earlier_replies():
    for talk in play(policy(temperature=1.0), TALK):
        assert any(TOKENIZER(reply.text)["input_ids"] != [i for i in reply.ids if i != 2] for reply in talk), (
            "random text should tokenise differently from how it was sampled, or this test proves nothing"
        )
        for before, after in itertools.pairwise(talk):
            ids = [*before.prompt_ids, *before.ids]
            assert list(after.prompt_ids[: len(ids)]) == ids
            assert "rewritten" not in after.extra


def test_the_next_turn_reads_only_new_tokens():
    for talk in play(policy(), TALK, together=False):
        assert talk[0].cached_tokens <= 30, "only the shared system message"
        for before, after in itertools.pairwise(talk):
            assert after.cached_tokens == before.input_tokens + before.output_tokens - 1


def test_the_shared_prefix_of_new_conversations_is_read_once():
    rules = {"role": "system", "content": "You see a room. Answer with a command. " * 4}
    prompts = [Prompt([rules, {"role": "user", "content": f"door {n}"}], key=str(n)) for n in range(8)]
    read = []
    hook = MODEL.register_forward_pre_hook(
        lambda module, args, options: read.append(options["input_ids"].numel()), with_kwargs=True
    )
    replies = policy(max_tokens=1).act(prompts)
    hook.remove()
    assert sum(read) < 2 * min(reply.input_tokens for reply in replies)
    alone = policy(max_tokens=1)
    assert [reply.ids for reply in replies] == [alone.act([prompt])[0].ids for prompt in prompts]


def test_a_full_context_loses_its_oldest_turns_and_says_how_many():
    who = policy(context=120, max_tokens=10)
    talk = play(who, [["You see a fridge 1. " * 2] * 8], turns=8)[0]
    assert [reply.dropped_turns for reply in talk] == sorted(reply.dropped_turns for reply in talk)
    assert talk[-1].dropped_turns > 0
    assert all(reply.input_tokens + 10 <= 120 for reply in talk)


def test_a_message_longer_than_the_context_is_said_to_be():
    who = policy(context=64, max_tokens=10)
    reply, short = who.act(
        [Prompt([{"role": "user", "content": "look " * 100}]), Prompt([{"role": "user", "content": "x"}])]
    )
    assert (reply.finish_reason, reply.text) == ("context", "")
    assert short.output_tokens > 0


def test_a_stop_string_ends_a_reply_and_stays_in_it():
    free = policy(temperature=1.0, max_tokens=40).act([Prompt([{"role": "user", "content": "go"}], seed=7)])[0]
    word = free.text[5:7]
    reply = policy(temperature=1.0, max_tokens=40, stop=[word]).act(
        [Prompt([{"role": "user", "content": "go"}], seed=7)]
    )[0]
    assert word in reply.text
    assert reply.finish_reason == "stop"
    assert free.ids[: len(reply.ids)] == reply.ids
    assert word not in TOKENIZER.decode(reply.ids[:-1])


def test_impossible_sampling_settings_are_refused():
    with pytest.raises(UsageError, match="top_p 0"):
        policy(top_p=0)


def test_a_model_without_chat_template_is_warned_of_and_plays_all_the_same():
    tokenizer = tiny_tokenizer(None)
    with pytest.warns(UserWarning, match="no chat template"):
        who = HFPolicy.of(MODEL, tokenizer, max_tokens=6, temperature=1.0)
    first, second = play(who, TALK[:1], turns=2)[0]
    assert tokenizer.decode(second.prompt_ids).startswith("You see a room. Answer with a command.\n\nUser: You are in")
    assert list(second.prompt_ids[: len(first.prompt_ids)]) == first.prompt_ids


def test_new_weights_are_read_after_forgetting():
    model = tiny_model(len(TOKENIZER), seed=1)
    who = HFPolicy.of(model, TOKENIZER, max_tokens=6)
    message = [{"role": "user", "content": "look " * 20}]
    before = who.act([Prompt(message, key="a")])[0]
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(-1.5)
    who.forget()
    after = who.act([Prompt(message, key="a")])[0]
    assert after.cached_tokens == 0
    assert (
        after.logprobs
        == HFPolicy.of(model, TOKENIZER, max_tokens=6).act([Prompt(message)])[0].logprobs
        != before.logprobs
    )


def test_the_store_keeps_to_its_budget():
    who = policy(cache_gb=1e-4)
    play(who, TALK * 2)
    assert 0 < who._prefixes.nbytes <= 1e-4 * 2**30


class Narrow(torch.nn.Module):
    """MODEL on a device that holds `most` rows at once."""

    def __init__(self, most):
        super().__init__()
        self.inner, self.most, self.refused = MODEL, most, 0
        self.config, self.generation_config, self.device = MODEL.config, MODEL.generation_config, MODEL.device

    def forward(self, input_ids, **more):
        if len(input_ids) > self.most:
            self.refused += 1
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.inner(input_ids=input_ids, **more)


def test_a_batch_too_large_for_the_device_is_read_in_halves_and_says_the_same():
    network = Narrow(1)
    who = HFPolicy.of(network, TOKENIZER, max_tokens=12, temperature=1.0)
    assert ids(play(who, TALK)) == ids(play(policy(temperature=1.0), TALK))
    assert network.refused > 0


def test_a_device_too_small_for_one_prompt_is_one_line_with_cures():
    with pytest.raises(UsageError, match="--dtype bfloat16"):
        play(HFPolicy.of(Narrow(0), TOKENIZER, name="big"), TALK)


def test_a_named_device_is_taken_and_one_that_is_not_there_is_refused():
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto").type in ("cuda", "mps", "cpu")
    with pytest.raises(UsageError, match="Unknown --device 'gpu'"):
        pick_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="finds no CUDA device"):
            pick_device("cuda:1")


@pytest.mark.parametrize("kind", [HFPolicy, ScorePolicy])
def test_a_closed_policy_lets_go_of_the_weights_at_once(kind):
    network = tiny_model(len(TOKENIZER))
    weights = weakref.ref(network.get_input_embeddings().weight)
    who = kind.of(network, TOKENIZER, max_tokens=4)
    who.act([Prompt([{"role": "user", "content": "look"}], key="talk", admissible=("go north", "go south"))])
    del network
    gc.collect()  # the model's own cycles
    assert weights() is not None
    who.close()
    who.close()  # a second time does nothing
    assert weights() is None
