"""Interpreters of other versions, the preflight with the gold patch, and the artifacts of records."""

import json
import os
import sys

import pytest

from envsuite import registry
from envsuite.cache import cache_dir
from envsuite.envs.swegym.published import interpreters
from envsuite.errors import DataError, EngineFailure
from envsuite.sandbox import drivers
from harness import records
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy
from tests.conftest import need_driver
from tests.envs import little

DRIVER = drivers.choose("auto", (*drivers.SAFE, "process"))
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"


def other_version(versions=("3.12", "3.13", "3.14", "3.11")):
    """Returns a version that differs from this process's and that pytest's newest release supports."""
    for version in versions:
        if version != OWN:
            try:
                interpreters.find(version)
                return version
            except DataError:
                continue
    pytest.skip("this machine has no other Python of 3.11 or later")


@pytest.fixture
def fresh_search():
    interpreters.find.cache_clear()
    yield
    interpreters.find.cache_clear()


def write_script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_a_shim_leads_to_the_interpreter_that_it_starts(tmp_path, monkeypatch, fresh_search):
    version = other_version()
    real = interpreters.find(version)
    interpreters.find.cache_clear()
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "none"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "none"))
    write_script(tmp_path / "shims" / f"python{version}", f'exec {real.executable} "$@"')
    monkeypatch.setenv("PATH", str(tmp_path / "shims"))
    assert interpreters.find(version).version == real.version
    assert "shims" not in interpreters.find(version).executable


def test_a_shim_that_starts_nothing_or_another_version_is_not_used(tmp_path, monkeypatch, fresh_search):
    for number, text in enumerate(["exit 127", f'exec {interpreters.find("").executable} "$@"']):
        write_script(tmp_path / str(number) / "python3.5", text)
    monkeypatch.setenv("PATH", f"{tmp_path / '0'}:{tmp_path / '1'}")
    with pytest.raises(
        DataError, match=r"Python 3\.5 is not on this machine: install it with `uv python install 3\.5`"
    ):
        interpreters.find("3.5")


@pytest.mark.parametrize("layout", ["uv/cpython-{}-linux", "pyenv/versions/{}"])
def test_interpreters_of_uv_and_pyenv_are_found_without_a_search_path(tmp_path, monkeypatch, fresh_search, layout):
    version = other_version()
    real = interpreters.find(version)
    interpreters.find.cache_clear()
    link = tmp_path / layout.format(real.version) / "bin" / f"python{version}"
    link.parent.mkdir(parents=True)
    link.symlink_to(real.executable)
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("PATH", "")
    assert interpreters.find(version).executable == real.executable


@pytest.mark.parametrize("version", ["three", ">=3.9", "../3.9", "3"])
def test_a_malformed_version_is_refused(version):
    with pytest.raises(DataError, match=r"not of the form 3\.9 or 3\.9\.18"):
        interpreters.find(version)


@pytest.mark.parametrize(
    "driver",
    ["bwrap", pytest.param("landlock", marks=pytest.mark.slow), pytest.param("docker", marks=pytest.mark.slow)],
)
def test_a_setup_of_another_python_is_solved_and_packages_of_that_python_are_hidden(driver, tmp_path):
    need_driver(driver)
    version = other_version()
    folder = little.instances(tmp_path / "records", [little.record("a__b-1")], version)
    env = registry.build("SWEGym-records-v0", records=folder, sandbox=driver)
    try:
        env.reset(seed=0)
        assert f"Python {version}." in env.step("python --version")[0]
        site = interpreters.find(version).site
        readable = f"cat {site}/README.txt {site}/pip/__init__.py 2>/dev/null | wc -c"  # Landlock shows names
        assert env.step(readable)[0].split()[-1] == "0"
        assert env.step("run_tests")[0] == "1 passed."
        while not env._over:
            *_, info = env.step(env.expert())
        assert info["success"]
        assert info["artifacts"]["report"]["fail_to_pass"] == [1, 1]
    finally:
        env.close()


def build(folder):
    return registry.build("SWEGym-records-v0", records=folder, sandbox=DRIVER)


