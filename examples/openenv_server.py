"""A task behind OpenEnv's server, and a client that plays it.

pip install 'envsuite[openenv]'
python examples/openenv_server.py BabyAI-goto-v0            # serves on port 8000
python examples/openenv_server.py http://localhost:8000     # plays one game with the first admissible command
"""

import sys

import uvicorn

from harness.interop.openenv import Client, Command, app

target = sys.argv[1]
if target.startswith("http"):
    with Client(target) as client:
        result = client.reset(seed=0)
        print(result.observation.objective)
        while not result.done:
            command = result.observation.admissible_commands[0]
            result = client.step(Command(command=command))
            print(f"> {command}\n{result.observation.text}")
        print(f"success: {result.observation.success}, reward: {result.reward}")
else:
    uvicorn.run(app(target), port=8000)
