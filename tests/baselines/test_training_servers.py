"""Training whose games are played by servers: the very tokens, the present weights, and what is
refused."""

import json
import shutil
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("peft")
from safetensors.torch import load_file

from baselines import recipe as recipes
from baselines.collection import server_gap, servers
from baselines.networks.model import Model, ModelConfig
from baselines.train import TrainingRun
from envsuite import registry
from envsuite.errors import DataError, MissingExtra, UsageError
from harness.policies.hf import HFPolicy, end_tokens
from harness.policies.tokens import TokensPolicy
from harness.types import Prompt, Reply, Trajectory, Turn, episode
from tests.api.generating import generating
from tests.baselines.test_training import made
from tests.baselines.test_training_scale import recipe

TALK = {"grammar": "bare", "thinking": False, "history": -1, "admissible": "none"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory, "xxs")


@pytest.fixture
def server(folder):
    with generating(folder) as item:
        yield item


def table(folder, *urls, sync="lora", **changes):
    """Two updates of GRPO at rates that move the weights."""
    generation = {"base_url": ",".join(urls), "sync": sync, "tolerance": 1e-4, "retries": 1} if urls else {}
    return {
        **recipe(folder, algorithm="grpo", prompting=TALK),
        "model": {"name": str(folder), "critic": "none", "lora_rank": 4 if sync == "lora" else 0},
        "generation": generation,
        "config": {"learning_rate": 0.03, "group_size": 4},
        "sft": {"episodes": 8, "train": {"learning_rate": 0.03, "rows": 4}},
        **changes,
    }


def train(where, **options):
    run = TrainingRun(recipes.parse(options.pop("table")), where, **options)
    run.train()
    lines = [json.loads(line) for line in (where / "metrics.jsonl").read_text().splitlines()]
    return run, lines


@pytest.mark.parametrize("sync", ["lora", "disk", "reload"])
def test_a_run_that_servers_play_is_the_run_played_here(folder, server, tmp_path, sync):
    """Sampling is addressed and the server samples as this process does, so that the same games are
    played and learnt from."""
    with generating(folder) as second:
        there, lines = train(tmp_path / "there", table=table(folder, server.url, second.url, sync=sync))
        for item in (server, second):  # both had something to do
            assert sum(path == "/v1/completions" for path, _ in item.requests) > 4
        here, known = train(tmp_path / "here", table=table(folder, sync=sync))
    updates = [line for line in lines if line["kind"] == "update"]
    assert len(updates) == 2
    assert all(line["server_gap"] < 1e-5 for line in updates)
    for item, two in zip(lines, known, strict=True):
        for name in ("loss", "success", "reward", "turns", "tokens", "kl", "policy_loss"):
            assert item.get(name) == pytest.approx(two.get(name), abs=1e-4), name
    moved = 0.0
    before = Model.load(there.recipe.model).state()["lm"]
    for name, value in here.model.state()["lm"].items():
        torch.testing.assert_close(there.model.state()["lm"][name], value, atol=1e-4, rtol=1e-3)
        moved = max(moved, (value - before[name]).abs().max().item())
    assert moved > 0.01
    path = {"lora": "/v1/load_lora_adapter", "disk": "/update_weights_from_disk", "reload": "/collective_rpc"}[sync]
    loads = [body for item, body in server.requests if item == path]
    assert len(loads) == 3  # before the first game, and after each update
    assert not server.adapters  # all are taken back
    assert not list((tmp_path / "there" / "served").iterdir())


def test_a_server_holds_the_weights_of_the_checkpoint_that_is_resumed(folder, server, tmp_path):
    train(tmp_path / "run", table=table(folder, server.url, updates=1))
    _, lines = train(tmp_path / "run", table=table(folder, server.url, updates=2), resume=True)
    assert [line["server_gap"] < 1e-5 for line in lines if line["kind"] == "update"] == [True, True]
    names = [body["lora_name"] for path, body in server.requests if path == "/v1/load_lora_adapter"]
    assert len(set(names)) == len(names) == 4


@pytest.mark.parametrize(
    ("sync", "lacks"), [("lora", set()), ("disk", {"metadata"}), ("disk", set()), ("reload", {"metadata"})]
)
def test_a_server_that_keeps_old_weights_is_caught(folder, server, tmp_path, sync, lacks):
    """It says that it has loaded them. The update after the first whose games the old weights
    played does not take place."""
    server.keeps_old, server.lacks = True, lacks
    with pytest.raises(DataError, match=rf"{server.url}: .*nats from the trainer's on average.*its weights are stale"):
        train(tmp_path / "run", table=table(folder, server.url, sync=sync, sft={}, updates=5))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines if line["kind"] == "update"] == [1]


