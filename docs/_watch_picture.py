"""Takes the picture of the live page: docs/images/watch.png. Needs Chromium.

    make gallery

The page follows a real run against a local server that picks commands at random and sometimes asks
to wait.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from envsuite import registry
from harness.evaluate import Execution, RunConfig, evaluate
from harness.policies import make_policy
from harness.watch.server import PageServer, Runs
from tests.api.server import answer, refuse, running, serving

PICTURE = Path(__file__).parent / "images" / "watch.png"
TASK = "Overcooked-tomato_lettuce_salad-v0"
SIZE = {"width": 1100, "height": 860}
EPISODES = 40
ENDED = 9
"""number of episodes after which the picture is taken"""


def reply(body: dict[str, Any]) -> str:
    """Returns a command that the last message lists, chosen by the conversation's length and seed."""
    listed = body["messages"][-1]["content"].partition("Admissible commands: ")[2]
    return f"<action>{random.Random(body['seed']).choice(listed.split(', '))}</action>"


def behave(handler: Any) -> None:
    """Answers after a moment; asks one request in fifteen to wait."""
    chance = random.Random(str(handler.body["seed"]) + str(len(handler.server.requests)))
    time.sleep(chance.uniform(0.05, 0.4))
    if chance.random() < 1 / 15:
        refuse(429, "rate limit reached for small-model", Retry_After="3")(handler)
    else:
        answer(reply(handler.body))(handler)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running() as server:
        server.script = [behave] * 100_000
        config = RunConfig(registry.TASKS[TASK], "small-model", episodes=EPISODES, max_turns=20)
        policy = make_policy("openai:small-model", base_url=server.url)
        ended: list[Any] = []
        play = threading.Thread(
            target=evaluate,
            args=(config, Path(folder), lambda: policy, Execution(max_concurrent=8)),
            kwargs={"on_episode": lambda record, run: ended.append(record)},
            daemon=True,
        )
        play.start()
        with serving(PageServer(Runs(Path(folder)))) as pages, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport=SIZE)
            page.goto(pages.address)
            while len(ended) < ENDED or not page.locator("#retrying").is_visible():
                page.wait_for_timeout(100)
            page.evaluate("folder => { document.querySelector('#lead').textContent = folder; }", "runs/…")
            page.screenshot(path=PICTURE)
            browser.close()
        server.script = []
    print(PICTURE)


if __name__ == "__main__":
    main()
