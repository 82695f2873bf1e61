"""Language ability: our two task files, the comparison by item, and lm-eval itself on a small model."""

import io
import json
from collections import Counter

import pytest

from envsuite.errors import DataError
from harness import language_ability
from harness.cli import generalize as command


@pytest.mark.parametrize(("name", "count"), [("agreement", 200), ("household", 40)])
def test_our_items_are_whole_different_and_not_answered_by_position(name, count):
    with open(language_ability._local(name)["dataset_kwargs"]["data_files"]["test"]) as file:
        items = [json.loads(line) for line in file]
    assert len({json.dumps(one) for one in items}) == len(items) == count
    assert all(len(set(one["choices"])) == 2 and one["answer"] in (0, 1) and one["prompt"] for one in items)
    assert all(0.35 * count < number < 0.65 * count for number in Counter(one["answer"] for one in items).values())


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--language", ","], "names no task"), (["--language", "agreement", "-n", "0"], "--episodes must be at least 1")],
)
def test_what_measures_nothing_is_refused(words, said, tmp_path, capsys):
    with pytest.raises(SystemExit) as done:
        command.main(["-m", "smollm2-135m", *words, "-o", str(tmp_path)])
    assert done.value.code == 2 and said in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_names_of_tasks_may_have_spaces_between_them(tmp_path, capsys):
    with pytest.raises(SystemExit) as done:
        command.main(["-m", "m", "--language", " agreement, household ", "--dry-run", "-o", str(tmp_path)])
    assert done.value.code == 0 and "1 models x agreement, household, all items each" in capsys.readouterr().out


def test_before_and_after_are_compared_item_by_item():
    before, after = [1.0, 0.0] * 20, [1.0, 1.0] * 10 + [1.0, 0.0] * 10
    found = language_ability.report({"before": {"agreement": before}, "after": {"agreement": after}})
    (row,) = found["tasks"]
    assert row["accuracy"]["before"]["mean"] == 0.5 and row["accuracy"]["after"]["mean"] == 0.75
    change = row["change"]["after"]
    # ten items changed, all to the better: p = 2 / 2**10 exactly
    assert change["mean"] == 0.25 and change["low"] > 0 and change["n"] == 40 and change["p"] == pytest.approx(2 / 1024)


def test_items_of_which_none_changed_do_not_prove_that_nothing_did():
    items = [1.0, 0.0] * 2
    (row,) = language_ability.report({"before": {"agreement": items}, "after": {"agreement": items}})["tasks"]
    change = row["change"]["after"]
    assert change["mean"] == 0 and change["low"] < -0.3 and change["high"] > 0.3 and change["n"] == 4


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A model of a few thousand random weights."""
    from tests.lm.tiny import tiny_model, tiny_tokenizer

    folder, tokenizer = tmp_path_factory.mktemp("tiny"), tiny_tokenizer()
    tiny_model(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_accuracy_is_that_of_the_likelihoods_taken_by_hand(tiny):
    """The end whose tokens are likelier, all together, is the model's answer."""
    pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    network, tokenizer = AutoModelForCausalLM.from_pretrained(tiny), AutoTokenizer.from_pretrained(tiny)

    def likelihood(prompt, end):
        whole, begun = tokenizer(f"{prompt} {end}")["input_ids"], len(tokenizer(prompt)["input_ids"])
        with torch.no_grad():
            told = network(torch.tensor([whole])).logits[0].log_softmax(-1)
        return sum(float(told[place - 1, whole[place]]) for place in range(begun, len(whole)))

    with open(language_ability._local("household")["dataset_kwargs"]["data_files"]["test"]) as file:
        items = [json.loads(line) for line in file][:12]
    byhand = [[likelihood(one["prompt"], end) for end in one["choices"]] for one in items]
    wanted = [float((second > first) == one["answer"]) for (first, second), one in zip(byhand, items)]
    assert language_ability.measure(str(tiny), ["household"], limit=12, device="cpu", dtype="float32") == {
        "household": wanted
    }
    assert 0 < sum(wanted) < 12


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_model_is_measured_and_the_same_model_has_not_changed(smollm, tmp_path, capsys):
    pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    words = ["-m", "smollm2-135m", "-m", str(smollm), "--language", "agreement", "-n", "4", "-o", str(tmp_path)]
    with pytest.raises(SystemExit) as done:
        command.main(words)
    assert done.value.code == 0
    assert "+0.000 [-" in " ".join(capsys.readouterr().out.split())
    found = json.loads((tmp_path / "language.json").read_text())
    (row,) = found["tasks"]
    assert row["accuracy"]["smollm2-135m"]["mean"] >= 0.5 and row["change"][str(smollm)]["p"] == 1.0
    with pytest.raises(SystemExit) as done:
        command.main(words)
    assert done.value.code == 2 and "measure again with --resume" in capsys.readouterr().err


def test_task_files_whose_data_is_not_there_are_named(tiny, tmp_path):
    pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    (tmp_path / "mine.yaml").write_text(
        "task: mine\ndataset_path: json\ndataset_kwargs: {data_files: {test: /nowhere/mine.jsonl}}\ntest_split: test\n"
        "output_type: multiple_choice\ndoc_to_text: '{{prompt}}'\ndoc_to_choice: '{{choices}}'\ndoc_to_target: '{{answer}}'\n"
    )
    with pytest.raises(DataError, match="'mine' cannot be run"):
        language_ability.measure(str(tiny), ["mine"], include=tmp_path)


def test_what_lm_eval_says_of_an_error_is_read_and_its_bars_are_not_seen(tiny, tmp_path, capfd):
    pytest.importorskip("lm_eval", reason="lm-eval is not installed")
    rows = [{"prompt": "one", "choices": [" a", " b"], "answer": 0}] * 3
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (tmp_path / "readers.py").write_text(
        "import sys\n\n\ndef careful(docs):\n    print('row 2 of mine is odd', file=sys.stderr)\n    return docs\n"
    )
    (tmp_path / "mine.yaml").write_text(
        f"task: mine\ndataset_path: json\ndataset_kwargs: {{data_files: {{test: {tmp_path}/rows.jsonl}}}}\n"
        "test_split: test\nprocess_docs: !function readers.careful\noutput_type: multiple_choice\n"
        "doc_to_text: '{{prompt}}'\ndoc_to_choice: '{{choices}}'\ndoc_to_target: '{{answer}}'\n"
    )
    language_ability.measure(
        str(tiny), ["mine"], include=tmp_path, device="cpu"
    )  # loading the weights may show a bar of its own
    said = capfd.readouterr().err
    assert "row 2 of mine is odd" in said and "loglikelihood" not in said and "it/s]" not in said
    from tqdm import tqdm

    assert not tqdm([], file=io.StringIO()).disable  # others' bars show again
