"""Uploads to hubs: what is in a bundle, what is refused, and a commit made by the real client of the hub."""

import base64
import http.server
import json
import os
import subprocess
import sys
import threading
import tomllib
from contextlib import contextmanager
from pathlib import Path

import pytest

from envsuite import registry
from envsuite.errors import UsageError
from harness.cli.replay import main as replay_main
from harness.evaluate import RunConfig, evaluate
from harness.hub import cards
from harness.hub.bundle import Bundle, Target
from harness.hub.command import main
from harness.policies import make_policy


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run of the random player."""
    folder = tmp_path_factory.mktemp("run")
    config = RunConfig(registry.TASKS["BabyAI-goto-v0"], "random", episodes=3)
    evaluate(config, folder, lambda: make_policy("random"))
    return config.folder(folder)


def call(*words, capsys):
    """Runs `envsuite hub push`; returns its exit status, output and error."""
    with pytest.raises(SystemExit) as ended:
        main(["push", *map(str, words)])
    return (ended.value.code or 0, *capsys.readouterr())


class Hub(http.server.BaseHTTPRequestHandler):
    """Server with the three requests of a commit on the Hugging Face hub."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, self.headers["Authorization"], body))
        if self.server.refuses:
            return self.answer(403, {"error": "this token may not write"})
        if self.path.endswith("/repos/create"):
            return self.answer(200, {"url": f"http://{self.headers['Host']}/datasets/me/goto"})
        if "/preupload/" in self.path:
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            return self.answer(200, {"files": files})
        commit = f"http://{self.headers['Host']}/datasets/me/goto/commit/" + "0" * 40
        return self.answer(200, {"commitUrl": commit, "commitOid": "0" * 40, "success": True})

    def answer(self, status, value):
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *words):
        pass


@contextmanager
def hub(refuses=False):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.requests, server.refuses = [], refuses
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def test_a_dry_run_prints_target_sizes_and_card_and_its_files_replay(run, tmp_path, capsys):
    code, output, _ = call(run, "dataset:me/goto", "--dry-run", "-o", tmp_path / "out", capsys=capsys)
    assert code == 0
    assert output.startswith("dataset:me/goto: 4 files, ")
    assert "nothing was uploaded" in output
    written = {path.name: path.stat().st_size for path in (tmp_path / "out").iterdir()}
    assert written.keys() == {"README.md", "config.json", "summary.json", "results.jsonl"}
    assert all(f"{name:28} {size:>12,} bytes" in output for name, size in written.items())
    assert (tmp_path / "out/README.md").read_text() in output
    with pytest.raises(SystemExit) as ended:
        replay_main(["--check", str(tmp_path / "out")])
    assert not ended.value.code
    assert "3 episodes replayed the same, 0 differ" in capsys.readouterr().out
    config = json.loads((tmp_path / "out/config.json").read_text())
    assert not config.keys() & {"host", "execution", "started_at", "server"}


def test_a_commit_by_the_real_client_has_the_bytes_of_the_dry_run(run, tmp_path, capsys, monkeypatch):
    pytest.importorskip("huggingface_hub")
    call(run, "dataset:me/goto", "--dry-run", "-o", tmp_path / "out", capsys=capsys)
    with hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("HF_TOKEN", "hf_" + "x" * 30)
        code, output, error = call(run, "dataset:me/goto", "--private", "--message", "first", capsys=capsys)
    assert code == 0, error
    assert "uploaded: " in output
    paths = [path for path, _, _ in server.requests]
    assert [path.partition("?")[0] for path in paths] == [
        "/api/repos/create",
        "/api/validate-yaml",  # of README.md
        "/api/datasets/me/goto/preupload/main",
        "/api/datasets/me/goto/commit/main",
    ]
    assert {token for _, token, _ in server.requests} == {"Bearer hf_" + "x" * 30}
    created = json.loads(server.requests[0][2])
    assert [created[name] for name in ("name", "organization", "type")] == ["goto", "me", "dataset"]
    assert created.get("visibility", created.get("private")) in ("private", True)
    lines = [json.loads(line) for line in server.requests[-1][2].splitlines()]
    assert lines[0]["value"]["summary"] == "first"
    sent = {line["value"]["path"]: base64.b64decode(line["value"]["content"]) for line in lines[1:]}
    assert sent == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}


