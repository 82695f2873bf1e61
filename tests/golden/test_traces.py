"""The committed digests are those of the reference's records, where the records are at hand."""

import pytest

from tests.conftest import SHARED
from tests.golden.digests import FOLDER
from tests.golden.make_traces import files


@pytest.mark.slow
def test_the_committed_digests_are_those_of_the_records():
    if not (SHARED / "golden" / "overcooked").is_dir():
        pytest.skip(f"no golden data: {SHARED / 'golden'} holds no records (set ENVSUITE_SHARED)")
    names = set()
    for name, lines in files():
        assert (FOLDER / f"{name}.txt").read_text().splitlines() == lines, name
        names.add(FOLDER / f"{name}.txt")
    assert names == {*FOLDER.glob("overcooked/*.txt"), *FOLDER.glob("virtualhome/*.txt")}
