"""The report page in headless Chromium."""

import json
import re
import shutil

import pytest

from envsuite import registry
from harness import report
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy
from harness.stats.summary import percent, summarise
from tests import toys  # noqa: F401

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
    pytest.mark.timeout(900),  # a browser starts slowly on a loaded machine
]
ATTACK = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>"


@pytest.fixture(scope="module")
def browser():
    driver = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with driver.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=180_000)
        yield chromium
        chromium.close()


def played(folder, model, task, episodes, **settings):
    config = RunConfig(registry.TASKS[task], model, episodes=episodes, **settings)
    evaluate(config, folder, lambda: make_policy(model))
    return config.folder(folder)


def stored(folder):
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def rewrite(folder, lines):
    (folder / "results.jsonl").write_text("".join(json.dumps(record) + "\n" for record in lines))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of the random player, the expert, and a model whose name and texts contain an HTML attack."""
    root = tmp_path_factory.mktemp("runs")
    folders = [played(root, model, "HiLo-v0", 40, knobs={"max_steps": 4}) for model in ("random", "expert")]
    hostile = played(root / "hostile", "random", "HiLo-v0", 40, knobs={"max_steps": 4})
    config = json.loads((hostile / "config.json").read_text())
    (hostile / "config.json").write_text(json.dumps({**config, "model": ATTACK}))
    lines = stored(hostile)
    for record in lines:
        record["labels"]["instance"] = "pick_heat_then_place_in_recep-Plate-None-SideTable-3/seed_1000000"
        record.update(model=ATTACK, objective=ATTACK, first_observation="</script>" + ATTACK)
        record["steps"][0].update(reply=ATTACK, observation=ATTACK)
    rewrite(hostile, lines)
    return [*folders, hostile]


@pytest.fixture(scope="module")
def page_file(runs, tmp_path_factory):
    training = tmp_path_factory.mktemp("training") / "ppo"
    training.mkdir()
    lines = [{"kind": "eval", "update": u, "n": 50, "success": u / 10, "low": u / 20, "high": 0.5} for u in range(6)]
    (training / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    file = training.parent / "report.html"
    file.write_text(report.render(report.gather([*runs, training]), replays=4))
    return file


@pytest.fixture
def opened(browser, page_file):
    """Opens the report in a new page; at the end, checks that no request and no error occurred."""
    contexts, wrong = [], []

    def open_page(file=page_file, width=1280, height=900, at="", **options):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on(
            "request",
            lambda request: None if request.url.startswith(("file:", "data:", "blob:")) else wrong.append(request.url),
        )
        page.goto(file.as_uri() + at)
        page.wait_for_selector("html[data-ready]")
        return page

    open_page.wrong = wrong
    yield open_page
    for context in contexts:
        context.close()
    assert not wrong


def rows(page):
    return page.locator("#table tbody tr")


def column(page, place):
    return page.locator(f"#table tbody td:nth-child({place + 1})").all_inner_texts()


def view(page):
    """Opens the episode of the first row and waits for the dialog, which opens after decoding."""
    rows(page).first.click()
    page.wait_for_selector("dialog[open]")


def expect(locator):
    from playwright.sync_api import expect

    expect.set_options(timeout=60_000)
    return expect(locator)


def counts(page, start):
    expect(page.locator("#count")).to_have_text(re.compile("^" + start))


def test_numbers_on_the_page_equal_the_summary(opened, runs):
    page = opened()
    cells = page.locator(".summary tbody tr").all_inner_texts()
    summaries = [next(cell for cell in cells if name in cell) for name in ("random", "expert", "<script>")]
    for folder, cell in zip(runs, summaries, strict=True):
        assert percent(summarise(stored(folder))["success"]) in " ".join(cell.split())
    kinds = page.locator(".kind h4").all_inner_texts()
    assert kinds == ["even", "odd"]
    assert page.locator("svg.curve circle").count() == 6
    assert "50.0 [25.0, 50.0] n=50 after update 5" in page.locator(".legend").inner_text()


def test_filters_and_search_narrow_the_table(opened, runs):
    page = opened()
    assert page.locator("#count").inner_text().startswith("120 of 120 episodes")
    page.select_option("#by-run", label="random")
    losses = [record for record in stored(runs[0]) if not record["success"]]
    page.select_option("#by-ending", label="max_steps")
    counts(page, f"{len(losses)} of 120")
    expect(rows(page)).to_have_count(len(losses))
    page.locator("button[type=reset]").click()
    page.fill("#search", "seed:1000003 expert")
    counts(page, "1 of 120")
    page.fill("#search", "")
    page.select_option("#by-fault", "any")
    counts(page, "0 of 120")
    page.select_option("#by-fault", "")
    page.select_option("#by-kind", "parted")
    counts(page, f"{3 * len(losses)} of 120")


def test_seed_search_matches_complete_seeds_only(opened, runs):
    page = opened()
    page.fill("#search", "seed:")
    counts(page, "120 of 120")  # no seed given yet
    page.fill("#search", "seed:100000")
    counts(page, "0 of 120")  # a prefix of every seed, but not a seed
    page.fill("#search", "seed:1000003")
    counts(page, "3 of 120")  # one game, three runs
    place = page.locator("#table thead th").all_inner_texts().index("seed")
    assert set(column(page, place)) == {"1000003"}
    of_seed = [record for folder in runs for record in stored(folder) if record["seed"] == 1000003]
    matches = [record for record in of_seed if any("higher" in step["observation"].lower() for step in record["steps"])]
    page.fill("#search", "seed:1000003 higher")
    page.locator("#deep").click()
    expect(page.locator("#count")).to_contain_text("found in transcripts")
    counts(page, f"{len(matches)} of 120")


def test_the_url_opens_an_episode_and_follows_navigation(opened, runs):
    def titled(number):
        record = stored(runs[number // 40])[number % 40]
        expect(page.locator("#v-title")).to_have_text(re.compile(rf"seed {record['seed']}$"))
        assert page.evaluate("location.hash") == f"#e={number}"

    page = opened(at="#e=57")
    page.wait_for_selector("dialog[open]")
    titled(57)
    page.keyboard.press("ArrowRight")
    titled(58)
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    expect(page).to_have_url(re.compile("#episodes$"))
    page.select_option("#by-run", label="expert")
    counts(page, "40 of 120")
    page.evaluate("location.hash = '#e=3'")  # an episode of another run resets the filters
    page.wait_for_selector("dialog[open]")
    titled(3)
    counts(page, "120 of 120")
    page.keyboard.press("ArrowRight")
    titled(4)


def test_a_url_of_an_unknown_episode_opens_no_dialog(opened):
    page = opened(at="#e=120")
    counts(page, "120 of 120")
    page.wait_for_timeout(200)
    assert page.locator("dialog[open]").count() == 0


def test_the_first_turn_is_marked_when_an_episode_opens(opened, runs):
    def marked():
        colour = "getComputedStyle(document.querySelector('#v-body .here .no')).backgroundColor"
        assert page.evaluate(colour) != "rgba(0, 0, 0, 0)"  # visible
        return page.locator("#v-body .here .no").all_inner_texts()

    page = opened()
    page.select_option("#by-run", label="random")
    page.select_option("#by-ending", label="max_steps")
    view(page)
    assert marked() == ["1"]
    page.keyboard.press("k")
    assert marked() == ["1"]
    for _ in range(2):
        page.keyboard.press("j")
    assert marked() == ["3"]
    first = page.locator("#v-title").inner_text()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#v-title")).not_to_have_text(first)
    assert marked() == ["1"]
    page.select_option("#v-versus", label="✓ expert")
    page.wait_for_selector(".duo.turn-row")
    assert marked() == ["1"]


def test_a_column_sorts_both_ways(opened):
    page = opened()
    for turns in (sorted, lambda counts: sorted(counts, reverse=True)):
        page.get_by_role("button", name="turns").click()
        place = page.locator("#table thead th").all_inner_texts().index("turns")
        numbers = [int(cell) for cell in column(page, place)]
        assert numbers == turns(numbers) and len(set(numbers)) > 1


def test_an_episode_shows_the_recorded_turns_and_the_experts_commands(opened, runs):
    page = opened()
    page.select_option("#by-run", label="random")
    page.select_option("#by-kind", "replayed")
    view(page)
    title = page.locator("#v-title").inner_text()
    record = next(candidate for candidate in stored(runs[0]) if f"seed {candidate['seed']}" in title)
    turns = page.locator("#v-body .turn")
    assert turns.count() == record["num_turns"] + 1
    commands = page.locator("#v-body .command").all_inner_texts()
    assert commands == [command for step in record["steps"] for command in step["commands"]]
    seen = page.locator("#v-body .seen").all_inner_texts()
    assert seen == [record["first_observation"], *(step["observation"] for step in record["steps"])]
    secret = make_secret(record["seed"])
    for place, command in enumerate(commands):
        beside = turns.nth(place).locator(".said").inner_text()
        assert ("as the expert" if command == secret else f"expert: {secret}") in beside


def make_secret(seed):
    env = registry.build("HiLo-v0")
    env.reset(seed=seed)
    return env.expert()


def test_the_page_is_usable_from_the_keyboard(opened):
    page = opened()
    page.keyboard.press("/")
    page.keyboard.type("random max_steps")
    counts(page, "[1-9][0-9]? of 120")
    page.keyboard.press("Escape")
    for key in ("j", "j", "Enter"):
        page.keyboard.press(key)
    page.wait_for_selector("dialog[open]")
    first = page.locator("#v-title").inner_text()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#v-title")).not_to_have_text(first)
    page.keyboard.press("j")
    assert page.locator(".turn.here .no").inner_text() == "2"
    assert page.locator("#search").input_value() == "random max_steps"
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    # The browser returns the focus to row 1; the page then moves it to the last opened episode.
    expect(page.locator("[data-position='2']:focus")).to_have_count(1)


def test_a_key_pressed_right_after_a_search_uses_the_filtered_rows(opened):
    """Sends the keys in the same task as the search, faster than any user could."""
    page = opened()
    page.focus("#search")
    page.evaluate(
        """() => {
          const search = document.querySelector("#search");
          search.value = "random max_steps";
          search.dispatchEvent(new Event("input", { bubbles: true }));
          const options = { bubbles: true, cancelable: true };
          for (const key of ["Escape", "j", "j"])
            document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, ...options }));
        }"""
    )
    counts(page, "[1-9][0-9]? of 120")
    page.wait_for_timeout(200)  # longer than the search debounce
    assert page.evaluate("document.activeElement.dataset.position") == "1"


def test_two_runs_of_one_game_are_compared_up_to_the_first_difference(opened, runs):
    page = opened()
    seed = next(record["seed"] for record in stored(runs[0]) if not record["success"])
    page.fill("#search", f"seed:{seed}")
    page.select_option("#by-run", label="random")
    counts(page, "1 of")
    view(page)
    page.select_option("#v-versus", label="✓ expert")
    page.wait_for_selector(".duo.turn-row")
    mine, theirs = (next(record for record in stored(folder) if record["seed"] == seed)["steps"] for folder in runs[:2])
    parted = next(turn for turn, step in enumerate(mine, 1) if len(theirs) < turn or step != theirs[turn - 1])
    assert page.locator(".parting").inner_text() == f"They part at turn {parted}."
    assert page.locator(".duo.turn-row").count() == max(len(mine), len(theirs))
    assert page.locator(".theirs .command").all_inner_texts() == [step["commands"][0] for step in theirs]


def test_model_output_is_rendered_as_text(opened):
    page = opened()
    page.select_option("#by-run", index=3)
    view(page)
    assert page.locator("#v-objective").inner_text() == ATTACK
    page.get_by_text("Reply as written").first.click()
    written = page.locator("#v-body details[open]").first
    expect(written).to_be_visible()
    expect(written.get_by_text(ATTACK, exact=True)).to_have_count(1)
    page.wait_for_timeout(200)
    assert page.evaluate("window.pwned") is None
    assert page.locator("img").count() == 0
    # Injected markup would not run either: the content security policy allows only the page's script.
    assert not opened.wrong
    with page.expect_console_message(lambda message: "Content Security Policy" in message.text):
        page.evaluate(
            "() => { const s = document.createElement('script'); s.textContent = 'pwned = 3'; document.body.append(s) }"
        )
    assert page.evaluate("window.pwned") is None
    (refused,) = opened.wrong
    assert "Content Security Policy" in refused
    opened.wrong.clear()


@pytest.mark.parametrize("task", ["Overcooked-tomato_salad-v0", "VirtualHome-food_preparation-v0", "BabyAI-goto-v0"])
def test_scene_images_are_shown_with_the_turns(opened, tmp_path, task):
    folder = played(tmp_path, "expert", task, 1)
    file = tmp_path / "report.html"
    file.write_text(report.render(report.gather([folder])))
    page = opened(file)
    view(page)
    (record,) = stored(folder)
    pictures = page.locator(".turn img")
    assert pictures.count() == record["num_turns"] + 1
    pictures.last.scroll_into_view_if_needed()
    expect(pictures.last).to_have_js_property("complete", True)
    assert pictures.last.evaluate("image => image.naturalWidth") > 50
    assert len({picture.get_attribute("src") for picture in pictures.all()}) > 1
    assert page.locator(".chip", has_text="as the expert").count() == record["num_turns"]


@pytest.mark.parametrize("width", [360, 768])
def test_nothing_overflows_a_narrow_screen(opened, width):
    page = opened(width=width, height=740)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    link, theme = (page.locator(place).bounding_box() for place in (".top nav a[href='#episodes']", "#theme"))
    assert link["x"] + link["width"] <= theme["x"] or link["y"] + link["height"] <= theme["y"], "the button covers it"
    page.select_option("#by-run", index=3)
    view(page)
    for chip in page.locator("#v-facts .chip").all():
        box = chip.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= width, chip.inner_text()
    assert page.evaluate(
        "document.querySelector('#v-body').scrollWidth <= document.querySelector('#v-body').clientWidth"
    )
    box = page.locator("#v-close").bounding_box()
    assert box["x"] + box["width"] <= width


def test_the_theme_follows_the_system_and_the_button_switches_it(opened):
    colour = "getComputedStyle(document.body).backgroundColor"
    light, dark = opened(color_scheme="light"), opened(color_scheme="dark")
    assert light.evaluate(colour) != dark.evaluate(colour)
    expected = dark.evaluate(colour)
    light.locator("#theme").click()
    assert light.evaluate(colour) == expected


def test_thousands_of_episodes_are_stored_in_chunks_and_decoded_on_demand(opened, runs, tmp_path):
    lines = stored(runs[0])
    many = [{**lines[number % len(lines)], "seed": number} for number in range(4000)]
    needle = next(number for number in range(3000, 4000) if many[number]["num_turns"] > 1)
    many[needle] = json.loads(json.dumps(many[needle]))
    many[needle]["steps"][0]["observation"] = "a needle in the hay"
    folder = tmp_path / "many"
    folder.mkdir()
    shutil.copy(runs[0] / "config.json", folder)
    rewrite(folder, many)
    file = tmp_path / "report.html"
    file.write_text(report.render(report.gather([folder]), replays=0))
    page = opened(file)
    assert page.locator("script[type='text/plain']").count() > 3
    expect(rows(page)).to_have_count(150)
    page.locator("#more").scroll_into_view_if_needed()
    expect(rows(page)).to_have_count(300)
    page.fill("#search", "a needle in")
    page.locator("#deep").click()
    expect(page.locator("#count")).to_contain_text("found in transcripts")
    expect(rows(page)).to_have_count(1)
    view(page)
    assert f"seed {needle}" in page.locator("#v-title").inner_text()


def test_a_narrow_table_shows_the_task_if_there_are_several(opened, runs, tmp_path):
    signposts = played(tmp_path, "random", "Signpost-v0", 3)
    file = tmp_path / "report.html"
    file.write_text(report.render(report.gather([runs[0], signposts]), replays=0))
    wide, narrow = opened(file), opened(file, width=360, height=740)
    assert not wide.locator("#table .under").first.is_visible()
    for page in (wide, narrow):
        headings = [head.inner_text() for head in page.locator("#table thead th").all() if head.is_visible()]
        assert ("task" in headings) == ("objective" in headings) == (page is wide)
    assert {name.inner_text() for name in narrow.locator("#table .under").all()} == {"HiLo-v0", "Signpost-v0"}