@pytest.mark.parametrize("algorithm", ["sft", "grpo"])
def test_what_is_measured_is_held_against_the_weights_too(folder, server, tmp_path, algorithm):
    """The last measurement follows the last update: no later one would notice."""
    server.keeps_old, server.lacks = True, {"metadata"}
    changes = {"config": {}} if algorithm == "sft" else {"sft": {}}
    with pytest.raises(DataError, match="its weights are stale"):
        train(tmp_path / "run", table=table(folder, server.url, sync="disk", algorithm=algorithm, updates=1, **changes))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines if line["kind"] == "eval"] == ([] if algorithm == "sft" else [0])


def test_of_two_servers_the_stale_one_is_named(folder, server, tmp_path):
    with generating(folder) as second:
        second.keeps_old = True
        with pytest.raises(DataError, match=f"^{second.url}: "):
            train(tmp_path / "run", table=table(folder, server.url, second.url, sync="reload", sft={}))


def test_a_few_replies_of_each_server_are_compared():
    """They are spread over the batch, and each stands alone with its prompt."""
    runs = [Trajectory(episode(registry.TASKS["Signpost-v0"], seed)) for seed in range(5)]
    for number, run in enumerate(runs):
        replies = [Reply("", [1], [2], [-1.0], extra={"server": "ab"[turn % 2]}) for turn in range(4)]
        run.turns = [Turn(f"{number}{turn}", reply, ("",), 0.0, {}) for turn, reply in enumerate(replies)]
    sample = server_gap._sample(runs, 3)
    assert [server for server, _ in sample] == ["a"] * 3 + ["b"] * 3
    assert [[turn.observation for turn in run.turns] for _, run in sample[:3]] == [["00"], ["12"], ["30"]]
    assert len(server_gap._sample(runs, 0)) == 20
    assert all(len(run.turns) == 4 for run in runs)


def numbers(path):
    """Returns the log's numbers that do not depend on time or on the servers."""
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    names = ("kind", "update", "success", "reward", "turns", "tokens", "broken")
    return [{name: line[name] for name in names if name in line} for line in lines]


ACTOR_CRITIC = {"algorithm": "ppo", "turns": 2, "config": {"learning_rate": 1e-3}}


@pytest.mark.parametrize("changes", [{"async_level": 1}, ACTOR_CRITIC])
def test_the_only_server_dies_in_a_rollout_and_nothing_is_lost(folder, tmp_path, changes, monkeypatch):
    """No checkpoint was due. The updates before are saved, the batch is not learned from, and a
    resumed run takes the steps of one that nothing happened to."""
    monkeypatch.setattr(servers, "PAUSE", 0.01)
    settings = {"sft": {}, "updates": 3, "save_every": 10, **changes}
    model = {"name": str(folder)}
    _, lines = train(tmp_path / "whole", table={**table(folder, sync="disk", **settings), "model": model})
    with generating(folder) as dying:
        dying.dies_after = completions(lines[:3]) + 3  # in the third batch
        with pytest.raises(DataError, match=r"^update 3: no server answers any more.*--resume") as died:
            train(tmp_path / "run", table={**table(folder, dying.url, sync="disk", **settings), "model": model})
        assert "\n" not in str(died.value)
    known = numbers(tmp_path / "whole")
    assert numbers(tmp_path / "run") == known[:3]
    with generating(folder) as new:
        again = {**table(folder, new.url, sync="disk", **settings), "model": model}
        train(tmp_path / "run", table=again, resume=True)
    assert numbers(tmp_path / "run") == known


def completions(lines):
    """Returns the replies that the rollouts of log lines asked for."""
    return sum(line["env_steps"] if line["kind"] == "update" else round(line["n"] * line["turns"]) for line in lines)


def test_the_only_server_dies_in_an_evaluation_and_no_score_is_made_of_the_rest(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "PAUSE", 0.01)
    settings = {"sft": {}, "updates": 1, "save_every": 10, "eval_every": 1, "sync": "disk"}
    _, lines = train(tmp_path / "whole", table=table(folder, **settings))
    with generating(folder) as dying:
        dying.dies_after = completions(lines[:2]) + 1
        with pytest.raises(DataError, match=r"^the evaluation: no server answers any more"):
            train(tmp_path / "run", table=table(folder, dying.url, **settings))
    known = numbers(tmp_path / "whole")
    assert numbers(tmp_path / "run") == known[:2] and known[2]["kind"] == "eval"
    with generating(folder) as new:
        train(tmp_path / "run", table=table(folder, new.url, **settings), resume=True)
    assert numbers(tmp_path / "run") == known


