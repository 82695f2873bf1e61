"""A model behind an OpenAI-compatible server plays games of a task in `verifiers`.

pip install 'envsuite[verifiers]'
python examples/verifiers_eval.py http://localhost:8000/v1 MODEL BabyAI-goto-v0
"""

import asyncio
import sys

import verifiers.v1 as vf

url, model, game = sys.argv[1:4]
config = vf.resolve_env_config({"taskset": {"id": "envsuite-verifiers", "game": game, "episodes": 4}})
context = vf.ModelContext(model=model, client=vf.EvalClientConfig(base_url=url, api_key_var="OPENAI_API_KEY"))


async def main() -> None:
    env = vf.load_environment(config)
    async with env.serving():
        slots = [slot for task in env.taskset for slot in env.slots(task)]
        for episode in await asyncio.gather(*(env.run_slot(slot, context) for slot in slots)):
            (trace,) = episode.traces
            print(trace.info["envsuite"]["seed"], trace.info["stop_reason"], f"return {trace.reward:g}", trace.metrics)


asyncio.run(main())
