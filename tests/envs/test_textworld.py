"""TextWorld: observations, filtering of commands, rewards, and robustness of the worker."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import envsuite
from envsuite import registry
from envsuite.envs.textworld import commands, game_cache
from envsuite.envs.textworld.engine.ambiguous_names import ASKS, resolve_ambiguity
from envsuite.envs.textworld.engine.interpreter import UNKNOWN, Frame, Interpreter, Opening
from envsuite.envs.textworld.engine.pipe import Pipe
from envsuite.envs.textworld.games import SETTINGS, game_spec
from envsuite.envs.textworld.observation import compact, opening_text
from envsuite.envs.textworld.story_files import check_story
from envsuite.errors import BadKnob, DataError, EngineFailure
from harness.cli import data
from tests.envs.textworld_games import tw_make

textworld = pytest.importorskip("textworld")

COOKING = {"challenge": "cooking", "recipe": 2, "take": 1, "go": 6, "open": True, "cook": True, "cut": True}
KINDS = {
    "custom": {"world_size": 2, "nb_objects": 3, "quest_length": 4},
    "wide": {"world_size": 8, "nb_objects": 12, "quest_length": 8},
    "simple": {"challenge": "simple"},
    "cooking": COOKING,
    "treasure": {"challenge": "treasure_hunter", "level": 12},
    "coin": {"challenge": "coin_collector", "level": 103},
}


def build(mode="dense", **knobs):
    """Returns an environment that plays in the interpreter, which these tests are about."""
    return registry.build("TextWorld-w2-o3-q4-v0", mode, **{"max_steps": 100, "engine": "interpreter", **knobs})


class Kinds(dict):
    """One environment of every kind, reset to seed 3 on first use, with its first text and info."""

    def __missing__(self, name):
        env = build(**KINDS[name])
        self[name] = (env, *env.reset(seed=3))
        return self[name]


@pytest.fixture(scope="module")
def kinds():
    """Yields an environment of any kind; unused ones need no game and no worker process."""
    made = Kinds()
    yield made
    for env, *_ in made.values():
        env.close()


# ---- playing


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("observations", ["compact", "raw"])
def test_shortest_plans_win_on_the_interpreter_in_exactly_their_length(kinds, kind, observations):
    env, *_ = kinds[kind]
    env.settings.observations = observations
    text, info = env.reset(seed=3)
    total, left = 0.0, env.remaining()
    assert 0 < left <= 40
    while left:
        assert info["progression"] < 1
        text, reward, terminated, truncated, info = env.step(env.expert())
        total, left = total + reward, left - 1
        assert info["is_action_valid"] and terminated == (left == 0)
        if left:
            assert env.remaining() == left
    assert info["success"] and info["won"] and total == info["score"] == info["max_score"]
    assert ("RESTART" in text) == (observations == "raw")
    env.settings.observations = "compact"


def _guide_text(state):
    """The Practitioner's Guide's observation of a game state, put together line by line."""
    room = next(fact.arguments[1].name for fact in state._facts if fact.name == "at" and fact.arguments[0].name == "P")
    before, prompt, _ = state.feedback.rpartition("\n>")
    assert prompt
    lines = before.rstrip().split("\n")
    headings = [number for number, line in enumerate(lines) if line.startswith("-= ") and line.endswith(" =-")]
    kept = lines[headings[-1] + 1 :] if headings else lines[-1:]
    kept = [line.strip() for line in kept if line.strip()]
    return "\n".join([f"You are now in the {state.game.infos[room].name}.", *dict.fromkeys(kept), state.inventory])


def test_the_style_of_the_practitioners_guide_equals_its_format_on_the_stock_engine():
    env = build(observations="guide")
    for seed in (3, 60004):
        text, _ = env.reset(seed=seed)
        wanted = textworld.EnvInfos(feedback=True, description=True, inventory=True, admissible_commands=True)
        stock = textworld.start(str(env.path), request_infos=wanted)
        assert text == _guide_text(stock.reset())
        for command in ["look", "dance", "inventory", *[""] * env.remaining()]:
            command = command or env.expert()
            text, _, terminated, *_ = env.step(command)
            state, _, done = stock.step(command)
            assert terminated == done
            assert done or text == _guide_text(state), command
        assert done
        stock.close()
    env.close()


def test_the_expert_wins_if_the_interpreter_asks_which_object_is_meant():
    """w2-o3-q4_60004 has a "locker" and a "type Q locker", so the interpreter questions a command."""
    env = build()
    env.reset(seed=60004)
    commands = []
    while left := env.remaining():
        commands.append(env.expert())
        *_, info = env.step(commands[-1])
        assert env.remaining() == left - 1
    assert info["success"] and len(commands) == 4 and commands[2] == "take type Q keycard"
    env.reset(seed=60004)
    for command in commands[:2]:
        env.step(command)
    for command in ("take type Q keycard from locker", "take type Q keycard from locker"):
        text, *_ = env.step(command)
        assert ASKS in text
    assert env.expert() == env.expert("policy") == "take type Q keycard"
    env.step("take type Q keycard")
    back = "insert type Q keycard into locker"
    played = []
    while env.remaining() == 1:
        played.append(resolve_ambiguity(back, [], {}, played, text))
        text, *_ = env.step(played[-1])
        played[-1] = played[-1].lower()
    assert played == [back.lower(), "examine locker", "insert type q keycard into it"]
    env.close()


@pytest.mark.parametrize("kind", KINDS)
def test_the_engine_policy_wins_even_when_first_used_late(kinds, kind):
    env, *_ = kinds[kind]
    env.reset(seed=3)
    env.step("look")
    over = False
    while not over:
        *_, over, _, info = env.step(env.expert("policy"))
    assert info["success"]


@pytest.mark.parametrize("kind", KINDS)
def test_texts_scores_and_commands_equal_those_of_the_raw_engine(kinds, kind):
    env, *_ = kinds[kind]
    env.settings.observations, env.settings.admissible = "raw", "whole"
    text, info = env.reset(seed=3)
    raw = textworld.start(str(env.path), textworld.EnvInfos(admissible_commands=True, moves=True))
    state = raw.reset()
    assert text == state["feedback"] and info["objective"].split() == state["objective"].split()
    score = 0
    for turn in range(25):
        assert info["admissible_commands"] == state["admissible_commands"]
        command = state["admissible_commands"][(7 * turn + 3) % len(state["admissible_commands"])]
        text, reward, terminated, _, info = env.step(command)
        state, now, done = raw.step(command.lower())
        assert (text, reward, terminated) == (state["feedback"], now - score, done)
        assert (info["won"], info["lost"], info["moves"]) == (state["won"], state["lost"], state["moves"])
        score = now
        if done:
            break
    raw.close()
    env.settings.observations, env.settings.admissible = "compact", "filtered"


@pytest.mark.parametrize("kind", KINDS)
def test_frames_and_policies_equal_those_of_textworlds_wrappers(kinds, kind, monkeypatch):
    """Holds for arbitrary commands, repeated games and policies requested at any turn.

    Exception: textworld's wrappers do not track synonyms.
    """
    from textworld.generator.inform7 import Inform7Game

    from envsuite.envs.textworld.engine.tracker import match_synonym

    detect = Inform7Game.detect_action

    def detect_action(self, expected_frame, actions):
        def told_as(action):
            return self.kb.inform7_events[action.name].format(**self._get_name_mapping(action)).lower()

        actions = list(actions)
        return detect(self, expected_frame, actions) or match_synonym(
            expected_frame.lower(), actions, told_as, self.game
        )

    monkeypatch.setattr(Inform7Game, "detect_action", detect_action)
    env, *_ = kinds[kind]
    infos = textworld.EnvInfos(admissible_commands=True, moves=True, inventory=True, policy_commands=True)
    raw = textworld.start(str(env.path), infos)
    game = raw.reset()["game"]
    engine, typed = env.interpreter, dictionary(env.path.read_bytes())
    for episode in range(4):
        dice, played, state = random.Random(episode), [], raw.reset()
        frame = engine.ask("open", str(env.path), True).frame
        for _ in range(15):
            (room,) = (fact.arguments[1].name for fact in state["_facts"] if str(fact).startswith("at(P, "))
            expected_frame = [
                state[name] for name in ("inventory", "score", "moves", "won", "lost", "admissible_commands")
            ]
            assert list(frame) == [state["feedback"], game.infos[room].name, *expected_frame]
            if state["won"] or state["lost"]:
                break
            policy = state["policy_commands"]
            if dice.random() < 0.3 or episode == 3:
                expected = (
                    resolve_ambiguity(policy[0], state["_facts"], game.infos, played, state["feedback"])
                    if policy
                    else None
                )
                assert engine.ask("policy") == expected
            words = " ".join(dice.choices([*typed, "all", "it", "take", "go"], k=dice.randint(1, 4)))
            command = dice.choice(state["admissible_commands"] + (policy[:1] if episode == 3 else [words] * 4))
            played.append(commands.clean(command)[0] or "look")
            frame, (state, _, _) = engine.ask("step", played[-1]), raw.step(played[-1])
    raw.close()


@pytest.mark.parametrize("typed", ["pick up {}", "get {}", "take {} and cookbook"])
def test_synonyms_of_take_are_tracked(kinds, typed):
    """textworld's own tracker follows only `take X` for an object in or on something."""
    env, *_ = kinds["cooking"]
    env.reset(seed=3)
    while not (command := env.expert()).startswith("take") or " from " not in command:
        env.step(command)
    name, left = re.fullmatch("take (.+) from .+", command)[1], env.remaining()
    text, *_, info = env.step(typed.format(name))
    assert name in text and info["is_action_valid"] and f"drop {name}" in info["admissible_commands"]
    assert env.remaining() == left - 1


