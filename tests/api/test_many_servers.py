"""Choice of a server: conversations stay at theirs, failed servers pause, requests are paced."""

import asyncio
import contextlib
import socket
import time
from collections import Counter
from pathlib import Path

import pytest

from harness.policies.connections import affinity as affinity_module
from harness.policies.connections import health
from harness.policies.connections.affinity import ServerAffinity
from harness.policies.connections.health import Health
from harness.policies.connections.http_answers import ClientPool
from harness.policies.connections.pacing import MAX_PAUSE, Pace, Retries, pause_before
from harness.policies.openai import OpenAIPolicy
from harness.types import Prompt
from tests.api.server import refuse, running


def test_a_new_conversation_goes_to_the_least_loaded_server_and_stays_there():
    affinity = ServerAffinity()
    assert affinity.choose("a", [0, 1, 2], Counter({0: 2, 1: 1, 2: 3})) == 1
    assert affinity.choose("a", [0, 1, 2], Counter({1: 9})) == 1
    assert [affinity.choose("", [0, 1], Counter({busy: 1})) for busy in (0, 1)] == [1, 0], "no key: always new"


def test_a_conversation_moves_if_its_server_is_not_available():
    affinity = ServerAffinity()
    assert affinity.choose("a", [0, 1], Counter()) == 0
    assert affinity.choose("a", [1], Counter()) == 1
    assert affinity.choose("a", [0, 1], Counter()) == 1, "it stays where it moved"


def test_only_the_latest_conversations_are_remembered(monkeypatch):
    monkeypatch.setattr(affinity_module, "CAPACITY", 2)
    affinity = ServerAffinity()
    for key in "abc":
        affinity.choose(key, [0, 1], Counter())
    assert affinity.choose("a", [0, 1], Counter({0: 1})) == 1, "the oldest was forgotten"
    assert affinity.choose("c", [0, 1], Counter({0: 1})) == 0


def test_a_failed_server_pauses_twice_as_long_every_time_until_it_answers(monkeypatch):
    now = 1000.0
    monkeypatch.setattr(health.time, "monotonic", lambda: now)
    servers = Health(3)
    assert servers.available() == [0, 1, 2] and not servers.due()
    servers.failed(1)
    servers.failed(1)  # another request failed at the same time
    assert servers.available() == [0, 2] and not servers.due()
    assert [servers.after(server) for server in range(3)] == [2, 2, 0]
    now += health.PAUSE
    assert servers.due() == [1]
    servers.answered(1)
    assert servers.available() == [0, 1, 2]
    pauses = []
    for _ in range(7):
        servers.failed(1)
        before = now
        while not servers.due():
            now += health.PAUSE
        pauses.append((now - before) / health.PAUSE)
        servers._paused_until.pop(1)
    assert pauses == [1, 2, 4, 8, 16, 20, 20]
    servers.answered(1)
    servers.failed(1)
    now += health.PAUSE
    assert servers.due() == [1]


def test_if_all_servers_failed_all_are_used_and_none_is_checked(monkeypatch):
    servers = Health(2)
    servers.failed(0)
    assert servers.available() == [1] and servers.after(1) == 1
    servers.failed(1)
    monkeypatch.setattr(health.time, "monotonic", lambda: 1e12)
    assert servers.available() == [0, 1] and servers.after(1) == 0 and not servers.due()


@pytest.mark.parametrize(
    ("status", "healthy"), [(200, True), (404, True), (500, True), (502, False), (503, False), (None, False)]
)
def test_a_server_is_asked_before_it_is_used_again(status, healthy, monkeypatch):
    servers = Health(2)
    servers.failed(1)
    monkeypatch.setattr(health.time, "monotonic", lambda: 1e12)

    asked = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0])
        if status is not None:
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
        writer.close()

    async def check() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            client = ClientPool()
            port = server.sockets[0].getsockname()[1]
            await servers.check(client, ["http://127.0.0.1:9/v1", f"http://127.0.0.1:{port}/v1"])

    asyncio.run(check())
    assert servers.available() == ([0, 1] if healthy else [0])
    assert asked == [b"GET /v1/models HTTP/1.1"]


def test_paced_requests_start_one_after_the_other():
    async def wait(pace: Pace) -> float:
        began = time.monotonic()
        await asyncio.gather(*(pace.wait() for _ in range(4)))
        return time.monotonic() - began

    assert asyncio.run(wait(Pace(1200))) >= 3 * 0.05
    assert Pace(1200)._gap == 0.05
    pace = Pace(None)
    asyncio.run(wait(pace))
    assert pace._gap == 0.0


