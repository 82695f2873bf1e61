"""LightGBM and XGBoost: optional packages that a submission may import, and their members of the blend.

The knob `packages` names them. `require` checks that they work here, `extended` adds them to a sandbox, and
`members` returns the text of their models for the program of `expert:blend`.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
from collections.abc import Sequence
from dataclasses import replace

from envsuite.errors import MissingExtra, UsageError
from envsuite.sandbox.protocol import Spec

DISTRIBUTIONS = {"lightgbm": ("lightgbm",), "xgboost": ("xgboost-cpu", "xgboost")}
"""package -> distributions that contain it, the first one that is installed counts"""
PACKAGES = tuple(DISTRIBUTIONS)
CURE = "pip install 'envsuite[boosting]'"
ENVIRONMENT = (("OMP_THREAD_LIMIT", "1"),)
"""`n_jobs` above 1 runs as 1: OpenMP ends a program that asks for more threads than the sandbox's limit on processes"""


def require(packages: Sequence[str]) -> None:
    """Raises an error of one line if a package is not installed, cannot be loaded, or is named twice.

    Raises MissingExtra, or UsageError for a name that is there twice. A folder with a package's name in the working
    directory is no installation: the sandbox gets what a distribution contains.
    """
    for name in packages:
        if packages.count(name) > 1:
            raise UsageError(f"packages names {name!r} {packages.count(name)} times: name each package once.")
        if not any(map(_is_installed, DISTRIBUTIONS.get(name, (name,)))):
            raise MissingExtra(f"packages={name} needs the package {name!r}, which is not installed: {CURE}")
        if name == "lightgbm":
            try:
                ctypes.CDLL("libgomp.so.1")  # LightGBM's wheel does not contain it
            except OSError as error:
                raise MissingExtra(f"packages={name} cannot be loaded ({error}): apt-get install libgomp1") from None


def distributions(packages: Sequence[str]) -> tuple[str, ...]:
    """Returns the installed distributions that contain the packages. Raises MissingExtra."""
    require(packages)
    return tuple(next(filter(_is_installed, DISTRIBUTIONS[name]), DISTRIBUTIONS[name][0]) for name in packages)


def extended(spec: Spec, packages: Sequence[str]) -> Spec:
    """Returns a sandbox that has the packages too, imported before the runs."""
    if not packages:
        return spec
    return replace(
        spec,
        modules=(*spec.modules, *packages),
        distributions=(*spec.distributions, *distributions(packages)),
        environment=(*spec.environment, *ENVIRONMENT),
    )


def importable(packages: Sequence[str]) -> str:
    """Returns the names, in words, of the packages that a submission may import."""
    *before, last = ("scikit-learn", *packages)
    return f"{', '.join(before)} and {last}" if before else last


def members(packages: Sequence[str]) -> str:
    """Returns the lines by which the packages join the blend; '' without packages."""
    if not packages:
        return ""
    lines = "\n".join(_LINES[name] for name in packages)
    return _MEMBERS.format(lines=lines)


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


_MEMBERS = """

def boosters(x, y, classes):
    # They need some rows of every class, and classes numbered from 0.
    if classes and (y.value_counts().min() < 4 or y.max() != classes - 1):
        return []
    models = []
{lines}
    return models


MORE.append(boosters)
"""
_LINES = {
    "lightgbm": """\
    import lightgbm
    settings = {"n_estimators": 80, "learning_rate": 0.06, "num_leaves": 8, "min_child_samples": 10}
    settings.update(subsample=0.8, subsample_freq=1, colsample_bytree=0.7, random_state=0, n_jobs=1, verbose=-1)
    models += [encoded(x, (lightgbm.LGBMClassifier if classes else lightgbm.LGBMRegressor)(**settings))]""",
    "xgboost": """\
    import xgboost
    settings = {"n_estimators": 80, "learning_rate": 0.08, "max_depth": 3, "min_child_weight": 3, "random_state": 0}
    settings.update(subsample=0.8, colsample_bytree=0.7, n_jobs=1, tree_method="hist")
    models += [encoded(x, (xgboost.XGBClassifier if classes else xgboost.XGBRegressor)(**settings))]""",
}