def test_a_refused_commit_and_a_missing_token_are_one_line(run, tmp_path, capsys, monkeypatch):
    pytest.importorskip("huggingface_hub")
    with hub(refuses=True) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("HF_TOKEN", "hf_" + "y" * 30)
        code, _, error = call(run, "dataset:me/goto", capsys=capsys)
    assert code == 2
    assert error.startswith("error: The upload to dataset:me/goto failed: ")
    assert error.count("\n") == 1
    assert "hf_yyy" not in error
    words = [sys.executable, "-m", "harness", "hub", "push", str(run), "dataset:me/goto"]
    bare = {name: value for name, value in os.environ.items() if name not in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")}
    done = subprocess.run(words, env={**bare, "HF_HOME": str(tmp_path)}, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == ("error: There is no token for the Hugging Face hub: run `hf auth login`, or set HF_TOKEN.\n")


def bundle(**files):
    return Bundle(Target.parse("dataset:me/x"), {name.replace("_", "."): text.encode() for name, text in files.items()})


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("a hf_" + "a1" * 15, "an access token"),
        ("sk-" + "a1b2" * 8, "an access token"),
        ("github_pat_" + "a1_" * 12, "an access token"),
        ("key=AIza" + "a-" * 17 + "b", "an access token"),
        ("http://user:word@host/v1", "a password in an address"),
        ("-----BEGIN RSA PRIVATE KEY-----", "a private key"),
        ("the value is hush-hush-1", "the value of the environment variable MY_API_KEY"),
        (f"{Path.home()}/runs", "a folder of this computer"),
    ],
)
def test_secrets_are_refused_and_not_printed(text, finding, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "hush-hush-1")
    with pytest.raises(UsageError) as refused:
        bundle(results_jsonl=text).check_private()
    assert finding in str(refused.value)
    assert "Nothing was uploaded" in str(refused.value)
    secret = finding != "a folder of this computer"
    assert not (secret and text in str(refused.value))


def test_private_words_are_found_as_json_spells_them(monkeypatch):
    monkeypatch.setenv("MY_PASSWORD", 'quote " and slash')
    monkeypatch.setenv("HOME", "/home/jürgen")
    for ascii_only in (True, False):
        for value, finding in (
            ('quote " and slash', "MY_PASSWORD"),
            ("/home/jürgen/runs", "a folder of this computer"),
        ):
            with pytest.raises(UsageError, match=finding):
                bundle(results_jsonl=json.dumps(value, ensure_ascii=ascii_only)).check_private()


def test_a_card_has_whole_characters_because_yaml_knows_no_surrogate_pairs():
    front = cards.card({"emoji": "🏠", "title": "two\nlines"}, "body").decode().split("---")[1]
    assert front == '\nemoji: "🏠"\ntitle: "two\\nlines"\n'


def test_names_of_this_computer_and_paths_in_settings_are_refused_unless_allowed():
    files = bundle(config_json='{"model": "/data/models/mine"}', results_jsonl="on kitchen-computer, in /testbed/src")
    with pytest.raises(UsageError, match=r"config\.json has an absolute path \(/data/models/mine\)"):
        files.check_private(host="kitchen-computer")
    with pytest.raises(UsageError, match=r"results\.jsonl has the name of this computer .*--allow kitchen-computer"):
        files.check_private(["/data/models/mine"], "kitchen-computer")
    files.check_private(["/data/models/mine", "kitchen-computer"], "kitchen-computer")


@pytest.mark.parametrize("target", ["me/goto", "model:me/goto", "dataset:goto", "dataset:me/go to", "space:/x"])
def test_targets_without_kind_owner_or_name_are_refused(target):
    with pytest.raises(UsageError, match="target"):
        Target.parse(target)


def test_an_unfinished_run_and_a_run_as_a_space_are_refused(run, tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    assert "is not a finished run" in call(tmp_path, "dataset:me/x", "--dry-run", capsys=capsys)[2]
    assert "write dataset:me/x" in call(run, "space:me/x", "--dry-run", capsys=capsys)[2]
    assert "There is no folder" in call(tmp_path / "nope", "dataset:me/x", "--dry-run", capsys=capsys)[2]


def test_a_dataset_of_games_opens_the_games_it_lists(tmp_path, capsys):
    from harness.interop.chat_game import open_row

    words = ["VirtualHome-food_preparation-v0", "dataset:me/food", "--dry-run", "-n", "2", "-o", tmp_path / "out"]
    assert call(*words, capsys=capsys)[0] == 0
    lines = [json.loads(line) for line in (tmp_path / "out/games.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    for line in lines:
        game, seed = open_row("test", line["game"])
        assert (game.begin(seed), seed) == (line["messages"], line["seed"])
        game.close()


def test_a_space_serves_the_task_and_installs_its_packages(tmp_path, capsys):
    pytest.importorskip("openenv")
    wheel = tmp_path / "envsuite-0.1.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    words = ["BabyAI-goto-v0", "space:me/goto-space", "--dry-run", "-o", tmp_path / "out", "--reward", "dense"]
    code, _, error = call(*words, capsys=capsys)
    assert code == 2 and "A Space installs envsuite from --wheel FILE" in error
    code, _, error = call(*words, "--wheel", tmp_path / "other.whl", capsys=capsys)
    assert code == 2 and "is not a wheel of envsuite" in error
    assert call(*words, "--wheel", wheel, capsys=capsys)[0] == 0
    folder = tmp_path / "out"
    code = (
        "from server.app import app\nfrom fastapi.testclient import TestClient\n"
        "print(TestClient(app).post('/reset', json={'seed': 3}).json()['observation']['objective'])"
    )
    paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", os.getcwd())])
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Go to ")
    assert f"pip install --no-cache-dir './{wheel.name}[babyai,openenv]'" in (folder / "Dockerfile").read_text()
    assert (folder / wheel.name).read_bytes() == b"a wheel"
    assert "app: server.app:app" in (folder / "openenv.yaml").read_text()
    front = (folder / "README.md").read_text().split("---")[1]
    assert 'sdk: "docker"' in front
    assert "app_port: 8000" in front
    tomllib.loads((folder / "pyproject.toml").read_text())
