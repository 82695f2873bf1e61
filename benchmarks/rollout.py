"""Measures how well rollouts use a server whose replies take unequal time.

    python -m benchmarks.rollout --slots 32 --sigma 0 0.5 1.0 1.5 [--systems ours httpx inspect verifiers]

A stub server answers each request after a lognormal time. Every system plays the same number of
episodes with the same number of turns, one after another, against a separate stub. The latencies of
the n-th episode to begin are the same for all systems: each reply contains a number by which the
stub recognises the episode's next request. The table shows

    span    time from the first request to the last reply, divided by (sum of latencies / slots)
    ideal   the same for a simulated scheduler without any overhead, with the same latencies
    CPU     milliseconds of the client's CPU time per request, without start-up and imports

`httpx` is a bare loop over the HTTP client. `inspect` needs inspect-ai and openai 3.4 or later; a
folder with that version of openai may be given as --openai.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import math
import multiprocessing
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SYSTEMS = ("ours", "httpx", "inspect", "verifiers")
TASK = "HiLo-v0"
SEED = 2
"""Seed of the latencies. With sigma 1.5, some seeds have one latency of 200 times the median."""
MARK = re.compile(rb"(?<!\d)77(\d{4})77(?!\d)")
"""The episode's number in the stub's replies, which are guesses of a number."""


# The stub server.


def latencies_of(episodes: int, turns: int, median: float, sigma: float) -> list[list[float]]:
    """Returns lognormal latencies in seconds [episodes, turns]."""
    generator = random.Random(SEED)
    return [[median * math.exp(sigma * generator.gauss(0.0, 1.0)) for _ in range(turns)] for _ in range(episodes)]


async def _serve(connection: Any, latencies: Sequence[Sequence[float]]) -> None:
    """Answers the turns of episodes after their latencies; sends its port, and after a message the
    number of requests and the time from the first request to the last reply.
    """
    times: list[float] = []
    waiting: dict[int, Iterator[float]] = {}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    head = {"id": "x", "object": "chat.completion", "created": 0, "model": "stub", "usage": usage}
    models = json.dumps({"object": "list", "data": [{"id": "stub", "object": "model"}]}).encode()

    async def answer(request: bytes) -> bytes:
        times.append(time.monotonic())
        mark = MARK.search(request)
        episode = int(mark[1]) if mark else len(waiting)
        await asyncio.sleep(next(waiting.setdefault(episode, iter(latencies[episode]))))
        times.append(time.monotonic())
        message = {"role": "assistant", "content": f"<action>77{episode:04}77</action>"}
        return json.dumps({**head, "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}).encode()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(request.partition("content-length:")[2].partition("\r\n")[0] or 0)
                content = await reader.readexactly(length)
                body = await answer(content) if length else models
                header = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                writer.write(header % len(body) + body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0, backlog=1024)
    connection.send(server.sockets[0].getsockname()[1])
    await asyncio.get_running_loop().run_in_executor(None, connection.recv)
    connection.send((len(times) // 2, max(times) - min(times)))


def _server_process(connection: Any, latencies: Sequence[Sequence[float]]) -> None:
    asyncio.run(_serve(connection, latencies))


# The systems. Each one plays and returns the number of requests; `measure` runs in a process of its
# own.


def _ours(url: str, slots: int, episodes: int, turns: int) -> None:
    import examples.hilo  # noqa: F401  registers the task
    from envsuite import registry
    from harness.evaluate import Execution, RunConfig, evaluate
    from harness.policies.openai import OpenAIPolicy

    config = RunConfig(
        registry.TASKS[TASK], "openai:stub", knobs={"max_steps": turns}, split="train", episodes=episodes
    )
    policy = OpenAIPolicy("stub", base_url=url, timeout=600.0)
    with tempfile.TemporaryDirectory() as folder:
        evaluate(config, Path(folder), lambda: policy, Execution(max_concurrent=slots))
    policy.close()


def _httpx(url: str, slots: int, episodes: int, turns: int) -> None:
    import httpx

    async def play() -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
        async with httpx.AsyncClient(timeout=600.0, limits=limits) as client:
            free = asyncio.Semaphore(slots)

            async def episode() -> None:
                messages = [{"role": "user", "content": "hello"}]
                async with free:
                    for _ in range(turns):
                        answer = await client.post(
                            f"{url}/chat/completions", json={"model": "stub", "messages": messages}
                        )
                        reply = answer.json()["choices"][0]["message"]
                        messages += [reply, {"role": "user", "content": "higher"}]

            await asyncio.gather(*(episode() for _ in range(episodes)))

    asyncio.run(play())


def _inspect(url: str, slots: int, episodes: int, turns: int) -> None:
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ChatMessageUser, get_model
    from inspect_ai.solver import solver

    @solver
    def several_turns() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            for _ in range(turns):
                state = await generate(state)
                state.messages.append(ChatMessageUser(content="higher"))
            return state

        return solve

    model = get_model("openai-api/stub/stub", base_url=url, api_key="none")
    task = Task(dataset=[Sample(input="hello") for _ in range(episodes)], solver=several_turns())
    with tempfile.TemporaryDirectory() as folder:
        eval(
            task,
            model=model,
            log_dir=folder,
            display="none",
            max_samples=slots,
            max_connections=slots,
            log_samples=True,
        )


def _verifiers(url: str, slots: int, episodes: int, turns: int) -> None:
    import verifiers.v1 as vf

    import examples.hilo  # noqa: F401  registers the task

    taskset = {
        "id": "envsuite-verifiers",
        "game": TASK,
        "knobs": {"max_steps": turns},
        "split": "train",
        "episodes": episodes,
    }
    config = vf.resolve_env_config({"taskset": taskset})
    model = vf.ModelContext(model="stub", client=vf.EvalClientConfig(base_url=url, api_key_var="NO_SUCH_KEY"))

    async def play() -> None:
        environment = vf.load_environment(config)
        free = asyncio.Semaphore(slots)

        async def episode(slot: Any) -> None:
            async with free:
                await environment.run_slot(slot, model)

        async with environment.serving():
            runs = [slot for task in environment.taskset for slot in environment.slots(task)]
            await asyncio.gather(*map(episode, runs))

    asyncio.run(play())


def measure(system: str, url: str, slots: int, episodes: int, turns: int) -> None:
    """Plays once to load everything, then measures CPU time; prints seconds as JSON."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    play = {"ours": _ours, "httpx": _httpx, "inspect": _inspect, "verifiers": _verifiers}[system]
    warm_up, measured = url.split(",")
    play(warm_up, 1, 1, 1)
    before = time.process_time()
    play(measured, slots, episodes, turns)
    print(json.dumps(time.process_time() - before))


