"""Generated tables: exact scores, splits of disjoint structure, traps, golden tables, and rewards."""

from types import SimpleNamespace

import numpy as np
import pytest

from envsuite.core import check_knobs
from envsuite.envs.datascicoding.generated import graphs, mechanisms, programs, scores, themes
from envsuite.envs.datascicoding.generated.env import GeneratedTables
from envsuite.envs.datascicoding.generated.levels import LEVELS
from envsuite.envs.datascicoding.generated.streams import Stream
from envsuite.envs.datascicoding.generated.table import draw_table
from envsuite.envs.datascicoding.generated.world import draw_world
from envsuite.errors import UsageError

pytest.importorskip("sklearn", reason="the datascicoding extra is not installed")
pd = pytest.importorskip("pandas", reason="the datascicoding extra is not installed")

GOLDEN = {
    ("easy", 0): "7fe7c278e9d155a7",
    ("medium", 1): "0901a44f10f7a3ca",
    ("hard", 2): "0dec7d5be6c795ca",
}

GOLDEN_UNIFORM = [796076734, 221302336, 389440794]


def family_of(graph) -> str:
    """Returns the family of a graph, from its degrees, depth and number of roots."""
    depths: list[int] = []
    children = [0] * len(graph)
    for parents in graph:
        depths.append(1 + max((depths[parent] for parent in parents), default=-1))
        for parent in parents:
            children[parent] += 1
    if max(map(len, graph)) == 1:
        if max(children) == 1:
            return "chain"
        return "star" if max(depths) == 1 else "tree"
    if max(depths) == 1:
        return "layers"
    return "ladder" if sum(not parents for parents in graph) == 1 else "mesh"


def knobs(level="medium", **changed):
    return SimpleNamespace(**check_knobs(GeneratedTables, {**LEVELS[level], **changed}))


def test_streams_are_the_same_on_every_machine_and_nearly_normal():
    assert [Stream("a", 1).below(1000) for _ in range(3)] == [Stream("a", 1).below(1000)] * 3
    assert [int(value * 1e9) for value in Stream("golden").uniform(3)] == GOLDEN_UNIFORM
    values = Stream("many").normal(50_000)
    assert abs(values.mean()) < 0.02 and abs(values.std() - 1) < 0.02


@pytest.mark.parametrize(("level", "seed"), GOLDEN)
def test_a_seed_gives_the_same_table_everywhere(level, seed):
    assert draw_table(knobs(level), seed).digest == GOLDEN[level, seed]


@pytest.mark.parametrize("family", graphs.GRAPHS)
def test_a_graph_is_recognized_as_one_of_its_family_whatever_its_size(family):
    for nodes in range(graphs.SMALLEST, 17):
        for seed in range(5):
            graph = graphs.draw_graph(family, nodes, Stream(family, nodes, seed))
            assert len(graph) == nodes
            assert all(parent < node for node, parents in enumerate(graph) for parent in parents)
            assert family_of(graph) == family


def test_no_combination_of_graph_and_mechanism_and_no_theme_is_in_two_splits():
    pairs = [pair for split in graphs.SPLITS for pair in graphs.families(split)]
    assert len(pairs) == len(set(pairs)) == len(graphs.GRAPHS) * len(mechanisms.MECHANISMS)
    for split in graphs.SPLITS:
        assert {graph for graph, _ in graphs.families(split)} == set(graphs.GRAPHS)
        assert {mechanism for _, mechanism in graphs.families(split)} == set(mechanisms.MECHANISMS)
    assert not set(themes.MARKERS) & {name for split in themes.THEMES.values() for t in split for name in t.columns}
    rows = [theme.rows for split in graphs.SPLITS for theme in themes.THEMES[split]]
    assert len(rows) == len(set(rows))


def test_a_table_has_the_structure_of_its_split():
    drawn = {}
    for split, seeds in graphs.SPLITS.items():
        for seed in seeds[:15]:
            world = draw_world(knobs("easy"), seed)
            linked = world.graph[: len(world.graph) - LEVELS["easy"]["unrelated"]]
            assert family_of(linked) == world.graph_family
            assert {term.family for term in world.outcome} == {world.mechanism_family}
            assert world.theme in themes.THEMES[split]
            drawn.setdefault(split, set()).add((world.graph_family, world.mechanism_family))
    assert not drawn["train"] & drawn["test"] and not drawn["valid"] & (drawn["train"] | drawn["test"])


