"""Rows of SWE-rebench, NeMo Gym, SWE-smith and R2E-Gym as records."""

import json
import subprocess

import pytest

from envsuite.envs.swegym.published import problem, r2e, records, repos, schemas
from envsuite.errors import DataError
from envsuite.sandbox import drivers
from tests.envs import little

DRIVER = drivers.choose("auto", (*drivers.SAFE, "process"))
ROW = little.record("a__b-1")


def test_a_row_of_nemo_gym_is_the_instance_inside_it():
    inner = {**ROW, "FAIL_TO_PASS": json.dumps(ROW["FAIL_TO_PASS"]), "base_commit": "1" * 40}
    metadata = {"instance_id": "a__b-1", "split": "train", "instance_dict": json.dumps(inner)}
    row = {"responses_create_params": {"input": [], "metadata": metadata}, "base_commit": "2" * 40}
    record = records.parse(row, "x")
    assert (record.patch, record.fail_to_pass) == (ROW["patch"], tuple(ROW["FAIL_TO_PASS"]))
    assert record.base_commit == "2" * 40 and record.extra == {"split": "train"}
    flat = records.parse({"responses_create_params": {"input": []}, **ROW}, "x")
    assert flat.patch == ROW["patch"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"test_cmd": "pytest -rA", "log_parser": "parse_log_pytest"}, ("pytest -rA", "pytest")),
        (
            {"test_cmd": ["cd x", "pytest -rA"], "log_parser": "parse_log_pytest_v2"},
            ("cd x && pytest -rA", "pytest_progress"),
        ),
        (json.dumps({"test_cmd": "pytest -q -rA"}), ("pytest -q -rA", "pytest")),
    ],
)
def test_a_row_of_swe_rebench_has_its_own_command_and_parser(settings, expected):
    record = records.parse({**ROW, "repo": "some/thing", "install_config": settings, "docker_image": "x/y"}, "x")
    row = repos.row_of(record, {})
    assert (row.command, row.parser) == expected
    assert repos.test_command(record, row) == f"{expected[0]} tests/test_calc.py"
    assert repos.image_name(record) == "x/y"
    assert repos.row_of(record, {"test_cmd": "tox"}).command == "tox"


def smith():
    """Returns a row as SWE-smith writes it: the patch plants the bug that `little`'s gold patch mends."""
    row = {name: ROW[name] for name in ("FAIL_TO_PASS", "PASS_TO_PASS", "problem_statement", "instance_id")}
    return {**row, "repo": "swesmith/a__b.01234567", "image_name": "x/y", "patch": schemas.reverse(ROW["patch"])}


def sound(folder, tests):
    """Returns a recipe for a folder with the repaired code and these tests."""
    (folder / "tests").mkdir(parents=True)
    (folder / "calc.py").write_text("def double(x):\n    return 2 * x\n")
    (folder / "tests" / "test_calc.py").write_text(tests)
    recipe = {"source": {"kind": "path", "path": str(folder)}, "pins": ["pytest"], "env": {"PYTHONPATH": "{testbed}"}}
    little.environment(recipe)
    return recipe


def test_a_record_of_swe_smith_has_its_bug_and_is_solved_by_the_reverse_of_its_patch(tmp_path):
    record = records.parse(smith(), "x")
    assert record.patch == little.FIX.format("2 * x")
    assert (record.base_commit, record.test_patch) == ("01234567", "")
    recipe = sound(tmp_path, f"{little.TESTS}\n\ndef test_one():\n    assert double(1) == 2\n")
    one = problem.PublishedProblem(record, {**recipe, "test_cmd": "pytest -rA"}, DRIVER)
    assert one.tree()["calc.py"] == little.CODE.encode()
    assert one.judge(one.gold(), 120).resolved
    assert (tmp_path / "calc.py").read_text() == "def double(x):\n    return 2 * x\n"


def r2e_row():
    """Returns a row as R2E-Gym writes it, of a commit that repairs `little` and changes a test and a new file."""
    tests = (
        "from calc import double\n\n\nclass TestDouble:\n    def test_zero(self):\n        assert double(0) == 0\n\n"
    )
    tests += "    def test_one(self):\n        assert double(1) == 2\n"
    files = {
        "calc.py": (little.CODE, little.CODE.replace("return x", "return 2 * x")),
        "more.py": (None, "x = 1"),
        "tests/test_calc.py": (little.TESTS, tests),
    }
    diffs = [
        {
            "header": {"file": {"path": path}},
            "minus_file": {"path": path if old is not None else "/dev/null"},
            "plus_file": {"path": path},
            "old_file_content": old or "",
            "new_file_content": new,
        }
        for path, (old, new) in files.items()
    ]
    log = "=== short test summary info ===\nPASSED r2e_tests/test_1.py::TestDouble::test_zero\n{} r2e_tests/test_1.py::"
    execution = {
        "test_file_names": ["test_1.py"],
        "test_file_codes": [tests],
        "old_commit_res_stdout": log.format("FAILED") + "TestDouble::test_one - assert 1 == 2\n",
        "new_commit_res_stdout": log.format("PASSED") + "TestDouble::test_one\n",
    }
    expected = {"TestDouble.test_zero": "PASSED", "TestDouble.test_one": "PASSED"}
    return {
        "repo_name": "calc",
        "docker_image": "x/calc:1",
        "commit_hash": "1" * 40,
        "problem_statement": "double(1) is 1",
        "parsed_commit_content": json.dumps({"old_commit_hash": "1" * 40 + "^", "file_diffs": diffs}),
        "execution_result_content": json.dumps(execution),
        "expected_output_json": json.dumps(expected),
    }


