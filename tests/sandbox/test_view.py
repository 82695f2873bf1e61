"""The files that a sandbox can see: all of a folder but its hidden parts, and a closure of requirements."""

from pathlib import Path

import pytest

from envsuite.sandbox import Spec
from envsuite.sandbox.local import hidden_paths
from envsuite.sandbox.packages import allowed_around, closure, foreign_packages, package_folders


@pytest.fixture
def tree(tmp_path):
    for name in ("a/b/c", "a/b/d", "a/e", "f", "ab"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a" / "file").touch()
    return tmp_path


def allowed(tree, root, *hidden):
    paths = allowed_around(str(tree / root), [str(tree / name) for name in hidden])
    return [path.removeprefix(f"{tree}/") for path in paths]


def test_a_folder_without_hidden_parts_is_allowed_as_a_whole(tree):
    assert allowed(tree, "a") == ["a"]
    assert allowed(tree, "a", "ab", "f", "other") == ["a"]  # "ab" only starts with the same letter
    assert allowed(tree, "a/b", "a") == ["a/b"]  # the caller asked for it although its parent is hidden


def test_everything_around_hidden_parts_is_allowed(tree):
    assert allowed(tree, "a", "a/b/c") == ["a/b/d", "a/e", "a/file"]
    assert allowed(tree, "a", "a/b/c", "a/e") == ["a/b/d", "a/file"]


def test_a_hidden_folder_allows_nothing(tree):
    assert allowed(tree, "a", "a") == [] == allowed(tree, "a", "a/b", "a", "a/e")


def test_a_closure_has_all_requirements_and_nothing_else():
    entries = closure(("gymnasium",))
    assert {"gymnasium", "numpy", "cloudpickle", "typing_extensions.py"} <= entries.keys()
    assert not {"pytest", "torch", "envsuite"} & entries.keys() and all(path.exists() for path in entries.values())
    assert list(entries) == sorted(entries)
    assert closure(("Typing_Extensions",)).keys() >= {"typing_extensions.py"}  # names in any spelling


def test_a_distribution_that_is_not_installed_is_named():
    with pytest.raises(ModuleNotFoundError, match="No module named 'no-such-distribution'"):
        closure(("no-such-distribution",))


def test_the_folders_of_other_packages_exist_and_hold_ours():
    import numpy

    folders = foreign_packages()
    assert list(folders) == sorted(folders) and any(numpy.__file__.startswith(f"{folder}/") for folder in folders)


def test_packages_are_found_wherever_distributions_and_conda_put_them(tmp_path):
    names = ("lib/python3/dist-packages", "lib64/python3.12/site-packages", "pkgs", "envs", "lib/R", "src")
    for name in (*names, "lib/python3.12/json", "bin"):
        (tmp_path / name).mkdir(parents=True)
    assert {str(path.relative_to(tmp_path)) for path in package_folders(tmp_path)} == set(names)


def test_a_requirement_that_is_not_installed_hides_no_other(tmp_path, monkeypatch):
    for name, requires in (("demo-first", ("demo-second", "demo-missing")), ("demo-second", ())):
        folder = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1.0", *(f"Requires-Dist: {r}" for r in requires)]
        (folder / "METADATA").write_text("\n".join(lines) + "\n")
        (folder / "RECORD").write_text(f"{name.replace('-', '_')}.py,,\n")
        (tmp_path / f"{name.replace('-', '_')}.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert set(closure(("demo-first",))) == {"demo_first.py", "demo_second.py"}
    with pytest.raises(ModuleNotFoundError, match="demo-missing"):
        closure(("demo-first", "demo-missing"))


def test_hidden_parts_are_those_of_installed_packages_as_paths_of_this_machine():
    spec = Spec(distributions=("pytest",), hidden=("_pytest/assertion", "pytest", "no_such_package/part"))
    installed = Path(pytest.__file__).resolve().parent
    assert hidden_paths(spec) == [str(installed.parent / "_pytest" / "assertion"), str(installed)]
