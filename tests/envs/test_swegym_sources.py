"""Sources of setups: an archive, a commit of git; their own installation and their own log parser."""

import json
import shutil
import subprocess
import sys
import tarfile

import pytest

from envsuite.envs.swegym.published import problem, setups, sources
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
    if kind == "git":
        git(tree, "init", "-q")
        git(tree, "add", ".")
        git(tree, "commit", "-q", "-m", "first")
        commit = git(tree, "rev-parse", "HEAD")
        (tree / "calc.py").write_text("later\n")
        git(tree, "commit", "-q", "-a", "-m", "second")
        return {"kind": "git", "url": f"file://{tree}", "commit": commit}
    archive = tree.parent / "calc-1.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tree, "calc-1")
    return {"kind": "sdist", "req": str(archive)}


def setup_of(source, **fields):
    return {"source": source, "pins": ["pytest"], "env": {"PYTHONPATH": "{testbed}"}, **fields}


def write(folder, setup, **fields):
    place = folder / "records" / "a__b-1"
    place.mkdir(parents=True)
    (place / "instance.json").write_text(json.dumps({**little.record("a__b-1"), **fields}))
    (place / "replay.json").write_text(json.dumps(setup))
    return str(folder / "records")


@pytest.mark.parametrize("kind", ["sdist", "git"])
def test_a_source_of_each_kind_has_the_files_of_the_package(kind, tree):
    setup = setup_of(source_of(kind, tree))
    little.environment(setup)
    installation = setups.of_setup(setup)
    assert (installation.source / "calc.py").read_text() == little.CODE
    assert (installation.source / "tests" / "test_calc.py").read_text() == little.TESTS
    assert (installation.source / "link.py").is_symlink()


def test_install_runs_in_the_source_and_the_editable_path_is_the_sandboxs(tree, tmp_path):
    command = (
        "echo generated = 1 > built.py && python - <<'END'\n"
        "import os, pathlib, sysconfig\n"
        "pathlib.Path(sysconfig.get_paths()['purelib'], 'calc.pth').write_text(os.getcwd())\nEND\n"
    )
    setup = setup_of(source_of("git", tree), install=command)
    little.environment(setup)
    ((record, found),) = problem.find(write(tmp_path, setup)).values()
    one = problem.PublishedProblem(record, found, DRIVER)
    assert "built.py" in one.tree()
    assert one.judge(one.gold(), 120).resolved
    (packages,) = (setups.environment_of(setup) / "venv").glob("lib/python*/site-packages")
    assert (packages / "calc.pth").read_text() == setups.WORKSPACE


def test_a_failed_installation_is_named_and_tried_again(tree):
    setup = setup_of(source_of("git", tree), install="echo no compiler >&2; exit 3")
    little.environment(setup)
    for _ in range(2):
        with pytest.raises(DataError, match="no compiler"):
            setups.prepare(setup)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"kind": "git", "url": "file:///x"}, '"commit": "40 hexadecimal digits"'),
        ({"kind": "git", "url": "file:///x", "commit": "main"}, "commit 'main' is not 40 hexadecimal digits"),
        ({"kind": "git", "url": "--upload-pack=x", "commit": "0" * 40}, "field 'source' is not"),
        ({"kind": "sdist", "req": "calc==1", "sha256": "A" * 64}, "is not 64 hexadecimal digits"),
        ({"kind": "zip", "req": "x"}, "'kind' of sdist, git"),
    ],
)
def test_a_source_that_cannot_be_used_is_named(source, message):
    with pytest.raises(DataError) as caught:
        setups.check_setup(setup_of(source), "X")
    assert message in str(caught.value)


def test_a_source_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"`git .*failed: fatal: '/.*/none' does not appear to be a git repository"):
        sources.obtain({"kind": "git", "url": f"file://{tmp_path}/none", "commit": "0" * 40}, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_an_environment_that_was_made_again_is_installed_into_again(tree, tmp_path):
    setup = setup_of(source_of("git", tree), install=f"echo once >> {tmp_path}/log")
    little.environment(setup)
    for _ in range(2):
        environment, source = setups.prepare(setup)
    assert (tmp_path / "log").read_text() == "once\n"
    shutil.rmtree(environment)
    little.environment(setup)
    assert setups.prepare(setup) == (environment, source) and (source / "calc.py").is_file()
    assert (tmp_path / "log").read_text() == "once\nonce\n"


def test_what_a_killed_process_left_is_removed(tree, tmp_path):
    (tmp_path / "scratch" / "tree" / "half").mkdir(parents=True)
    sources.obtain(source_of("git", tree), tmp_path / "copy")
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
        {"source": {"kind": "git", "url": "file:///x", "commit": "0" * 40}},
        {"install": f"{sys.executable} -c 1"},
    ],
)
def test_a_list_of_records_names_no_address_and_no_command(fields, tmp_path):
    setup = {**setup_of({"kind": "sdist", "req": "calc==1"}), **fields}
    (tmp_path / "records.jsonl").write_text(json.dumps({**little.record("a__b-1"), "setup": setup}))
    with pytest.raises(DataError, match="is for setups in files of their own"):
        problem.find(str(tmp_path / "records.jsonl"))
