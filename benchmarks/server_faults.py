"""Replies from a misbehaving loopback server: eight conversations at once, three faults of each kind.

python -m benchmarks.server_faults
"""

from __future__ import annotations

import time
import warnings

from envsuite.errors import EnvsuiteError
from harness.policies.openai import OpenAIPolicy
from harness.types import Prompt
from tests.api import server as misbehaving
from tests.api.server import Behaviour, cut, drip, garbage, hang, hang_up, refuse

FAULTS: dict[str, Behaviour] = {
    "none": misbehaving.answer("<action>look</action>"),
    "429, Retry-After 1": refuse(429, "slow down", Retry_After="1"),
    "500": refuse(500, "oops"),
    "503 in HTML": lambda handler: misbehaving.send(handler, 503, "<html>busy</html>"),
    "200 with garbage": garbage("<html>welcome</html>"),
    "hang": hang(3.0),
    "connection closed unanswered": hang_up,
    "answer cut in the middle": cut,
    "a byte every 0.1 s": drip,
    "400, too long": refuse(400, "maximum context length is 10 tokens"),
    "400, refused": refuse(400, "content filter"),
    "401": refuse(401, "Incorrect API key"),
    "404": refuse(404, "no such model"),
}


def main() -> None:
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    prompts = [Prompt(talk, seed=number, key=str(number)) for number in range(8)]
    print("| three answers of the server | requests | replies | broken | turns dropped | s | the run |")
    print("|---|--:|--:|--:|--:|--:|---|")
    for name, behaviour in FAULTS.items():
        with misbehaving.running() as server, warnings.catch_warnings():
            server.script = [behaviour] * 3
            who = OpenAIPolicy("small-model", base_url=server.url, timeout=1.0, first_pause=0.1)
            began = time.perf_counter()
            try:
                replies = who.act(prompts)
            except EnvsuiteError as error:
                print(f"| {name} | {len(server.requests)} | | | | {time.perf_counter() - began:.1f} | ends: {error} |")
                continue
            finally:
                who.close()
            seconds = time.perf_counter() - began
            broken = sum(bool(reply.error) for reply in replies)
            dropped = sum(reply.dropped_turns for reply in replies)
            print(
                f"| {name} | {len(server.requests)} | {len(replies) - broken} | {broken} | {dropped} | {seconds:.1f} "
                "| continues |"
            )


if __name__ == "__main__":
    main()
