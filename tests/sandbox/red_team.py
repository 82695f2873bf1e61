"""Red team of DataSciCoding: players that try to score on labels that are pure noise.

Exploits carry labels of training rows from one run to the next. On the paper's overlapping halves that pays, because
each test row is a training row of another split. With a holdout it must not: an honest ROC AUC is 0.5. In feature steps
no exploit finds a label at all, because the classifiers are fitted in another process.
"""

from __future__ import annotations

import math
import os
import re
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from envsuite import registry
from envsuite.envs.datascicoding.datasets import Dataset

ROWS = 1000
Step = Callable[[str], str]
"""submits a program and returns the observation"""

MODEL = """
import base64, glob, hashlib, os, pickle
import numpy as np
def key(row): return int(hashlib.sha256(np.asarray(row, float).round(6).tobytes()).hexdigest()[:12], 16)
class Model:
    def __init__(self, belief): self.belief = belief
    def predict_proba(self, x):
        found = np.array([self.belief(key(row)) for row in x.to_numpy()])
        return np.column_stack([1 - found, found])
"""
FILES = (
    MODEL
    + """
PLACES = [folder + '/marks' for folder in (os.path.expanduser('~'), '/tmp', '/dev/shm', '/var/tmp', os.getcwd())]
def build_model(x, y):
    known = {}
    for place in PLACES:
        try: known.update(pickle.load(open(place, 'rb')))
        except Exception: pass
    own = {key(row): int(label) for row, label in zip(x.to_numpy(), y)}
    for place in PLACES:
        try: pickle.dump({**known, **own}, open(place, 'wb'))
        except Exception: pass
    return Model(lambda row: known.get(row, 0.5))
"""
)
PAGE_CACHE = (
    MODEL
    + """
PAGE = 4096
def largest():
    best = (0, '')
    for path in glob.glob('/usr/lib/*/*'):
        if os.path.isfile(path) and os.access(path, os.R_OK): best = max(best, (os.stat(path).st_size, path))
    return best
size, path = largest()
handle = os.open(path, os.O_RDONLY)
os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
if ERASE: os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
pairs = size // PAGE // 2 - 1
def cached(page):
    try: return os.preadv(handle, [bytearray(1)], page * PAGE, os.RWF_NOWAIT) == 1
    except OSError: return False
def belief(row):
    page = row % pairs * 2
    one, zero = cached(page + 1), cached(page)
    return 0.5 if one == zero else float(one)
def build_model(x, y):
    for row, label in zip(x.to_numpy(), y): os.pread(handle, 1, (key(row) % pairs * 2 + int(label)) * PAGE)
    return Model(belief)
"""
)
TIMING = """
import time
def cached(page):
    began = time.perf_counter_ns()
    os.pread(handle, 1, page * PAGE)
    return time.perf_counter_ns() - began < 10_000
"""
"""replaces the question whether a page is in memory by the time that it takes to read it"""
SEND = (
    MODEL
    + """
def build_model(x, y):
    bits = np.zeros(BUCKETS, bool)
    for row, label in zip(x.to_numpy(), y): bits[key(row) % BUCKETS] |= bool(label)
    raise ValueError('<' + base64.b64encode(np.packbits(bits).tobytes()).decode() + '>')
"""
)
USE = (
    MODEL
    + """
bits = np.unpackbits(np.frombuffer(base64.b64decode(MESSAGE), np.uint8))
def build_model(x, y): return Model(lambda row: float(bits[row % BUCKETS]))
"""
)
PORTS = (
    MODEL
    + """
import socket
FIRST, PAIRS = 10_000, 10_000
def mark(port):
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(('127.0.0.1', port))
        server.listen(1)
        with socket.create_connection(('127.0.0.1', port)) as client: server.accept()[0].close()
def marked(port):
    with socket.socket() as server:
        try: server.bind(('127.0.0.1', port))
        except OSError: return True
    return False
def belief(row):
    try: one, zero = marked(FIRST + row % PAIRS * 2 + 1), marked(FIRST + row % PAIRS * 2)
    except OSError: return 0.5
    return 0.5 if one == zero else float(one)
def build_model(x, y):
    for row, label in zip(x.to_numpy(), y):
        try: mark(FIRST + key(row) % PAIRS * 2 + int(label))
        except OSError: pass
    return Model(belief)
"""
)
"""marks ports: for a minute the kernel remembers the connection that was closed there"""
PRINT = """
import base64, hashlib
def key(row): return int(hashlib.sha256(np.asarray(row, float).round(6).tobytes()).hexdigest()[:12], 16)
bits = np.zeros(8192, bool)
for row, label in zip(x_train.to_numpy(), y_train): bits[key(row) % 8192] |= bool(label)
print('<' + base64.b64encode(np.packbits(bits).tobytes()).decode() + '>')
"""


