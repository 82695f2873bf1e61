"""Time that misdeeds of a submission take: each must end as a failed attempt within 1.5 times the limit.

    .ci/dockerd python -m benchmarks.sandbox_misdeeds play [driver ...]
    .ci/as-user python -m benchmarks.sandbox_misdeeds play [driver ...]
    python -m benchmarks.sandbox_misdeeds page --markdown benchmarks/sandbox_misdeeds.md

`play` continues after an interrupt. `page` exits with 1 if a misdeed did not fail, or was counted with more than 1.5
times the limit. Time by the clock is shown beside it: on a busy machine it also measures the other programs. So is the
time until the sandbox is ready for the next submission: it has to remove the files of the last one.
"""

from __future__ import annotations

import pickle
import time
import zlib
from pathlib import Path

from benchmarks.sandbox import submission
from benchmarks.sandbox_journal import USERS, ResultJournal, run, table, user
from envsuite.envs.datascicoding import scoring
from envsuite.sandbox import drivers
from envsuite.sandbox.pool import Pool
from envsuite.sandbox.protocol import Limits

JOURNAL = Path("build/sandbox_misdeeds.jsonl")
LIMITS = Limits(seconds=4.0)
BOUND = 1.5
BURN = "end = time.monotonic() + 0.02\n            while time.monotonic() < end: pass\n            os._exit(0)"
MISDEEDS = {
    "a forged score": 'import os\nos.write(3, b\'{"verdict": "ok", "auc": 1.0}\\n\' + b\'x\' * 16)\nos._exit(0)',
    "a verdict that cannot be hashed": 'import os\nos.write(3, b\'{"verdict": ["ok"]}\\n\')\nos._exit(0)',
    "an error that cannot be printed": "class Odd(Exception):\n    def __str__(self): raise self\nraise Odd()",
    "an endless loop": "while True: pass",
    "sleep that ignores signals": "import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(1000)",
    "endless output": "while True: print('x' * 100000)",
    "an endless answer": "import os\nwhile True: os.write(3, b'x' * 65536)",
    "a flood of empty folders": "import os\nfor n in range(10**7): os.mkdir(os.environ['HOME'] + f'/{n}')",
    "files below long paths": (
        "import os, time\nos.chdir(os.environ['HOME'])\nfor _ in range(30):\n    os.mkdir('d' * 200)\n"
        "    os.chdir('d' * 200)\n"
        "while True:\n    with open(str(time.monotonic_ns()), 'wb') as file: file.write(b'x' * (4 << 20))"
    ),
    "files that have lost their names": (
        "import os\nkeep = []\nwhile True:\n    keep.append(open(os.environ['HOME'] + '/x', 'wb', 0))\n"
        "    os.unlink(os.environ['HOME'] + '/x')\n    keep[-1].write(b'x' * (4 << 20))"
    ),
    "a memory bomb": "hoard = []\nwhile True: hoard.append(bytearray(b'x' * (1 << 24)))",
    "shared memory that no process touches": (
        "import mmap, os, time\nfor _ in range(10):\n    if os.fork() == 0: break\npart = mmap.mmap(-1, 400 << 20)\n"
        "for _ in range(400):\n    part.write(b'x' * (1 << 20))\n    part.madvise(mmap.MADV_DONTNEED)\ntime.sleep(1000)"
    ),
    "a fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "forks that crowd the processors": (
        "import os\nfor _ in range(16):\n    if os.fork() == 0: break\ntry: os.nice(19)\nexcept OSError: pass\n"
        "while True: pass"
    ),
    "children that nobody waits for": (
        "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nfor _ in range(8):\n"
        f"    if os.fork() == 0:\n        while True:\n            if os.fork():\n                try: os.wait()\n"
        f"                except ChildProcessError: pass\n                continue\n            {BURN}\n"
        "try: os.nice(19)\nexcept OSError: pass\nwhile True: pass"
    ),
    "children whose time nobody collects": (
        "import ctypes, os, time\nclass Action(ctypes.Structure):\n"
        "    _fields_ = [('handler', ctypes.c_void_p), ('mask', ctypes.c_ulong * 16), ('flags', ctypes.c_int)]\n"
        "ctypes.CDLL(None).sigaction(17, ctypes.byref(Action(flags=2)), None)  # SA_NOCLDWAIT\nfor _ in range(8):\n"
        "    if os.fork() == 0:\n        while True:\n            if os.fork():\n"
        f"                try: os.wait()\n                except ChildProcessError: pass\n                continue\n"
        f"            {BURN}\ntry: os.nice(19)\nexcept OSError: pass\nwhile True: pass"
    ),
    "its own output read before the sandbox does": (
        "import os, time\ntry: read = os.open('/proc/self/fd/1', os.O_RDONLY | os.O_NONBLOCK)\n"
        "except OSError: raise SystemExit\nend = time.monotonic() + 0.5\nwhile time.monotonic() < end:\n"
        "    os.write(1, b'x')\n"
        "    try: os.read(read, 9)\n    except BlockingIOError: pass\ntime.sleep(1000)"
    ),
}
HARMLESS = MISDEEDS["a forged score"]
"""the quickest run: it ends as soon as the sandbox is ready for it"""
FIGURES = {"counted": "counted", "wall": "by the clock", "ready": "ready again after"}
TOTALS = ("driver", "user", "misdeeds", "failed attempts", *(f"{words}, at most" for words in FIGURES.values()))


