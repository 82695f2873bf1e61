"""Tasks without an environment that run on all nodes of a cluster."""

import os
import signal
import time

import pytest

from envsuite.envs.textworld import game_cache
from envsuite.envs.textworld.games import game_spec
from envsuite.errors import DataError, MissingExtra, UsageError
from harness.cli import data
from harness.cluster import connect, tasks
from harness.cluster.tasks import spread

pytestmark = pytest.mark.timeout(900)  # a cluster may need three attempts to start


def squares(numbers):
    return [number * number for number in numbers]


def test_results_keep_the_order_of_the_items(cluster):
    ray = connect.connect(cluster.address)

    def slow_first(numbers):
        time.sleep(0.2 if 0 in numbers else 0.0)  # the first task finishes last
        return squares(numbers)

    assert list(spread(ray, slow_first, range(50))) == squares(range(50))
    assert list(spread(ray, slow_first, [], 3)) == []
    assert list(spread(ray, slow_first, range(3), -1)) == [0, 1, 4]


def test_a_task_whose_worker_is_killed_is_retried(cluster, tmp_path):
    mark = tmp_path / "killed"

    def dying(numbers):
        if 20 in numbers and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return squares(numbers)

    assert list(spread(connect.connect(cluster.address), dying, range(40))) == squares(range(40))
    assert mark.exists()


def test_errors_on_a_node_become_one_line(cluster, monkeypatch):
    ray = connect.connect(cluster.address)

    def bad(numbers):
        raise DataError("no such game")

    def lacking(numbers):
        import an_engine_that_no_node_has  # noqa: F401

    def failing(numbers):
        raise ValueError("what nobody thought of")

    for function, error, message in (
        (bad, DataError, "^no such game$"),
        (lacking, MissingExtra, "an_engine_that_no_node_has.*on every node"),
        (failing, UsageError, r"ValueError: what nobody thought of: see `ray status`"),
    ):
        with pytest.raises(error, match=message) as caught:
            list(spread(ray, function, range(4)))
        assert "\n" not in str(caught.value)
    monkeypatch.setattr(connect, "versions", lambda: {"envsuite": "0.0.0", "python": "2.7"})
    with pytest.raises(UsageError, match=r"Node of a task has envsuite .*, this one 0\.0\.0: install the same"):
        list(spread(ray, squares, range(4)))


def test_games_generated_on_other_nodes_are_stored_in_the_local_cache(monkeypatch, tmp_path):
    """Simulates a node with another cache; cached games are not generated again, failures are reported."""
    specs = [game_spec("custom", {"world_size": 2, "nb_objects": 3, "quest_length": 2}, seed) for seed in (1, 2, 1)]
    requests = []

    def there(function, specs_asked):
        requests.append([spec.seed for spec in specs_asked])
        for spec in specs_asked:
            if spec.seed == 2:
                yield game_cache.PackedGame({}, "it cannot be made")
                continue
            monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / "there"))
            fetched = function([spec])
            monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / "here"))
            yield from fetched

    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / "here"))
    for expected in ([1, 2, 1], [2]):
        fetched = list(game_cache.fetch_many(specs, there))
        assert [game.problem for game in fetched] == ["", "it cannot be made", ""]
        assert requests[-1] == expected
    files = {}
    for name in ("here", "there"):
        monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / name))
        (folder,) = {game_cache.find_game(spec).parent for spec in (specs[0], specs[2])}
        files[name] = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert files["here"] == files["there"] and len(files["here"]) == 2


@pytest.mark.slow
def test_games_generated_on_a_cluster_equal_those_of_one_machine(cluster, tmp_path, monkeypatch, capsys):
    words = ["games", "-e", "textworld-w2-o3-q4-v0", "--split", "test", "-n", "3", "--set", "quest_length=2"]
    fetched = {}
    for name, more in (("local", ()), ("ray", ("--executor", "ray", "--ray-address", cluster.address))):
        monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / name))
        if name == "ray":  # the nodes use the cache they were started with
            monkeypatch.setattr(tasks, "SHARE", 1)
        with pytest.raises(SystemExit) as ended:
            data.main([*words, *more])
        assert not ended.value.code and "3 of 3 games" in capsys.readouterr().out
        games = (tmp_path / name / "textworld").glob("*/*/game.*")
        fetched[name] = {str(game.relative_to(tmp_path / name)): game.read_bytes() for game in games}
    assert fetched["ray"] == fetched["local"] and len(fetched["ray"]) == 6