# The comparison.


def ideal(latencies: Sequence[Sequence[float]], slots: int) -> float:
    """Simulates episodes that start in free slots and request their next turn at once; returns the
    time at which the last one ends.
    """
    free = [0.0] * slots
    for episode in latencies:
        heapq.heapreplace(free, free[0] + sum(episode))
    return max(free)


def compare(system: str, sigma: float, arguments: argparse.Namespace) -> str:
    """Runs a system in a separate process; returns a row of the table."""
    context = multiprocessing.get_context("spawn")
    latencies = latencies_of(arguments.episodes, arguments.turns, arguments.median, sigma)
    urls, pipes, processes = [], [], []
    for table in ([[0.0]], latencies):  # the first one is for the warm-up
        pipe, end = context.Pipe()
        process = context.Process(target=_server_process, args=(end, table), daemon=True)
        process.start()
        urls.append(f"http://127.0.0.1:{pipe.recv()}/v1")
        pipes.append(pipe)
        processes.append(process)
    command = [sys.executable, "-m", "benchmarks.rollout", "--measure", system, "--url", ",".join(urls)]
    command += ["--slots", str(arguments.slots), "--episodes", str(arguments.episodes), "--turns", str(arguments.turns)]
    path = [arguments.openai] if system == "inspect" and arguments.openai else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*path, os.environ.get("PYTHONPATH", "."), "."])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        return f"| {sigma:g} | {system} | failed: {(done.stderr.strip().splitlines() or ['?'])[-1][:80]} | | |"
    pipes[1].send(None)
    requests, seconds = pipes[1].recv()
    for process in processes:
        process.terminate()
    cpu = float(done.stdout.splitlines()[-1]) / requests * 1000
    mean = sum(map(sum, latencies)) / arguments.slots
    best = ideal(latencies, arguments.slots)
    row = [f"{sigma:g}", system, requests, f"{seconds:.1f}", f"{seconds / mean:.2f}", f"{best / mean:.2f}"]
    row += [f"{seconds / best:.2f}", f"{cpu:.2f}", f"{os.getloadavg()[0]:.1f}"]
    return f"| {' | '.join(map(str, row))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--median", type=float, default=0.3, help="median latency in seconds")
    parser.add_argument("--sigma", type=float, nargs="+", default=[0.0, 0.5, 1.0, 1.5])
    parser.add_argument("--systems", nargs="+", default=SYSTEMS, choices=SYSTEMS)
    parser.add_argument("--openai", default="", help="folder with openai 3.4 or later, for inspect")
    parser.add_argument("--measure", choices=SYSTEMS, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure(arguments.measure, arguments.url, arguments.slots, arguments.episodes, arguments.turns)
        return
    print(
        f"{arguments.slots} slots, {arguments.episodes} episodes of {arguments.turns} turns, "
        f"median latency {arguments.median:g} s, {os.cpu_count()} cores"
    )
    print("| sigma | system | requests | seconds | span | ideal | span / ideal | CPU ms per request | load |")
    print("|--:|---|--:|--:|--:|--:|--:|--:|--:|")
    for sigma in arguments.sigma:
        for system in arguments.systems:
            print(compare(system, sigma, arguments), flush=True)


if __name__ == "__main__":
    main()