def main() -> int:
    return run(__doc__, "misdeed", JOURNAL, (), play, write_page)


def play(journal: ResultJournal, names: list[str], end: float) -> None:
    """Runs the missing misdeeds, one split each, in a warm sandbox."""
    job = pickle.loads(submission())
    for driver in names:
        missing = [name for name in MISDEEDS if _key(name, driver, user()) not in journal.results]
        if not missing:
            continue
        pool = Pool(scoring.spec(("GridSearchCV", "SVC")), driver, 1)
        scoring.run_job(pool, job, LIMITS, 100)
        for name in missing:
            if time.monotonic() > end:
                print(f"{driver}: more to run")
                break
            began = time.perf_counter()
            score, body, seconds = scoring.run_job(pool, {**job, "code": MISDEEDS[name]}, LIMITS, 100)
            if score.verdict == "ok":
                score, _ = scoring.predictions_of(
                    body, [(len(next(iter(job["x_test"].values()))), len(set(job["y_train"])))]
                )
            wall = time.perf_counter() - began
            scoring.run_job(pool, {**job, "code": HARMLESS}, LIMITS, 100)
            ready = time.perf_counter() - began - wall
            shares = {"counted": seconds, "wall": wall, "ready": ready}
            result = {"verdict": score.verdict, **{key: value / LIMITS.seconds for key, value in shares.items()}}
            journal.add(_key(name, driver, user()), result)
            print(
                f"{driver}, {name}: {score.verdict}, {seconds:.2f} s counted, {wall:.2f} s by the clock, "
                f"ready {ready:.2f} s later",
                flush=True,
            )
        pool.close()


def _key(misdeed: str, driver: str, name: str) -> tuple[str, str, str, int]:
    """Returns the key of a result: misdeed, driver, user, and a hash of the misdeed's code."""
    return misdeed, driver, name, zlib.crc32(MISDEEDS[misdeed].encode())


def totals(journal: ResultJournal) -> tuple[list[list[str]], bool]:
    """Returns a row of `TOTALS` per driver and user, and True if a misdeed did not fail or was counted with more than
    the bound.
    """
    rows = []
    over = False
    for driver in drivers.SAFE:
        for name in USERS:
            keys = [_key(misdeed, driver, name) for misdeed in MISDEEDS]
            results = [journal.results[key] for key in keys if key in journal.results]
            if not results:
                rows.append([driver, name, "0", "", *("" for _ in FIGURES)])
                continue
            failed = sum(result["verdict"] != "ok" for result in results)
            largest = [max(result[figure] for result in results) for figure in FIGURES]
            over |= failed < len(results) or largest[0] > BOUND
            rows.append([driver, name, f"{len(results)}", f"{failed}", *(f"{value:.2f}" for value in largest)])
    return rows, over


def write_page(journal: ResultJournal) -> tuple[str, bool]:
    """Returns the page, and True if a misdeed did not fail or was counted with more than the bound."""
    summary, over = totals(journal)
    rows = []
    for misdeed in MISDEEDS:
        for driver in drivers.SAFE:
            for name in USERS:
                if result := journal.results.get(_key(misdeed, driver, name)):
                    figures = [f"{result[figure]:.2f}" for figure in FIGURES]
                    rows.append([misdeed, driver, name, result["verdict"], *figures, f"{result['load']:.0f}"])
    page = f"""\
# Sandbox: misdeeds end in bounded time

Each misdeed is the code of a submission, run on one split with a limit of {LIMITS.seconds:g} s in a warm sandbox. The
figures are shares of that limit: what the sandbox counted, the time by the clock until the score was there, which
includes killing and, on a busy machine, waiting for other programs, and the time after that until the sandbox had run
another submission. It removes files first, which takes some disks milliseconds for each folder. Load average
{journal.loads()}.

## Largest shares of the limit per driver and user

{table(TOTALS, summary)}
## Each misdeed

{table(["misdeed", "driver", "user", "verdict", *FIGURES.values(), "load average"], rows)}"""
    return page, over


if __name__ == "__main__":
    raise SystemExit(main())
