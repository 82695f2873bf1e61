"""Red team of DataSciCoding on pure-noise labels: each exploit on every driver, with and without a holdout.

    .ci/dockerd python -m benchmarks.sandbox_red_team [driver ...] [--markdown FILE]
    .ci/as-user python -m benchmarks.sandbox_red_team --rows >> FILE

An honest ROC AUC is 0.5. Exits with 1 if an exploit leaves the 95 % interval of chance on the holdout, four times over.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from envsuite.sandbox import drivers
from tests.sandbox import red_team

COLUMNS = ("exploit", "driver", "user", "paper's halves", "holdout: shown to the player", "holdout: what counts")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("drivers", nargs="*", help="default: every safe driver that works here")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table to this page")
    parser.add_argument("--rows", action="store_true", help="print the rows of the table only")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="leave out the first N exploits")
    args = parser.parse_args()
    names = tuple(args.drivers) or tuple(name for name in drivers.SAFE if not drivers.probe(name))
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for exploit, driver, *cells in red_team.table_rows(Path(folder), names, args.skip):
            rows.append([exploit, driver, "root" if os.geteuid() == 0 else "ordinary", *cells])
            print(f"| {' | '.join(rows[-1])} |", flush=True)
    lines = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    notes = (
        f"{red_team.ROWS} rows of random numbers with random labels; mean ROC AUC of the program with the best score "
        f"shown, and 1.96 standard errors of chance. Load average {load:.1f} at the start.\n\n"
        "On the paper's halves each test row is a training row of another split, so a label that is carried from one "
        "run to the next pays. A program that failed has no score."
    )
    page = f"# DataSciCoding: red team on noise labels\n\n{notes}\n\n" + "\n".join(lines) + "\n"
    if not args.rows:
        print(page)
    if args.markdown:
        args.markdown.write_text(page)
    return int(any(not _at_chance(row[-1]) for row in rows))


def _at_chance(cell: str) -> bool:
    """Returns True if the score in a table's cell is within four standard errors of 0.5."""
    score, interval = (float(number) for number in cell.split(" ± "))
    return abs(score - 0.5) <= interval / 1.96 * 4


if __name__ == "__main__":
    raise SystemExit(main())
