"""Optional packages: submissions may import LightGBM and XGBoost only where the knob `packages` allows it."""

import importlib.util

import pytest

from envsuite import registry
from envsuite.envs.datascicoding import pipelines, scoring
from envsuite.envs.datascicoding.blending import blend, boosting
from envsuite.errors import BadKnob, MissingExtra, UsageError
from envsuite.sandbox.pool import Lease

pytest.importorskip("sklearn", reason="the datascicoding extra is not installed")

PROGRAMS = {
    "lightgbm": "from lightgbm import LGBMClassifier\n"
    "def build_model(x, y):\n"
    "    return LGBMClassifier(n_estimators=10, min_child_samples=5, verbose=-1).fit(x, y)\n",
    "xgboost": "from xgboost import XGBClassifier\n"
    "def build_model(x, y):\n"
    "    return XGBClassifier(n_estimators=10).fit(x, y)\n",
}
CONSTANT = (
    "from sklearn.dummy import DummyRegressor\n"
    "def build_model(x, y): return DummyRegressor().fit(np.zeros((len(y), 1)), y)\n"
)


def installed(package):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install 'envsuite[boosting]'")
    return package


@pytest.fixture(scope="module")
def both(warm):
    """Keeps a sandbox with both packages warm; returns the value of the knob."""
    packages = tuple(map(installed, boosting.PACKAGES))
    lease = Lease(scoring.spec(("GridSearchCV", "SVC"), packages), warm.driver)
    yield packages
    lease.close()


@pytest.mark.parametrize("package", boosting.PACKAGES)
def test_without_the_knob_a_package_cannot_be_imported_and_the_player_reads_it_in_one_line(build, package):
    env = build("DataSciCoding-iris-v0", splits=1)
    env.reset(seed=0)
    text, reward, terminated, _, info = env.step(PROGRAMS[package])
    assert (info["verdict"], reward, terminated) == ("exception", -1.0, False)
    assert f"ModuleNotFoundError: No module named '{package}' (line 1)" in text
    assert "\n" not in text
    assert package not in env.instructions


@pytest.mark.parametrize("package", boosting.PACKAGES)
def test_with_the_knob_a_submission_uses_the_package_in_the_sandbox(build, both, package):
    env = build("DataSciCoding-iris-v0", splits=1, packages=both)
    env.reset(seed=0)
    assert "scikit-learn, lightgbm and xgboost can be imported" in env.instructions
    *_, info = env.step(PROGRAMS[package])
    assert info["verdict"] == "ok" and info["auc"] > 0.9


@pytest.mark.parametrize("package", boosting.PACKAGES)
def test_a_submission_may_ask_for_more_threads_than_a_run_may_start(build, both, package):
    env = build("DataSciCoding-iris-v0", splits=1, packages=both)
    env.reset(seed=0)
    *_, info = env.step(PROGRAMS[package].replace("n_estimators=10", "n_estimators=10, n_jobs=200"))
    assert info["verdict"] == "ok" and info["auc"] > 0.9


@pytest.mark.parametrize(("package", "name"), [("lightgbm", "LGBMClassifier"), ("xgboost", "XGBClassifier")])
def test_forbidden_models_of_a_package_are_found_when_the_text_does_not_name_them(build, both, package, name):
    env = build("DataSciCoding-iris-v0", splits=1, packages=both, forbidden=(name,))
    env.reset(seed=0)
    hidden = PROGRAMS[package].replace(f"from {package} import {name}", f"import {package}")
    hidden = hidden.replace(name, f"getattr({package}, {name[:5]!r} + {name[5:]!r})")
    text, *_, info = env.step(hidden)
    assert info["verdict"] == "forbidden" and f"{name} may not be used" in text


def test_other_forms_of_the_game_take_the_knob_too(build, both):
    competition = build("DataSciCoding-mle-v0", packages=both)
    assert "numpy, pandas, scipy, scikit-learn, lightgbm and xgboost can be imported" in competition.instructions
    env = build("DataSciCoding-generated-numbers-v1", packages=both, rows=100)
    env.reset(seed=0)
    assert "scikit-learn, lightgbm and xgboost can be imported" in env.instructions
    *_, info = env.step("import lightgbm\n" + CONSTANT)
    assert info["verdict"] == "ok"


def test_the_blend_has_the_packages_models_only_where_the_knob_allows_them(build, both):
    assert blend.program() == blend.BLEND
    plain = build("DataSciCoding-iris-v0", splits=1)
    plain.reset(seed=0)
    assert plain.expert("blend") == pipelines.ceiling("iris")
    assert not any(package in plain.expert("blend") for package in both)
    env = build("DataSciCoding-iris-v0", splits=1, rows=60, packages=both)
    env.reset(seed=0)
    assert all(package in env.expert("blend") for package in both)
    *_, info = env.step(env.expert("blend"))
    assert info["verdict"] == "ok"


def test_an_absent_package_is_an_error_of_one_line_with_the_cure():
    with pytest.raises(MissingExtra, match=r"'nosuch', which is not installed: pip install 'envsuite\[boosting\]'$"):
        boosting.require(("nosuch",))
    with pytest.raises(BadKnob, match=r"any of lightgbm\|xgboost"):
        registry.build("DataSciCoding-iris-v0", "dense", packages="torch")


def test_a_folder_with_a_packages_name_is_no_installation(tmp_path, monkeypatch):
    (tmp_path / "nosuch").mkdir()
    (tmp_path / "nosuch" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.util.find_spec("nosuch")
    with pytest.raises(MissingExtra, match="'nosuch', which is not installed"):
        boosting.require(("nosuch",))


def test_a_package_that_is_named_twice_is_refused_in_one_line():
    with pytest.raises(UsageError, match=r"^packages names 'lightgbm' 2 times: name each package once\.$"):
        registry.build("DataSciCoding-iris-v0", "dense", packages="lightgbm,lightgbm")


def test_the_sandbox_of_the_published_protocol_is_the_same_with_and_without_the_packages_installed():
    assert scoring.spec(()) == scoring.spec((), ()) == scoring.SPEC
    assert boosting.extended(scoring.SPEC, ()) == scoring.SPEC