def test_pauses_grow_up_to_a_minute_and_follow_the_servers_request():
    assert max(pause_before(1, 0.5, None) for _ in range(500)) <= 0.5
    assert 0.5 < max(pause_before(3, 0.5, None) for _ in range(500)) <= 2.0
    assert 30 < max(pause_before(50, 0.5, None) for _ in range(500)) <= MAX_PAUSE
    requested = [pause_before(1, 0.5, 3.0) for _ in range(500)]
    assert min(requested) >= 3.0 and 3.01 < max(requested) <= 3.05
    assert pause_before(1, 0.5, 1e9) == MAX_PAUSE
    assert 0.0 <= pause_before(1, 0.5, -5.0) <= 0.05


def test_a_request_that_waits_has_its_reason_and_the_time_of_its_next_try():
    async def look() -> list[tuple[str, float]]:
        retries = Retries()
        task = asyncio.create_task(retries.wait("HTTP 503", 30.0))
        await asyncio.sleep(0)
        waiting = retries.waiting()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert retries.waiting() == []
        return waiting

    before = time.monotonic()
    ((reason, moment),) = asyncio.run(look())
    assert reason == "HTTP 503" and before + 30.0 <= moment <= time.monotonic() + 30.0


def test_a_running_server_that_fails_is_left_for_the_other():
    from harness.policies.openai import OpenAIPolicy
    from harness.types import Prompt

    with running() as bad, running() as good:
        bad.script = [refuse(500, "down")] * 9
        policy = OpenAIPolicy("small-model", base_url=f"{bad.url},{good.url}", first_pause=0.01, max_retries=3)
        try:
            prompts = [Prompt([{"role": "user", "content": "hello"}], seed=seed, key=f"k{seed}") for seed in range(4)]
            assert not any(reply.error for reply in policy.act(prompts))
            assert len(good.requests) >= 4 and policy._health.available() == [1]
            asked = len(bad.requests)
            policy.act(prompts)
            assert len(bad.requests) == asked
        finally:
            policy.close()


def test_a_pool_opens_a_connection_per_request_in_flight_and_uses_it_again():
    opened: list[asyncio.StreamWriter] = []
    waiting: list[asyncio.StreamWriter] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        while await reader.readline():
            await reader.readuntil(b"\r\n\r\n")
            waiting.append(writer)
            if len(waiting) == together:
                for connection in waiting:
                    connection.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                waiting.clear()

    async def ask(count: int) -> list[str]:
        nonlocal together
        together = count
        return [answer.text for answer in await asyncio.gather(*(pool.get(url) for _ in range(count)))]

    async def play() -> None:
        nonlocal pool, url
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            pool = ClientPool()
            assert await ask(12) == ["ok"] * 12
            assert len(opened) == 12
            assert await ask(5) == ["ok"] * 5
            assert [await ask(1) for _ in range(3)] == [["ok"]] * 3
            assert len(opened) == 12  # none was opened for these
            await pool.aclose()

    together, url, pool = 0, "", ClientPool()
    asyncio.run(play())


def test_a_server_that_never_accepts_a_connection_does_not_hold_up_requests_to_another():
    with socket.socket() as full, running() as server:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        with contextlib.ExitStack() as queue:
            for _ in range(4):  # the queue of connections is full now, and further ones get no answer
                waiting = queue.enter_context(socket.socket())
                waiting.setblocking(False)
                waiting.connect_ex(full.getsockname())
            urls = f"http://127.0.0.1:{full.getsockname()[1]}/v1,{server.url}"
            policy = OpenAIPolicy("small-model", base_url=urls, timeout=60, max_retries=0)
            policy.submit(0, Prompt(({"role": "user", "content": "a"},), (), 0, key="a"))
            policy.submit(1, Prompt(({"role": "user", "content": "b"},), (), 0, key="b"))
            assert [ticket for ticket, _ in policy.collect(30)] == [1]
            policy.close()


def test_the_docs_state_the_pauses_of_a_failed_server():
    page = (Path(__file__).parents[2] / "docs/explanation/clusters.md").read_text()
    assert f"rests for {health.PAUSE:g} seconds, doubling up to {health.MAX_PAUSE / 60:g} minutes" in page