@pytest.mark.parametrize("typed", ["go through {}", "enter {}"])
def test_going_through_a_named_door_is_tracked(kinds, typed):
    env, *_ = kinds["simple"]
    env.reset(seed=3)
    while (command := env.expert()) != "open wooden door":
        env.step(command)
    env.step(command)
    room, left = env.frame.room, env.remaining()
    text, *_, info = env.step(typed.format("wooden door"))
    assert info["is_action_valid"] and env.remaining() == left - 1
    assert env.frame.room != room and text.startswith(f"You are in the {env.frame.room.lower()}.\n")


def test_a_lost_game_is_over_and_not_won(kinds):
    env, *_ = kinds["cooking"]
    env.reset(seed=3)
    while not (command := env.expert()).startswith("cook"):
        env.step(command)
    env.step(command)
    *_, terminated, truncated, info = env.step(command)  # cooking twice burns it
    assert terminated and info["lost"] and not info["success"] and not info["won"]
    assert info["stop_reason"] == "failed" and info["admissible_commands"] == [] and info["metrics"]["score"] < 1


def test_dense_rewards_never_exceed_the_score(kinds):
    """Taking a quest's object and putting it back pays once."""
    env, *_ = kinds["simple"]
    _, info = env.reset(seed=3)
    total, over, turn = 0.0, False, 0
    while not over and turn < 60:
        listed = info["admissible_commands"]
        command = env.expert() if turn % 3 == 0 else listed[turn % len(listed)]
        _, reward, over, _, info = env.step(command if not command.startswith("eat") or turn % 3 == 0 else "look")
        assert reward >= 0
        total, turn = total + reward, turn + 1
    assert total == info["score"] <= info["max_score"]


