"""Real instances of SWE-Gym, from package-index sources with pip alone: the gold patch resolves, nothing else does."""

import json
import os

import pytest

from envsuite import registry
from envsuite.checks import gold
from envsuite.envs.swegym.published import problem as published
from envsuite.envs.swegym.published import runs
from envsuite.errors import DataError, UsageError
from envsuite.sandbox import docker, drivers
from tests.conftest import need_driver
from tests.envs import little
from tests.sandbox.registry import Registry, whole_root

GOLD = ("getmoto__moto-5876", "getmoto__moto-6920", "getmoto__moto-7365")


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("instance", GOLD)
@pytest.mark.parametrize("driver", ["bwrap", "docker"])
def test_the_gold_patch_resolves_and_the_empty_one_and_a_useless_one_do_not(shared, driver, instance, monkeypatch):
    need_driver(driver)
    if "ENVSUITE_PROOF_CACHE" in os.environ:  # virtual environments take minutes to make
        monkeypatch.setenv("ENVSUITE_CACHE", os.environ["ENVSUITE_PROOF_CACHE"])
    env = registry.build(
        "SWEGym-records-v0", "dense", records=str(shared / "data" / "swe"), instances=(instance,), sandbox=driver
    )
    try:
        _, info = env.reset(seed=0)
        assert info["labels"]["isolation"] == driver
        assert env.step("submit")[4]["fault"] == "no_patch"
        assert not env.success
        env.reset(seed=0)
        env.step("echo >> README.md")
        *_, info = env.step("submit")
        record = env._problem.record
        assert not info["success"]
        assert env._report.pass_to_pass == record.pass_to_pass
        assert env._report.fail_to_pass == ()
        env.reset(seed=0)
        assert env.step("git log --all --oneline | wc -l")[0].split()[-1] == "1"
        while not env._over:
            env.step(env.expert())
        assert env.success
    finally:
        env.close()


DRIVER = drivers.choose("auto", (*drivers.SAFE, "process"))


def test_instances_whose_gold_patch_fails_are_found_and_set_aside(tmp_path):
    rows = [little.record("a__b-1"), little.record("a__b-2", fix="x + x + x"), little.record("a__b-3")]
    rows[2]["patch"] = rows[2]["patch"].replace("return x", "return y")
    knobs = {"records": little.instances(tmp_path / "records", rows), "sandbox": DRIVER}
    task = registry.TASKS["SWEGym-records-v0"]
    results = list(gold.examine(task, times=1, **knobs))
    assert [(verdict.game, verdict.status) for verdict in results] == [
        ("a__b-1", "sound"),
        ("a__b-2", "broken"),
        ("a__b-3", "broken"),
    ]
    assert "does not apply" in results[2].detail
    bad = tmp_path / "bad.txt"
    bad.write_text(gold.deny_list(results))
    assert registry.panel(task, **knobs, deny=(str(bad),)).games == ("a__b-1",)
    assert registry.panel(task, **knobs, deny=("a__b-1", str(bad))).games == ()
    with pytest.raises(DataError, match=r"nowhere/bad.txt does not exist"):
        registry.panel(task, **knobs, deny=("nowhere/bad.txt",))
    with pytest.raises(UsageError, match=r"no instance 'bda\.txt' among these 3, nor a file of that name"):
        registry.panel(task, **knobs, deny=("a__b-1", "bda.txt"))


def test_a_change_without_use_leaves_the_failing_tests_failing_and_the_others_passing(tmp_path):
    folder = little.instances(tmp_path / "records", [little.record("a__b-1")])
    env = registry.build("SWEGym-records-v0", "dense", records=folder, sandbox=DRIVER)
    try:
        env.reset(seed=0)
        assert env.idle() == "echo >> /testbed/calc.py"
        env.step(env.idle())
        *_, info = env.step(env.idle())
        assert not info["success"]
        assert env._report.fail_to_pass_left == ("tests/test_calc.py::test_one",)
        assert env._report.pass_to_pass == ("tests/test_calc.py::test_zero",)
    finally:
        env.close()


