"""Planted tasks of any package: inspecting a source archive, generating tasks, playing a folder."""

import io
import shutil
import tarfile
from dataclasses import replace

import pytest

from envsuite import registry
from envsuite.envs.swegym.makers import planting, sdists
from envsuite.envs.swegym.makers.sdists import Layout
from envsuite.envs.swegym.planted import packages, tasks
from envsuite.envs.swegym.published import archives
from envsuite.errors import DataError, EnvsuiteError, MissingExtra, UsageError
from envsuite.sandbox import drivers
from tests.index import use_alone, write_wheel

DRIVER = drivers.choose("auto", (*drivers.SAFE, "process"))
ABOUT = "Metadata-Version: 2.4\nName: Wordy\nVersion: 1.0\nLicense-Expression: MIT\n"
CODE = """
def shorten(text, limit=10):
    if len(text) <= limit:
        return text
    return text[: limit - 1] + "~"


def count(words):
    found = {}
    for word in words:
        if not word:
            continue
        found[word] = found.get(word, 0) + 1
    return found


def join(first, second, sep=" "):
    if not second:
        return first
    return first + sep + second
"""
TESTS = """
import pytest
import wordy


@pytest.mark.parametrize("text", ["a", "abcdefghij", "abcdefghijk", "abcdefghijklmn"])
def test_shorten(text):
    short = wordy.shorten(text)
    assert len(short) <= 10
    assert (short == text) == (len(text) < 11)


def test_count():
    assert wordy.count(["a", "b", "a"]) == {"a": 2, "b": 1}


def test_count_passes_over_what_is_empty():
    assert wordy.count(["", "a"]) == {"a": 1}


def test_join():
    assert wordy.join("a", "b") == "a b"
    assert wordy.join("a", "") == "a"
"""
BACKEND = f"""
import os

def prepare_metadata_for_build_wheel(folder, settings=None):
    os.mkdir(os.path.join(folder, "wordy-1.0.dist-info"))
    with open(os.path.join(folder, "wordy-1.0.dist-info", "METADATA"), "w") as file:
        file.write({ABOUT!r})
    return "wordy-1.0.dist-info"
"""
TREE = {
    "PKG-INFO": ABOUT,
    "LICENSE": "MIT",
    "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
    "backend/__init__.py": BACKEND,
    "src/wordy/__init__.py": CODE,
    "tests/test_wordy.py": TESTS,
}


def sdist(folder, files=TREE):
    """Writes a source archive like a build backend does."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "wordy-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(f"wordy-1.0/{name}")
            member.size = len(text.encode())
            tar.addfile(member, io.BytesIO(text.encode()))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Returns (archive, folder with its tasks)."""
    scratch = tmp_path_factory.mktemp("wordy")
    archive, folder = sdist(scratch / "index"), scratch / "tasks"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planting, "ROUND", {1: 3, 2: 1})
        planting.build_all(folder, [str(archive)], 1, float("inf"), 1)
    return archive, folder


def played(folder, player, **knobs):
    """Returns the share of all tasks that are won."""
    env = registry.build("SWEGym-medium-v0", sandbox=DRIVER, tasks=str(folder), bugs=0, **knobs)
    won = 0
    try:
        for seed in range(len(env.panel)):
            _, info = env.reset(seed=seed)
            assert info["labels"]["package"] == "wordy"
            over = False
            while not over:
                *_, terminated, truncated, info = env.step(env.expert() if player == "expert" else env.idle())
                over = terminated or truncated
            won += info["success"]
        return won, len(env.panel)
    finally:
        env.close()


def test_the_tasks_of_a_package_are_won_by_their_gold_patch_alone(made):
    won, of = played(made[1], "expert")
    assert won == of >= 3
    assert played(made[1], "idle") == (0, of)


def test_what_is_played_is_the_list_the_archives_and_their_description_alone(made, tmp_path):
    _, folder = made
    for name in (packages.DESCRIBED, tasks.MANIFEST, "wordy-1.0.tar.gz"):
        shutil.copy(folder / name, tmp_path / name)
    task = registry.TASKS["SWEGym-medium-v0"]
    there, here = (registry.panel(task, tasks=str(place), bugs=0) for place in (folder, tmp_path))
    assert there.games and (there.games, there.digest) == (here.games, here.digest)
    assert all(name.startswith("wordy-1.0-") for name in here.games)
    assert registry.panel(task).digest != here.digest
    (tmp_path / "wordy-1.0.tar.gz").write_bytes(b"something else")
    with pytest.raises(DataError, match=r"differs from the published one\. Generate the tasks"):
        registry.build(task.id, sandbox=DRIVER, tasks=str(tmp_path)).reset(seed=0)


