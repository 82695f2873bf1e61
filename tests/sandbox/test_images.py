"""Docker images with a real daemon and a registry on loopback: retries, error messages, caching, disk
budget.
"""

import time
import uuid

import pytest

from envsuite.errors import DataError, EngineFailure, UsageError
from envsuite.sandbox import docker, images
from tests.sandbox.conftest import working
from tests.sandbox.registry import Registry, small_root

WAITS = (0.05, 0.05)


@pytest.fixture
def token():
    """Returns a token for all names and contents of a test, because the daemon is shared with other
    tests and the user.
    """
    return uuid.uuid4().hex


@pytest.fixture
def client(tmp_path, monkeypatch, token):
    """Yields a client whose images all carry the token; only they enter the budget, and they are
    removed afterwards.
    """
    working("docker")
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(images, "BUILT", f"envsuite-built-{token}:")
    connected = docker.connect()
    yield connected
    for tag in tags(connected):
        if token in tag:
            connected.images.remove(tag, force=True)
    connected.close()


def tags(client):
    """Returns tags from one request: `client.images.list` queries each image again, and some may be
    gone by then.
    """
    return {tag for image in client.api.images() for tag in image["RepoTags"] or ()}


@pytest.fixture
def registry(client, token):
    """Yields a registry; images pulled from it are removed afterwards."""
    opened = []

    def serve(refusals=0):
        opened.append(Registry(small_root(), refusals))
        return opened[-1]

    yield serve
    for first in opened:
        first.close()
        for tag in tags(client):
            if tag.startswith(f"{first.name}/"):
                client.images.remove(tag, force=True)


def test_a_temporarily_refused_pull_is_retried(client, registry):
    served = registry(refusals=2)
    images.obtain(client, f"{served.name}/owner/there:latest", WAITS)
    assert served.asked >= 3
    assert client.images.get(f"{served.name}/owner/there:latest")
    requested = served.asked
    images.obtain(client, f"{served.name}/owner/there:latest", WAITS)
    assert served.asked == requested  # an existing image is not pulled again


def test_a_lasting_rate_limit_raises_one_line_with_remedies(client, registry):
    served = registry(refusals=1000)
    with pytest.raises(EngineFailure, match=r"rate limit; 3 tries\): run `docker login`, wait some hours"):
        images.obtain(client, f"{served.name}/owner/there", WAITS)


def test_a_missing_image_is_not_retried(client, registry):
    served = registry()
    with pytest.raises(DataError, match=r"There is no image .*/owner/nowhere:1 to pull"):
        images.obtain(client, f"{served.name}/owner/nowhere:1", (60.0, 60.0))


def test_an_unreachable_registry_is_named(client, registry):
    served = registry()
    served.close()
    with pytest.raises(EngineFailure, match=r"cannot be pulled \(3 tries\)"):
        images.obtain(client, f"{served.name}/owner/there", WAITS)


def test_the_same_content_is_built_only_once(client, tmp_path, token):
    item, same, second = (tmp_path / name for name in ("one", "same", "other"))
    for folder, text in ((item, "a"), (same, "a"), (second, "b")):
        (folder / "deep").mkdir(parents=True)
        (folder / "deep" / "file").write_text(text + token)
    base = docker.thin(client)
    first = images.build(client, base, {"/opt/it": item}, {"WORD": "some words"})
    made = client.images.get(first)
    assert made.labels[images.LABEL] in first
    assert docker.THIN_LABEL in made.labels
    assert "WORD=some words" in made.attrs["Config"]["Env"]
    assert images.build(client, base, {"/opt/it": same}, {"WORD": "some words"}) == first
    assert images.build(client, base, {"/opt/it": second}, {"WORD": "some words"}) != first
    images.copy_out(client, first, "/opt/it", tmp_path / "out")
    assert (tmp_path / "out" / "deep" / "file").read_text() == "a" + token
    with pytest.raises(DataError, match="holds no /nowhere"):
        images.copy_out(client, first, "/nowhere", tmp_path / "none")


def test_the_least_recently_used_of_our_images_are_removed_first(client, tmp_path, monkeypatch, token):
    monkeypatch.setenv("ENVSUITE_DOCKER_GB", "1")
    base, names = docker.thin(client), []
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "file").write_bytes(bytes([number]) * 1_000_000 + token.encode())
        names.append(images.build(client, base, {"/it": folder}))
        time.sleep(0.01)
    client.api.import_image_from_data(small_root(), f"somebody-elses-{token}", "1")
    images.note_use(client, names[0])
    busy = client.containers.create(names[1], ["true"])
    monkeypatch.setenv("ENVSUITE_DOCKER_GB", "0.0025")
    try:
        assert images.shrink(client, keep=names[3]) == [names[2], names[0]]
    finally:
        busy.remove()
    assert {names[1], names[3], f"somebody-elses-{token}:1", docker.THIN} <= tags(client)
    assert images.shrink(client, keep=names[3]) == []
    monkeypatch.setenv("ENVSUITE_DOCKER_GB", "0")
    assert images.shrink(client) == [names[1], names[3]]


@pytest.mark.parametrize("message", ["much", "-1", "inf", "nan"])
def test_an_invalid_disk_budget_is_refused(monkeypatch, message):
    monkeypatch.setenv("ENVSUITE_DOCKER_GB", message)
    with pytest.raises(UsageError, match=f"ENVSUITE_DOCKER_GB={message} is not a size"):
        images.budget_bytes()
