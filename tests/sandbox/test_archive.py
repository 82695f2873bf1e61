"""Extraction of untrusted archives: what stays inside the target folder is written, anything else is refused."""

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from envsuite.sandbox.inside import archive


def tar_of(*members):
    """Returns an open archive of (name, type, content or link target, mode) members."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, kind, content, mode in members:
            member = tarfile.TarInfo(name)
            member.type, member.mode, member.mtime = kind, mode, 1_000_000_000
            if kind == tarfile.REGTYPE:
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
            else:
                member.linkname = content
                tar.addfile(member)
    return tarfile.open(fileobj=io.BytesIO(stream.getvalue()))


HONEST = (
    ("d", tarfile.DIRTYPE, "", 0o555),
    ("d/program", tarfile.REGTYPE, b"#!/bin/sh\n", 0o6777),
    ("d/text", tarfile.REGTYPE, b"x", 0o666),
    ("d/link", tarfile.SYMTYPE, "text", 0o777),
    ("hard", tarfile.LNKTYPE, "d/text", 0o644),
)
UNSAFE = {
    "parent folder": (("../elsewhere", tarfile.REGTYPE, b"x", 0o644),),
    "absolute link": (("a", tarfile.SYMTYPE, "/etc/passwd", 0o777),),
    "link to the parent": (("a", tarfile.SYMTYPE, "../elsewhere", 0o777),),
    "through a link": (("a", tarfile.SYMTYPE, "..", 0o777), ("a/out", tarfile.REGTYPE, b"x", 0o644)),
    "hard link outside": (("a", tarfile.LNKTYPE, "../secret", 0o644),),
    "hard link to a later member": (("a", tarfile.LNKTYPE, "b", 0o644), ("b", tarfile.SYMTYPE, "/etc", 0o777)),
    "device": (("a", tarfile.CHRTYPE, "", 0o644),),
    "pipe": (("a", tarfile.FIFOTYPE, "", 0o644),),
}


def test_files_folders_and_links_are_extracted_with_safe_modes(tmp_path):
    with tar_of(*HONEST) as tar:
        archive.extract(tar, str(tmp_path / "out"))
    out = tmp_path / "out"
    assert (out / "d" / "program").stat().st_mode & 0o7777 == 0o755
    assert (out / "d" / "text").stat().st_mode & 0o7777 == 0o644
    assert (out / "d" / "link").read_bytes() == (out / "hard").read_bytes() == b"x"
    assert (out / "d").stat().st_mtime == 1_000_000_000


def test_an_absolute_name_is_extracted_below_the_target(tmp_path):
    with tar_of(("/etc/file", tarfile.REGTYPE, b"x", 0o644)) as tar:
        archive.extract(tar, str(tmp_path))
    assert (tmp_path / "etc" / "file").read_bytes() == b"x"


@pytest.mark.parametrize("name", UNSAFE)
def test_an_unsafe_member_is_refused_and_nothing_is_written_outside(name, tmp_path):
    (tmp_path / "secret").write_text("secret")
    with tar_of(*UNSAFE[name]) as tar, pytest.raises(archive.UnsafeMember):
        archive.extract(tar, str(tmp_path / "out"))
    with tar_of(*UNSAFE[name]) as tar:
        archive.extract(tar, str(tmp_path / "skipping"), skip_unsafe=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "secret", "skipping"]
    for path in (tmp_path / "skipping").rglob("*"):
        assert not path.is_symlink()


def test_members_that_are_not_kept_are_ignored(tmp_path):
    with tar_of(*HONEST) as tar:
        archive.extract(tar, str(tmp_path), keep=lambda member: member.name == "d/text" or member.isdir())
    assert [path.name for path in (tmp_path / "d").iterdir()] == ["text"]


def test_extraction_works_on_a_python_without_tarfiles_own_filters(tmp_path):
    """Debian 12 has Python 3.11.2, whose tarfile knows no filters."""
    python = next(filter(without_filters, OTHER_PYTHONS), None)
    if python is None:
        pytest.skip("a Python before 3.11.4 is not installed")
    (tmp_path / "a.txt").write_text("x")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.add(tmp_path / "a.txt", arcname="a.txt")
    folder = Path(archive.__file__).parents[1]
    words = [python, "-c", EXTRACT, str(folder), str(tmp_path / "a.tar"), str(tmp_path / "out")]
    subprocess.run(words, check=True)
    assert (tmp_path / "out" / "a.txt").read_text() == "x"


OTHER_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3")
EXTRACT = (
    "import sys, tarfile\nsys.path.insert(0, sys.argv[1])\nfrom inside import archive\n"
    "archive.extract(tarfile.open(sys.argv[2]), sys.argv[3])"
)


def without_filters(python):
    code = "import sys, tarfile\nsys.exit(hasattr(tarfile, 'data_filter'))"
    return Path(python).exists() and subprocess.run([python, "-c", code]).returncode == 0
