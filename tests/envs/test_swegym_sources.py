"""Sources of recipes: a wheel, a commit of git, a folder; their own installation and their own log parser."""

import json
import shutil
import subprocess
import sys
import zipfile

import pytest

from envsuite.envs.swegym.published import places, problem, sources
from envsuite.errors import DataError
from envsuite.sandbox import drivers
from tests.envs import little

DRIVER = drivers.choose("auto", (*drivers.SAFE, "process"))


def git(folder, *words):
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def tree(tmp_path):
    """Returns a folder with the code and the tests of `little`, and a file that git's archives would leave out."""
    folder = tmp_path / "tree"
    (folder / "tests").mkdir(parents=True)
    (folder / "calc.py").write_text(little.CODE)
    (folder / "tests" / "test_calc.py").write_text(little.TESTS)
    (folder / ".gitattributes").write_text("tests export-ignore\n")
    (folder / "link.py").symlink_to("calc.py")
    return folder


def source_of(kind, tree):
    if kind == "path":
        return {"kind": "path", "path": str(tree)}
    if kind == "git":
        git(tree, "init", "-q")
        git(tree, "add", ".")
        git(tree, "commit", "-q", "-m", "first")
        commit = git(tree, "rev-parse", "HEAD")
        (tree / "calc.py").write_text("later\n")
        git(tree, "commit", "-q", "-a", "-m", "second")
        return {"kind": "git", "url": f"file://{tree}", "commit": commit}
    wheel = tree.parent / "calc-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        for name in ("calc.py", "tests/test_calc.py"):
            file.writestr(name, (tree / name).read_text())
    return {"kind": "wheel", "req": str(wheel)}


def recipe_of(source, **fields):
    return {"source": source, "pins": ["pytest"], "env": {"PYTHONPATH": "{testbed}"}, **fields}


def write(folder, recipe, **fields):
    place = folder / "records" / "a__b-1"
    place.mkdir(parents=True)
    (place / "instance.json").write_text(json.dumps({**little.record("a__b-1"), **fields}))
    (place / "replay.json").write_text(json.dumps(recipe))
    return str(folder / "records")


@pytest.mark.parametrize("kind", ["wheel", "git", "path"])
def test_a_source_of_each_kind_has_the_files_of_the_package(kind, tree):
    recipe = recipe_of(source_of(kind, tree))
    little.environment(recipe)
    place = places.of_recipe(recipe, build=False)
    assert (place.source / "calc.py").read_text() == little.CODE
    assert (place.source / "tests" / "test_calc.py").read_text() == little.TESTS
    assert (place.source / "link.py").is_symlink() == (kind != "wheel")


def test_the_copy_of_a_changed_folder_is_new(tree):
    recipe = recipe_of({"kind": "path", "path": str(tree)})
    first = places.home_of(recipe)
    (tree / ".git").mkdir()
    (tree / ".git" / "index").write_text("git's own")
    assert places.home_of(recipe) == first
    (tree / "calc.py").write_text("x = 1\n")
    assert places.home_of(recipe) != first
    assert places.environment_of(recipe) == places.environment_of(recipe_of({"kind": "sdist", "req": "calc==1"}))


def test_a_relative_folder_starts_from_the_recipe(tree, tmp_path):
    folder = write(tmp_path, recipe_of({"kind": "path", "path": "../../tree"}))
    ((_, recipe),) = problem.find(folder).values()
    target = tmp_path / "copy"
    sources.obtain(recipe["source"], target)
    assert (target / "calc.py").read_text() == little.CODE and (target / "link.py").is_symlink()


def test_install_runs_in_the_source_and_the_editable_path_is_the_sandboxs(tree, tmp_path):
    command = (
        "echo generated = 1 > built.py && python - <<'END'\n"
        "import os, pathlib, sysconfig\n"
        "pathlib.Path(sysconfig.get_paths()['purelib'], 'calc.pth').write_text(os.getcwd())\nEND\n"
    )
    recipe = recipe_of(source_of("git", tree), install=command)
    little.environment(recipe)
    ((record, found),) = problem.find(write(tmp_path, recipe)).values()
    one = problem.PublishedProblem(record, found, DRIVER)
    assert "built.py" in one.tree()
    assert one.judge(one.gold(), 120).resolved
    (packages,) = (places.environment_of(recipe) / "venv").glob("lib/python*/site-packages")
    assert (packages / "calc.pth").read_text() == places.WORKSPACE


