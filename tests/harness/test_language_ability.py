"""Language ability: the two bundled task files, the comparison by item, and lm-eval on a small model."""

import io
import json
from collections import Counter

import pytest

from envsuite.errors import DataError
from harness import language_ability
from harness.cli import generalize as command


@pytest.mark.parametrize(("name", "count"), [("agreement", 200), ("household", 40)])
def test_bundled_items_are_complete_distinct_and_balanced_by_answer_position(name, count):
    with open(language_ability._local(name)["dataset_kwargs"]["data_files"]["test"]) as file:
        items = [json.loads(line) for line in file]
    assert len({json.dumps(item) for item in items}) == len(items) == count
    assert all(len(set(item["choices"])) == 2 and item["answer"] in (0, 1) and item["prompt"] for item in items)
    assert all(0.35 * count < number < 0.65 * count for number in Counter(item["answer"] for item in items).values())


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--language", ","], "names no task"), (["--language", "agreement", "-n", "0"], "--episodes must be at least 1")],
)
def test_a_request_without_tasks_or_items_is_refused(words, message, tmp_path, capsys):
    with pytest.raises(SystemExit) as done:
        command.main(["-m", "smollm2-135m", *words, "-o", str(tmp_path)])
    assert done.value.code == 2 and message in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_task_names_may_be_separated_by_spaces(tmp_path, capsys):
    with pytest.raises(SystemExit) as done:
        command.main(["-m", "m", "--language", " agreement, household ", "--dry-run", "-o", str(tmp_path)])
    assert done.value.code == 0 and "1 models x agreement, household, all items each" in capsys.readouterr().out


def test_before_and_after_are_compared_item_by_item():
    before, after = [1.0, 0.0] * 20, [1.0, 1.0] * 10 + [1.0, 0.0] * 10
    comparison = language_ability.report({"before": {"agreement": before}, "after": {"agreement": after}})
    (row,) = comparison["tasks"]
    assert row["accuracy"]["before"]["mean"] == 0.5 and row["accuracy"]["after"]["mean"] == 0.75
    change = row["change"]["after"]
    # Ten items changed, all for the better: p is exactly 2 / 2**10.
    assert change["mean"] == 0.25 and change["low"] > 0 and change["n"] == 40 and change["p"] == pytest.approx(2 / 1024)


def test_unchanged_items_keep_an_interval_around_zero():
    items = [1.0, 0.0] * 2
    (row,) = language_ability.report({"before": {"agreement": items}, "after": {"agreement": items}})["tasks"]
    change = row["change"]["after"]
    assert change["mean"] == 0 and change["low"] < -0.3 and change["high"] > 0.3 and change["n"] == 4


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Saves a model with a few thousand random weights; returns its folder."""
    from tests.lm.tiny import tiny_model, tiny_tokenizer

    folder, tokenizer = tmp_path_factory.mktemp("tiny"), tiny_tokenizer()
    tiny_model(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_accuracy_equals_that_of_likelihoods_computed_directly(tiny):
    """Takes the ending with the larger summed log-probability as the model's answer."""
    pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    network, tokenizer = AutoModelForCausalLM.from_pretrained(tiny), AutoTokenizer.from_pretrained(tiny)

    def likelihood(prompt, end):
        ids = tokenizer(f"{prompt} {end}")["input_ids"]
        prompt_length = len(tokenizer(prompt)["input_ids"])
        with torch.no_grad():
            logprobs = network(torch.tensor([ids])).logits[0].log_softmax(-1)
        return sum(float(logprobs[place - 1, ids[place]]) for place in range(prompt_length, len(ids)))

    with open(language_ability._local("household")["dataset_kwargs"]["data_files"]["test"]) as file:
        items = [json.loads(line) for line in file][:12]
    likelihoods = [[likelihood(item["prompt"], end) for end in item["choices"]] for item in items]
    expected = [
        float((second > first) == item["answer"]) for (first, second), item in zip(likelihoods, items, strict=True)
    ]
    assert language_ability.measure(str(tiny), ["household"], limit=12, device="cpu", dtype="float32") == {
        "household": expected
    }
    assert 0 < sum(expected) < 12


def test_a_model_measured_twice_shows_no_change(tiny, tmp_path, capsys):
    pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    before, after = str(tiny), f"{tiny}/."  # two names of one model
    words = ["-m", before, "-m", after, "--language", "agreement", "-n", "4", "--device", "cpu", "-o", str(tmp_path)]
    with pytest.raises(SystemExit) as done:
        command.main(words)
    assert done.value.code == 0
    printed = capsys.readouterr().out  # how the table wraps depends on the width of the terminal
    assert "+0.000" in printed and "1.0000" in printed
    (row,) = json.loads((tmp_path / "language.json").read_text())["tasks"]
    change = row["change"][after]
    assert (change["mean"], change["n"], change["p"]) == (0.0, 4, 1.0)
    assert change["low"] == pytest.approx(-change["high"]) and change["high"] > 0.5
    assert row["accuracy"][before] == row["accuracy"][after]
    with pytest.raises(SystemExit) as done:
        command.main(words)
    assert done.value.code == 2 and "measure again with --resume" in capsys.readouterr().err


def test_a_task_file_with_missing_data_is_named(tiny, tmp_path):
    pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    (tmp_path / "mine.yaml").write_text(
        "task: mine\ndataset_path: json\ndataset_kwargs: {data_files: {test: /nowhere/mine.jsonl}}\ntest_split: test\n"
        "output_type: multiple_choice\ndoc_to_text: '{{prompt}}'\n"
        "doc_to_choice: '{{choices}}'\ndoc_to_target: '{{answer}}'\n"
    )
    with pytest.raises(DataError, match="'mine' cannot be run"):
        language_ability.measure(str(tiny), ["mine"], include=tmp_path)


def test_messages_of_lm_eval_are_printed_without_its_progress_bars(tiny, tmp_path, capfd):
    pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    rows = [{"prompt": "one", "choices": [" a", " b"], "answer": 0}] * 3
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "readers.py").write_text(
        "import sys\n\n\ndef careful(docs):\n    print('row 2 of mine is odd', file=sys.stderr)\n    return docs\n"
    )
    (tmp_path / "mine.yaml").write_text(
        f"task: mine\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {tmp_path}/rows.jsonl}}}}\n"
        "test_split: test\nprocess_docs: !function readers.careful\noutput_type: multiple_choice\n"
        "doc_to_text: '{{prompt}}'\ndoc_to_choice: '{{choices}}'\ndoc_to_target: '{{answer}}'\n"
    )
    language_ability.measure(str(tiny), ["mine"], include=tmp_path, device="cpu")  # loading weights may print a bar
    error = capfd.readouterr().err
    assert "row 2 of mine is odd" in error and "loglikelihood" not in error and "it/s]" not in error
    from tqdm import tqdm

    assert not tqdm([], file=io.StringIO()).disable  # other progress bars work again
