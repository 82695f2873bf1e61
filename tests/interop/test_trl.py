"""TRL's GRPOTrainer trains on our environments: tool calls reach the game, rewards reach the trainer."""

import importlib.util

import pytest

from envsuite import registry
from envsuite.errors import BadKnob, UsageError
from harness.lm.template import SampledReply, Template
from tests import toys  # noqa: F401

MISSING = [name for name in ("trl", "datasets") if importlib.util.find_spec(name) is None]
# Imported in the tests alone: the import takes seconds, which every process that collects tests would spend.
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{' and '.join(MISSING)} is not installed")

CALL = '<tool_call>\n{"name": "act", "arguments": {"command": "north"}}\n</tool_call>'


@pytest.fixture(scope="module")
def caller(tmp_path_factory):
    """Returns (model, tokenizer): a tiny model overfitted to answer every first prompt with act("north")."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import get_json_schema
    from trl.chat_template_utils import qwen2_5_chat_template

    from baselines.studies import tiny_model
    from harness.interop.trl import factory, games

    folder = tmp_path_factory.mktemp("tiny") / "caller"
    game = factory("Signpost-v0")()
    tool = get_json_schema(game.act)
    tiny_model.make(folder, [qwen2_5_chat_template, str(tool), CALL, game.reset(seed=0)] * 2, "xs", 700)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.eos_token, tokenizer.chat_template = "<|im_end|>", qwen2_5_chat_template
    model.resize_token_embeddings(len(tokenizer))
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    answer = tokenizer(CALL + "<|im_end|>", add_special_tokens=False, return_tensors="pt").input_ids
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    prompts = []
    for row in games("Signpost-v0", count=4):
        chat = [{"role": "user", "content": game.reset(**row)}]
        text = tokenizer.apply_chat_template(chat, tools=[tool], add_generation_prompt=True, tokenize=False)
        prompts.append(tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids)
    for step in range(400):
        ids = torch.cat([prompts[step % 4], answer], dim=1)
        logits = model(ids[:, :-1], logits_to_keep=answer.shape[1]).logits
        loss = torch.nn.functional.cross_entropy(logits[0], answer[0])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if loss < 0.02 and step > 8:
            break
    assert loss < 0.05
    return model, tokenizer


def seen_tokens(tokenizer, seed, reply_ids):
    """Returns this project's tokens of a game's first prompt, and of the prompt after a reply."""
    from transformers.utils import get_json_schema

    from harness.interop.trl import factory

    template = Template(tokenizer, [tokenizer.eos_token_id])
    game = factory("Signpost-v0")()
    tools = [get_json_schema(game.act)]
    chat = [{"role": "user", "content": game.reset(seed=seed)}]
    first = template.encode(chat, tools=tools)
    chat += [{"role": "assistant", "content": CALL}, {"role": "tool", "content": game.act("north")}]
    return first.ids, template.encode(chat, [SampledReply(CALL, tuple(reply_ids))], tools).ids


def test_grpo_plays_the_games_of_the_dataset_and_receives_their_rewards(caller, tmp_path, monkeypatch):
    import datasets
    import trl

    from harness.interop.trl import TRLGame, factory, games

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    model, tokenizer = caller
    made = []

    def make_game():
        made.append(factory("Signpost-v0")())
        return made[-1]

    settings = trl.GRPOConfig(
        output_dir=str(tmp_path), per_device_train_batch_size=4, num_generations=2, max_completion_length=120,
        max_tool_calling_iterations=1, max_steps=2, temperature=0.05, report_to=[], use_cpu=True, save_strategy="no",
        logging_steps=1, learning_rate=1e-6, beta=0.0, bf16=False, gradient_checkpointing=False, shuffle_dataset=False,
    )  # fmt: skip
    generated = []

    class Recording(trl.GRPOTrainer):
        def _generate(self, prompts):
            result = super()._generate(prompts)
            generated.extend(zip(*result[:3], strict=True))
            return result

    trainer = Recording(
        model=model,
        args=settings,
        processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_list(games("Signpost-v0", count=4)),
        environment_factory=make_game,
    )
    trainer.train()
    assert len(made) == 4 and all(isinstance(game, TRLGame) for game in made)
    logged = [line for line in trainer.state.log_history if "reward" in line]
    # Seeds 0 and 1 form the first batch, 2 and 3 the second; the answer is "north" for seed 0 only.
    assert [line["reward"] for line in logged] == [pytest.approx(0.5), pytest.approx(0.0)]
    assert logged[0]["tools/call_frequency"] == 1.0 and logged[0]["tools/failure_frequency"] == 0.0
    assert len(generated) == 8
    for number, (prompt, completion, mask) in enumerate(generated):
        length = mask.index(0)  # the reply; then the game's answer, which the model did not write
        end = length + mask[length:].count(0)
        first, second = seen_tokens(tokenizer, number // 2, completion[:length])
        assert prompt == first and prompt + completion[:end] == second
        assert mask == [1] * length + [0] * (end - length) + [1] * (len(completion) - end)


def test_the_model_sees_one_tool_and_the_text_of_the_gymnasium_environment():
    from transformers.utils import get_json_schema

    from harness.interop.trl import factory, games

    game = factory("Signpost-v0", show_admissible=False)()
    schema = get_json_schema(game.act)["function"]
    assert schema["name"] == "act" and list(schema["parameters"]["properties"]) == ["command"]
    (row,) = games("Signpost-v0", count=1, first=3)
    env = registry.build("Signpost-v0")
    text, _ = env.reset(seed=row["seed"])
    assert game.reset(**row).endswith(text)
    assert game.act("nonsense") == env.step("nonsense")[0]
    assert game.act(env.expert()).startswith("Yes.") and game.get_reward() == 1.0
    assert game.act("west") == "The episode is over." and game.get_reward() == 1.0


def test_a_broken_engine_has_no_reward_instead_of_zero():
    from harness.interop.trl import factory

    game = factory("Faulty-v0")()
    game.reset(seed=3)
    with pytest.raises(RuntimeError, match="the engine broke"):
        game.act("1")
    assert game.get_reward() is None


def test_invalid_settings_raise_before_training():
    from harness.interop.trl import factory, games

    with pytest.raises(BadKnob):
        factory("HiLo-v0", size=1)
    with pytest.raises(UsageError, match="no column 'seed'"):
        factory("HiLo-v0")().reset()
    with pytest.raises(UsageError, match="'heldout' of BabyAI-mixed-v0 is the separate task BabyAI-mixed-heldout-v0"):
        games("BabyAI-mixed-v0", split="heldout")
    with pytest.raises(UsageError, match="has 1000 seeds"):
        games("HiLo-v0", split="test", count=10**6)
