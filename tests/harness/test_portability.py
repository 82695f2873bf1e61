"""Commands on unusual machines: without torch, with an ASCII terminal, a narrow one, or a folder without permission."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.table import Table

from envsuite import registry
from envsuite.errors import MissingExtra
from envsuite.escaping import in_ascii
from envsuite.installed import extras
from harness.cli import SafeConsole
from harness.evaluate import Execution, RunConfig, evaluate
from harness.policies import make_policy
from tests import toys  # noqa: F401  registers Faulty

ROOT = Path(__file__).resolve().parents[2]
ASCII = {"PYTHONIOENCODING": "ascii"}
ASCII_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def command(name, *words, cwd, hidden=(), **variables):
    """Runs a command as on a machine that lacks the `hidden` packages."""
    blocked = "".join(f"sys.modules[{module!r}] = None\n" for module in hidden)
    code = f"import sys\n{blocked}from {name} import main\nmain({[str(word) for word in words]!r})"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, env=environment, errors="replace"
    )


@pytest.mark.parametrize("locale", [ASCII, ASCII_LOCALE], ids=["streams", "locale"])
def test_tables_are_printed_in_an_ascii_locale(tmp_path, locale):
    words = ("-m", "random", "-e", "virtualhome", "-n", "2", "--max-turns", "3")
    played = command("harness.cli.eval", *words, cwd=tmp_path, **locale)
    assert played.returncode == 0 and "expert" in played.stdout and played.stdout.isascii(), played.stderr
    listed = command("harness.cli.envs", "overcooked", cwd=tmp_path, **locale)
    assert listed.returncode == 0 and listed.stdout.isascii(), listed.stderr
    published = command("harness.cli.table", "guide-1", cwd=tmp_path, **locale)
    assert published.returncode == 0 and published.stdout.isascii(), published.stderr


def test_signs_are_spelled_in_ascii():
    assert in_ascii("0.5 – 0.7 × ±1") == "0.5 - 0.7 x +-1"
    assert in_ascii("café") == "caf\\xe9"


def shown(table, width, capsys):
    SafeConsole(width=width, file=None, markup=False, emoji=False).print(table)
    return capsys.readouterr().out


def test_a_table_that_does_not_fit_is_a_list_with_every_cell(capsys):
    table = Table(title="scores")
    table.add_column("model")
    table.add_column("success", justify="right")
    table.add_column("reward", justify="right")
    table.add_row("smollm2-135m", "12.5 [4.0, 31.0] n=8", "0.125 [0.040, 0.310]")
    wide, narrow = shown(table, 100, capsys), shown(table, 40, capsys)
    assert "─" in wide or "━" in wide
    assert narrow.splitlines()[:2] == ["scores", "smollm2-135m"]
    assert "  success  12.5 [4.0, 31.0] n=8" in narrow and "  reward   0.125 [0.040, 0.310]" in narrow
    assert max(map(len, narrow.splitlines())) <= 40


def test_a_folder_without_permission_is_one_line_with_a_remedy(tmp_path):
    words = ("-m", "random", "-e", "virtualhome", "-n", "1", "-o", "/sys/envsuite-runs")
    done = command("harness.cli.eval", *words, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "No permission for /sys/envsuite-runs" in done.stderr and "--output-dir" in done.stderr


def test_without_torch_a_local_model_is_refused_and_leaves_no_folder(tmp_path):
    words = ("-m", "smollm2-135m", "-e", "virtualhome", "-n", "1")
    done = command("harness.cli.eval", *words, cwd=tmp_path, hidden=["torch"])
    assert done.returncode == 2 and "pip install 'envsuite[hf]'" in done.stderr, done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_is_missing_in_the_middle_of_a_run_costs_no_finished_episode(tmp_path):
    task = registry.tasks("Faulty-v0")[0]
    config = RunConfig(task=task, model="random", episodes=4, knobs={"how": "extra"})
    with pytest.raises(MissingExtra):
        evaluate(config, tmp_path, lambda: make_policy("random"), Execution(max_concurrent=1, num_workers=0))
    (journal,) = tmp_path.rglob("journal.jsonl")
    assert len(journal.read_text().splitlines()) == 2


@pytest.mark.parametrize("words", [("demo",), ("demo", "--dry-run")])
def test_without_torch_training_is_one_line(tmp_path, words):
    done = command("baselines.cli", *words, cwd=tmp_path, hidden=["torch"])
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "'torch'" in done.stderr and "pip install 'envsuite[train]'" in done.stderr


def test_without_textworld_alfworlds_stock_engine_names_its_extra_and_the_native_one_plays(tmp_path):
    stock = ("-m", "random", "-e", "ALFWorld-generated-v0", "--set", "engine=textworld", "-n", "1")
    done = command("harness.cli.eval", *stock, "--num-workers", "0", cwd=tmp_path, hidden=["textworld"])
    assert done.returncode == 2 and "envsuite[alfworld-stock]" in done.stderr, done.stderr
    native = ("-m", "expert", "-e", "alfworld-generated-easy", "-n", "1", "--json")
    done = command("harness.cli.eval", *native, cwd=tmp_path, hidden=["textworld", "fast_downward"])
    assert json.loads(done.stdout)[0]["rows"]["expert"]["success"]["value"] == 1.0


def test_the_doctor_examines_everything_and_names_a_remedy_for_what_is_missing(tmp_path):
    done = command("harness.cli.doctor", "--json", cwd=tmp_path, hidden=["torch"], **ASCII)
    findings = {finding["name"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"python", "cache", "compilers", "torch", "sandbox", "alfworld", "model"} <= findings.keys()
    assert findings["torch"]["state"] == "none" and "envsuite[hf]" in findings["torch"]["remedy"]
    assert findings["encoding"]["state"] == "none"
    for finding in findings.values():
        assert finding["state"] == "ok" or finding["remedy"]


def test_the_doctor_fails_without_a_writable_cache(tmp_path):
    done = command("harness.cli.doctor", cwd=tmp_path, hidden=["torch"], ENVSUITE_CACHE="/sys/envsuite")
    assert done.returncode == 1
    assert "FAIL  cache" in done.stdout and "set ENVSUITE_CACHE" in done.stdout


def test_the_doctor_reads_extras_from_the_installed_metadata():
    needed = extras()
    if not needed:
        pytest.skip("envsuite is not installed: make dev")
    assert "minigrid" in needed["babyai"] and "torch" in needed["hf"]
