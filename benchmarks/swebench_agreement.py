"""Agreement with the `swebench` package: test logs are judged by its own functions and by ours.

    python -m benchmarks.swebench_agreement [--write] [--markdown FILE]

`tests.envs.swe_logs` writes the logs: runs of pytest, Django and SymPy as the runners print
them, whole, damaged and forged. Compared are the verdict, whether the log has usable results, and
the lists of tests that pass and fail (`get_eval_report` against `grade_log`). `--write` stores the
package's verdicts for the tests. Exits with 1 at the first unexpected difference, and prints it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import types
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from envsuite.cache import write_atomically
from envsuite.envs.swegym.judge import grading
from tests.envs import swe_logs
from tests.golden import swebench_verdicts
from tests.golden.swebench_verdicts import LISTS, digest, letter


def theirs(case: swe_logs.LogCase) -> tuple[bool, bool, Any]:
    """Returns the package's verdict on a log: resolved, has results, lists of tests."""
    from swebench.harness.grading import get_eval_report

    spec = types.SimpleNamespace(
        instance_id=case.name,
        log_parser=swe_logs.STYLES[case.style],
        eval_type="pass_and_fail",
        FAIL_TO_PASS=list(case.fail_to_pass),
        PASS_TO_PASS=list(case.pass_to_pass),
    )
    prediction = {"instance_id": case.name, "model_name_or_path": "x", "model_patch": "x"}
    with tempfile.NamedTemporaryFile("w", suffix=".log", newline="", encoding="utf-8") as file:
        file.write(case.log)
        file.flush()
        report = get_eval_report(spec, prediction, file.name, include_tests_status=True)[case.name]
    if not report["patch_successfully_applied"]:
        return False, False, None
    return report["resolved"], True, [report["tests_status"][name] for name in LISTS]


def ours(case: swe_logs.LogCase) -> tuple[bool, bool, Any]:
    """Returns our verdict on a log: resolved, has results, lists of tests."""
    report = grading.grade_log(case.log, case.style, case.fail_to_pass, case.pass_to_pass, case.exit_code)
    if report.fault:
        return False, False, None
    lists = [
        {"success": list(report.fail_to_pass), "failure": list(report.fail_to_pass_left)},
        {"success": list(report.pass_to_pass), "failure": list(report.pass_to_pass_broken)},
    ]
    return report.resolved, True, lists


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="store the package's verdicts for the tests")
    parser.add_argument("--markdown", type=Path, help="file for the table")
    args = parser.parse_args()
    verdicts: dict[str, list[str]] = {}
    counts: dict[str, Counter[str]] = {style: Counter() for style in swe_logs.STYLES}
    for case in swe_logs.cases():
        style, scenario, _ = case.name.split("/")
        resolved, has_results, lists = theirs(case)
        verdict = letter(resolved, has_results)
        verdicts.setdefault(f"{style}/{scenario}", []).append(verdict + digest(case.log, lists))
        equal = ours(case) == (resolved, has_results, lists)
        counts[style].update([verdict, "equal" if equal else "different", "logs"])
        if not equal and scenario not in swe_logs.DIFFERENT:
            print(f"{case.name}: the package has {(resolved, has_results, lists)}, ours is {ours(case)}\n{case.log}")
            return 1
        if not equal and ours(case)[0]:
            print(f"{case.name}: ours is less strict\n{case.log}")
            return 1
    if args.write:
        stored = {"swebench": version("swebench"), "verdicts": verdicts}
        write_atomically(swebench_verdicts.FILE, json.dumps(stored, indent=0) + "\n")
    text = _table(counts)
    print(text)
    if args.markdown:
        write_atomically(args.markdown, f"# Agreement with swebench {version('swebench')}\n\n{_ABOUT}\n\n{text}")
    return 0


_ABOUT = """`make swe-proof` runs `python -m benchmarks.swebench_agreement`, which judges test logs with the
package's `get_eval_report` and with envsuite's `grade_log`. The logs are written by `tests/envs/swe_logs.py` in
the styles of the runners: whole ones, damaged ones (cut, without markers, without results), and forged ones.
Equal means the same verdict, the same lists of tests that pass and fail, and the same answer to whether the log
has usable results.

Two scenarios differ on purpose, and envsuite is the stricter one in each: code under test that prints passing
lines and the end marker before the true results, which the package believes if the log states no exit code; and
results outside the markers, which the package reads and envsuite does not, because its script prints everything
between them."""


def _table(counts: dict[str, Counter[str]]) -> str:
    lines = [
        "| parser | logs | resolved | not resolved | no results | equal | different |",
        "|---|---|---|---|---|---|---|",
    ]
    total = sum(counts.values(), Counter[str]())
    for style, count in [*counts.items(), ("all", total)]:
        cells = (count[name] for name in ("logs", "R", "U", "N", "equal", "different"))
        lines.append(f"| {style} | {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main())