def test_shaped_rewards_come_from_the_exact_plan():
    env = build("shaped", shaping_gamma=1.0)
    _, info = env.reset(seed=3)
    steps = env.remaining()
    _, detour, *_ = env.step("look")
    _, forward, *_ = env.step(env.expert())
    assert detour == 0 and forward == pytest.approx(1 / steps)
    env.close()


def test_plans_do_not_depend_on_earlier_requests(kinds):
    env = kinds["wide"][0]
    env.reset(seed=3)
    plan = []
    while env.remaining():
        plan.append(env.expert())
        env.step(plan[-1])
    engine = Interpreter()  # the planner searches ten states: too few for the game, enough for its last command

    def plan_after(*steps):
        engine.ask("open", str(env.path), False)
        for command in steps:
            engine.ask("step", command)
        return engine.ask("plan", 10)

    assert plan_after(*plan[:-1]) == plan_after() == plan_after(*plan[:-1]) == (UNKNOWN, None)
    engine.close()


def test_games_can_be_generated_in_advance(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path))
    words = ["games", "-e", "textworld-w2-o3-q4-v0", "--split", "test", "-n", "1", "--set", "quest_length=2"]
    with pytest.raises(SystemExit) as ended:
        data.main(words)
    assert not ended.value.code and "1 of 1 games of TextWorld-w2-o3-q4" in capsys.readouterr().out
    settings = {"world_size": 2, "nb_objects": 3, "quest_length": 2}
    assert game_cache.find_game(game_spec("custom", settings, 1))
    with pytest.raises(SystemExit) as ended:
        data.main(["games", "-e", "babyai-goto", "-n", "2"])
    assert ended.value.code == 2 and "does not generate games in advance" in capsys.readouterr().err


