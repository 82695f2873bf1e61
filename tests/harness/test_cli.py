"""Behaviour that all commands share: names, control characters, interrupts, the cache, and files' permissions."""

import argparse
import importlib
import json
import os
import re
import stat
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from envsuite.cache import MARKER, cache_dir, write_atomically
from envsuite.escaping import markdown, one_line, terminal
from harness import __main__ as envsuite
from harness import cli
from harness.__main__ import GROUPS, VERBS
from harness.cli import cache
from harness.stats.summary import result_table, summarise
from tests import toys  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]


def parser_of(verb):
    return importlib.import_module(VERBS[verb].module or "baselines.cli").parser()


def actions(parser):
    """Yields every action of a parser and of its subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from actions(subparser)
        else:
            yield action


@pytest.mark.parametrize("verb", VERBS)
def test_every_argument_has_a_help_text(verb):
    parser = parser_of(verb)
    assert not [action.option_strings or action.dest for action in actions(parser) if not action.help]


@pytest.mark.parametrize("verb", VERBS)
def test_a_misspelt_flag_is_answered_with_the_nearest(verb, capsys):
    parser = parser_of(verb)
    with pytest.raises(SystemExit, match="2"):
        parser.error("unrecognized arguments: --helq")
    assert capsys.readouterr().err.endswith("error: unrecognized arguments: --helq. Did you mean '--help'?\n")


def test_the_help_lists_every_verb_in_four_groups_and_imports_no_package():
    code = "import sys, harness.__main__ as verbs; print(verbs.usage()); print(sorted({'gymnasium', 'rich', 'envsuite'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    *lines, imported = done.stdout.splitlines()
    assert imported == "[]" and len([line for line in lines if line.endswith(":")]) == len(GROUPS) == 4
    assert [line.split()[0] for line in lines if line.startswith("  ")] == list(VERBS)


def call(words, capsys) -> tuple[int, str]:
    with pytest.raises(SystemExit) as done:
        envsuite.main(words)
    output = capsys.readouterr()
    return done.value.code or 0, output.out + output.err


def test_a_verb_gets_its_words_and_an_unknown_one_the_nearest(capsys):
    assert call(["--help"], capsys) == (0, envsuite.usage() + "\n")
    assert call([], capsys) == (2, envsuite.usage() + "\n")
    code, output = call(["envs", "--help"], capsys)
    assert code == 0 and output.startswith("usage: envsuite envs")
    code, output = call(["tabel"], capsys)
    assert code == 2 and output.count("\n") == 1 and "There is no verb 'tabel'" in output and "'table'" in output


def test_training_is_reached_through_its_entry_point(monkeypatch, capsys):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sorted(project["scripts"]) == ["envsuite", "envsuite-eval", "envsuite-train"]
    ((name, value),) = project["entry-points"][envsuite.ENTRY_POINTS].items()
    entry = EntryPoint(name, value, envsuite.ENTRY_POINTS)
    monkeypatch.setattr(envsuite, "entry_points", lambda group, name: [entry] if name == "train" else [])
    code, output = call(["train", "--help"], capsys)
    assert code == 0 and output.startswith("usage: envsuite-train")
    monkeypatch.setattr(envsuite, "entry_points", lambda group, name: [])
    code, output = call(["train", "demo"], capsys)
    assert code == 2 and "The package with the verb 'train' is not installed" in output


def test_json_has_no_digits_beyond_the_twelfth(capsys):
    cli.print_json({"means": [0.1 + 0.2, 1e300], "count": 3, "name": "x", "pair": (1 / 3, None)})
    printed = capsys.readouterr().out
    assert "0.30000000000000004" not in printed
    assert json.loads(printed) == {"means": [0.3, 1e300], "count": 3, "name": "x", "pair": [0.333333333333, None]}


def test_counts_have_a_noun_in_the_right_number():
    assert [cli.plural(count, "run") for count in (0, 1, 2000)] == ["0 runs", "1 run", "2,000 runs"]


def test_names_with_markup_are_printed_unchanged(capsys):
    """Prints '[v2]', ':star:' and '[/x]' literally instead of reading them as Rich markup."""
    name = "runs/[v2]/ft:acme:star:[/x]"
    cli.console().print(result_table(name, [(name, summarise([]))]))
    cli.console().print(f"records: {name}", highlight=False, soft_wrap=True)
    assert capsys.readouterr().out.count(name) == 3


@pytest.mark.parametrize(
    ("resumes", "message"), [("", "\nstopped\n"), ("--resume", "are kept, and --resume continues from there")]
)
def test_an_interrupted_command_mentions_resume_only_if_it_can_resume(resumes, message, capsys):
    def command(argv):
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as done:
        cli.run(command, [], resumes)
    assert done.value.code == 130 and message in capsys.readouterr().err


def run_cache(*words) -> int:
    with pytest.raises(SystemExit) as stop:
        cache.main(list(words))
    return stop.value.code


def test_the_cache_is_listed_and_cleared_by_part(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / "new"))
    (cache_dir("games") / "one").write_bytes(b"x" * 1_200_000)
    assert run_cache("list") == 0 and "1.2 MB" in capsys.readouterr().out
    assert run_cache("clear", "gmes", "-y") == 2 and "Did you mean 'games'" in capsys.readouterr().err
    assert run_cache("clear", "games", "-y") == 0 and "removed 1.2 MB" in capsys.readouterr().out
    assert not (tmp_path / "new" / "games").exists()


def test_a_folder_that_envsuite_did_not_make_is_never_cleared(tmp_path, monkeypatch, capsys):
    (tmp_path / "models").mkdir()
    (tmp_path / "photos").mkdir()
    (tmp_path / "models" / "mine").write_text("dear")
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path))
    for words in (["clear", "-y"], ["clear", "models", "-y"], ["clear", "photos", "-y"]):
        assert run_cache(*words) == 2
    assert MARKER in capsys.readouterr().err
    assert (tmp_path / "models" / "mine").exists() and (tmp_path / "photos").exists()


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_written_files_have_the_permissions_that_the_umask_allows(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "file", "text")
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~mask
    finally:
        os.umask(before)


def test_no_text_controls_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")  # so that the table is no list
    hostile = "\x1b]0;title\x07 \u202egnp.exe \x9b2J\r\x7f \ud800"
    cli.console().print(result_table(hostile, [(hostile, summarise([]))]))
    cli.print_safely(hostile)
    output = capsys.readouterr().out
    assert not set(output) & set("\x1b\x07\u202e\x9b\r\x7f\ud800") and output.count("\\x1b]0;title") == 3
    assert terminal("a\tb\nc") == "a\tb\nc" and one_line("a\tb\r\nc") == "a b\\x0d c"


@pytest.mark.parametrize(
    "text",
    [
        "[click](javascript:alert(1))",
        "![pixel](https://evil.example/x.png)",
        "<img src=x onerror=alert(1)>",
        "a | b",
        "line\n\n# heading",
        "`code`",
        "https://evil.example www.evil.example me@evil.example",
        "[ref]: https://evil.example",
    ],
)
def test_no_text_becomes_markup_of_a_page(text):
    unescaped = re.sub(r"\\.", "", markdown(text))
    assert not set(unescaped) & set("[]|`<>\n") and "://" not in unescaped
    assert "www." not in unescaped and "@evil" not in unescaped


def test_every_model_named_is_played_once(tmp_path, capsys):
    from harness.cli import eval as command

    words = ["-e", "HiLo-v0", "-n", "2", "-o", str(tmp_path), "--json", "--num-workers", "0"]
    with pytest.raises(SystemExit) as done:
        command.main(["-m", "idle", "-m", "expert", "-m", "idle", *words])
    assert done.value.code == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert list(result["rows"]) == ["idle", "expert", "random"]
    assert sorted(path.parent.parent.name for path in tmp_path.glob("*/*/summary.json")) == [
        "HiLo-v0--expert", "HiLo-v0--idle", "HiLo-v0--random",
    ]  # fmt: skip


def test_a_long_list_of_instances_does_not_fill_a_headline():
    names = tuple(f"a__b-{number}" for number in range(60))
    assert cli.titled("T-v0", {"instances": names}) == (
        "T-v0 instances=a__b-0, a__b-1, a__b-2, a__b-3, ... (60 in all)"
    )
    assert cli.titled("T-v0", {"size": 8, "deny": ("x",)}) == "T-v0 size=8 deny=('x',)"