def test_an_id_stands_for_the_archive_too(made):
    task = tasks.manifest(made[1])[0]
    second = replace(task, package=replace(task.package, sha256="0" * 64))
    assert second.instance_id != task.instance_id
    shipped = tasks.manifest()[0]
    assert replace(shipped, package=replace(shipped.package, folder=made[1])).instance_id == shipped.instance_id


def test_a_folder_goes_on_with_what_it_holds_and_takes_nothing_else_under_that_name(made, tmp_path):
    archive, folder = made
    known = packages.described(folder)["wordy"]
    assert planting.admit(folder, "wordy") == planting.admit(folder, "wordy==1.0") == known
    assert planting.admit(folder, str(archive), Layout(tests=("tests",))) == known
    second = sdist(tmp_path, {**TREE, "README": "another one"})
    with pytest.raises(UsageError, match=r"holds tasks of wordy 1\.0 made with other settings"):
        planting.admit(folder, str(second))
    built_in = planting.admit(tmp_path / "both", "inflection")
    assert packages.described(tmp_path / "both") == {"inflection": built_in}
    assert built_in.shipped and packages.tree(built_in) == packages.tree(packages.shipped()["inflection"])


def test_what_an_archive_holds_is_found_or_can_be_said(tmp_path):
    def looked(files, **message):
        return sdists.look(sdist(tmp_path, {"PKG-INFO": ABOUT, **files}), tmp_path, Layout(**message))

    test = {"tests/test_a.py": ""}
    results = looked({"wordy.py": "", "setup.py": "", **test})
    assert (results.name, results.version, results.licence, results.split) == ("wordy", "1.0", "MIT", "test")
    assert (results.path, results.code, results.tests) == (".", ("wordy.py",), ("tests",))
    assert looked({"src/other/__init__.py": "", **test}).code == ("src/other",)
    assert looked({"wordy/__init__.py": "", "more/__init__.py": "", **test}).code == ("wordy",)
    assert looked({"wordy/__init__.py": "", "wordy/tests/test_a.py": ""}).tests == ("wordy/tests",)
    assert looked({"wordy.py": "", "test_b.py": "", "test_c.py": ""}).tests == ("test_b.py", "test_c.py")
    assert looked({"wordy.py": "", "tests.py": ""}).tests == ("tests.py",)
    message = looked(
        {"a/__init__.py": "", "b.py": "", "check/it.py": ""}, code=("a", "b.py"), tests=("check/it.py",), split="train"
    )
    assert (message.path, message.code, message.tests, message.split) == (".", ("a", "b.py"), ("check/it.py",), "train")
    more = {
        "PKG-INFO": ABOUT + 'Requires-Dist: NumPy>1\nRequires-Dist: nothing; extra == "x"\n',
        "wordy.py": "",
        **test,
    }
    assert looked(more, needs=("docker",)).needs == ("NumPy", "docker")