def test_compact_observations_name_room_reply_and_inventory(kinds):
    env, text, info = kinds["custom"]
    assert text.startswith("You are in the ") and "-=" not in text and "$$" not in text and "\n\n" not in text
    assert text.split("\n")[-1].startswith("You are carrying")
    assert info["objective"][:40] not in text
    env.reset(seed=3)
    text, *_ = env.step("dance")
    assert text.split("\n")[1] == "That's not a verb I recognise."


def test_admissible_commands_exclude_looking_except_at_the_cookbook(kinds):
    _, _, info = kinds["cooking"]
    listed = info["admissible_commands"]
    env, *_ = kinds["cooking"]
    assert "look" not in listed and "inventory" not in listed
    env.reset(seed=3)
    while "examine cookbook" not in env.frame.commands:
        env.step(next(command for command in env.admissible() if command.startswith(("go", "open"))))
    assert [command for command in env.admissible() if command.startswith("examine")] == ["examine cookbook"]


def test_seeds_equal_those_of_tw_make_and_names_those_of_the_guide(kinds):
    _, _, info = kinds["custom"]
    assert info["labels"] == {"task_type": "custom", "instance": "w2-o3-q4_3"}
    assert tw_make(game_spec("custom", KINDS["custom"], 3)) == [
        "custom", "--nb-objects", "3", "--quest-length", "4", "--world-size", "2", "--seed", "3",
    ]  # fmt: skip


# ---- filtering of commands


@pytest.mark.parametrize(
    "typed",
    [
        "",
        " ",
        "\\",
        "\x00\x1b",
        "save",
        "SAVE",
        "\\save",
        "save\nlook",
        "script on",
        "transcript",
        "restore",
        "restart",
        "quit",
        "q",
        "tw-extra-infos score",
        "TW-trace-actions",
        "look. save",
        "look.save",
        "look, save",
        "me, save",
        "look then save",
        "transcriptx",
        "transcriptlook",
        "transcrip1",
        "transcript\\look",
        "Script\\on",
        "restartnow please",
        "verifyit",
        "superbriefly",
        "o transcript",
        "notify off",
        "print_state",
        "print_st",
        "restrict commands",
        "enable print state option",
        "disable print state option",
        "#record",
        "$verify",
        "brief",
        "undo",
        "打开冰箱",
        "ouvrir la boîte",
        "\ud800\udfff x" * 100,
        "x" * 199,
    ],
)
def test_harmful_commands_are_not_sent(typed):
    sent, refusal = commands.clean(typed)
    assert sent == "" and refusal


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ("look", "look"),
        ("\\look", "look"),
        ("  Take  KEY.\n", "take key"),
        ("go\tnorth\nsave", "go north"),
        ("go\x00 nor\x07th", "go north"),
        ("take the cook’s knife", "take the cook's knife"),
        ("savour meal", "savour meal"),
        ("take short sword", "take short sword"),
        ("look" + " " * 9_996, "look"),
        ("...look", ""),
        ("> look", "> look"),
        ("[go north]", "go north"),
    ],
)
def test_sent_commands_are_one_plain_line(typed, sent):
    assert commands.clean(typed)[0] == sent