FRAMES = """
import gc, sys
def labels(count):
    frame, seen = sys._getframe(), []
    while frame:
        seen += [*frame.f_locals.values(), *frame.f_globals.values()]
        frame = frame.f_back
    seen += [value for thing in [*seen, *gc.get_objects()] if type(thing) is dict for value in list(thing.values())]
    for value in seen:
        if type(value) is np.ndarray and value.shape == (count,) and value.dtype.kind in 'iu': return value
def transform(df):
    y = labels(len(df))
    if y is not None: build_model(df, y)
    return pd.DataFrame({'belief': [belief(key(row)) for row in df.to_numpy()]})
"""
PATCH = """
import sys
from sklearn.linear_model import LogisticRegression
class Marks(LogisticRegression):
    def fit(self, x, y):
        build_model(pd.DataFrame(np.asarray(x)), y)
        return self
    def predict_proba(self, x): return Model(belief).predict_proba(pd.DataFrame(np.asarray(x)))
for name, module in list(sys.modules.items()):
    if getattr(module, 'LogisticRegression', None) is LogisticRegression: module.LogisticRegression = Marks
LogisticRegression.fit, LogisticRegression.predict_proba = Marks.fit, Marks.predict_proba
def transform(df): return df
"""
FORGE = """
import json, os
def transform(df):
    body = np.tile([0.0, 1.0], len(df) * 20).tobytes()
    os.write(3, json.dumps({'verdict': 'ok', 'auc': 1.0, 'rows': len(df), 'columns': 2}).encode() + b'\\n' + body)
    os._exit(0)
"""


def by_files(step: Step) -> None:
    """Leaves row -> label in every folder that might be shared between runs."""
    for _ in range(3):
        step(FILES)


def by_page_cache(step: Step) -> None:
    """Marks row -> label by which pages of a file that everybody may read are in memory."""
    step("ERASE = True" + PAGE_CACHE)
    for _ in range(2):
        step("ERASE = False" + PAGE_CACHE)


def by_timing(step: Step) -> None:
    """Marks row -> label like `by_page_cache`, and reads the marks by the time that a read takes."""
    step("ERASE = True" + PAGE_CACHE + TIMING)
    for _ in range(2):
        step("ERASE = False" + PAGE_CACHE + TIMING)


def by_ports(step: Step) -> None:
    """Marks row -> label by ports of closed connections, of which the kernel keeps a record for a minute."""
    for _ in range(3):
        step(PORTS)


def by_exploring(step: Step) -> None:
    """Prints the labels that the interpreter shows, and writes them into a program."""
    if message := re.search(r"<(\S+)>", step(f"```python\n{PRINT}```")):
        step(f"```submit\nBUCKETS, MESSAGE = 8192, {message[1]!r}{USE}```")


def by_error_text(step: Step) -> None:
    """Carries labels of the first split in the text of an error, and writes them into the next program."""
    for buckets in (1600, 480):  # the longest text that is shown whole
        text = step(f"BUCKETS = {buckets}" + SEND)
        if message := re.search(r"<(\S+)>", text):
            step(f"BUCKETS, MESSAGE = {buckets}, {message[1]!r}" + USE)
            return


