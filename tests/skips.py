"""The tests that may be skipped: their reasons, the summary that a run ends with, and what CI refuses."""

import os
import re
from collections import Counter

NEEDS = {
    "bubblewrap": ("needs bubblewrap", "apt-get install bubblewrap"),
    "a Docker daemon": ("needs a docker daemon", "apt-get install docker.io, then start dockerd or set DOCKER_HOST"),
    "Chromium": ("needs chromium", "apt-get install chromium"),
    "faketime": ("needs faketime", "apt-get install faketime"),
    "Landlock": ("needs landlock", "a Linux kernel of 5.13 or newer"),
    "a GPU": ("no cuda", "an NVIDIA GPU and its driver"),
    "golden data": ("no golden data", "set ENVSUITE_SHARED to the maintainers' folder of reference data"),
}
"""For each thing that a machine may lack: the words of a skip message, and the cure."""
OTHER_REASONS = (
    "is not installed",  # an optional engine or extra
    "guards against accidents",  # the process driver does not promise more
)
"""Further reasons for which a test may be skipped on CI."""
MOST_SKIPS = 14
"""The most tests that CI may skip for want of an extra, Chromium or golden data on a machine that has everything."""
OF_THE_MACHINE = ("bubblewrap", "a Docker daemon", "Landlock", "a GPU")
"""Things that some machines of CI cannot have: tests that need them do not count."""
NEEDS_GOLDEN = (
    "test_the_committed_digests_are_those_of_the_records",
    "test_all_golden_states_have_the_reference_facts_and_text",
    "test_solver_needs_the_golden_number_of_commands_in_every_official_game",
    "test_the_expert_wins_all_of_valid_seen_in_the_golden_number_of_commands",
    "test_the_panel_holds_the_official_games_in_a_fixed_order",
    "test_the_kaggle_files_are_taken_in_checked_and_noticed_when_changed",
    "test_another_file_is_refused_with_the_way_to_play_it_anyway",
    "test_the_shared_records_are_read_and_each_has_a_test_command_and_a_parser",
    "test_the_gold_patch_resolves_and_the_empty_one_and_a_useless_one_do_not",
    "test_on_the_logs_of_real_instances_reports_agree",
)
"""Tests of data that we may not copy, skipped where ENVSUITE_SHARED has none; no other test may need it."""
REFUSED_SKIP = 6
"""Exit status of a run that skips a test without an excuse; pytest's own statuses are below."""


def missing(reason: str) -> str:
    """Returns the key of NEEDS that a skip message names, or ''."""
    return next((name for name, (words, _) in NEEDS.items() if words in reason.lower()), "")


def excused(test: str, reason: str) -> bool:
    """Returns True if a test may be skipped on CI for this reason."""
    if "no golden data" in reason:
        return test.rpartition("::")[2].partition("[")[0] in NEEDS_GOLDEN
    return bool(missing(reason)) or any(words in reason for words in OTHER_REASONS)


def reason_of(report) -> str:
    """Returns the message of a skipped test's report, without pytest's prefix."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")


def summary(reports: list) -> list[str]:
    """Returns a line for each missing package with the number of skipped tests and the cure, the most tests first."""
    counts: Counter[tuple[str, str]] = Counter()
    for reason in map(reason_of, reports):
        if name := missing(reason):
            counts[name, NEEDS[name][1]] += 1
        elif match := re.search(r"(?:could not import '|^)([^':]+?)(?:'| (?:is|are) not installed)", reason):
            counts[match[1], re.search(r"(?<=: )(?:pip|apt-get) install .*|$", reason)[0] or "make dev"] += 1
        else:
            counts["", reason] += 1
    return [
        f"{count} {'test needs' if count == 1 else 'tests need'} {name}: {cure}" if name else f"{count} skipped: {cure}"
        for (name, cure), count in counts.most_common()
    ]


def refused(reports: list) -> list[str]:
    """Returns why CI refuses a run with these skipped tests; an empty list elsewhere, or if it accepts them.

    On the bare machine of CI (`.ci/bare`, which sets ENVSUITE_BARE) any number of tests may be skipped.
    """
    if not os.environ.get("CI"):
        return []
    skipped = [(report.nodeid, reason_of(report)) for report in reports]
    lines = [f"skipped without an excuse: {test}: {why}" for test, why in skipped if not excused(test, why)]
    count = sum(missing(reason) not in OF_THE_MACHINE for _, reason in skipped)
    if count > MOST_SKIPS and not os.environ.get("ENVSUITE_BARE"):
        lines.append(f"{count} tests were skipped, more than {MOST_SKIPS}")
    return lines