@pytest.mark.parametrize(
    ("files", "message", "words"),
    [
        ({"wordy.py": "", "tests/test_a.py": ""}, {}, "no PKG-INFO"),
        ({"PKG-INFO": ABOUT, "wordy.py": "", "README": "x"}, {}, "contains no tests: use another version"),
        (
            {"PKG-INFO": ABOUT, "wordy.py": "", "check/test_a.py": ""},
            {},
            "name them with --tests, e.g. check/test_a.py",
        ),
        ({"PKG-INFO": ABOUT, "a.py": "", "b.py": "", "test_a.py": ""}, {}, "name it with --code, from a.py, b.py"),
        (
            {"PKG-INFO": ABOUT, "wordy/__init__.py": "", "wordy/fast.c": "", "test_a.py": ""},
            {},
            r"not pure Python "
            r"\(wordy/fast.c\)",
        ),
        ({"PKG-INFO": ABOUT, "wordy.py": "", "test_a.py": ""}, {"tests": ("nowhere",)}, "no 'nowhere' in wordy 1.0"),
        (
            {"PKG-INFO": ABOUT, "a.py": "", "b/c.py": "", "test_a.py": ""},
            {"code": ("a.py", "b/c.py")},
            "must be in one folder",
        ),
        (
            {"PKG-INFO": ABOUT, "wordy.py": "", "test_a.py": ""},
            {"needs": ("no-such-thing",)},
            "pip install no-such-thing",
        ),
        (
            {"PKG-INFO": ABOUT.replace("Wordy", "pluggy"), "pluggy.py": "", "test_a.py": ""},
            {},
            "importable next to the copy",
        ),
        ({"PKG-INFO": ABOUT, "wordy.py": "x" * (sdists.LARGE + 1), "test_a.py": ""}, {}, "a package may have 4000000"),
    ],
)
def test_an_archive_that_will_not_do_is_refused_with_the_cure(tmp_path, files, message, words):
    with pytest.raises(EnvsuiteError, match=words):
        planting.admit(tmp_path / "tasks", str(sdist(tmp_path, files)), Layout(**message))
    assert not (tmp_path / "tasks" / packages.DESCRIBED).exists()


@pytest.mark.parametrize(
    ("tests", "words"),
    [
        (
            "import no_such_thing\n",
            "tests/test_wordy.py: ModuleNotFoundError: No module named 'no_such_thing'.*--with NAME",
        ),
        (
            "def test_a():\n    assert 0\ndef test_b(): pass\n",
            "1 of 2 tests pass, tests/test_wordy.py::test_a does not",
        ),
        ("x = 1\n", "do not run here"),
    ],
)
def test_a_suite_that_does_not_pass_here_is_refused_with_the_cure(tmp_path, tests, words):
    chosen = planting.admit(tmp_path, str(sdist(tmp_path / "index", {**TREE, "tests/test_wordy.py": tests})))
    with pytest.raises(DataError, match=words):
        planting.build(tmp_path, chosen, 1, 60, 1)