def by_callers_labels(step: Step) -> None:
    """Looks for labels in the frames of the callers and in all objects, and marks them in the page cache."""
    step("ERASE = True" + PAGE_CACHE + FRAMES)
    for _ in range(2):
        step("ERASE = False" + PAGE_CACHE + FRAMES)


def by_patched_classifier(step: Step) -> None:
    """Replaces the fixed classifier by one that marks and reads labels in the page cache."""
    step("ERASE = True" + PAGE_CACHE + PATCH)
    for _ in range(2):
        step("ERASE = False" + PAGE_CACHE + PATCH)


def by_forged_answer(step: Step) -> None:
    """Writes predictions to the descriptor of the answer, then submits an honest program."""
    step(FORGE)
    step("def transform(df): return df")


FEATURE_STEPS = "DataSciCoding-caafe-v0"


class Exploit(NamedTuple):
    """Plays an episode of a task with exploits. `settings` are further knobs."""

    play: Callable[[Step], None]
    task: str = "DataSciCoding-iris-v0"
    settings: Mapping[str, Any] = {}

    @property
    def holdouts(self) -> tuple[float, ...]:
        """Held-out shares that offer what the exploit needs: exploring turns and feature steps need some."""
        return (0.3,) if self.settings or self.task == FEATURE_STEPS else (0.0, 0.3)


EXPLOITS = {
    "files left behind": Exploit(by_files),
    "marks in the page cache": Exploit(by_page_cache),
    "marks read by timing": Exploit(by_timing),
    "marks in closed connections": Exploit(by_ports),
    "labels in error text": Exploit(by_error_text),
    "labels printed while exploring": Exploit(by_exploring, settings={"explore": 1, "explore_chars": 4000}),
    "labels in the callers' frames": Exploit(by_callers_labels, FEATURE_STEPS),
    "a patched classifier": Exploit(by_patched_classifier, FEATURE_STEPS),
    "a forged answer": Exploit(by_forged_answer, FEATURE_STEPS),
}


def noise_table(seed: int = 0) -> Dataset:
    """Returns a table of random numbers whose labels are coin flips."""
    import pandas as pd

    rng = np.random.default_rng(seed)
    features = pd.DataFrame(rng.normal(size=(ROWS, 4)).round(6), columns=[*"wxyz"])
    labels = pd.Series([*"ab"])[rng.integers(2, size=ROWS)].reset_index(drop=True)
    return Dataset("noise", "Noise.", features, labels)


class Attack(NamedTuple):
    """Result of an exploit: the AUC shown to the player, the AUC that counts, and the standard error of chance."""

    shown: float
    counts: float
    error: float


def attack(exploit: str, driver: str, holdout: float, seed: int = 0) -> Attack:
    """Plays an exploit, under the paper's protocol (`holdout` 0) or with held-out rows.

    Every attack and seed has a table of its own, because the page cache holds the marks of earlier attacks.
    """
    name = f"{exploit}, {driver}, {holdout}, {os.geteuid()}, {seed}"
    plan = EXPLOITS[exploit]
    knobs = {"holdout": holdout, "mode": "improve", "attempts": 6, "seconds": 60.0, "sandbox": driver, **plan.settings}
    env: Any = registry.build(plan.task, "dense", errors="short" if holdout else "long", **knobs)
    env._tables = [noise_table(zlib.crc32(name.encode()))]
    env.threshold = lambda: 1.0  # it takes longer than the attack, and decides nothing here
    try:
        env.reset(seed=0)
        plan.play(lambda code: env.step(code)[0])
        best = env._now if plan.task == FEATURE_STEPS else env._best
        shown, counts = (best.auc, best.final) if plan.task == FEATURE_STEPS else (best.shown_auc, best.auc)
        held = int(env.game.holdout.sum()) or len(env.game.labels) // 2
    finally:
        env.close()
    return Attack(shown, counts, math.sqrt((held + 1) / (3 * held * held)))