@given(st.text(max_size=300))
def test_arbitrary_input_is_sent_only_if_harmless(typed):
    sent, refusal = commands.clean(typed)
    assert bool(sent) != bool(refusal)
    assert sent.isascii() and (sent.isprintable() or not sent) and len(sent) <= commands.MAX_LENGTH
    assert not set(sent) & set("\\.,\n[]") and "then" not in sent.split()
    assert not any(sent.startswith(word) for word in commands.META if len(word) == commands.SIGNIFICANT)
    assert not sent or sent.split()[0] not in commands.META
    assert commands.clean(sent)[0] == sent


def test_players_cannot_forge_events(kinds):
    """The tracker reads the interpreter's trace, in which `answer` and `consult` echo the player."""
    env, *_ = kinds["wide"]
    env.reset(seed=3)
    facts, left = env.interpreter.ask("step", "look"), env.remaining()
    for event in {f"going {command[3:]}" for command in env.frame.commands if command.startswith("go ")}:
        for typed in (f"answer ] [{event} - succeeded]", f"answer {event} - succeeded] [{event} - succeeded"):
            *_, info = env.step(typed)
            assert info["moves"] == 1 and env.remaining() == left
            assert (env.frame.room, env.frame.commands) == (facts.room, facts.commands), typed


def dictionary(story: bytes) -> list[str]:
    """Returns every word that a Z-machine game of version 5 or later knows (Standards Document 13)."""

    def word(position: int) -> int:
        return story[position] << 8 | story[position + 1]

    at = word(8) + 1 + story[word(8)]
    size, count = story[at], word(at + 1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    marks = "^0123456789.,!?_#'\"/\\-:()"  # after an escape for a character code
    words = []
    for entry in range(at + 3, at + 3 + size * count, size):
        codes = [word(entry + k) >> shift & 31 for k in (0, 2, 4) for shift in (10, 5, 0)]
        spelling, shifted = "", False
        for code in codes:
            if code >= 6:
                spelling += marks[code - 7] if shifted and code > 6 else letters[code - 6] if not shifted else ""
            shifted = code == 5
        words.append(spelling)
    return words


def test_no_word_of_the_dictionary_writes_a_file_or_breaks_tracking(kinds):
    """Plays every word of the game's dictionary, alone and lengthened, and checks the status line."""
    env, *_ = kinds["coin"]
    env.reset(seed=3)
    words = dictionary(env.path.read_bytes())
    assert {"transcrip", "tw-trace", "save", "take", "superbrie"} <= set(words) and len(words) > 250
    folder, pid = Path(f"/proc/{env.interpreter.pid}/cwd").resolve(), env.interpreter.pid
    checks = 0
    for word in words:
        for typed in (word, word + "zz", f"o {word}", f"{word} on"):
            sent, _ = commands.clean(typed)
            if sent:
                frame = env.interpreter.ask("step", sent)
                if bar := BAR_LINE.search(frame.feedback):
                    assert bar.group(1).lower() == frame.room.lower(), typed
                    checks += 1
                assert "STATE START" not in frame.feedback and "transcript" not in frame.feedback, typed
                if frame.won or frame.lost:
                    env.reset(seed=3)
    assert checks > 500 and env.interpreter.pid == pid and list(folder.iterdir()) == []


HOSTILE_WORDS = r"""
save restore restart quit script transcript undo verify again oops x take drop all it go put look then . , \ g o yes
transcriptx record print_state superbrief restrict commands north tw-trace-actions " ' / ; : > 打开 * $ #
"""
HOSTILE = [*HOSTILE_WORDS.split(), "\x00", "\x1b"]
BAR_LINE = re.compile(r"-= ([^=]*?) =-\s*-?\d+/\d+\s*\Z")


def fuzz(env, count, seed):
    """Plays `count` hostile commands composed of words; the status line confirms the tracked state."""
    dice = random.Random(seed)
    folder, pid = Path(f"/proc/{env.interpreter.pid}/cwd").resolve(), env.interpreter.pid
    words = HOSTILE + dictionary(env.path.read_bytes())
    env.reset(seed=3)
    for number in range(count):
        parts = [dice.choice(HOSTILE if dice.random() < 0.6 else words) for _ in range(dice.randint(1, 5))]
        typed = dice.choice((" ", "", "\\", "\n", ". ", ", ", "\t", " then ")).join(parts)
        if number % 97 == 0:
            typed = (typed * 10_000)[:10_000]
        if number % 5 == 0:
            typed = "\\" + typed
        text, _, over, truncated, info = env.step(typed)
        assert isinstance(text, str) and env.interpreter.pid == pid, typed
        if over or truncated:
            env.reset(seed=3)
    assert list(folder.iterdir()) == [], "a file was written"
    frame = env.interpreter.ask("step", "look")
    assert frame.won or frame.lost or BAR_LINE.search(frame.feedback).group(1).lower() == frame.room.lower()
    env.reset(seed=3)
    *_, info = env.step(env.expert())
    assert info["is_action_valid"], "the tracked state is still the game's"


@pytest.mark.parametrize("kind", ["coin", "cooking"])
def test_hostile_commands_terminate_and_write_no_file(kinds, kind):
    fuzz(kinds[kind][0], 300, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_ten_thousand_hostile_commands_do_not_hang(kinds):
    for seed, kind in enumerate(KINDS):
        fuzz(kinds[kind][0], 1_700, seed)


# ---- the worker


def test_an_interpreter_that_hangs_is_killed_and_the_next_episode_plays(kinds):
    env, *_ = kinds["custom"]
    env.reset(seed=3)
    with pytest.raises(EngineFailure, match="did not answer 'step' within 1 s"):
        env.interpreter.ask("step", "\\look", timeout=1.0)  # bypasses `clean`: the engine never returns from this
    assert not env.interpreter.running
    _, info = env.reset(seed=3)
    assert not info["won"] and env.step(env.expert())[4]["is_action_valid"]


def test_a_dead_worker_is_reported_and_replaced(kinds):
    env, *_ = kinds["custom"]
    env.reset(seed=3)
    os.kill(env.interpreter.pid, signal.SIGKILL)
    with pytest.raises(EngineFailure, match="died"):
        env.step("look")
    env.reset(seed=3)
    env.step("look")


def test_a_pipe_transfers_long_values_and_reports_silence():
    ours, theirs = map(Pipe, (end.detach() for end in socket.socketpair()))
    with pytest.raises(TimeoutError):
        ours.receive(0.01)
    with ThreadPoolExecutor(1) as pool:
        for value in (("ok", None), "x" * 3_000_000, list(range(200_000)), b""):
            pool.submit(theirs.send, value)
            assert ours.receive(20) == value
    os.write(theirs.descriptor, (1000).to_bytes(8, "big") + b"a beginning")
    with pytest.raises(TimeoutError):
        ours.receive(0.01)
    theirs.close()
    with pytest.raises(EOFError):
        ours.receive(1)
    ours.close()


@pytest.mark.parametrize("command", ["look", "\\look"], ids=["idle", "stuck"])
def test_workers_end_with_their_parent_and_leave_no_files(kinds, command, tmp_path):
    code = (
        "from envsuite.envs.textworld.engine.interpreter import Interpreter as I; import os, sys\n"
        "i = I(); i.ask('open', sys.argv[1], False); i._pipe.send(('step', sys.argv[2]))\n"
        "print(i.pid, flush=True); os._exit(0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(kinds["custom"][0].path), command],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    worker, deadline = int(done.stdout), time.monotonic() + 20
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    try:
        assert not Path(f"/proc/{worker}").exists() and list(tmp_path.iterdir()) == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


def test_the_answer_to_an_interrupted_request_is_discarded(kinds):
    env, *_ = kinds["custom"]
    env.reset(seed=3)

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            env.interpreter.ask("step", "\\look")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not env.interpreter.running
    env.reset(seed=3)
    assert env.step(env.expert())[4]["is_action_valid"]


def test_an_interrupt_between_request_and_answer_discards_the_answer(kinds, monkeypatch):
    env, *_ = kinds["custom"]
    env.reset(seed=3)

    def interrupt(*request):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(env.interpreter), "_answer", interrupt)
        with pytest.raises(KeyboardInterrupt):
            env.interpreter.ask("step", "examine me")
    assert "carrying" in env.interpreter.ask("step", "inventory").feedback


# ---- user-supplied games


def test_user_supplied_games_work_with_and_without_json(kinds, tmp_path):
    path = kinds["custom"][0].path
    shutil.copy(path, tmp_path / "mine.z8")
    shutil.copy(path.with_suffix(".json"), tmp_path / "mine.json")
    shutil.copy(path, tmp_path / "bare.z8")
    env = build(game=str(tmp_path))
    _, info = env.reset(seed=1)
    objective, plan, over = info["objective"], [], False
    assert env.labels()["instance"] == "mine" and env.remaining() == 4
    while not over:
        plan.append(env.expert())
        *_, over, _, info = env.step(plan[-1])
    assert info["success"]
    text, info = env.reset(seed=2)
    assert env.labels()["instance"] == "bare" and info["admissible_commands"] == [] and env.expert() is None
    assert objective[:40] in text, "without a .json the objective stands in the text alone"
    assert not env.step("xyzzy")[4]["is_action_valid"]
    for command in plan:
        *_, over, _, info = env.step(command)
    assert over and info["success"] and info["progression"] == 1.0
    with pytest.raises(DataError, match="No exact plan"):
        env.remaining()
    env.close()


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("cut.z8", lambda data: data[:1000], "truncated"),
        ("bit.z8", lambda data: data[:9000] + b"?" + data[9001:], "damaged"),
        ("other.z8", lambda data: b"PK\3\4" * 50, "does not start"),
        ("empty.z8", lambda data: b"", "does not start"),
        ("older.z1", lambda data: data, "suffix"),
        ("UPPER.Z8", lambda data: data, "in lower case"),
        ("old.ulx", lambda data: data, "suffix"),
        ("absent.z8", None, "does not exist"),
    ],
)
def test_broken_and_foreign_files_are_rejected_in_one_line(kinds, tmp_path, name, damage, message):
    if damage is not None:
        (tmp_path / name).write_bytes(damage(kinds["custom"][0].path.read_bytes()))
    with pytest.raises(DataError, match=message) as raised:
        build(game=str(tmp_path / name))
    assert "\n" not in str(raised.value) and name in str(raised.value)


