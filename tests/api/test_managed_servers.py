"""Managed servers: found, started, shared, watched, and stopped however the process ends."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envsuite import registry
from envsuite.cache import cache_dir
from envsuite.errors import DataError, MissingExtra, UsageError
from envsuite.tools import ACT
from harness.cli.eval import main
from harness.policies import find, make_policy
from harness.policies.managed import server_settings
from harness.prompting.prompting import Prompting
from harness.prompting.tool_calls import assistant_message, result_messages, with_ids
from harness.records import read_results
from harness.rollout.executors import LocalExecutor
from harness.rollout.loop import rollout
from harness.servers import process, programs
from harness.servers.pool import ServerPool
from harness.servers.process import ServerCommand, descendants, started
from harness.servers.programs import ServerSettings
from harness.types import Prompt, episode
from tests import toys  # noqa: F401  registers the toys

ROOT = Path(__file__).resolve().parents[2]
SERVER = """
import http.server, json, subprocess, sys, time
print("loading the weights", flush=True)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def send(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
    def do_GET(self):
        self.send({"data": [{"id": "tiny"}]})
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send({"choices": [{"message": {"content": "look"}, "finish_reason": "stop"}], "usage": {}})
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[-1])), Handler).serve_forever()
"""
"""A server whose child has a session of its own, which a signal to the process group does not reach."""
COMMAND = ServerCommand("a small server", (sys.executable, "-c", SERVER), "tiny")


def assert_a_crash_ends_the_run(policy, ask):
    """Crashes the policy's server; the next request must end the run and name --resume."""
    policy.server.crash()
    with pytest.raises(DataError, match=r"ended during the run: .* continue with --resume"):
        policy.act([ask])


def alive(pid):
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def all_end(pids, seconds=30.0):
    """Returns True once none of the processes runs."""
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def server(tmp_path):
    server = started(COMMAND, tmp_path / "log")
    yield server
    server.stop()


linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc is not installed")


@linux
def test_stop_ends_the_server_and_children_in_other_sessions(server):
    pids = descendants(server.pid)
    assert len(pids) == 2 and all(map(alive, pids))
    server.stop()
    server.stop()  # may be called again
    assert not any(map(alive, pids)) and server.ended


@linux
@pytest.mark.parametrize("victim", ["parent", "guard"])
def test_no_process_survives_a_kill(victim, tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from tests.api.test_managed_servers import COMMAND, started\n"
        f"server = started(COMMAND, Path({str(tmp_path / 'log')!r}))\n"
        "print(server.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        guard = int(parent.stdout.readline())
        server, child = descendants(guard)
        os.kill(parent.pid if victim == "parent" else guard, signal.SIGKILL)
        # If the guard itself is killed, the kernel ends the server; children of the server are its own matter.
        assert all_end([guard, server, child] if victim == "parent" else [guard, server])
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_a_server_that_fails_shows_the_end_of_its_log(tmp_path):
    command = ServerCommand(
        "a bad server", (sys.executable, "-c", "print('one', flush=True); raise SystemExit('no memory')"), "m"
    )
    lines = []
    with pytest.raises(
        DataError, match=r"a bad server ended before it answered: no memory \(its whole output: .*log\)"
    ):
        started(command, tmp_path / "log", lines.append)
    assert lines == ["  | one", "  | no memory"]


@pytest.mark.parametrize(
    "line", ["OSError: [Errno 98] Address already in use", "main: couldn't bind HTTP server socket, port: 1"]
)
def test_a_taken_port_is_followed_by_another(line, tmp_path):
    """The first process fails as vLLM or llama.cpp does if its port is taken; the log says so."""
    marker = tmp_path / "began"
    words = f"import pathlib, sys; p = pathlib.Path({str(marker)!r})\n"
    words += f"if not p.exists(): p.touch(); raise SystemExit({line!r})\n" + SERVER
    server = started(ServerCommand("s", (sys.executable, "-c", words), "tiny"), tmp_path / "log")
    server.stop()
    assert marker.exists()


def test_a_program_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        started(ServerCommand("nothing", (str(tmp_path / "no-server"),), "m"), tmp_path / "log")


def test_policies_share_a_server_until_the_last_one_has_gone(tmp_path, monkeypatch):
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path))
    pool = ServerPool()
    first = pool.acquire(COMMAND)
    assert pool.acquire(COMMAND) is first
    pool.release(COMMAND)
    assert not first.ended
    pool.release(COMMAND)
    assert first.ended and not first.log.exists()
    with pool.held():
        second = pool.acquire(COMMAND)
        pool.release(COMMAND)
        assert not second.ended, "the next table needs it"
        assert pool.acquire(COMMAND) is second
        second.crash()
        third = pool.acquire(COMMAND)
        assert third is not second
        pool.release(COMMAND)
        pool.release(COMMAND)
    assert third.ended


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"server_context": -1}, "--server-context -1 must be at least 0"),
        ({"server_gpu_share": 1.5}, "--server-gpu-share 1.5 between 0 and 1"),
        ({"server_tensor_parallel": -1}, "--server-tensor-parallel -1 at least 1"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        server_settings(settings)


def test_what_cannot_be_started_is_refused_in_one_line(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"--server-args '\"' cannot be split"):
        _ = ServerSettings(args='"').further
    with pytest.raises(UsageError, match="vllm:m starts a server of its own: remove --base-url"):
        find("vllm:m", "http://localhost:1/v1")
    with pytest.raises(UsageError, match="vllm: needs a model, as in vllm:Qwen"):
        make_policy("vllm:")
    with pytest.raises(UsageError, match="is not a program: name an interpreter"):
        programs.find("vllm", str(tmp_path))
    with pytest.raises(UsageError, match=r"that environment has no xllamacpp: .* -m pip install xllamacpp"):
        programs.find("llamacpp", sys.executable)
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingExtra, match="vllm: needs vllm, which is neither in this environment nor on the PATH"):
        programs.find("vllm")
    with pytest.raises(UsageError, match=r"llamacpp:no\.gguf is not a file: name a GGUF file"):
        programs.gguf("no.gguf")