def test_the_expected_auc_is_the_mean_over_labels_and_chances_order_rows_best():
    rng = np.random.default_rng(0)
    chances, values = rng.random(7), rng.integers(0, 4, 7).astype(float)
    right = pairs = 0.0
    for code in range(2**7):
        labels = np.array([code >> k & 1 for k in range(7)])
        weight = np.prod(np.where(labels == 1, chances, 1 - chances))
        for first in np.flatnonzero(labels == 1):
            for second in np.flatnonzero(labels == 0):
                pairs += weight
                right += weight * ((values[first] > values[second]) + 0.5 * (values[first] == values[second]))
    assert scores.expected_auc(chances, values) == pytest.approx(right / pairs)
    best = scores.expected_auc(chances, chances)
    assert all(scores.expected_auc(chances, rng.random(7)) <= best for _ in range(200))
    assert scores.expected_auc(chances, np.zeros(7)) == pytest.approx(0.5)


def test_the_expected_errors_are_the_mean_over_outcomes():
    rng = np.random.default_rng(0)
    means, values = rng.normal(size=50), rng.normal(size=50)
    r2, root = scores.expected_errors(means, 0.25, values)
    outcomes = means + 0.5 * rng.normal(size=(20_000, 50))
    assert root == pytest.approx(np.sqrt(((outcomes - values) ** 2).mean()), rel=0.02)
    assert scores.expected_errors(means, 0.25, means)[0] >= r2


@pytest.mark.parametrize("level", LEVELS)
def test_outcomes_have_the_chances_that_are_called_true(level):
    world = draw_world(knobs(level, outcome="classes"), 3)
    rows = world.sample(Stream("calibration", level), 40_000, later=True)
    for low, high in ((0.0, 0.2), (0.2, 0.5), (0.5, 0.8), (0.8, 1.0)):
        chosen = (rows.truth >= low) & (rows.truth < high)
        error = np.sqrt((rows.truth * (1 - rows.truth))[chosen].sum()) + 1
        assert abs(rows.outcomes[chosen].sum() - rows.truth[chosen].sum()) < 4 * error


@pytest.mark.parametrize("outcome", ["classes", "number"])
def test_traps_follow_the_outcome_in_training_and_are_noise_later(outcome):
    world = draw_world(knobs(outcome=outcome, hidden_traps=0.0), 5)
    training = world.sample(Stream("training"), 4000)
    later = world.sample(Stream("later"), 4000, later=True)
    for trap in world.traps:
        before = np.corrcoef(np.argsort(np.argsort(training.frame[trap.column.name])), training.outcomes)[0, 1]
        after = np.corrcoef(np.argsort(np.argsort(later.frame[trap.column.name])), later.outcomes)[0, 1]
        assert abs(before) > 0.5
        assert abs(after) < 0.06
        assert trap.column.note in themes.TRAP_NOTES


def test_only_notes_on_traps_say_that_a_column_is_known_too_late():
    world = draw_world(knobs("hard"), 1)
    for column in world.node_columns:
        assert not any(column.note.startswith(note) for note in themes.TRAP_NOTES)


def test_numbers_are_recorded_so_that_a_cell_stands_for_one_value():
    z = np.arange(-400, 401) / 100
    for seed in range(12):
        for column in draw_world(knobs("hard", codes=0.0), seed).node_columns:
            if not column.effects:
                for mark in range(4):
                    cells = column.cells(z, np.zeros(len(z), bool), np.full(len(z), mark), Stream("x"))
                    assert len(set(cells)) == len(z), column
                    assert column.sentinel is None or column.sentinel not in cells


def test_who_reads_the_notes_gets_back_the_same_readings_on_every_form():
    """The outcome depends on readings alone, so that rows must not differ in anything else once they are read."""
    for level, seed in (("easy", 0), ("medium", 1), ("hard", 2)):
        world = draw_world(knobs(level), seed)
        names = {"np": np, "BaseEstimator": object}
        exec(programs._known(world) + programs.PREPARED, names)
        read = names["Prepared"](None).prepared
        z = np.tile(np.linspace(-3.5, 3.5, len(world.graph) * 8), (len(world.graph), 1)).T
        absent = np.zeros(z.shape, bool)
        frames = []
        for mark in range(4):
            marks = np.full(len(z), mark)
            cells = {
                c.name: c.cells(z[:, k], absent[:, k], marks, Stream("x")) for k, c in enumerate(world.node_columns)
            }
            cells[world.marker.name] = np.array(world.marker.words, object)[marks]
            cells.update({trap.column.name: np.zeros(len(z)) for trap in world.traps})
            frames.append((pd.DataFrame(cells), read(pd.DataFrame(cells))))
        for entered, readings in frames[1:]:
            assert not entered.equals(frames[0][0])
            for name in readings:
                expected, actual = frames[0][1][name], readings[name]
                if expected.dtype == float:
                    np.testing.assert_allclose(expected, actual, rtol=2e-3)
                else:
                    assert list(expected) == list(actual)