def test_a_failed_installation_is_named_and_tried_again(tree):
    recipe = recipe_of({"kind": "path", "path": str(tree)}, install="echo no compiler >&2; exit 3")
    little.environment(recipe)
    for _ in range(2):
        with pytest.raises(DataError, match="no compiler"):
            places.prepare(recipe)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"kind": "git", "url": "file:///x"}, '"commit": "40 hexadecimal digits"'),
        ({"kind": "git", "url": "file:///x", "commit": "main"}, "commit 'main' is not 40 hexadecimal digits"),
        ({"kind": "git", "url": "--upload-pack=x", "commit": "0" * 40}, "field 'source' is not"),
        ({"kind": "wheel", "req": "/tmp/calc-1.tar.gz"}, "is no wheel"),
        ({"kind": "wheel", "req": "calc==1", "sha256": "A" * 64}, "is not 64 hexadecimal digits"),
        ({"kind": "zip", "req": "x"}, "'kind' of sdist, wheel, git, path"),
        ({"kind": "path"}, '"path": "FOLDER"'),
    ],
)
def test_a_source_that_cannot_be_used_is_named(source, message):
    with pytest.raises(DataError) as caught:
        places.check_recipe(recipe_of(source), "X")
    assert message in str(caught.value)


def test_a_source_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"is no folder of this machine"):
        sources.obtain({"kind": "path", "path": str(tmp_path / "none")}, tmp_path / "copy")
    with pytest.raises(DataError, match=r"`git .*failed: fatal: '/.*/none' does not appear to be a git repository"):
        sources.obtain({"kind": "git", "url": f"file://{tmp_path}/none", "commit": "0" * 40}, tmp_path / "copy")
    (tmp_path / "x-1-py3-none-any.whl").write_bytes(b"no archive")
    with pytest.raises(DataError, match="is not a wheel"):
        sources.obtain({"kind": "wheel", "req": str(tmp_path / "x-1-py3-none-any.whl")}, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_an_environment_that_was_made_again_is_installed_into_again(tree, tmp_path):
    recipe = recipe_of({"kind": "path", "path": str(tree)}, install=f"echo once >> {tmp_path}/log")
    little.environment(recipe)
    for _ in range(2):
        environment, source = places.prepare(recipe)
    assert (tmp_path / "log").read_text() == "once\n"
    shutil.rmtree(environment)
    little.environment(recipe)
    assert places.prepare(recipe) == (environment, source) and (source / "calc.py").is_file()
    assert (tmp_path / "log").read_text() == "once\nonce\n"


def test_what_a_killed_process_left_is_removed(tree, tmp_path):
    (tmp_path / "scratch" / "tree" / "half").mkdir(parents=True)
    sources.obtain({"kind": "path", "path": str(tree)}, tmp_path / "copy")
    assert (tmp_path / "copy" / "calc.py").is_file() and not (tmp_path / "copy" / "half").exists()
    assert not (tmp_path / "scratch").exists()


def test_a_password_in_an_address_is_not_shown(tmp_path):
    """Port 9 of this machine answers nothing."""
    source = {"kind": "git", "url": "http://me:secret@127.0.0.1:9/calc.git", "commit": "0" * 40}
    assert sources.title(source) == "http://127.0.0.1:9/calc.git at 000000000000"
    with pytest.raises(DataError, match=r"127\.0\.0\.1:9/calc\.git") as caught:
        sources.obtain(source, tmp_path / "copy")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"source": {"kind": "path", "path": "/"}},
        {"source": {"kind": "git", "url": "file:///x", "commit": "0" * 40}},
        {"install": f"{sys.executable} -c 1"},
    ],
)
def test_a_list_of_records_names_no_folder_no_address_and_no_command(fields, tmp_path):
    recipe = {**recipe_of({"kind": "sdist", "req": "calc==1"}), **fields}
    (tmp_path / "records.jsonl").write_text(json.dumps({**little.record("a__b-1"), "recipe": recipe}))
    with pytest.raises(DataError, match="is for recipes in files of their own"):
        problem.find(str(tmp_path / "records.jsonl"))
