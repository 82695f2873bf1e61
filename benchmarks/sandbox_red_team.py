"""Red team of DataSciCoding on pure-noise labels: each exploit on every driver, with and without a holdout.

    .ci/dockerd python -m benchmarks.sandbox_red_team play [driver ...]
    .ci/as-user python -m benchmarks.sandbox_red_team play [driver ...]
    python -m benchmarks.sandbox_red_team page --markdown benchmarks/sandbox_red_team.md

`play` continues after an interrupt. `page` writes the table of all results so far, and exits with 1 if an exploit is
broken: if its mean ROC AUC on the holdout differs from 0.5 by more than four standard errors of chance.
"""

from __future__ import annotations

import math
import time
from pathlib import Path

from benchmarks.sandbox_journal import USERS, ResultJournal, run, table, user
from envsuite.envs.datascicoding import scoring
from envsuite.sandbox import drivers
from envsuite.sandbox.pool import Lease
from tests.sandbox import red_team

JOURNAL = Path("build/sandbox_red_team.jsonl")
SEEDS = {0.0: 1, 0.3: 2}
"""share of held-out rows (0: the paper's halves) -> tables per exploit, driver and user"""
TOTALS = ("driver", "user", "exploits tried", "held", "broken", "attacks played", "attacks planned")
ERRORS = 4.0
"""standard errors of chance beyond which an exploit counts as broken"""


def main() -> int:
    return run(__doc__, "attack", JOURNAL, (Path(red_team.__file__),), play, write_page)


def play(journal: ResultJournal, names: list[str], end: float) -> None:
    """Plays the attacks that are missing in the journal."""
    for driver in names:
        missing = [key for key in _keys(driver, user()) if key not in journal.results]
        if not missing:
            continue
        lease = Lease(scoring.spec(("GridSearchCV", "SVC")), driver)  # keeps its sandboxes warm between the attacks
        for key in missing:
            if time.monotonic() > end:
                print(f"{driver}: more to play")
                break
            exploit, _, _, holdout, seed = key
            result = red_team.attack(exploit, driver, holdout, seed)
            journal.add(key, result._asdict())
            figures = f"shown {result.shown:.3f}, counts {result.counts:.3f}"
            print(f"{driver}, holdout {holdout:g}, {exploit}: {figures}", flush=True)
        lease.close()


def _keys(driver: str, name: str) -> list[tuple[str, str, str, float, int]]:
    """Returns the attacks on a driver by a user: (exploit, driver, user, holdout, seed)."""
    keys = [
        (exploit, driver, name, holdout, seed)
        for exploit, plan in red_team.EXPLOITS.items()
        for holdout in plan.holdouts
        for seed in range(SEEDS[holdout])
    ]
    return sorted(keys, key=lambda key: (key[4], -key[3]))  # what an interrupt leaves is spread evenly


def totals(journal: ResultJournal) -> list[list[str | int]]:
    """Returns a row of `TOTALS` per driver and user."""
    rows: list[list[str | int]] = []
    for driver in drivers.SAFE:
        for name in USERS:
            states = [_state(journal, exploit, [(driver, name)]) for exploit in red_team.EXPLOITS]
            tried = [state for state in states if state is not None]
            broken = sum(not held for held, _ in tried)
            keys = _keys(driver, name)
            played = sum(key in journal.results for key in keys)
            rows.append([driver, name, len(tried), len(tried) - broken, broken, played, len(keys)])
    return rows


def write_page(journal: ResultJournal) -> tuple[str, int]:
    """Returns the page, and the number of broken exploits."""
    rows, sums = [], []
    places = [(driver, name) for driver in drivers.SAFE for name in USERS]
    for exploit in red_team.EXPLOITS:
        for place in places:
            if (state := _state(journal, exploit, [place])) is not None:
                rows.append([exploit, *place, *state[1]])
        if (state := _state(journal, exploit, places)) is not None:
            sums.append([exploit, *state[1]])
    missing = [
        f"{exploit} ({driver}, {name})"
        for exploit in red_team.EXPLOITS
        for driver, name in places
        if _state(journal, exploit, [(driver, name)]) is None
    ]
    notes = f"""\
{red_team.ROWS} rows of random numbers with random labels, a new table for every attack. The figures are the ROC AUC of
the program with the best score shown, averaged over the tables, with 1.96 standard errors of chance. An honest AUC is
0.5. An exploit is broken if the AUC that counts differs from 0.5 by more than {ERRORS:g} standard errors. Load average
{journal.loads()}. Not played yet: {", ".join(missing) or "nothing"}.

On the paper's halves each test row is a training row of another split, so a label that is carried from one run to the
next pays. The last three exploits play feature steps, whose programs get no label. These and exploring turns need a
holdout, so those exploits are not played on the halves. A program that failed has no score.
"""
    page = f"# DataSciCoding: red team on noise labels\n\n{notes}\n## Attacks per driver and user\n\n"
    summary = totals(journal)
    page += table(TOTALS, summary)
    columns = ["paper's halves", "holdout: shown to the player", "holdout: what counts", "tables with a holdout"]
    page += "\n## Each exploit, over all drivers and users\n\n" + table(["exploit", *columns], sums)
    page += "\n## Each exploit, driver and user\n\n" + table(["exploit", "driver", "user", *columns], rows)
    return page, sum(int(row[4]) for row in summary)


def _state(journal: ResultJournal, exploit: str, places: list[tuple[str, str]]) -> tuple[bool, list[str]] | None:
    """Returns True if an exploit is held, and the cells of its row; None if it was not played."""
    results = {
        holdout: [
            journal.results[key]
            for driver, name in places
            for key in _keys(driver, name)
            if key[0] == exploit and key[3] == holdout and key in journal.results
        ]
        for holdout in SEEDS
    }
    on_halves, held_out = results[0.0], results[0.3]
    if not held_out:
        return None
    mean, error = _mean(held_out, "counts")
    halves = "{:.3f} ± {:.3f}".format(*_mean(on_halves, "counts", 1.96)) if on_halves else ""
    cells = [halves, f"{_mean(held_out, 'shown')[0]:.3f}", f"{mean:.3f} ± {1.96 * error:.3f}", str(len(held_out))]
    return abs(mean - 0.5) <= ERRORS * error, cells


def _mean(results: list[dict[str, float]], name: str, errors: float = 1.0) -> tuple[float, float]:
    """Returns the mean of a figure over tables, and `errors` times its standard error under chance."""
    count = len(results)
    error = math.sqrt(sum(result["error"] ** 2 for result in results)) / count
    return sum(result[name] for result in results) / count, errors * error


if __name__ == "__main__":
    raise SystemExit(main())