def test_without_notes_a_turned_column_says_nothing_about_a_cause_that_acts_alone():
    world = draw_world(knobs("medium", nonlinear=0.0, interactions=0.0, missing=0.0, drift=0.0, outcome="number"), 3)
    rows = world.sample(Stream("turned"), 20_000)
    assert set(world.marker.words) == set(rows.frame[world.marker.name])
    for column in world.node_columns:
        if not column.effects:
            assert abs(rows.frame[column.name].rank().corr(pd.Series(rows.truth))) < 0.15, column.name


def test_hints_name_columns_without_bearing_and_pairs_that_act_together():
    world = draw_world(knobs("hard"), 4)
    pairs = {term.causes for term in world.outcome if len(term.causes) == 2}
    facts = {}
    exec(programs._known(world), facts)
    numbers = {column.name: k for k, column in enumerate(world.node_columns)}
    assert {(numbers[a], numbers[b]) for a, b in facts["PAIRS"]} == pairs
    left_out = {numbers[name] for name in facts["LEFT_OUT"] if name in numbers}
    assert left_out == set(range(len(world.graph) - LEVELS["hard"]["unrelated"], len(world.graph)))
    silent = draw_world(knobs("hard", hints=False), 4)
    assert "bearing on the result" not in " ".join(column.note for column in silent.node_columns)


def test_the_reward_is_the_share_and_numbers_have_r2_and_rmse(build):
    for seed, metric in ((0, "r2"), (2, "auc")):
        env = build("DataSciCoding-generated-easy-v0", rows=150)
        text, info = env.reset(seed=seed)
        assert all(trap.column.note in text for trap in env.game.world.traps)
        _, reward, _, _, info = env.step(env.expert())
        metrics = info["metrics"]
        assert reward == metrics["share"] > 0.2
        assert metrics[metric] < metrics[f"best_{metric}"]
        if metric == "r2":
            assert metrics["rmse"] > metrics["best_rmse"] > 0
        else:
            assert reward == pytest.approx((metrics["auc"] - 0.5) / (metrics["best_auc"] - 0.5))


def test_constant_predictions_broken_code_and_wrong_shapes_earn_nothing(build):
    env = build("DataSciCoding-generated-numbers-v0", rows=150)
    env.threshold = lambda: 0.0  # as if the reference had not learnt anything
    env.reset(seed=1)
    _, reward, *_, info = env.step("def build_model(x, y): return 1")
    assert (reward, info["success"]) == (0.0, False)
    constant = (
        "from sklearn.dummy import DummyRegressor\ndef build_model(x, y): return DummyRegressor().fit(x.fillna(0), y)"
    )
    env.reset(seed=1)
    _, reward, *_, info = env.step(constant)
    assert (info["verdict"], reward, info["success"]) == ("ok", 0.0, False)
    env.reset(seed=1)
    two_columns = (
        "class Two:\n    def predict(self, x): return np.zeros((len(x), 2))\ndef build_model(x, y): return Two()"
    )
    text, reward, *_, info = env.step(two_columns)
    assert (reward, info["verdict"]) == (0.0, "bad_return") and "shape (2000, 2)" in text
    huge = two_columns.replace("np.zeros((len(x), 2))", "np.full(len(x), 1e300)")
    _, reward, terminated, _, info = env.step(huge)
    assert (reward, terminated, info["metrics"]["share"]) == (0.0, True, 0.0)


def test_the_best_score_beats_a_model_fitted_to_many_rows():
    from sklearn.ensemble import HistGradientBoostingClassifier

    settings = knobs("easy", outcome="classes", traps=0, categories=0.0, turned=0.0, rows=20_000)
    table = draw_table(settings, 4)
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0)
    model.fit(table.training.frame, table.training.outcomes)
    truth = table.held.truth
    share = table.measure(table.training.outcomes, truth, model.predict_proba(table.held.frame))
    assert 0.85 < share < 1.0
    assert table.measure(table.training.outcomes, truth, truth[:, None]) == pytest.approx(1.0)


def test_more_causes_than_linked_columns_are_refused(build):
    with pytest.raises(UsageError, match="set fewer causes"):
        build("DataSciCoding-generated-easy-v0", causes=8)