def test_a_repository_on_which_no_test_runs_is_broken_with_the_reason(tmp_path):
    env = build(little.instances(tmp_path / "records", [little.record("a__b-1")], test_tools=False))
    try:
        with pytest.raises(EngineFailure, match=r"a__b-1 cannot be graded here: .*no test runs: .*pytest"):
            env.reset(seed=0)
    finally:
        env.close()


def test_the_verdict_of_a_preflight_is_cached_by_record_and_setup(tmp_path):
    folder = cache_dir("swegym", "preflight")
    before = set(folder.glob("*.json"))
    rows = [little.record("c__d-1"), little.record("c__d-2", fix="x + x + x + 1")]
    env = build(little.instances(tmp_path / "records", rows))
    try:
        env.reset(seed=0)
        with pytest.raises(EngineFailure, match=r"2 tests do not pass, tests/test_calc.py::test_one first"):
            env.reset(seed=1)
        verdicts = {path: json.loads(path.read_text()) for path in set(folder.glob("*.json")) - before}
        (broken,) = (path for path, verdict in verdicts.items() if verdict["instance"] == "c__d-2")
        times = {path: os.stat(path).st_mtime_ns for path in verdicts}
        with pytest.raises(EngineFailure):
            env.reset(seed=1)
        assert {path: os.stat(path).st_mtime_ns for path in verdicts} == times
        broken.write_text("not JSON")  # a damaged verdict is replaced
        with pytest.raises(EngineFailure):
            env.reset(seed=1)
        assert json.loads(broken.read_text())["instance"] == "c__d-2"
    finally:
        env.close()


def test_a_run_counts_broken_records_apart_and_keeps_patch_fault_and_report(tmp_path):
    rows = [little.record("a__b-1"), little.record("a__b-2", fix="x")]
    folder = little.instances(tmp_path / "records", rows)
    task = registry.TASKS["SWEGym-records-v0"]
    config = RunConfig(task, "expert", knobs={"records": folder, "sandbox": DRIVER}, episodes=2)
    _, summary = evaluate(config, tmp_path / "runs", lambda: make_policy("expert"))
    sound, broken = records.read_results(records.results_file(config.folder(tmp_path / "runs")))
    assert (sound["success"], broken["stop_reason"]) == (True, "broken")
    assert "a__b-2 cannot be graded here" in broken["error"]
    assert sound["artifacts"]["patch"] == little.record("a__b-1")["patch"].replace("index", "")
    assert sound["artifacts"]["fault"] == ""
    assert sound["artifacts"]["report"] == {
        "fail_to_pass": [1, 1],
        "pass_to_pass": [1, 1],
        "failing": [],
        "status": "RESOLVED_FULL",
    }
    assert summary["success"]["value"] == 1.0


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("version", ["3.9", "3.10", "3.12", "3.13"])
def test_a_real_instance_is_resolved_by_its_gold_patch_on_other_pythons(version, shared, tmp_path, monkeypatch):
    try:
        interpreters.find(version)
    except DataError as error:
        pytest.skip(str(error))
    if "ENVSUITE_PROOF_CACHE" in os.environ:  # pip needs minutes for a virtual environment
        monkeypatch.setenv("ENVSUITE_CACHE", os.environ["ENVSUITE_PROOF_CACHE"])
    name = "getmoto__moto-6920"
    setup = json.loads((shared / "data" / "swe" / name / "replay.json").read_text()) | {"python": version}
    older = {"jmespath==1.1.0": "jmespath==1.0.1", "urllib3==2.0.7": "urllib3==1.26.18"} if version == "3.9" else {}
    setup["pins"] = [older.get(pin, pin) for pin in setup["pins"]]
    (tmp_path / name).mkdir()
    (tmp_path / name / "replay.json").write_text(json.dumps(setup))
    (tmp_path / name / "instance.json").write_text((shared / "data" / "swe" / name / "instance.json").read_text())
    env = build(str(tmp_path))
    try:
        env.reset(seed=0)
        assert f"Python {version}." in env.step("python --version")[0]
        env.step("echo >> README.md")
        assert not env.step("submit")[4]["success"]
        env.reset(seed=0)
        while not env._over:
            env.step(env.expert())
        assert env.success
    finally:
        env.close()
