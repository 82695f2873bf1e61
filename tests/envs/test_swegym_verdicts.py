"""Verdicts on test logs agree with those of the `swebench` package, which are stored (`make swe-proof` makes them)."""

import json

from benchmarks.swebench_agreement import ours
from tests.envs import swe_logs
from tests.golden import swebench_verdicts


def test_our_verdict_on_every_log_is_the_packages_or_stricter():
    stored = json.loads(swebench_verdicts.FILE.read_text())["verdicts"]
    seen = []
    for case in swe_logs.cases():
        style, scenario, number = case.name.split("/")
        resolved, has_results, lists = ours(case)
        verdict = swebench_verdicts.letter(resolved, has_results)
        theirs = stored[f"{style}/{scenario}"][int(number)]
        if scenario in swe_logs.DIFFERENT:
            assert verdict != "R", case.name
        else:
            assert verdict + swebench_verdicts.digest(case.log, lists) == theirs, f"{case.name}\n{case.log}"
        seen.append(verdict)
    assert len(seen) == sum(map(len, stored.values()))
    assert min(seen.count(letter) for letter in "RUN") > 150