def test_one_of_two_servers_dies_in_a_rollout_and_the_other_one_plays_on(folder, server, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(servers, "PAUSE", 0.01)
    settings = {"sft": {}, "sync": "disk"}
    train(tmp_path / "here", table=table(folder, **settings))
    with generating(folder) as dying:
        dying.dies_after = 6
        _, lines = train(tmp_path / "run", table=table(folder, server.url, dying.url, **settings))
        assert [path for path, _ in dying.requests].count("/update_weights_from_disk") > 2  # it is asked each time
    assert numbers(tmp_path / "run") == numbers(tmp_path / "here")
    assert all(line["broken"] == 0 for line in lines if line["kind"] == "update")
    warning = capsys.readouterr().err
    assert f"warning: {dying.url} did not load" in warning and "left out until the next weights" in warning


def test_a_server_that_restarted_without_the_adapter_is_passed_over(folder, server, tmp_path):
    """It does not know the name that requests ask for."""
    with generating(folder) as second:
        second.adapters = _Forgetful()
        _, lines = train(tmp_path / "run", table=table(folder, server.url, second.url, sft={}, updates=1))
    assert all(line["broken"] == 0 for line in lines if line["kind"] == "update")


class _Forgetful(dict):
    """Adapters of a server that loses them at once."""

    def __setitem__(self, name, adapter):
        pass

    def __delitem__(self, name):
        pass


def test_an_adapter_loaded_by_a_try_whose_answer_was_lost_is_loaded(folder, server, tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "PAUSE", 0.01)
    server.loses = ["/v1/load_lora_adapter"]
    _, lines = train(tmp_path / "run", table=table(folder, server.url, sft={}, updates=1))
    assert not server.loses and [line["server_gap"] < 1e-5 for line in lines if "server_gap" in line] == [True] * 3


def test_an_answer_that_names_other_weights_is_refused(folder, server):
    policy = ask(folder, server, version="envsuite-1")
    with pytest.raises(DataError, match="answers with weights 'default', not with 'envsuite-1'"):
        policy.act([PROMPT])
    policy.close()


def test_a_reply_that_one_of_several_strings_ended_needs_no_end_token(folder, server):
    policy = ask(folder, server)
    policy.stop = ("look", "north")
    ids = policy.template.tokenizer("go north", add_special_tokens=False)["input_ids"]
    logprobs = [-1.0] * len(ids)
    assert policy._fault([1], ids, logprobs, None, "stop") == ""
    assert policy._fault([1], ids[:1], logprobs[:1], None, "stop") == "omits the token that ended a reply"
    policy.close()


PROMPT = Prompt([{"role": "user", "content": "Say the word. north"}], seed=2**40 + 3, key="talk")


def ask(folder, server, **options):
    model = Model.load(ModelConfig(str(folder), critic="none"))
    ends = end_tokens(model.lm, model.tokenizer)
    quick = {"max_retries": 0, "temperature": 1.0, "max_tokens": 5, "thinking": False, **options}
    return TokensPolicy("any", model.tokenizer, ends, base_url=server.url, **quick)


@pytest.mark.parametrize(
    ("lacks", "message"),
    [
        ({"token_ids"}, r"returns no token ids \(return_token_ids\): training needs vLLM 0\.10\.2"),
        ({"logprobs"}, "returns no log-prob for each token"),
    ],
)
def test_a_server_without_tokens_is_refused_in_one_line(folder, server, lacks, message):
    server.lacks = lacks
    policy = ask(folder, server)
    with pytest.raises(UsageError, match=message) as refused:
        policy.act([PROMPT])
    assert "\n" not in str(refused.value)
    policy.close()


def test_later_prompts_hold_the_very_tokens_that_the_server_sampled(folder, server):
    policy, model = ask(folder, server), Model.load(ModelConfig(str(folder), critic="none"))
    here = HFPolicy.of(model.lm, model.tokenizer, temperature=1.0, max_tokens=5, thinking=False)
    messages = list(PROMPT.messages)
    for turn in range(3):
        prompt = PROMPT._replace(messages=list(messages), turn=turn, seed=turn)
        (item,), (two,) = policy.act([prompt]), here.act([prompt])
        assert (item.text, list(item.ids), list(item.prompt_ids)) == (two.text, list(two.ids), list(two.prompt_ids))
        assert item.logprobs == pytest.approx(two.logprobs, abs=1e-5)
        assert (item.finish_reason, item.output_tokens) == (two.finish_reason, len(item.ids))
        messages += [{"role": "assistant", "content": item.text}, {"role": "user", "content": "And now?"}]
    policy.close()
    body = server.requests[-1][1]
    assert body["prompt"] == list(item.prompt_ids)
    assert (body["return_token_ids"], body["logprobs"], body["seed"]) == (True, 1, 2)
    assert (body["top_p"], body["top_k"], body["repetition_penalty"]) == (1.0, -1, 1.0)  # not the model's own defaults


def test_a_server_that_loads_nothing_is_named_with_the_cure(folder, server, tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "PAUSE", 0.01)
    server.lacks = {"lora"}
    with pytest.raises(DataError, match=r"did not load .*404: Not Found.*VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"):
        train(tmp_path / "one", table=table(folder, server.url))
    with pytest.raises(DataError, match=r"did not load .*\(0: ConnectError.*is it running"):
        train(tmp_path / "two", table=table(folder, "http://127.0.0.1:9/v1"))
    run = TrainingRun(recipes.parse(table(folder, server.url, sync="disk")), tmp_path / "three")
    post = run.collector.servers._post
    run.collector.servers._post = lambda url, body, tries: (shutil.rmtree(body["model_path"]), post(url, body, tries))[
        1
    ]  # not shared
    with pytest.raises(DataError, match=r"500: Failed to load .*servers must see that folder"):
        run.train()


def test_a_password_in_the_servers_address_is_in_no_file_of_the_run_and_in_no_message(folder, server, tmp_path):
    address = server.url.replace("//", "//user:pass-word@")
    train(tmp_path / "run", table=table(folder, address, updates=1, sft={}, eval_every=0))
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert {"recipe.json", "checkpoint.pt"} <= {path.name for path in files}
    assert not [path for path in files if b"pass-word" in path.read_bytes()]
    stored = json.loads((tmp_path / "run" / "recipe.json").read_text())["recipe"]
    assert stored["generation"]["base_url"] == server.url
    for url in ("user:pass-word@gpu1:8000", "ftp://user:pass-word@gpu1"):
        with pytest.raises(UsageError, match="gpu1") as caught:
            recipes.parse(table(folder, url))
        assert "pass-word" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"acting": {"choose": "admissible"}}, "leave one of them out"),
        ({"model": {"name": "x", "critic": "none"}}, "model.lora_rank is 0"),
        ({"acting": {"top_p": 0.9}}, r"top_p = 0\.9: .*set it to 1"),
        ({"generation": {"base_url": "gpu1:8000"}}, "base_url cannot be 'gpu1:8000': it looks like"),
        ({"generation": {"base_url": ","}}, "base_url cannot be ','"),
        ({"generation": {"base_url": "http://h/v1", "tolerance": 0}}, "tolerance cannot be 0.0: it is above 0"),
        ({"generation": {"base_url": "http://h/v1", "sync": "nccl"}}, "sync cannot be 'nccl': .* lora, disk, reload"),
        ({"generation": {"base_ulr": "http://h/v1"}}, "Did you mean 'base_url'"),
    ],
)
def test_a_recipe_that_servers_cannot_play_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        recipes.parse({**table("x", "http://h/v1"), **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"acting": {"choose": "admissible"}}, r"generation\.engine = 'vllm' generates elsewhere"),
        ({"async_level": 1}, "async_level is 1: leave one of them out"),
        ({"fsdp": True}, "fsdp is True: leave one of them out"),
        ({"generation": {"engine": "vllm", "base_url": "http://h/v1"}}, "base_url is 'http://h/v1': leave one"),
        ({"generation": {"engine": "vllm", "gpu_share": 1.5}}, r"gpu_share cannot be 1\.5"),
        ({"generation": {"engine": "sglang"}}, "engine cannot be 'sglang'"),
    ],
)
def test_a_recipe_that_an_engine_in_this_process_cannot_play_is_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        recipes.parse({**table("x"), "generation": {"engine": "vllm"}, **changes})


def test_an_engine_that_is_not_installed_ends_the_run_in_one_line(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", None)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    with pytest.raises(MissingExtra, match=r"generation\.engine = 'vllm' needs vLLM .*pip install vllm") as refused:
        train(tmp_path / "run", table=table(folder, generation={"engine": "vllm"}, sft={}))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("rank", [0, 4])
def test_weights_for_an_engine_have_every_name_of_a_checkpoint_and_a_head(folder, tmp_path, rank):
    model = Model.load(ModelConfig(str(folder), critic="none", lora_rank=rank))
    with torch.no_grad():
        for parameter in model.actor_parameters():
            parameter.add_(torch.randn_like(parameter))
    model.save(tmp_path / "saved")
    (file,) = (tmp_path / "saved").glob("*.safetensors")
    saved, weights = load_file(file), model.all_weights()
    assert set(weights) - set(saved) == {"lm_head.weight"}
    assert torch.equal(weights["lm_head.weight"], saved["model.embed_tokens.weight"])
    for name, tensor in saved.items():
        torch.testing.assert_close(weights[name], tensor, atol=0, rtol=0)
