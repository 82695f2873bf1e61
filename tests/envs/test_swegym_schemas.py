"""Rows of SWE-rebench, NeMo Gym and SWE-smith as records."""

import json
import subprocess

import pytest

from envsuite import registry
from envsuite.envs.swegym.published import records, repos, schemas
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


def test_a_record_of_swe_smith_is_played_with_its_bug_and_solved_by_the_reverse_of_its_patch(tmp_path):
    record = records.parse(smith(), "x")
    assert record.patch == little.FIX.format("2 * x")
    assert (record.base_commit, record.test_patch) == ("01234567", "")
    tree = tmp_path / "tree"
    (tree / "tests").mkdir(parents=True)
    (tree / "calc.py").write_text("def double(x):\n    return 2 * x\n")
    (tree / "tests" / "test_calc.py").write_text(f"{little.TESTS}\n\ndef test_one():\n    assert double(1) == 2\n")
    recipe = {"source": {"kind": "path", "path": str(tree)}, "pins": ["pytest"], "test_cmd": "pytest -rA"}
    recipe["env"] = {"PYTHONPATH": "{testbed}"}
    little.environment(recipe)
    place = tmp_path / "records" / "one"
    place.mkdir(parents=True)
    (place / "instance.json").write_text(json.dumps(smith()))
    (place / "replay.json").write_text(json.dumps(recipe))
    env = registry.build("SWEGym-records-v0", records=str(tmp_path / "records"), sandbox=DRIVER)
    try:
        env.reset(seed=0)
        assert "return x" in env.step("cat calc.py")[0]
        while not env._over:
            *_, info = env.step(env.expert())
        assert info["success"]
    finally:
        env.close()
    assert "2 * x" in (tree / "calc.py").read_text()


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
    r2e = {"parsed_commit_content": "{}", "expected_output_json": "{}", "repo_name": "x", "docker_image": "y"}
    with pytest.raises(DataError, match=r"line 3: R2E-Gym's rows do not name the tests"):
        records.parse(r2e, "line 3")
    with pytest.raises(DataError, match=r"line 3: field 'instance_dict' is not an object"):
        records.parse({"responses_create_params": {"metadata": {"instance_dict": []}}}, "line 3")
    for text in ("{nope", "[" * 100_000):
        with pytest.raises(DataError, match="line 3: field 'instance_dict' is not JSON"):
            records.parse({"responses_create_params": {"metadata": {"instance_dict": text}}}, "line 3")
    assert schemas.test_command({"install_config": "[" * 100_000}) is None
