"""Candidates for larger tasks, by kind, in an order that depends on a seed only."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, zip_longest

from envsuite.envs.swegym.generated import generator, operators, packages, tasks
from envsuite.envs.swegym.generated.generator import Baseline, Rejected, Site
from envsuite.envs.swegym.generated.tasks import GeneratedTask, Symptom
from envsuite.envs.swegym.larger import branches, features, issue, refactorings
from envsuite.envs.swegym.larger.source import Change, first_line, owned

LEAST_LINES = 3
"""lines that the gold patch of a larger bug changes, at least"""
SIZES = (2, 3, 4)
"""numbers of bugs of a compound"""
USES = 2
"""compounds that one bug may be part of"""
TRIES = 4000
EXAMINED = 40
"""failing test functions from which the symptoms are chosen"""

Finder = Callable[[operators.SourceText], Iterator[tuple[str, int, Change]]]


def _branches(source: operators.SourceText) -> Iterator[tuple[str, int, Change]]:
    for function, name, _, _ in owned(source.tree):
        for change in branches.changes(source, function):
            yield name, first_line(function), change


def _refactorings(source: operators.SourceText) -> Iterator[tuple[str, int, Change]]:
    for function, name, top, owner in owned(source.tree):
        for change in refactorings.changes(source, function, top, owner):
            yield name, first_line(function), change


def _features(source: operators.SourceText) -> Iterator[tuple[str, int, Change]]:
    for function, name, _, owner in owned(source.tree):
        for change in features.changes(source, function, owner):
            yield name, first_line(function), change


FINDERS: dict[str, Finder] = {"branch": _branches, "refactoring": _refactorings, "feature": _features}


def sites(base: Baseline, kind: str, seed: int) -> Iterator[Site]:
    """Yields the bugs of a kind that some test reaches and that are not in the shipped list of small
    bugs, by turns of operators.
    """
    known = {task.files[path] for task in tasks.manifest() if task.package == base.package for path in task.paths}
    by_operator: dict[str, list[Site]] = defaultdict(list)
    original = packages.tree(base.package)
    for path, text in original.items():
        if path.endswith(".py") and packages.is_code(base.package, path):
            source = operators.SourceText(text)
            for name, top, (operator, node, edits) in FINDERS[kind](source):
                bug = operators.Bug(operator, name, getattr(node, "lineno", top), top, tuple(edits))
                reached = base.reaching(path, *generator.lines_of(text, bug))
                if reached is None or reached:
                    by_operator[operator].append((path, bug))
    rng = random.Random(f"{seed}/{base.package.name}/{kind}")
    for group in by_operator.values():
        rng.shuffle(group)
    for path, bug in (site for row in zip_longest(*by_operator.values()) for site in row if site is not None):
        broken = operators.apply(original[path], bug.edits)
        if broken not in known and tasks.changed_lines(tasks.diff(path, broken, original[path])) >= LEAST_LINES:
            known.add(broken)
            yield path, bug


def compounds(base: Baseline, seed: int) -> Iterator[tuple[list[Site], list[frozenset[str]]]]:
    """Yields sets of two to four shipped bugs in different functions, with the failing tests of each.

    No test fails for two of them, and each has a failing check that names none of the functions.
    """
    shipped = [task for task in tasks.manifest() if task.package.name == base.package.name]
    digests = {tasks.digest(task.bugs) for task in shipped}
    singles = [task for task in shipped if len(task.bugs) == 1 and tasks.digest(task.bugs) in base.sites]
    quotable = [task for task in singles if any(_quotable(task, symptom) for symptom in task.symptoms)]
    rng, uses, counts = random.Random(f"{seed}/{base.package.name}/compound"), Counter[str](), cycle(SIZES)
    count = next(counts)
    for _ in range(TRIES):
        free = [task for task in quotable if uses[task.instance_id] < USES]
        if len(free) < count:
            return
        chosen = rng.sample(free, count)
        parts = [frozenset(task.fail_to_pass) for task in chosen]
        bugs = [base.sites[tasks.digest(task.bugs)] for task in chosen]
        if _independent(base, bugs, parts) and generator.name_of(bugs) not in digests:
            digests.add(generator.name_of(bugs))
            uses.update(task.instance_id for task in chosen)
            count = next(counts)
            yield bugs, parts


def _quotable(task: GeneratedTask, symptom: Symptom) -> bool:
    return issue.names_none(issue.explain(task, symptom), [bug.function for bug in task.bugs])


def _independent(base: Baseline, chosen: Sequence[Site], parts: Sequence[frozenset[str]]) -> bool:
    total = sum(len(tests) for tests in parts)
    functions = {(path, bug.function) for path, bug in chosen}
    separate = len(frozenset().union(*parts)) == total and len(functions) == len(chosen)
    return separate and total <= generator.SHARE * len(base.tests)


def chooser(base: Baseline, kind: str, parts: dict[str, Sequence[frozenset[str]]]) -> generator.SymptomChoice:
    """Returns the choice of symptoms for the issues of a kind.

    `parts`: the failing tests of each bug of a compound, by the compound's digest.
    """
    files = packages.tree(base.package)
    tests = [path for path in files if path.endswith(".py") and not packages.is_code(base.package, path)]

    def choose(bugs: Sequence[Site], failing: frozenset[str], failures: dict[str, str]) -> tuple[Symptom, ...]:
        functions = [bug.function for _, bug in bugs]
        groups = parts.get(generator.name_of(bugs), [failing])
        chosen: list[Symptom] = []
        for group in groups:
            by_function: dict[str, str] = {}
            for test in sorted(group & failing):
                by_function.setdefault(test.partition("[")[0], test)
            ranked = []
            for test in list(by_function.values())[:EXAMINED]:
                symptom = generator.symptom_of(test, failures.get(test, ""))
                check = issue.explain_in(files, tests, symptom, [] if kind == "feature" else functions)
                if issue.tells(check) and (kind == "feature" or issue.names_none(check, functions)):
                    ranked.append((issue.rank(check), test, symptom))
            if not ranked:
                raise Rejected("no check can be quoted")
            most = generator.SYMPTOMS if len(groups) == 1 else 1
            chosen += [symptom for _, _, symptom in sorted(ranked, key=lambda row: row[:2])[:most]]
        return tuple(chosen)

    return choose
