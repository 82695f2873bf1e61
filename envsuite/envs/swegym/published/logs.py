"""Log parsers: printed test logs to {test: status}, for the repositories of SWE-Gym and SWE-bench.

Names are read as the data sets' authors read them (the second word of a summary line), so that
names with spaces are truncated as in the published lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable

STATUSES = ("FAILED", "PASSED", "SKIPPED", "ERROR", "XFAIL")
Statuses = dict[str, str]

_COLOUR = re.compile(r"\[\d+m")  # its escape character is removed with the control characters
_CONTROL = dict.fromkeys(range(1, 32))
_SUBTEST = re.compile(r"SUBFAILED.* (\S+\.py::\S+)(?: - .*)?$")
_OPTIONS = re.compile(r"(.*?)\[(.*)\]")


def pytest(log: str) -> Statuses:
    """Parses the log of `pytest -rA`: lines that begin with a status."""
    statuses: Statuses = {}
    for line in log.split("\n"):
        words = _words(line)
        if line.startswith(STATUSES) and len(words) > 1 and not _counts_skips(words):
            statuses[words[1]] = words[0]
    return statuses


def pytest_subtests(log: str) -> Statuses:
    """Parses like `pytest`; a test with a failing subtest has failed, although pytest 9 also reports it as passed."""
    statuses = pytest(log)
    for line in log.split("\n"):
        if match := _SUBTEST.match(line):
            statuses[match[1]] = "FAILED"
    return statuses


def pytest_options(log: str) -> Statuses:
    """Parses like `pytest`; reduces a parameter that is a path to its last part (requests, pydicom)."""
    statuses: Statuses = {}
    for name, status in pytest(log).items():
        parts = _OPTIONS.search(name)
        if parts:
            main, option = parts.groups()
            if option.startswith("/") and not option.startswith("//") and "*" not in option:
                option = "/" + option.split("/")[-1]
            name = f"{main}[{option}]"
        statuses[name] = status
    return statuses


def pytest_plain(log: str) -> Statuses:
    """Parses complete names without colours and control characters, and lines that end in a status
    (astropy, sphinx, ...).
    """
    statuses: Statuses = {}
    for line in log.split("\n"):
        line = _COLOUR.sub("", line).translate(_CONTROL)
        if line.startswith(STATUSES):
            words = (line.split(" - ", 1)[0] if line.startswith("FAILED") else line).split()
            if len(words) > 1 and not _counts_skips(words):
                statuses[" ".join(words[1:])] = words[0]
        elif line.endswith(STATUSES) and len(line.split()) > 1:
            *name, status = line.split()
            statuses[" ".join(name)] = status
    return statuses


def pytest_progress(log: str) -> Statuses:
    """Parses `-vv` output in the classic style: a status at either end, followed by a percentage
    (pydantic).
    """
    stripped = "\n".join(re.sub(r"\s*\[\s*\d+%\]\s*$", "", line) for line in log.split("\n"))
    return pytest_plain(stripped)


def seaborn(log: str) -> Statuses:
    """Parses FAILED at the start of a line, and PASSED at its start or as its second word."""
    statuses: Statuses = {}
    for line in log.split("\n"):
        words = line.split()
        if len(words) < 2:
            continue
        if line.startswith("FAILED"):
            statuses[words[1]] = "FAILED"
        elif " PASSED " in line:
            if words[1] == "PASSED":
                statuses[words[0]] = "PASSED"
        elif line.startswith("PASSED"):
            statuses[words[1]] = "PASSED"
    return statuses


def matplotlib(log: str) -> Statuses:
    """Parses like `pytest`, with enumeration members in names replaced by numbers."""
    return pytest(log.replace("MouseButton.LEFT", "1").replace("MouseButton.RIGHT", "3"))


def sympy(log: str) -> Statuses:
    """Parses `bin/test -C --verbose`: 'test_name ok|F|E', and underlined headings of failures."""
    statuses: Statuses = {}
    for heading in re.findall(r"(_*) (.*)\.py:(.*) (_*)", log):
        statuses[f"{heading[1]}.py:{heading[2]}"] = "FAILED"
    for line in log.split("\n"):
        line = line.strip()
        if line.startswith("test_"):
            if line.endswith(" E"):
                statuses[line.split()[0]] = "ERROR"
            if line.endswith(" F"):
                statuses[line.split()[0]] = "FAILED"
            if line.endswith(" ok"):
                statuses[line.split()[0]] = "PASSED"
    return statuses


_DJANGO_PASSED = (" ... ok", " ... OK", " ...  OK")


def django(log: str) -> Statuses:
    """Parses `runtests.py --verbosity 2`: 'name (path) ... ok', where a test's own output may separate
    name and status.
    """
    statuses: Statuses = {}
    before = ""
    for line in log.split("\n"):
        line = line.strip()
        if "--version is equivalent to version" in line:
            statuses["--version is equivalent to version"] = "PASSED"
        if " ... " in line:
            before = line.split(" ... ")[0]
        for ending in _DJANGO_PASSED:
            if line.endswith(ending):
                name = line.rsplit(ending, 1)[0]
                if line.strip().startswith("Applying sites.0002_alter_domain_unique...test_no_migrations"):
                    name = line.split("...", 1)[-1].strip().rsplit(ending, 1)[0]
                statuses[name] = "PASSED"
                break
        if " ... skipped" in line:
            statuses[line.split(" ... skipped")[0]] = "SKIPPED"
        if line.endswith(" ... FAIL"):
            statuses[line.split(" ... FAIL")[0]] = "FAILED"
        if line.startswith("FAIL:") and len(line.split()) > 1:
            statuses[line.split()[1].strip()] = "FAILED"
        if line.endswith(" ... ERROR"):
            statuses[line.split(" ... ERROR")[0]] = "ERROR"
        if line.startswith("ERROR:") and len(line.split()) > 1:
            statuses[line.split()[1].strip()] = "ERROR"
        if line.lstrip().startswith("ok") and before:
            statuses[before] = "PASSED"
    for pattern in (
        r"^(.*?)\s\.\.\.\sTesting against Django installed in (?:(?s:.*?)) silenced\)\.\nok$",
        r"^(.*?)\s\.\.\.\sInternal Server Error: \/(.*)\/\nok$",
        r"^(.*?)\s\.\.\.\sSystem check identified no issues \(0 silenced\)\nok$",
    ):
        for match in re.finditer(pattern, log, re.MULTILINE):
            statuses[match.group(1)] = "PASSED"
    return statuses


def _counts_skips(words: list[str]) -> bool:
    """Returns True for 'SKIPPED [3] file:line: reason', which counts skipped tests and names none."""
    return words[0] == "SKIPPED" and bool(re.fullmatch(r"\[\d+\]", words[1]))


def _words(line: str) -> list[str]:
    if line.startswith("FAILED"):
        line = line.replace(" - ", " ")
    return line.split()


PARSERS: dict[str, Callable[[str], Statuses]] = {
    "pytest": pytest,
    "pytest_subtests": pytest_subtests,
    "pytest_options": pytest_options,
    "pytest_plain": pytest_plain,
    "pytest_progress": pytest_progress,
    "seaborn": seaborn,
    "matplotlib": matplotlib,
    "sympy": sympy,
    "django": django,
}
