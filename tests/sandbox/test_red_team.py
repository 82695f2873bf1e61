"""Exploits on pure-noise labels score at chance on the holdout, whatever they score on the paper's halves."""

import pytest

from envsuite.envs.datascicoding import scoring
from envsuite.sandbox import local
from envsuite.sandbox.pool import Lease
from tests.sandbox import red_team
from tests.sandbox.conftest import working

pytest.importorskip("sklearn", reason="the datascicoding extra is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("noise")


@pytest.fixture(scope="module")
def driver(request):
    """Yields a driver whose sandboxes stay warm between the attacks."""
    lease = Lease(scoring.spec(("GridSearchCV", "SVC")), working(request.param))
    yield request.param
    lease.close()


DRIVERS = ("bwrap", "landlock", "docker", "process")


def sampled():
    """Yields every exploit on every driver; all but one for each safe driver are marked slow."""
    for place, exploit in enumerate(red_team.EXPLOITS):
        for number, driver in enumerate(DRIVERS):
            quick = (place + 2 * number) % len(red_team.EXPLOITS) == 0 and driver != "process"
            yield pytest.param(exploit, driver, marks=[] if quick else pytest.mark.slow)


@pytest.mark.parametrize(("exploit", "driver"), list(sampled()), indirect=["driver"])
def test_an_exploit_gains_nothing_on_the_holdout(exploit, driver, folder):
    if driver == "process" and local.unused_uid(folder) is not None and exploit == "files left behind":
        pytest.skip("the process driver guards against accidents only")
    result = red_team.attack(exploit, driver, 0.3)
    assert abs(result.counts - 0.5) < 4 * result.error, result


@pytest.mark.parametrize("driver", ["landlock"], indirect=True)
def test_labels_in_error_text_pay_on_the_papers_halves(driver):
    """The published protocol leaks labels: each test row is a training row in another split."""
    result = red_team.attack("labels in error text", driver, 0.0)
    assert result.counts > 0.55, result
