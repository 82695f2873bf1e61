"""Settings are declared once: flags, help, defaults, bounds and keys of files come from fields of dataclasses."""

import argparse
import ast
import dataclasses
import re
from collections import defaultdict
from pathlib import Path

import pytest

from envsuite.errors import UsageError
from harness import settings
from harness.evaluate import RunConfig, Sampling
from harness.execution import Budget, Connection, Execution
from harness.prompting.prompting import Prompting

ROOT = Path(__file__).resolve().parents[2]
CLASSES = (RunConfig, Sampling, Prompting, Execution, Budget, Connection)
FLAGS = settings.declared(*CLASSES)


def names(node) -> set[str]:
    """The settings that a node of a syntax tree declares: a parser's flag, or a field of a class with a default."""
    if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
        "add_argument",
        "add",
    ):
        words = [word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        return {word[2:].replace("-", "_") for word in words if word.startswith("--")}
    if isinstance(node, ast.ClassDef):
        fields = [entry for entry in node.body if isinstance(entry, ast.AnnAssign) and entry.value is not None]
        # One word, such as `seed` or `reward`, is also a field of records and games.
        return {field.target.id for field in fields if "_" in field.target.id}
    return set()


def test_a_setting_is_declared_in_at_most_three_files():
    """A file declares a setting if it adds its flag to a parser by name, or has a field of a class with its name and a
    default. Code that reads a setting, tables that name those of a suite, and messages are not counted."""
    files = defaultdict(set)
    for path in [path for room in ("envsuite", "harness", "baselines") for path in (ROOT / room).rglob("*.py")]:
        for flag in {name for node in ast.walk(ast.parse(path.read_text())) for name in names(node)} & FLAGS.keys():
            files[flag].add(str(path.relative_to(ROOT)))
    assert files["thinking_budget"] == files["extra_body"] == {"harness/evaluate.py"}
    assert {flag: sorted(paths) for flag, paths in files.items() if len(paths) > 3} == {}


@dataclasses.dataclass(frozen=True)
class Meal:
    size: int = settings.setting(2, "plates", short="-s", at_least=1)
    spice: str = settings.setting("none", "how hot", "hotness", omitted=True, read=str.lower)
    salt: float | None = settings.setting(None, "grams", at_least=0, type=float)
    eaten: bool = settings.setting(False, "all gone")
    cook: str = "me"


def parsed(*words, **defaults):
    parser = argparse.ArgumentParser()
    settings.add_flags(parser, Meal, (), defaults)
    return parser, settings.named(parser.parse_args(words), Meal)


def test_only_named_flags_are_in_the_result_and_become_fields():
    assert parsed()[1] == {}
    flags = parsed("-s", "3", "--hotness", "HOT", "--eaten")[1]
    assert flags == {"size": 3, "hotness": "HOT", "eaten": True}
    assert settings.read(Meal, flags, cook="you") == Meal(3, "hot", None, True, "you")
    assert parsed(size=5)[1] == {"size": 5}


def test_help_shows_the_default_of_the_field_or_of_the_command():
    assert "plates (default: 2)" in parsed()[0].format_help()
    assert "plates (default: 5)" in parsed(size=5)[0].format_help()
    assert "grams (default" not in parsed()[0].format_help()


@pytest.mark.parametrize(
    ("flags", "message"),
    [({"size": 0}, "--size must be at least 1, not 0"), ({"salt": float("nan")}, "--salt must be at least 0, not nan")],
)
def test_a_number_below_its_bound_is_refused(flags, message):
    with pytest.raises(UsageError, match=message):
        settings.read(Meal, flags)


def test_files_are_checked_against_the_declared_types():
    assert settings.omissions(Meal) == {"spice": "none"}
    assert settings.types_of(Meal) == {"size": int, "spice": str, "salt": float | None | int, "eaten": bool}


def test_every_default_fits_its_own_declaration():
    for flag, entry in FLAGS.items():
        choices = entry.argparse.get("choices")
        assert entry.help and (choices is None or entry.default in (*choices, True)), flag


def test_help_states_a_default_at_most_once():
    parser = argparse.ArgumentParser()
    for cls in CLASSES:
        settings.add_flags(parser, cls)
    assert all(part.count("default:") <= 1 for part in re.split(r"\n  -", parser.format_help()))
