"""From a test run's printed log to {test: status}: the few forms that the repositories of SWE-Gym and SWE-bench use.

The names are read the way the data sets were made (the second word of a summary line), so that names which hold spaces
are cut where the published lists cut them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

STATUSES = ("FAILED", "PASSED", "SKIPPED", "ERROR", "XFAIL")
Statuses = dict[str, str]

_COLOUR = re.compile(r"\[\d+m")  # its escape goes with the control characters
_CONTROL = dict.fromkeys(range(1, 32))
_OPTIONS = re.compile(r"(.*?)\[(.*)\]")


def pytest(log: str) -> Statuses:
    """`pytest -rA`: lines that begin with a status."""
    found: Statuses = {}
    for line in log.split("\n"):
        words = _words(line)
        if line.startswith(STATUSES) and len(words) > 1 and not _counts_skips(words):
            found[words[1]] = words[0]
    return found


def pytest_options(log: str) -> Statuses:
    """As `pytest`; of a parameter that is a path only its last part is kept (requests, pydicom)."""
    found: Statuses = {}
    for name, status in pytest(log).items():
        parts = _OPTIONS.search(name)
        if parts:
            main, option = parts.groups()
            if option.startswith("/") and not option.startswith("//") and "*" not in option:
                option = "/" + option.split("/")[-1]
            name = f"{main}[{option}]"
        found[name] = status
    return found


def pytest_plain(log: str) -> Statuses:
    """Without colours and control characters, names whole, and with lines that end in a status (astropy, sphinx, ...)."""
    found: Statuses = {}
    for line in log.split("\n"):
        line = _COLOUR.sub("", line).translate(_CONTROL)
        if line.startswith(STATUSES):
            words = (line.split(" - ", 1)[0] if line.startswith("FAILED") else line).split()
            if len(words) > 1 and not _counts_skips(words):
                found[" ".join(words[1:])] = words[0]
        elif line.endswith(STATUSES) and len(line.split()) > 1:
            *name, status = line.split()
            found[" ".join(name)] = status
    return found


def pytest_progress(log: str) -> Statuses:
    """`-vv` in the classic style: a status at either end, a percentage after it (pydantic)."""
    without = "\n".join(re.sub(r"\s*\[\s*\d+%\]\s*$", "", line) for line in log.split("\n"))
    return pytest_plain(without)


def seaborn(log: str) -> Statuses:
    """FAILED at the start of a line; PASSED at its start or as its second word."""
    found: Statuses = {}
    for line in log.split("\n"):
        words = line.split()
        if len(words) < 2:
            continue
        if line.startswith("FAILED"):
            found[words[1]] = "FAILED"
        elif " PASSED " in line:
            if words[1] == "PASSED":
                found[words[0]] = "PASSED"
        elif line.startswith("PASSED"):
            found[words[1]] = "PASSED"
    return found


def matplotlib(log: str) -> Statuses:
    """As `pytest`; enumerations in names are spelt by number."""
    return pytest(log.replace("MouseButton.LEFT", "1").replace("MouseButton.RIGHT", "3"))


def sympy(log: str) -> Statuses:
    """`bin/test -C --verbose`: 'test_name ok|F|E', and underlined headings of what failed."""
    found: Statuses = {}
    for heading in re.findall(r"(_*) (.*)\.py:(.*) (_*)", log):
        found[f"{heading[1]}.py:{heading[2]}"] = "FAILED"
    for line in log.split("\n"):
        line = line.strip()
        if line.startswith("test_"):
            if line.endswith(" E"):
                found[line.split()[0]] = "ERROR"
            if line.endswith(" F"):
                found[line.split()[0]] = "FAILED"
            if line.endswith(" ok"):
                found[line.split()[0]] = "PASSED"
    return found


_DJANGO_PASSED = (" ... ok", " ... OK", " ...  OK")


def django(log: str) -> Statuses:
    """`runtests.py --verbosity 2`: 'name (path) ... ok'; a test's own printing may stand between name and verdict."""
    found: Statuses = {}
    before = ""
    for line in log.split("\n"):
        line = line.strip()
        if "--version is equivalent to version" in line:
            found["--version is equivalent to version"] = "PASSED"
        if " ... " in line:
            before = line.split(" ... ")[0]
        for ending in _DJANGO_PASSED:
            if line.endswith(ending):
                name = line.rsplit(ending, 1)[0]
                if line.strip().startswith("Applying sites.0002_alter_domain_unique...test_no_migrations"):
                    name = line.split("...", 1)[-1].strip().rsplit(ending, 1)[0]
                found[name] = "PASSED"
                break
        if " ... skipped" in line:
            found[line.split(" ... skipped")[0]] = "SKIPPED"
        if line.endswith(" ... FAIL"):
            found[line.split(" ... FAIL")[0]] = "FAILED"
        if line.startswith("FAIL:") and len(line.split()) > 1:
            found[line.split()[1].strip()] = "FAILED"
        if line.endswith(" ... ERROR"):
            found[line.split(" ... ERROR")[0]] = "ERROR"
        if line.startswith("ERROR:") and len(line.split()) > 1:
            found[line.split()[1].strip()] = "ERROR"
        if line.lstrip().startswith("ok") and before:
            found[before] = "PASSED"
    for pattern in (
        r"^(.*?)\s\.\.\.\sTesting against Django installed in (?:(?s:.*?)) silenced\)\.\nok$",
        r"^(.*?)\s\.\.\.\sInternal Server Error: \/(.*)\/\nok$",
        r"^(.*?)\s\.\.\.\sSystem check identified no issues \(0 silenced\)\nok$",
    ):
        for match in re.finditer(pattern, log, re.MULTILINE):
            found[match.group(1)] = "PASSED"
    return found


def _counts_skips(words: list[str]) -> bool:
    """'SKIPPED [3] file:line: reason' counts skipped tests and names none."""
    return words[0] == "SKIPPED" and bool(re.fullmatch(r"\[\d+\]", words[1]))


def _words(line: str) -> list[str]:
    if line.startswith("FAILED"):
        line = line.replace(" - ", " ")
    return line.split()


PARSERS: dict[str, Callable[[str], Statuses]] = {
    "pytest": pytest,
    "pytest_options": pytest_options,
    "pytest_plain": pytest_plain,
    "pytest_progress": pytest_progress,
    "seaborn": seaborn,
    "matplotlib": matplotlib,
    "sympy": sympy,
    "django": django,
}