def test_a_record_of_r2e_gym_has_the_tests_of_its_logs_and_is_solved_by_the_files_of_its_commit(tmp_path):
    record = records.parse(r2e_row(), "x")
    assert (record.instance_id, record.repo) == (f"calc__{'1' * 40}", "r2e-gym/calc")
    assert record.fail_to_pass == ("r2e_tests/test_1.py::TestDouble::test_one",)
    assert record.pass_to_pass == ("r2e_tests/test_1.py::TestDouble::test_zero",)
    recipe = sound(tmp_path, little.TESTS)
    (tmp_path / "calc.py").write_text(little.CODE)
    one = problem.PublishedProblem(record, recipe, DRIVER)
    gold = one.gold()
    assert gold == {"calc.py": b"def double(x):\n    return 2 * x\n", "more.py": b"x = 1"}
    assert one.judge(gold, 120).resolved
    assert not one.judge({"calc.py": b"def double(x):\n    return 3 * x\n"}, 120).resolved
    with pytest.raises(DataError, match="shows its held-out tests to the agent"):
        problem.PublishedProblem(record, None, "docker")


def test_the_reverse_of_a_patch_undoes_it(tmp_path):
    def git(*words, **more):
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, **more).stdout

    (tmp_path / "kept.txt").write_text("".join(f"{number}\n" for number in range(40)))
    (tmp_path / "gone.txt").write_text("--- a\n+++ b\nno newline")
    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    (tmp_path / "kept.txt").write_text("-- first\n" + "".join(f"{number}\n" for number in range(37)) + "++ x\n39")
    (tmp_path / "gone.txt").unlink()
    (tmp_path / "new.sh").write_text("echo\n")
    (tmp_path / "new.sh").chmod(0o755)
    git("add", "-A")
    patch = git("diff", "--cached").decode()
    git("commit", "-q", "-m", "second")
    git("apply", "--index", "-", input=schemas.reverse(patch).encode())
    assert git("diff", "--cached", "HEAD~1") == b""
    assert schemas.reverse(schemas.reverse(patch)).count("@@") == patch.count("@@")
    git("checkout", "-q", "-f", "HEAD~1")
    old = dict.fromkeys(("kept.txt", "gone.txt"))
    old = {name: (tmp_path / name).read_text() for name in old}
    new = {"kept.txt": "9\n\x0c\n" + old["kept.txt"].rstrip(), "gone.txt": None, "new.txt": "a\r\n"}
    made = "".join(r2e.diff(name, old.get(name), text) for name, text in new.items())
    git("apply", "-", input=made.encode())
    assert {name: (tmp_path / name).read_bytes() for name in ("kept.txt", "new.txt")} == {
        name: new[name].encode() for name in ("kept.txt", "new.txt")
    }
    assert not (tmp_path / "gone.txt").exists()
    with pytest.raises(ValueError, match="cut off"):
        schemas.reverse(ROW["patch"][:-20].rpartition("\n")[0] + "\n")


def test_the_reverse_of_a_patch_keeps_lines_with_other_separators_whole():
    """Form feeds and Unicode's line separators end no line of a patch."""
    lines = [" \x0c", " s = '\u2028\x0b\x1c'", "-old\r", "+new\r", " end"]
    patch = "--- a/f.py\n+++ b/f.py\n@@ -1,4 +1,4 @@\n" + "\n".join(lines)
    lines[2:4] = ["+old\r", "-new\r"]
    assert schemas.reverse(patch) == "--- a/f.py\n+++ b/f.py\n@@ -1,4 +1,4 @@\n" + "\n".join(lines)


@pytest.mark.parametrize("line", ["GIT binary patch", "Binary files a/x and b/x differ", "copy from x"])
def test_a_patch_of_binary_or_copied_files_is_not_reversed(line):
    with pytest.raises(ValueError, match="cannot be undone"):
        schemas.reverse(f"diff --git a/x b/x\n{line}\n")


def test_rows_that_cannot_be_read_say_why():
    row = r2e_row()
    with pytest.raises(DataError, match=r"line 3: field 'execution_result_content' of R2E-Gym is not an object"):
        records.parse({**row, "execution_result_content": None}, "line 3")
    execution = json.loads(row["execution_result_content"])
    same = {**execution, "old_commit_res_stdout": execution["new_commit_res_stdout"]}
    with pytest.raises(DataError, match=r"line 3: the logs of this row .* name no test that changes"):
        records.parse({**row, "execution_result_content": same}, "line 3")
    with pytest.raises(DataError, match=r"line 3: this row of R2E-Gym does not contain the text of its tests"):
        records.parse({**row, "execution_result_content": {**execution, "test_file_codes": []}}, "line 3")
    with pytest.raises(DataError, match=r"line 3: field 'instance_dict' is not an object"):
        records.parse({"responses_create_params": {"metadata": {"instance_dict": []}}}, "line 3")
    for text in ("{nope", "[" * 100_000):
        with pytest.raises(DataError, match="line 3: field 'instance_dict' is not JSON"):
            records.parse({"responses_create_params": {"metadata": {"instance_dict": text}}}, "line 3")
    assert schemas.test_command({"install_config": "[" * 100_000}) is None
