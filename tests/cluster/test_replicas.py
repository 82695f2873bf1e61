"""Policy replicas without a cluster: the actor's methods in one event loop."""

import asyncio
import json
import os

from envsuite import registry
from harness.cluster.replicas import PolicyWorker
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy
from harness.types import Prompt
from tests import toys  # noqa: F401  registers the toys


def test_a_replica_that_loads_its_model_answers_other_questions_meanwhile(tmp_path):
    """Loads records from a named pipe, which takes until somebody writes into it."""
    config = RunConfig(registry.TASKS["HiLo-v0"], "random", episodes=1)
    evaluate(config, tmp_path, lambda: make_policy("random"))
    stored = (config.folder(tmp_path) / "results.jsonl").read_bytes()
    pipe, regular = tmp_path / "pipe", tmp_path / "regular"
    os.mkfifo(pipe)
    regular.write_bytes(stored)

    def write():
        with pipe.open("wb") as end:
            os.replace(regular, pipe)  # the policy's name is a digest; its records are read after that
            end.write(stored)

    async def scenario():
        worker = PolicyWorker(f"replay:{pipe}", {})
        prompts = [Prompt([], episode=config.all_episodes()[0])] * 2
        answers = [asyncio.create_task(worker.answer(prompt)) for prompt in prompts]
        while not worker._loading.locked():
            await asyncio.sleep(0)
        assert "python" in await worker.versions()
        assert not any(answer.done() for answer in answers)
        await asyncio.to_thread(write)
        return await asyncio.gather(*answers)

    replies = asyncio.run(scenario())
    first = json.loads(stored)["steps"][0]["commands"]
    assert [list(reply.commands) for reply in replies] == [first, first]


def test_a_replica_that_cannot_load_returns_the_error_to_every_prompt():
    async def scenario():
        worker = PolicyWorker("replay:/nowhere/results.jsonl", {})
        return await asyncio.gather(*(worker.answer(Prompt([])) for _ in range(3)))

    assert ["Cannot read" in str(error) for error in asyncio.run(scenario())] == [True] * 3
