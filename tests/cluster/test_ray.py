"""On a cluster a run is the same run: the same bytes, whatever is killed meanwhile."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from envsuite import registry
from envsuite.errors import MissingExtra, UsageError
from harness.cluster import connect
from harness.cluster.executors import EnvWorker, RayExecutor
from harness.evaluate import Execution, RunConfig, evaluate
from harness.policies import make_policy
from harness.records import dump, key_of, record
from harness.rollout.loop import rollout
from tests import toys  # noqa: F401  registers Slow, Faulty
from tests.cluster.conftest import nodes

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(900)  # a cluster has three tries to start
SLOW = {"delay": 0.05, "size": 512, "max_steps": 8}


def config(name="HiLo-v0", model="random", **kwargs):
    return RunConfig(task=registry.TASKS[name], model=model, **{"episodes": 12, **kwargs})


def results(cfg, out, make=None, **execution):
    evaluate(cfg, out, make or (lambda: make_policy(cfg.model)), Execution(**execution))
    return (cfg.folder(out) / "results.jsonl").read_bytes()


def on(cluster):
    return {"executor": "ray", "ray_address": cluster.address, "max_concurrent": 6, "num_workers": 2}


def test_a_cluster_and_one_process_write_the_same_bytes(cluster, tmp_path):
    cfg = config(attempts=2, max_turns=3)
    assert results(cfg, tmp_path / "ray", **on(cluster)) == results(cfg, tmp_path / "local", num_workers=0)


def test_a_cluster_with_a_server_of_random_latencies_writes_the_same_bytes(cluster, tmp_path):
    from harness.policies.openai import OpenAIPolicy
    from tests.api.hashing import hashing

    cfg = config(model="openai:stub", max_turns=4)
    with hashing(0.05) as server:
        policy = OpenAIPolicy("stub", base_url=server.url)
        local = results(cfg, tmp_path / "local", lambda: policy, num_workers=0, max_concurrent=1)
        assert results(cfg, tmp_path / "ray", lambda: policy, **on(cluster)) == local
        policy.close()


@pytest.mark.slow
@pytest.mark.parametrize(("model", "batched", "cap"), [("random", True, 3), ("expert", False, None), ("idle", True, 2)])
def test_two_nodes_and_one_process_write_the_same_bytes(two_nodes, tmp_path, model, batched, cap, monkeypatch):
    """`idle` asks for no advice."""
    monkeypatch.setattr(registry.env_class(registry.TASKS["HiLo-v0"]), "isolate", not batched)
    cfg = config(model=model, attempts=2, max_turns=cap)
    assert results(cfg, tmp_path / "ray", **on(two_nodes)) == results(cfg, tmp_path / "local", num_workers=0)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["raise", "exit"])
def test_an_engine_that_breaks_or_takes_its_worker_down_spares_the_others(cluster, how):
    cfg = config("Faulty-v0", "expert", episodes=6, knobs={"how": how})
    slots = RayExecutor(connect.connect(cluster.address), 3, 2, advice_kind="expert")
    try:
        ends = {run.episode.seed: run.broken for run in rollout(make_policy("expert"), cfg.all_episodes(), slots)}
    finally:
        slots.close()
    assert ends == {seed: seed % 3 == 0 for seed in cfg.seeds}


def test_a_worker_killed_in_the_middle_changes_nothing(cluster, tmp_path, proved):
    """SIGKILL to the process of one worker while episodes run in it."""
    cfg = config("Slow-v0", knobs=SLOW)
    local = results(cfg, tmp_path / "local", num_workers=0)
    ray, policy = connect.connect(cluster.address), make_policy("random")
    slots = RayExecutor(ray, 6, 2, advice_kind="random")
    victim = ray.get(slots._workers[0].actor.pid.remote())
    act, killed = policy.act, []

    def acting(prompts):
        if not killed and any(prompt.turn == 2 for prompt in prompts):
            killed.append(os.kill(victim, signal.SIGKILL))
        return act(prompts)

    policy.act = acting
    try:
        runs = [record(run, "random", "sparse") for run in rollout(policy, cfg.all_episodes(), slots)]
    finally:
        slots.close()
    proved("a Ray worker killed in the middle of its episodes", local, b"".join(map(dump, sorted(runs, key=key_of))))
    assert killed


@pytest.mark.slow
def test_a_node_that_goes_down_with_its_workers_loses_no_episode(tmp_path, monkeypatch, proved):
    monkeypatch.setattr(RayExecutor, "MOVING", 3.0)
    replace, moved = RayExecutor._replace, []
    monkeypatch.setattr(
        RayExecutor, "_replace", lambda slots, worker, why: (moved.append(why), replace(slots, worker, why))
    )
    cfg = config("Slow-v0", knobs=SLOW)
    local = results(cfg, tmp_path / "local", num_workers=0)
    with nodes(1, 1) as cluster:
        gone = []

        def record_of(record, run):
            if not gone:
                gone.append(cluster.remove_node(cluster.workers[1], allow_graceful=False))

        how = Execution(executor="ray", ray_address=cluster.address, max_concurrent=4, num_workers=2)
        evaluate(cfg, tmp_path / "ray", lambda: make_policy("random"), how, record_of)
        on_ray = (cfg.folder(tmp_path / "ray") / "results.jsonl").read_bytes()
        proved("a node taken away with its worker", local, on_ray)
    assert gone and moved, "its worker died with it, and the slots had to move"


@pytest.mark.slow
def test_a_cluster_left_without_a_node_ends_the_run_in_bounded_time_and_resume_goes_on(tmp_path, monkeypatch, proved):
    monkeypatch.setattr(RayExecutor, "ALONE", 4.0)
    cfg = config("Slow-v0", knobs=SLOW)
    local = results(cfg, tmp_path / "local", num_workers=0)
    with nodes(1) as cluster:
        how = {"executor": "ray", "ray_address": cluster.address, "max_concurrent": 4, "num_workers": 1}
        gone = []

        def record_of(record, run):
            if not gone:
                gone.append(cluster.remove_node(cluster.workers[0], allow_graceful=False))

        began = time.monotonic()
        with pytest.raises(UsageError, match=r"No environment worker lives.*--resume"):
            evaluate(cfg, tmp_path / "ray", lambda: make_policy("random"), Execution(**how), record_of)
        assert time.monotonic() - began < 120
        cluster.add_node(num_cpus=1)
        cluster.wait_for_nodes()
        again = results(cfg, tmp_path / "ray", resume=True, **how)
        proved("the last node taken away, and one given back before --resume", local, again)
        assert gone


@pytest.mark.slow
def test_a_head_killed_outright_is_resumed_to_the_same_bytes_and_leaves_no_process(cluster, tmp_path, proved):
    """Starts a second cluster while the fixture's cluster runs."""
    words = "-m random -e Slow-v0 -n 12 --set delay=0.1 --set size=512 --set max_steps=6 --baselines none -c 4"
    command = [sys.executable, "-m", "harness.cli.eval", "--module", "tests.toys", *words.split()]
    subprocess.run([*command, "-o", str(tmp_path / "whole")], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    cut = [*command, "-o", str(tmp_path / "cut"), "--executor", "ray", "--resume"]
    expected = random.Random(0).randint(2, 6)
    mark = f"ENVSUITE_TEST_RUN={uuid.uuid4().hex}"  # other tests may run clusters at the same time
    environment = {**os.environ, **dict([mark.split("=")])}
    quiet = {"cwd": ROOT, "env": environment, "stdout": subprocess.DEVNULL}
    head = subprocess.Popen(cut, stderr=subprocess.DEVNULL, start_new_session=True, **quiet)
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and head.poll() is None:
        if sum(path.read_bytes().count(b"\n") for path in (tmp_path / "cut").glob("**/journal.jsonl")) >= expected:
            break
        time.sleep(0.05)
    assert head.poll() is None
    assert _bearing(mark), "or nothing is shown below"
    head.kill()
    head.wait()
    subprocess.run(cut, check=True, timeout=600, **quiet)
    (uncut,), (verdicts,) = ((tmp_path / name).glob("**/results.jsonl") for name in ("whole", "cut"))
    proved("the head of a Ray run killed, then --resume", uncut.read_bytes(), verdicts.read_bytes())
    deadline = time.monotonic() + 60
    while _bearing(mark) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not _bearing(mark)


def _bearing(mark):
    """The environment workers whose environment holds `mark`."""
    verdicts = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (
                b"ray::EnvWorker" in (path / "cmdline").read_bytes()
                and mark.encode() in (path / "environ").read_bytes()
            ):
                verdicts.append(path.name)
    return verdicts


@pytest.mark.slow
def test_a_replacement_on_a_node_that_lacks_what_is_needed_ends_the_run(cluster):
    ray = connect.connect(cluster.address)

    class Lacking(EnvWorker):
        def __init__(self, config):
            import a_module_that_no_node_has  # noqa: F401

    class Older(EnvWorker):
        def versions(self):
            return {**connect.versions(), "envsuite": "0.0.0"}

    for worker, error, message in (
        (Lacking, MissingExtra, "a_module_that_no_node_has.*on every node"),
        (Older, UsageError, "has envsuite 0.0.0"),
    ):
        slots = RayExecutor(ray, 2, 2)
        try:
            slots._class = ray.remote(num_cpus=1, max_restarts=0)(worker)
            ray.kill(slots._workers[0].actor)
            with pytest.raises(error, match=message):
                next(run for run in rollout(make_policy("random"), config().all_episodes(), slots) if run.broken)
        finally:
            slots.close()


@pytest.mark.slow
def test_an_answer_lost_with_a_nodes_memory_is_played_again(cluster, monkeypatch):
    """Ray's own error for it, raised in its stead: its timing cannot be brought about from outside."""
    cfg = config("Slow-v0", "random", episodes=4, knobs=SLOW)
    ray, lost = connect.connect(cluster.address), []
    slots = RayExecutor(ray, 2, 2, advice_kind="random")
    get = ray.get

    def losing(ref, **more):
        if not lost:
            lost.append(ref)
            raise ray.exceptions.OwnerDiedError(ref.hex(), b"", "")
        return get(ref, **more)

    monkeypatch.setattr(ray, "get", losing)
    try:
        runs = list(rollout(make_policy("random"), cfg.all_episodes(), slots))
    finally:
        slots.close()
    assert lost and len(runs) == 4 and not any(run.broken for run in runs)


def test_what_the_cluster_cannot_give_is_said_at_once(cluster):
    ray = connect.connect(cluster.address)
    with pytest.raises(UsageError, match="9 environment workers need 9 CPU"):
        RayExecutor(ray, 9, 9)
    with pytest.raises(UsageError, match="no node of the cluster offers it"):
        RayExecutor(ray, 1, 1, resources={"docker": 0.01})
    with pytest.raises(UsageError, match=r"1 CPU and 0\.5 node:__internal_head__ each on one node, and no node"):
        RayExecutor(ray, 1, 1, resources={"node:__internal_head__": 0.5})  # whose node has no processor
    with pytest.raises(UsageError, match="already connected to"):
        connect.connect("127.0.0.1:9")
    assert connect.connect("localhost:" + cluster.address.rpartition(":")[2]) is ray
    with pytest.raises(UsageError, match="has envsuite 0"):
        connect.check_versions({**connect.versions(), "envsuite": "0.0.0"}, "10.0.0.7")
    assert EnvWorker(("sparse", "", 0.99)).versions() == connect.versions()


@pytest.mark.slow
def test_an_engine_that_the_nodes_lack_ends_the_run_with_its_cure(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("ENVSUITE_TEST_DRIVER", str(os.getpid()))
    from tests.cluster import elsewhere  # noqa: F401  registers Elsewhere

    with pytest.raises(MissingExtra, match=r"an_engine_that_no_node_has.*pip install 'envsuite\[babyai\]'"):
        results(config("Elsewhere-v0"), tmp_path, **on(cluster))
