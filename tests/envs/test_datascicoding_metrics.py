"""DataSciCoding's metrics: they count programs, and tell whether any of them ran."""

from envsuite import registry
from envsuite.sandbox import drivers

STUMP = (
    "from sklearn.tree import DecisionTreeClassifier\n"
    "def build_model(x, y): return DecisionTreeClassifier(max_depth=1).fit(x, y)"
)


def test_metrics_count_programs_and_tell_whether_any_of_them_ran():
    driver = drivers.choose("auto", (*drivers.SAFE, "process"))
    env = registry.build("DataSciCoding-iris-v0", "sparse", sandbox=driver, attempts=2)
    try:
        env.reset(seed=0)
        env.step("import no_such_module")
        metrics = env.step("import no_such_module")[4]["metrics"]
        assert (metrics["ran"], metrics["attempts"], metrics["auc"]) == (0.0, 2.0, 0.0)
        env.reset(seed=0)
        env.step("import no_such_module")
        metrics = env.step(STUMP)[4]["metrics"]
        assert (metrics["ran"], metrics["attempts"]) == (1.0, 2.0) and metrics["auc"] > 0.5
    finally:
        env.close()