def test_a_file_that_crashes_the_interpreter_is_not_a_lost_game(tmp_path):
    (tmp_path / "junk.z5").write_bytes(bytes([5]) + bytes(200))  # like some old files, without length and checksum
    env = build(game=str(tmp_path / "junk.z5"))
    with pytest.raises(EngineFailure, match=r"junk\.z5: the file is damaged"):
        env.reset(seed=0)
    with pytest.raises(EngineFailure, match=r"junk\.z5: the file is damaged"):
        env.interpreter.ask("step", "look")
    env.close()


def test_a_json_file_of_another_game_is_rejected(kinds, tmp_path):
    shutil.copy(kinds["custom"][0].path, tmp_path / "a.z8")
    env = build(game=str(tmp_path / "a.z8"))
    for content in ("{}", "no json", '{"version": 99}'):
        (tmp_path / "a.json").write_text(content)
        with pytest.raises(DataError, match=r"its \.json file"):
            env.reset(seed=0)
    shutil.copy(kinds["wide"][0].path.with_suffix(".json"), tmp_path / "a.json")
    for _ in range(2):
        with pytest.raises(DataError, match="belongs to another game"):
            env.reset(seed=0)
    shutil.copy(kinds["custom"][0].path.with_suffix(".json"), tmp_path / "a.json")
    env.reset(seed=0)
    env.close()
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no Z-machine files"):
        build(game=str(tmp_path / "empty"))


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"challenge": "coin_collector", "level": 160}, "120 rooms"),
        ({"challenge": "treasure_hunter", "level": 31}, "1..30"),
        ({"level": 9}, "does not apply to challenge 'custom'"),
        ({"challenge": "cooking", "take": 2}, "more than recipe"),
        ({"challenge": "cooking", "recipe_seed": 4}, "take >= 1"),
        ({"challenge": "coking"}, "Did you mean 'cooking'"),
        ({"world_size": 0}, "1..100"),
        ({"go": 5}, "1|6|9|12"),
    ],
)
def test_impossible_settings_are_rejected_when_built(knobs, message):
    with pytest.raises(BadKnob) as raised:
        build(**knobs)
    assert message in str(raised.value)


