"""Published instances: records of SWE-Gym and SWE-bench, played and judged in a place from `places`.

The agent's copy is a repository with one commit, so its history cannot reveal the fix.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from envsuite.envs.swegym.judge import tampering
from envsuite.envs.swegym.judge.grading import Report, grade_log, refused, status_of
from envsuite.envs.swegym.judge.phases import confirms
from envsuite.envs.swegym.problems import Changes
from envsuite.envs.swegym.published import checks, records, sealing, setups
from envsuite.envs.swegym.published.logs import PARSERS
from envsuite.envs.swegym.published.repos import REPOS, image_name, stated_command, test_files
from envsuite.envs.swegym.published.runs import RecordedProblem
from envsuite.errors import DataError, did_you_mean
from envsuite.sandbox.protocol import Session


def find(source: str, split: str = "") -> dict[str, tuple[records.Record, dict[str, Any] | None]]:
    """Returns records by id, with their setups, from a records file or a folder with a folder per
    instance.

    `split` applies to data sets on the hub. Raises DataError.
    """
    path = Path(source).expanduser()
    if not path.is_dir():
        return {record.instance_id: (record, _setup_in(record, source)) for record in records.load(source, split)}
    instances: dict[str, tuple[records.Record, dict[str, Any] | None]] = {}
    for folder in sorted(path.iterdir()):
        file = folder / "instance.json"
        if file.is_file():
            loaded = records.load(file)
            if len(loaded) != 1:
                raise DataError(f"{file} contains {len(loaded)} records: it must contain one.")
            setup = folder / "replay.json"
            if loaded[0].instance_id in instances:
                raise DataError(f"{file}: instance_id {loaded[0].instance_id!r} occurs twice.")
            instances[loaded[0].instance_id] = (loaded[0], setups.read_setup(setup) if setup.is_file() else None)
    if not instances:
        raise DataError(
            f"The folder {source} contains no NAME/instance.json: name a records file or a folder of instances."
        )
    return instances


def _setup_in(record: records.Record, source: str) -> dict[str, Any] | None:
    """Returns the setup in a record's own field `setup`; None without one. Raises DataError."""
    if "setup" not in record.extra:
        return None
    where = f"of {record.instance_id} in {source}"
    setup = setups.check_setup(record.extra["setup"], where)
    setups.check_named(setup, where)
    return setup


def check(record: records.Record, setup: dict[str, Any] | None, driver: str) -> None:
    """Raises DataError with the remedy in one line if a record cannot be played with this driver."""
    stated = "test_cmd" in (setup or {}) or stated_command(record.extra)
    if record.repo.lower() not in REPOS and not stated:
        raise DataError(
            f"{record.instance_id}: how the tests of {record.repo!r} are run is not known. Add `test_cmd` to its "
            f"setup, or leave it out with --set deny={record.instance_id}; known are the repositories of SWE-Gym "
            "and SWE-bench."
        )
    parser = (setup or {}).get("parser", "pytest")
    if parser not in PARSERS:
        raise DataError(
            f"{record.instance_id}: its setup's log parser {parser!r} is none of {', '.join(PARSERS)}."
            f"{did_you_mean(parser, PARSERS)}"
        )
    if driver != "docker" and setup is None:
        raise DataError(
            f"{record.instance_id} has no setup, and its image "
            f"({image_name(record)}) is played with --set sandbox=docker alone; other drivers need a folder with "
            "NAME/instance.json and NAME/replay.json."
        )


class PublishedProblem(RecordedProblem):
    """A record, played and judged with its setup by any driver, or in its image by docker."""

    def __init__(self, record: records.Record, setup: dict[str, Any] | None, driver: str) -> None:
        """Raises DataError if there is neither a setup nor docker."""
        check(record, setup, driver)
        super().__init__(record, setup, driver)

    def judge(self, changes: Changes, seconds: float) -> Report:
        record = self.record
        fail, passing = record.fail_to_pass, record.pass_to_pass
        self.test_log = "", None
        if not changes:
            return refused("no_patch", fail, passing)
        admitted = tampering.admitted(changes, self.gold_files, test_files(record.test_patch))
        if not admitted:
            return refused("nothing_admitted", fail, passing)
        if tampering.expects_failure(self.tree(), admitted):
            return refused("expects_failure", fail, passing)
        parser = PARSERS[self.row.parser]
        rng = random.SystemRandom()
        plan = checks.plan(self, admitted, rng)
        phases = None if plan is None else sealing.Phases(plan, f"{rng.getrandbits(128):032x}")
        with self.bench(seconds) as session:
            log, exit_code, fault = self.run_tests(session, admitted, phases=phases)
            if fault:
                return refused(fault, fail, passing)
            log, later = checks.split(log, phases)
            self.test_log = log, exit_code
            report = grade_log(log, self.row.parser, fail, passing, exit_code)
            if not report.fail_to_pass:
                return report
            before = parser(log)
            passed = [test for test in (*fail, *report.pass_to_pass) if status_of(test, before) == "PASSED"]
            # These were skipped or expected to fail before the change, too: they pass on both
            # sides.
            if not self._unchanged(session, [test for test in report.pass_to_pass if test not in passed], before):
                return refused("tampered", fail, passing)
            if plan is not None and confirms(plan, report, before, [parser(log) for log in later]):
                return report
            fault = checks.can_fail(self, session, admitted, report, passed)
            return refused(fault, fail, passing) if fault else report

    def _unchanged(self, session: Session, tests: list[str], statuses: dict[str, str]) -> bool:
        """Returns True if these tests have the same results without the submission."""
        if not tests:
            return True
        if self.plain is None:
            session.reset()
            log, _, fault = self.run_tests(session, {})
            if fault:
                return False
            self.plain = self.passed_otherwise(log)
        return all(self.plain.get(test, "") == status_of(test, statuses) for test in tests)

    def visible(self, changes: Changes, tests: tuple[str, ...], seconds: float) -> str:
        if tests:
            raise DataError("Name tests to the shell: run_tests runs the files that the issue's tests belong to.")
        with self.bench(seconds) as session:
            log, _, fault = self.run_tests(session, changes, held_out=False)
        if fault:
            return f"The tests did not get through ({fault})."
        statuses = PARSERS[self.row.parser](log)
        counts = {status: list(statuses.values()).count(status) for status in sorted(set(statuses.values()))}
        failing = [test for test, status in statuses.items() if status in ("FAILED", "ERROR")][:10]
        counted = ", ".join(f"{count} {status.lower()}" for status, count in counts.items()) or "no test was run"
        return "\n".join([f"{counted}.", *(f"FAILED {test}" for test in failing)])
