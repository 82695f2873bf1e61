"""A task served by OpenEnv's server and played over loopback with OpenEnv's client."""

import importlib.util
import threading
import time

import pytest

from envsuite import registry
from envsuite.errors import BadKnob
from tests import toys  # noqa: F401

MISSING = [name for name in ("openenv", "uvicorn") if importlib.util.find_spec(name) is None]
# Imported in the tests alone: the import takes seconds, which every process that collects tests would spend.
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"{' and '.join(MISSING)} is not installed")


@pytest.fixture(scope="module")
def address():
    import uvicorn

    from harness.interop.openenv import app

    server = uvicorn.Server(uvicorn.Config(app("HiLo-v0", "dense", size=32), port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(timeout=60)


def test_a_served_game_equals_the_local_game(address):
    from harness.interop.openenv import Client, Command

    env = registry.build("HiLo-v0", "dense", size=32)
    with Client(address, message_timeout_s=120.0) as client:
        for seed in (3, 4):
            text, info = env.reset(seed=seed)
            seen = client.reset(seed=seed).observation
            assert (seen.text, seen.objective, seen.instructions) == (text, info["objective"], env.instructions)
            done = False
            for command in ("1", "nonsense", "32", env.expert()):
                text, reward, terminated, truncated, info = env.step(command)
                result = client.step(Command(command=command))
                done = terminated or truncated
                assert (result.observation.text, result.reward, result.done) == (text, reward, done)
                assert result.observation.is_action_valid == info["is_action_valid"]
                assert result.observation.admissible_commands == info["admissible_commands"]
            assert done and result.observation.success and result.observation.stop_reason == "solved"
        assert client.state().step_count == 4


def test_two_sessions_are_independent(address):
    from harness.interop.openenv import Client, Command

    with Client(address, message_timeout_s=120.0) as first, Client(address, message_timeout_s=120.0) as second:
        first.reset(seed=3)
        second.reset(seed=4)
        env = registry.build("HiLo-v0", "dense", size=32)
        for client, seed in ((first, 3), (second, 4)):
            env.reset(seed=seed)
            assert client.step(Command(command=env.expert())).observation.success


def test_isolated_engines_serve_one_session():
    from harness.interop.openenv import _ConcurrentServer, _SingleSessionServer, app

    assert not _SingleSessionServer.SUPPORTS_CONCURRENT_SESSIONS and _ConcurrentServer.SUPPORTS_CONCURRENT_SESSIONS
    with pytest.raises(BadKnob):
        app("HiLo-v0", size=1)