def test_a_game_that_exceeds_the_time_limit_is_reported_by_name(monkeypatch, tmp_path):
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path))
    monkeypatch.setattr("envsuite.envs.textworld.env.GENERATION_SECONDS", 1.0)
    env = build(world_size=100, nb_objects=200, quest_length=50)
    with pytest.raises(EngineFailure, match="did not answer 'make' w100-o200-q50_5 within 1 s and was killed"):
        env.reset(seed=5)
    env.close()


# ---- observations, on texts

BAR = "\n\n>" + " " * 100 + "-= Cellar =-2/17"


def test_compact_text_is_taken_from_the_engine_text():
    raw = "\n-= Cellar =-\nYou are in a cellar.\n\n\nA lamp is here.\n" + BAR
    assert compact(Frame(raw)) == "You are in the cellar.\nYou are in a cellar.\nA lamp is here."
    end = "\nYou eat.\n\n      *** The End ***\n\nYou scored 1.\n\nWould you like to RESTART, or QUIT?\n>" + BAR[3:]
    assert compact(Frame(end, "kitchen", "You are carrying nothing.")) == (
        "You are in the kitchen.\nYou eat.\n*** The End ***\nYou scored 1.\nYou are carrying nothing."
    )
    assert compact(Frame("Nothing at all >")) == "Nothing at all"
    banner = "\n\n   ____  __\n  |   \\ $$|\n\nDo this.\n\n-= Cellar =-\nDark." + BAR
    assert opening_text(Opening(Frame(banner), "Do this.", 1)) == "You are in the cellar.\nDark."
    assert opening_text(Opening(Frame(banner), "", None)) == "You are in the cellar.\nDo this.\nDark."


