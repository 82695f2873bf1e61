"""`envsuite replay --sandbox`: records replay in a sandbox, and a certificate names every file."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from envsuite import registry
from envsuite.errors import DataError
from harness import records
from harness.cli.replay import main
from harness.cli.terminal.counter import counter
from harness.evaluate import RunConfig, evaluate
from harness.policies import make_policy
from harness.provenance import certificates, inside, sandboxed
from harness.suites import leaderboards
from tests.conftest import need_driver

BOARD = Path(__file__).resolve().parents[2] / "leaderboards" / "overcooked"


@pytest.fixture(scope="module")
def played(tmp_path_factory) -> Path:
    """A finished run of two games."""
    output = tmp_path_factory.mktemp("run")
    config = RunConfig(registry.TASKS["BabyAI-goto-v0"], "random", episodes=2, max_turns=4)
    evaluate(config, output, lambda: make_policy("random"))
    return config.folder(output)


@pytest.fixture
def folder(played, tmp_path) -> Path:
    return Path(shutil.copytree(played, tmp_path / "run"))


def verify(*words, capsys) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main(["--sandbox", *map(str, words)])
    output = capsys.readouterr()
    return stop.value.code, output.out + output.err


@pytest.mark.parametrize("driver", ["bwrap", "landlock"])
def test_a_certificate_names_every_file_and_what_cannot_be_verified(driver, folder, capsys):
    need_driver(driver)
    code, output = verify(folder, "--driver", driver, capsys=capsys)
    assert code == 0 and "2 records replay" in output and "which model wrote the replies" in output
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["sandbox"] == driver and certificate["rendered_bytes"] > 1000
    assert certificate["files"] == certificates.file_digests(folder)
    assert {"config.json", "results.jsonl", "journal.jsonl"} <= certificate["files"].keys()
    (entry,) = certificate["entries"]
    assert (entry["task"], entry["model"], entry["records"]) == ("BabyAI-goto-v0", "random", 2)


def changed(folder: Path, **fields) -> None:
    """Changes the first record in the results and in the journal alike."""
    for name in ("results.jsonl", "journal.jsonl"):
        first, *others = (folder / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join([json.dumps({**json.loads(first), **fields}) + "\n", *others]))


def test_a_forged_record_gets_no_certificate(folder, capsys):
    """The replay differs, and so do the hash and the mean of the summary."""
    need_driver("bwrap")
    changed(folder, reward=1.0, success=True)
    code, output = verify(folder, capsys=capsys)
    assert code == 1 and "success: stored True, replayed False" in output and "not verified: 3 differences" in output
    assert not (folder / "certificate.json").exists()


def test_programs_that_need_a_sandbox_are_replayed_outside_on_request_alone(tmp_path, capsys):
    need_driver("bwrap")
    config = RunConfig(registry.TASKS["SWEGym-easy-v0"], "random", episodes=1, max_turns=1)
    evaluate(config, tmp_path, lambda: make_policy("random"))
    folder = config.folder(tmp_path)
    code, output = verify(folder, capsys=capsys)
    assert code == 2 and output.count("\n") == 1
    assert f"{folder} holds records whose commands are programs (SWEGym-easy-v0)" in output
    assert "add --replay-outside" in output and not (folder / "certificate.json").exists()
    code, output = verify(folder, "--replay-outside", capsys=capsys)
    assert code == 0 and "1 records replay" in output
    certificate = json.loads((folder / "certificate.json").read_text())
    assert certificate["replayed_outside"] == ["SWEGym-easy-v0"] and certificate["rendered_bytes"] > 1000
    (entry,) = certificate["entries"]
    assert (entry["model"], entry["records"], entry["replayed"]) == ("random", 1, 1)
    (folder / "certificate.json").unlink()
    forged = {"entries": [{**entry, "model": "other"}], "differences": [], "differ": 0}
    sandboxed.replay_outside(folder, forged, {"SWEGym-easy-v0"}, counter)
    assert forged["differ"] == 1 and "the sandbox did not report this record" in forged["differences"][0]
    changed(folder, reward=0.5)
    code, output = verify(folder, "--replay-outside", capsys=capsys)
    assert code == 1 and "reward: stored 0.5, replayed 0.0" in output and "not verified: 3 differences" in output
    assert not (folder / "certificate.json").exists()
    (folder / "results.jsonl").write_bytes((folder / "results.jsonl").read_bytes() * 31)
    code, output = verify(folder, "--replay-outside", capsys=capsys)
    count = int(re.search(r"not verified: (\d+) differences in 31 records", output)[1])
    printed = [line for line in output.splitlines() if "outside" not in line and "not verified" not in line]
    assert code == 1 and count > 30 and len(printed) == inside.MOST_DIFFERENCES


def test_records_without_programs_stay_in_the_sandbox_beside_records_of_programs(tmp_path, capsys):
    need_driver("bwrap")
    board = leaderboards.read(BOARD.with_name("quick"))
    keys = [key for key in board.entries if key[0].startswith(("BabyAI", "DataSci")) and key[2] == "smollm2-135m"]
    metadata = {
        "schema_version": leaderboards.SCHEMA,
        "suite": "quick",
        "entries": [board.entries[key] for key in keys],
    }
    (tmp_path / "metadata.json").write_text(json.dumps(metadata))
    (tmp_path / "results.jsonl").write_bytes(b"".join(records.dump(row) for key in keys for row in board.of(key)))
    code, output = verify(tmp_path, "--replay-outside", capsys=capsys)
    assert code == 0 and "4 records replay" in output
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    assert certificate["replayed_outside"] == ["DataSciCoding-easy-v0"]
    assert [entry["replayed"] for entry in certificate["entries"]] == [2, 2]


ENTRY = {"task": "BabyAI-goto-v0", "knobs": {}, "model": "random", "records": 2, "replayed": 2}


@pytest.mark.parametrize("change", [{"task": [1]}, {"knobs": "{}"}, {"model": None}, {"records": "2"}], ids=str)
def test_findings_that_a_hostile_folder_forged_end_in_one_line(change, folder, tmp_path, monkeypatch, capsys):
    need_driver("bwrap")
    forged = {"entries": [ENTRY | change], "differences": [], "differ": 0, "rendered_bytes": 1}
    program = tmp_path / "forging.py"
    program.write_text(f"import json\ndef handle(payload):\n    return json.dumps({forged!r}).encode()\n")
    monkeypatch.setattr(sandboxed, "PROGRAM", program)
    code, output = verify(folder, capsys=capsys)
    assert code == 2 and "returned no findings" in output and output.count("\n") == 1


def test_a_damaged_or_empty_folder_ends_in_one_line(folder, tmp_path, capsys):
    need_driver("bwrap")
    (folder / "results.jsonl").write_text("[" * 100_000 + "\n")
    code, output = verify(folder, capsys=capsys)
    assert code == 2 and f"{folder}/results.jsonl:1 is not a record" in output and output.count("\n") == 1
    (tmp_path / "empty").mkdir()
    code, output = verify(tmp_path / "empty", capsys=capsys)
    assert code == 2 and output.startswith("error: ") and output.count("\n") == 1
    assert f"{tmp_path / 'empty'} has no results.jsonl: name one run folder, RUNS/TASK--MODEL/RUN_ID" in output


def test_a_folder_with_a_link_or_a_pipe_is_refused_before_anything_is_read(folder, capsys):
    (folder / "secret").symlink_to("/etc/passwd")
    assert verify(folder, capsys=capsys) == (
        2, f"error: {folder}/secret is a link, a device or a pipe: only plain files can be verified.\n"
    )  # fmt: skip
    (folder / "secret").unlink()
    os.mkfifo(folder / "results.jsonl.gz")
    assert verify(folder, capsys=capsys)[0] == 2


def test_too_many_files_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(certificates, "MOST_FILES", 20)
    for number in range(certificates.MOST_FILES + 1):
        (tmp_path / str(number)).touch()
    with pytest.raises(DataError, match="more than 512 MB or 20 files"):
        certificates.file_digests(tmp_path)


def test_the_digest_of_a_folder_depends_on_names_and_contents(tmp_path):
    (tmp_path / "a").write_text("1")
    digests = [certificates.digest_of_files(certificates.file_digests(tmp_path))]
    (tmp_path / "README.md").write_text("rendered from the records")
    assert certificates.digest_of_files(certificates.file_digests(tmp_path)) == digests[0]
    (tmp_path / "a").write_text("2")
    digests.append(certificates.digest_of_files(certificates.file_digests(tmp_path)))
    (tmp_path / "a").rename(tmp_path / "b")
    digests.append(certificates.digest_of_files(certificates.file_digests(tmp_path)))
    assert len(set(digests)) == 3