def test_a_preview_shows_what_a_reset_shows(tmp_path):
    folder = little.instances(tmp_path / "records", [little.record("a__b-1"), little.record("a__b-2", fix="x + x")])
    env = registry.build("SWEGym-records-v0", records=folder, sandbox=DRIVER)
    try:
        for seed in (0, 1):
            preview, about = env.preview(seed)
            text, info = env.reset(seed=seed)
            assert preview == text
            assert about == {name: info[name] for name in about}
    finally:
        env.close()


def docker_works():
    need_driver("docker")


def beaten(env):
    """Returns True if the expert wins the first instance after reading the visible history."""
    env.reset(seed=0)
    assert env.step("git log --all --oneline | wc -l; ls -a; cat .git/HEAD")[0].split()[5] == "1"
    assert "the-fix" not in env.step("grep -r the-fix .git; pwd")[0]
    assert env.step("run_tests")[0] == "1 passed."
    while not env._over:
        *_, info = env.step(env.expert())
    return info["success"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_record_without_a_setup_is_played_in_its_image_pulled_from_its_registry(tmp_path, monkeypatch):
    docker_works()
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / "cache"))
    hub = Registry(whole_root({"calc.py": little.CODE, "tests/test_calc.py": little.TESTS, "conftest.py": ""}))
    row = {**little.record("a__b-1"), "image": f"{hub.name}/xingyaoww/there:latest"}
    file = tmp_path / "records.jsonl"
    file.write_text(json.dumps(row) + "\n")
    env = docker_env(str(file))
    try:
        assert beaten(env)
        env.reset(seed=0)
        env.step(env.idle())
        *_, info = env.step("submit")
        assert not info["success"]
        assert env._report.pass_to_pass == ("tests/test_calc.py::test_zero",)
        env.reset(seed=0)
        assert "Python" in env.step("python --version; touch /usr/x /opt/x; id -u; touch /tmp/a && echo can")[0]
        assert env.step("ls /usr/x /opt/x; id -u; ls /tmp")[0].split()[-2:] != ["0", "a"]
        assert "a__b" not in env.step("ls -R / 2>/dev/null | grep a__b")[0].partition("\n")[2]
    finally:
        env.close()
        hub.close()
        client = docker.connect()
        if client.images.list(row["image"]):
            client.images.remove(row["image"], force=True)
        client.close()


def docker_env(file, **knobs):
    return registry.build("SWEGym-records-v0", records=file, sandbox="docker", **knobs)


def test_records_without_a_setup_say_what_is_missing(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(little.record(f"a__b-{number}")) + "\n" for number in range(3)))
    assert len(published.find(str(path))) == 3
    with pytest.raises(DataError, match=r"has no setup, .* sandbox=docker alone"):
        registry.build("SWEGym-records-v0", records=str(path), sandbox="process")
    with pytest.raises(UsageError, match="no shaped reward"):
        registry.build("SWEGym-records-v0", "shaped", records=str(path), sandbox="process")


def test_a_setup_that_cannot_be_used_is_named(tmp_path):
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "instance.json").write_text(json.dumps(little.record("a__b-1")))
    for setup in ("{", "[]", json.dumps({"source": {"kind": "git"}, "pins": []})):
        (folder / "replay.json").write_text(setup)
        with pytest.raises(DataError, match="setup"):
            published.find(str(tmp_path))


def test_a_patch_of_a_record_is_applied_to_copies_and_one_that_does_not_fit_is_refused(tmp_path):
    (tmp_path / "a.py").write_text("one\ntwo\n")
    (tmp_path / "gone.py").write_text("x\n")
    patch = (
        "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n one\n-two\n+TWO\n"
        "diff --git a/new/b.py b/new/b.py\nnew file mode 100644\n--- /dev/null\n+++ b/new/b.py\n@@ -0,0 +1 @@\n+b\n"
        "diff --git a/gone.py b/gone.py\ndeleted file mode 100644\n--- a/gone.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
    )
    assert runs.changes_of(patch, tmp_path) == {"a.py": b"one\nTWO\n", "new/b.py": b"b\n", "gone.py": None}
    assert (tmp_path / "a.py").read_text() == "one\ntwo\n"
    with pytest.raises(DataError, match="does not apply"):
        runs.changes_of(patch.replace("-two", "-three"), tmp_path)
