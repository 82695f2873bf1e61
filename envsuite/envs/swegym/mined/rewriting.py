"""Renewal of the issue texts of mined records: after a change of `issue` or `findings`, the failing tests run
once more on the old release, and the text is written from their errors.

Nothing else of a record changes: its patches and its lists of tests stay verified.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envsuite.envs.swegym.generated import suite
from envsuite.envs.swegym.mined.hunks import split
from envsuite.envs.swegym.mined.library import new_version
from envsuite.envs.swegym.mined.releases import ReleasePair, obtain
from envsuite.envs.swegym.mined.search import BugCandidate, Search
from envsuite.envs.swegym.mined.verification import CandidateRejected, texts_of
from envsuite.envs.swegym.published import records
from envsuite.envs.swegym.published.runs import changes_of
from envsuite.errors import DataError


def rewritten(
    row: Mapping[str, Any], driver: str, archives: Path | None = None, seconds: float = 60.0
) -> dict[str, Any]:
    """Returns a record with new texts.

    `archives`: folder of source archives, instead of the package index; `seconds`: for one run of the package's tests.

    Raises DataError if the releases cannot be read, if the patch does not apply, or if no check can be quoted.
    """
    record = records.parse(dict(row), str(row.get("instance_id")))
    name = record.repo.partition("/")[2]
    old, new = (obtain(_source(name, version, archives)) for version in (record.version, new_version(record)))
    pair = ReleasePair(old, new)
    with tempfile.TemporaryDirectory() as folder:
        for path, text in old.code.items():
            target = Path(folder) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode())
        changes = changes_of(record.patch, Path(folder))
    patched = {path: text for path, text in old.code.items() if path not in changes}
    patched |= {path: data.decode() for path, data in changes.items() if data is not None}
    needs = tuple(sorted({*old.package.needs, *new.package.needs}))
    pool = suite.pools(driver, 1, needs)[0]
    try:
        symptoms = Search(pair, [pool], seconds).symptoms(record.fail_to_pass)
    finally:
        pool.close()
    candidate = BugCandidate(pair, tuple(split(old.code, patched)), record.fail_to_pass, symptoms, record.pass_to_pass)
    try:
        text, hints = texts_of(candidate)
    except CandidateRejected as reason:
        raise DataError(f"{record.instance_id} keeps its text: {reason}.") from None
    return {**row, "problem_statement": text, "hints_text": hints}


def _source(name: str, version: str, archives: Path | None) -> str | Path:
    return archives / f"{name}-{version}.tar.gz" if archives else f"{name}=={version}"