def test_a_package_without_tasks_gets_a_line_with_the_reason_and_does_not_stop_the_others(tmp_path):
    empty = str(sdist(tmp_path / "index", {**TREE, "tests/test_wordy.py": "x = 1\n"}))
    names = [str(tmp_path / "missing.tar.gz"), empty]
    shown = []
    jobs = planting.build_all(tmp_path / "tasks", names, 1, 60.0, 1, shown.append)
    assert [job.package for job in jobs] == [job.package for job in shown] == names
    assert "cannot be read" in jobs[0].error
    assert "do not run here" in jobs[1].error
    assert (jobs[1].version, jobs[1].licence, jobs[1].tasks, jobs[1].rate) == ("1.0", "MIT", 0, 0.0)
    assert planting.build_all(tmp_path / "tasks", names, 1, 60.0, 1, shown.append) == jobs
    assert len(shown) == 2  # jobs with a line are not done again
    (tmp_path / "tasks" / planting.JOBS).write_text("{}\n")
    with pytest.raises(DataError, match=r"jobs\.jsonl, line 1: not a job"):
        planting.build_all(tmp_path / "tasks", names, 1, 60.0, 1)


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Returns a package index on disk, the only one that pip uses."""
    for name, *files in (("wordy", "wordy-1.0.tar.gz"), ("wheely", "wheely-2.0-py3-none-any.whl")):
        folder = tmp_path / "simple" / name
        sdist(folder)
        (folder / "index.html").write_text("".join(f'<a href="{file}">{file}</a>' for file in files))
    write_wheel(tmp_path / "simple" / "wheely" / "wheely-2.0-py3-none-any.whl", "wheely", "2.0")
    use_alone(monkeypatch, tmp_path / "simple")


def test_an_archive_that_is_too_large_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "MOST_ARCHIVE", 2**20)
    path = sdist(tmp_path, {**TREE, "src/wordy/data.txt": "0" * 2**21})
    with pytest.raises(DataError, match=r"wordy-1\.0\.tar\.gz holds more than 1 MB"):
        sdists.look(path, tmp_path, Layout())


def test_a_package_is_fetched_by_name_with_pip(index, tmp_path):
    results = planting.admit(tmp_path / "tasks", "wordy==1.0", Layout(split="train"))
    assert (results.title, results.split) == ("wordy 1.0", "train")
    assert packages.tree(results)["src/wordy/__init__.py"] == CODE
    assert packages.described(tmp_path / "tasks") == {"wordy": results}


def test_nothing_of_an_archive_runs_while_it_is_fetched(index, tmp_path):
    mark = tmp_path / "ran"
    files = {**TREE, "setup.py": f"open({str(mark)!r}, 'w')\nimport setuptools; setuptools.setup()\n"}
    sdist(tmp_path / "simple" / "wordy", files)
    (tmp_path / "here").mkdir()
    path = archives.download("wordy==1.0", tmp_path / "here")
    with tarfile.open(path) as tar:
        assert "wordy-1.0/setup.py" in tar.getnames()
    assert not mark.exists()


def test_a_download_that_fails_is_no_lasting_reason(index, tmp_path):
    folder = tmp_path / "simple" / "wordy"
    (folder / "index.html").write_text(f'<a href="wordy-1.0.tar.gz#sha256={"0" * 64}">wordy-1.0.tar.gz</a>')
    with pytest.raises(archives.IndexFailure, match=r"cannot be downloaded now \(wordy-1\.0\.tar\.gz does not have"):
        archives.download("wordy==1.0", tmp_path)
    with pytest.raises(DataError, match="has no source archive") as caught:
        archives.download("wheely", tmp_path)
    assert not isinstance(caught.value, archives.IndexFailure)


def test_a_job_says_what_the_index_does_not_have(index, tmp_path, monkeypatch):
    def error(name):
        (job,) = planting.build_all(tmp_path / "tasks", [name], 1, 60.0, 1)
        return job.error

    assert "The package index has no wordy==9 for this Python" in error("wordy==9")
    assert "wheely has no source archive (.tar.gz) on the package index" in error("wheely")
    assert "cannot be read" in error(str(tmp_path / "none.tar.gz"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    cure = "check the connection, or name a source archive's path instead"
    assert f"The package index cannot be reached for wordy: {cure}" in error("wordy")


def test_a_folder_that_cannot_be_played_says_why(made, tmp_path):
    for knobs, words in (
        ({"tasks": str(tmp_path)}, "contains no planted tasks .* swe build NAME"),
        ({"tasks": str(made[1]), "split": "train"}, "belong to the split test: set split=all"),
        ({"tasks": str(made[1]), "package": ("wordi",)}, "Did you mean 'wordy'"),
        ({"tasks": str(made[1]), "records": "x.jsonl"}, "one at a time"),
    ):
        with pytest.raises((UsageError, DataError), match=words):
            registry.build("SWEGym-medium-v0", sandbox=DRIVER, **knobs)
    (tmp_path / packages.DESCRIBED).write_text('[{"name": 1}]')
    with pytest.raises(DataError, match="describes no packages"):
        registry.build("SWEGym-medium-v0", sandbox=DRIVER, tasks=str(tmp_path))


def test_what_the_tests_need_is_in_both_sandboxes_and_missed_by_name(tmp_path, monkeypatch):
    """filelock is a distribution that pytest does not need."""
    tests = TESTS.replace("import wordy\n", "import filelock\nimport wordy\n")
    archive = sdist(tmp_path, {**TREE, "PKG-INFO": ABOUT + "Requires-Dist: filelock\n", "tests/test_wordy.py": tests})
    monkeypatch.setattr(planting, "ROUND", {1: 1})
    folder = tmp_path / "tasks"
    planting.build_all(folder, [str(archive)], 1, float("inf"), 1)
    env = registry.build("SWEGym-easy-v0", sandbox=DRIVER, tasks=str(folder))
    try:
        env.reset(seed=0)
        assert " passed" in env.step("python -m pytest -q")[0]
        env.step(env.expert())
        assert env.step("submit")[4]["success"]
    finally:
        env.close()
    known = packages.described(folder)["wordy"]
    packages.describe(folder, [replace(known, needs=("no-such-thing",))])
    again = shutil.copytree(folder, tmp_path / "again")
    with pytest.raises(MissingExtra, match="pip install no-such-thing"):
        registry.build("SWEGym-easy-v0", sandbox=DRIVER, tasks=str(again)).reset(seed=0)
