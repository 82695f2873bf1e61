"""Trackers of a training run go on after a resume, and never end the run."""

import importlib.util
import json

import pytest

torch = pytest.importorskip("torch")

from baselines import recipe as recipes
from baselines import run_log
from baselines.logging import trackers
from baselines.train import TrainingRun
from envsuite.errors import MissingExtra
from tests import toys  # noqa: F401
from tests.baselines.test_training import made
from tests.baselines.test_training_scale import recipe


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return made(tmp_path_factory, "xxs")


def test_metrics_go_to_tensorboard_where_a_recipe_asks_and_go_on_after_a_resume(folder, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for updates in (1, 2):
        settings = recipe(folder, trackers=["tensorboard"], updates=updates)
        TrainingRun(recipes.parse(settings), tmp_path / "run", resume=updates > 1).train()
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("update/reward")] == [1, 2]
    assert json.loads((tmp_path / "run" / trackers.IDS).read_text()) == {"tensorboard": "tensorboard"}


class Unreachable:
    """A tracker whose server is gone after its first line."""

    def __init__(self, folder, recipe, run_id):
        self.run_id, self.lines = run_id or "first", 0

    def log(self, numbers, step):
        self.lines += 1
        if self.lines > 1:
            raise ConnectionError("no route to host")

    def close(self):
        raise AssertionError("it was left out")


def test_a_tracker_that_fails_is_left_out_and_the_run_goes_on(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(trackers.TRACKERS, "unreachable", Unreachable)
    log = run_log.RunLog(recipes.parse(recipe(folder, trackers=["unreachable"])), tmp_path, lambda line: None)
    for update in (1, 2, 3):
        log.write({"kind": "update", "update": update, "reward": 0.5})
    log.close()
    assert log.count() == 3
    assert capsys.readouterr().err.count("unreachable failed and is left out from here on: no route to host") == 1


def test_a_new_run_in_an_old_folder_begins_new_runs_in_its_trackers(tmp_path, monkeypatch):
    monkeypatch.setitem(trackers.TRACKERS, "unreachable", Unreachable)
    (tmp_path / trackers.IDS).write_text('{"unreachable": "old", "wandb": "kept"}')
    opened = trackers.open_trackers(("unreachable",), tmp_path, {}, resume=True)
    assert opened["unreachable"].run_id == "old"
    assert json.loads((tmp_path / trackers.IDS).read_text()) == {"unreachable": "old", "wandb": "kept"}
    assert trackers.open_trackers(("unreachable",), tmp_path, {}, resume=False)["unreachable"].run_id == "first"


def test_a_tracker_whose_package_is_missing_names_it(tmp_path):
    missing = [name for name in trackers.TRACKERS if not importlib.util.find_spec(name)]
    for name in missing:  # `make tracker-proof` checks the real packages
        with pytest.raises(MissingExtra, match=rf"pip install {name}\b"):
            trackers.open_trackers((name,), tmp_path, {}, resume=False)
    assert not (tmp_path / trackers.IDS).exists()