# ---- the menu


def test_tasks_use_the_published_seeds_without_repeated_games():
    task = envsuite.tasks("textworld-w2-o3-q4-v0")[0]
    assert list(task.splits["test"]) == list(range(1, 101)) and task.splits["valid"][0] == 40_001
    assert task.splits["train"][0] == 50_001 and 52_461 not in task.splits["train"]
    simple = registry.TASKS["TextWorld-simple-balanced-v0"]
    assert simple.splits["train"][0] == 10_001 and simple.kwargs["rewards"] == "balanced"
    assert set(SETTINGS) == {"custom", "simple", "cooking", "treasure_hunter", "coin_collector"}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_checks_pass_on_the_family():
    from envsuite.checks import check

    for finding in check(registry.TASKS["TextWorld-w2-o3-q4-v0"], seconds=1, seeds=2):
        assert finding.ok, finding


def test_cached_story_files_are_complete(kinds):
    for env, *_ in (kinds[kind] for kind in KINDS):
        check_story(env.path)
        assert json.loads(env.path.with_suffix(".json").read_text())["version"] == 1
        assert game_cache.find_game(env.game) == env.path
        assert sorted(file.name for file in env.path.parent.iterdir()) == ["game.json", "game.z8"]


def test_interpreters_are_not_shared_with_forks():
    interpreter = Interpreter()
    interpreter._start()
    assert interpreter.running
    child = os.fork()
    if child == 0:
        os._exit(int(interpreter.running))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    interpreter.close()
    assert not interpreter.running
