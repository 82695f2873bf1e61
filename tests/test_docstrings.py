"""The examples in docstrings run, and their types are checked."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = {
    "envsuite.registry": ("tasks", "make", "make_vec"),
    "harness.policies": ("make_policy",),
    "harness.evaluate": ("evaluate",),
    "harness.records": ("read_results",),
    "harness.stats.summary": ("summarise",),
    "harness.stats.intervals": ("success_interval",),
    "harness.stats.aggregate": ("pass_at_k",),
    "baselines.recipe": ("load",),
    "baselines.math.advantages": ("leave_one_out",),
}
"""module -> functions whose docstring must hold an example"""
HEAVY = ("torch", "transformers", "huggingface_hub", "gymnasium", "numpy", "scipy", "rich", "peft")
"""packages whose types the examples do not need"""


def examples(module: str) -> list[doctest.DocTest]:
    return [test for test in doctest.DocTestFinder().find(importlib.import_module(module)) if test.examples]


@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_print_what_the_docstring_says(module, monkeypatch):
    if module.startswith("baselines.math"):
        pytest.importorskip("torch", reason="torch is not installed: pip install 'envsuite[train]'")
    monkeypatch.chdir(ROOT)
    tests = examples(module)
    assert {test.name.removeprefix(f"{module}.") for test in tests} >= set(EXAMPLES[module])
    printed = []
    runner = doctest.DocTestRunner()
    for test in tests:
        runner.run(test, out=printed.append)
    assert not runner.failures, "".join(printed)


def test_examples_are_type_correct(tmp_path):
    """Each example becomes a function in a file that mypy checks against the real signatures."""
    api = pytest.importorskip("mypy.api", reason="mypy is not installed: pip install 'envsuite[dev]'")
    files = []
    for module in EXAMPLES:
        lines = [f"from {module} import *"]
        for number, test in enumerate(examples(module)):
            lines.append(f"def example_{number}() -> None:")
            lines += [f"    {line}" for example in test.examples for line in example.source.splitlines()]
        files.append(tmp_path / f"{module.replace('.', '_')}.py")
        files[-1].write_text("\n".join(lines) + "\n")
    config = tmp_path / "mypy.ini"
    skipped = "".join(f"[mypy-{name}.*]\nfollow_imports = skip\n" for name in HEAVY)
    config.write_text(f"[mypy]\nignore_missing_imports = true\nfollow_imports = silent\n{skipped}")
    report, _, status = api.run(
        ["--config-file", str(config), "--cache-dir", str(tmp_path / "cache"), *map(str, files)]
    )
    assert status == 0, report