def test_flags_reach_the_command_of_a_program_on_the_path(tmp_path, monkeypatch):
    for name, says in (("vllm", ""), ("llama-server", "version: 7777 (abc)")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho '{says}'\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    settings = ServerSettings(context=2048, gpu_share=0.5, tensor_parallel=2, args="--a 'b c'", concurrent=4)
    words = programs.command("vllm", "qwen2.5-3b", settings).words
    assert words[:3] == (str(tmp_path / "vllm"), "serve", "Qwen/Qwen2.5-3B-Instruct") and words[-2:] == ("--a", "b c")
    pairs = dict(itertools.pairwise(words))
    assert (pairs["--max-model-len"], pairs["--gpu-memory-utilization"]) == ("2048", "0.5")
    assert (pairs["--tensor-parallel-size"], pairs["--max-num-seqs"]) == ("2", "4")
    assert pairs["--tool-call-parser"] == "hermes" and pairs["--served-model-name"] == "qwen2.5-3b"
    command = programs.command("llamacpp", str(tmp_path / "m.gguf"), settings)
    pairs = dict(itertools.pairwise(command.words))
    assert command.name == "version: 7777 (abc)"
    assert (pairs["--ctx-size"], pairs["--parallel"], pairs["--model"]) == ("8192", "4", str(tmp_path / "m.gguf"))


def test_a_folder_with_the_name_of_a_server_is_not_mistaken_for_it(tmp_path, monkeypatch):
    (tmp_path / "vllm" / "bin").mkdir(parents=True)
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    programs._module.cache_clear()
    with pytest.raises(MissingExtra, match="neither in this environment nor on the PATH"):
        programs.find("vllm")


@linux
@pytest.mark.skipif(programs.has_gpu(), reason="the machine has a GPU")
@pytest.mark.parametrize("parallel", [1, 2])
def test_vllm_on_cpus_uses_the_cores_of_this_process(parallel, tmp_path, monkeypatch):
    (tmp_path / "vllm").write_text("#!/bin/sh\n")
    (tmp_path / "vllm").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        command = programs.command("vllm", "org/name", ServerSettings(tensor_parallel=parallel))
    finally:
        os.sched_setaffinity(0, allowed)
    cores = str(max(allowed)) if parallel == 1 else None  # several processes cannot share one list
    assert dict(command.environment).get("VLLM_CPU_OMP_THREADS_BIND") == cores


VERSION = "import sys\nif sys.argv[1:] == ['--version']: raise SystemExit(print('version: 1'))\n"


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Returns the path of a server's program that is the only one on the PATH."""
    path = tmp_path / "llama-server"
    path.write_text(f"#!{sys.executable}\n{VERSION}{SERVER}")
    path.chmod(0o755)
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ENVSUITE_CACHE", str(tmp_path / "cache"))
    return path


def test_a_run_whose_episodes_are_stored_starts_no_server(program, tmp_path, capsys):
    options = ["-m", f"llamacpp:{tmp_path / 'm.gguf'}", "-e", "BabyAI-easy-v0", "-n", "2", "--max-turns", "2"]
    options += ["--num-workers", "0", "--baselines", "none", "--admissible", "none", "--reuse", "on"]

    def code(*more):
        with pytest.raises(SystemExit) as ended:
            main([*options, *more])
        return ended.value.code

    assert code("-o", str(tmp_path / "first")) == 0
    (run,) = (tmp_path / "first").glob("BabyAI-easy-v0--llamacpp_m/*")
    (model,) = {record["model"] for record in read_results(run / "results.jsonl")}
    config = json.loads((run / "config.json").read_text())
    assert model == config["model"] == "llamacpp:m" and config["weights"]
    assert str(tmp_path / "m.gguf") in config["server"]["command"]
    program.write_text(f"#!{sys.executable}\n{VERSION}raise SystemExit('it was started')\n")
    assert code("-o", str(tmp_path / "second")) == 0
    assert "2 of 2 episodes" in capsys.readouterr().err
    assert code("--reuse", "off", "-o", str(tmp_path / "third")) == 2
    assert "it was started" in capsys.readouterr().err


def test_a_policy_starts_a_program_on_the_path_and_a_crash_of_it_ends_the_run(program, tmp_path):
    lines = []
    policy = make_policy(f"llamacpp:{tmp_path / 'm.gguf'}", first_pause=0.01, say=lines.append)
    try:
        ask = Prompt([{"role": "user", "content": "Where?"}], seed=1, key="a")
        (reply,) = policy.act([ask])
        assert reply.text == "look" and not reply.error
        assert policy.connection()["server"]["command"][0] == str(program)
        assert lines[-1].startswith("version: 1 answers after ")
        assert_a_crash_ends_the_run(policy, ask)
    finally:
        policy.close()
    assert policy.server.ended


USERS_SERVERS = Path(os.environ.get("ENVSUITE_SERVERS", Path.home() / ".cache" / "envsuite" / "servers"))


@pytest.fixture(scope="module")
def llama():
    """Returns the interpreter of an installed llama.cpp and a GGUF file."""
    interpreters = sorted(USERS_SERVERS.glob("xllamacpp*/bin/python"))
    files = [*USERS_SERVERS.glob("*.gguf"), *cache_dir("servers").glob("*.gguf")]
    if not interpreters or not files:
        pytest.skip("llama.cpp is not installed below the cache: make server-proof")
    return str(interpreters[-1]), str(files[0])


def test_the_module_of_llama_cpp_accepts_a_chat_template_and_no_other_words(llama):
    python, file = llama
    words = "--jinja --chat-template-file FILE"
    command = programs.command("llamacpp", file, ServerSettings(python=python, args=words))
    assert command.words[-3:] == tuple(words.split())
    with pytest.raises(UsageError, match=r"--server-args --mlock needs llama-server on the PATH: .* --jinja, --chat"):
        programs.command("llamacpp", file, ServerSettings(python=python, args="--jinja --mlock"))


def test_llama_cpp_accepts_declared_tools_calls_and_their_results(llama):
    """SmolLM2's template has no tools, so that its replies are text: each costs a turn, and none breaks the episode."""
    python, file = llama
    options = {"server_python": python, "server_context": 1024, "max_concurrent": 1, "max_tokens": 8}
    policy = make_policy(f"llamacpp:{file}", thinking_budget=20, **options)
    try:
        game = [episode(registry.TASKS["Signpost-v0"], 0, max_steps=2)]
        (run,) = rollout(policy, game, LocalExecutor(1), Prompting("tools", thinking=False))
        calls = with_ids([("act", '{"command": "east"}'), ("fly", "{")], 0)
        messages = [{"role": "user", "content": "Where?"}, assistant_message("", calls), *result_messages(calls, "No.")]
        (reply,) = policy.act([Prompt(messages, tools=[ACT.schema()])])
    finally:
        policy.close()
    assert not run.broken and [turn.fault for turn in run.turns] == ["format"] * 2, run.error
    assert not reply.error and reply.output_tokens > 0
    assert policy.fields.values["thinking_budget_tokens"] == 20


def test_a_model_on_llama_cpp_plays_and_a_crash_ends_the_run_at_once(llama):
    python, file = llama
    policy = make_policy(f"llamacpp:{file}", server_python=python, server_context=512, max_concurrent=2, max_tokens=4)
    try:
        assert process.descendants(policy.server.pid)
        ask = Prompt([{"role": "user", "content": "Say yes."}], seed=1, key="a")
        (reply,) = policy.act([ask])
        assert reply.text and not reply.error and reply.input_tokens > 4 and reply.output_tokens <= 4
        long = Prompt(
            [{"role": "user", "content": "word " * 600}, {"role": "assistant", "content": "a"}, *ask.messages], key="b"
        )
        (reply,) = policy.act([long])
        assert reply.dropped_turns == 1 and reply.text, "llama.cpp says in words of its own that a prompt is too long"
        assert policy.connection()["server"]["program"].startswith("xllamacpp")
        assert_a_crash_ends_the_run(policy, ask)
    finally:
        policy.close()
    assert policy.server.ended
