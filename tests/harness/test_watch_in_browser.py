"""The live page of envsuite watch in headless Chromium."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envsuite import registry
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy
from harness.watch.server import PageServer, Runs
from tests import toys  # noqa: F401  registers the toys
from tests.api.server import answer, refuse, running, serving
from tests.harness.test_report_in_browser import ATTACK, CHROMIUM, browser, expect  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.timeout(900),  # a browser starts slowly on a loaded machine
]


@pytest.fixture
def opened(browser):  # noqa: F811
    """Opens the page of a folder; at the end, checks that no error occurred and no other address was asked."""
    wrong, contexts, servers = [], [], []

    def open_page(folder, width=1280):
        server = serving(PageServer(Runs(folder)))
        servers.append(server)
        address = server.__enter__().address
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}))
        page = contexts[-1].new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text))
        page.on(
            "request",
            lambda request: None if request.url.startswith((address, "data:")) else wrong.append(request.url),
        )
        page.goto(address)
        page.wait_for_selector("html[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    for server in servers:
        server.__exit__(None, None, None)
    assert not wrong


def test_a_run_is_shown_from_its_first_turn_to_its_end(opened, tmp_path):
    """Follows a real run whose server asks it to wait, until it has ended."""
    page = opened(tmp_path)
    expect(page.locator("#task")).to_have_text("No run yet")
    command = [sys.executable, "-m", "harness.cli.eval", "-m", "some/name", "-e", "HiLo-v0", "--module", "tests.toys"]
    command += ["-n", "3", "--served-model-name", "small-model", "--baselines", "none", "-o", str(tmp_path)]
    command += ["--max-retries", "100"]
    with running() as server:
        server.says = "<think>Low.</think><action>9</action>"  # no episode's number
        server.script = [answer(server.says)] * 4 + [refuse(429, "slow <b>down</b>", Retry_After="1")] * 1000
        process = subprocess.Popen([*command, "--base-url", server.url], cwd=ROOT, stderr=subprocess.DEVNULL)
        expect(page.locator("#task")).to_have_text("HiLo-v0")
        expect(page.locator("#facts")).to_contain_text("0 of 3 episodes")
        expect(page.locator("#facts")).to_contain_text("3 requests in flight")
        expect(page.locator("#retrying")).to_contain_text("answered 429: slow <b>down</b>")
        expect(page.locator("#playing tbody tr")).to_have_count(3)
        expect(page.locator("#playing tbody .words", has_text="9").first).to_be_visible()
        server.script = []
        expect(page.locator("#facts")).to_contain_text("3 of 3 episodes")
        expect(page.locator("#facts .chip").first).to_have_text("finished")
        assert process.wait() == 0
    expect(page.locator("#table tbody tr")).to_have_count(3)
    assert not page.locator("#playing").is_visible() and not page.locator("#broken").is_visible()
    page.locator("#table tbody tr").first.click()
    expect(page.locator("#v-body .turn .command").first).to_have_text("9")
    expect(page.locator("#v-body .thought").first).to_have_text("Low.")


def test_a_strangers_run_cannot_run_a_script_in_the_page(opened, tmp_path):
    config = RunConfig(registry.TASKS["HiLo-v0"], "random", episodes=2, knobs={"max_steps": 4})
    evaluate(config, tmp_path, lambda: make_policy("random"))
    folder = config.folder(tmp_path)
    attack = "</script>" + ATTACK + "\u202e"
    settings = json.loads((folder / "config.json").read_text())
    settings |= {"model": attack, "task": attack, "run_id": attack, "knobs": {attack: attack}}
    (folder / "config.json").write_text(json.dumps(settings))
    lines = [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()]
    for record in lines:
        record |= {"model": attack, "task": attack, "objective": attack, "first_observation": attack}
        record["labels"]["instance"] = attack
        record["steps"][0].update(reply=attack, observation=attack, commands=[attack], fault="invalid")
    lines[1] |= {"stop_reason": "broken", "error": attack}
    (folder / "journal.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))
    game = {"task": attack, "seed": 1, "attempt": 0, "turns": 2, "seconds": 0.5, "command": attack}
    numbers = ("episodes", "ended", "turns", "tokens", "in_flight", "turns_per_second", "tokens_per_second")
    beat = {**dict.fromkeys(numbers, 1), "retrying": 1, "pause": 1, "seconds_left": 3, "at_most": True}
    beat |= {"time": time.time() + 10, "reason": attack, "playing": [game]}
    (folder / "progress.json").write_text(json.dumps(beat))
    folder.rename(folder.with_name("<img src=x onerror='window.pwned = 3'>"))
    page = opened(tmp_path, width=360)
    for place in ("#task", "#name", "#retrying", "#errors", "#playing", "#table", "#runs"):
        expect(page.locator(place)).to_contain_text("<script>window.pwned")
    expect(page.locator("#task")).to_contain_text("\\u202e")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator("#table tbody tr").last.click()
    expect(page.locator("#v-body")).to_contain_text("<script>window.pwned")
    assert page.evaluate("window.pwned") is None and page.locator("img").count() == 0
