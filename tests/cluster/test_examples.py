"""Example files for clusters that the documentation refers to."""

import subprocess
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_cluster_launcher_configuration_matches_rays_schema():
    yaml = pytest.importorskip("yaml", reason="PyYAML, which Ray's launcher reads with, is not installed")
    jsonschema = pytest.importorskip(
        "jsonschema", reason="jsonschema, which Ray's launcher checks with, is not installed"
    )
    from ray.autoscaler._private.util import prepare_config, validate_config

    text = (EXAMPLES / "cluster.yaml").read_text()
    prepared = prepare_config(yaml.safe_load(text))
    validate_config(prepared)
    assert prepared["max_workers"] == len(prepared["provider"]["worker_ips"])
    with pytest.raises(jsonschema.ValidationError, match="setup_comands"):
        validate_config(prepare_config(yaml.safe_load(text.replace("setup_commands", "setup_comands"))))


STAND_INS = {
    "scontrol": "echo here; echo there",
    # Skips srun's flags and runs the command on this machine.
    "srun": 'while [ "${1#-}" != "$1" ]; do [ "$1" = -w ] && shift; shift; done; exec "$@"',
    "ray": 'echo "ray $*" >> "$LOG"; case $1 in start) exec sleep 60;; status) echo Active:; '
    '[ $(grep -c start "$LOG") -lt 1 ] || echo 1 a; [ $(grep -c start "$LOG") -lt 2 ] || echo 1 b;; esac',
    "envsuite-eval": 'echo "eval $*" >> "$LOG"; exit 7',
    "sleep": 'exec /bin/sleep "$([ "$1" = 5 ] && echo 0.1 || echo "$1")"',
}


def test_the_job_exits_with_the_evaluations_code_if_the_cluster_processes_are_gone():
    (line,) = [line for line in (EXAMPLES / "slurm.sh").read_text().splitlines() if line.startswith("trap ")]
    done = subprocess.run(["bash", "-c", f"set -euo pipefail\n{line}\nfalse & wait $! || true\nexit 7"], timeout=60)
    assert done.returncode == 7


@pytest.mark.parametrize(
    ("words", "plays"), [("", "--model expert --env alfworld -c 512"), ("-m random -e hilo", "-m random -e hilo")]
)
def test_the_job_script_waits_for_its_nodes_evaluates_and_cleans_up(tmp_path, words, plays):
    """Uses stand-ins for Slurm's and Ray's commands; docs/explanation/clusters.md has a manual run."""
    bin = tmp_path / "venv" / "bin"
    bin.mkdir(parents=True)
    (bin / "activate").write_text(f"PATH={bin}:$PATH\n")
    for name, script in STAND_INS.items():
        (bin / name).write_text(f"#!/bin/bash\n{script}\n")
        (bin / name).chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "x", "SLURM_JOB_ID": "71234", "SLURM_CPUS_PER_TASK": "3", "SLURM_NNODES": "2"}
    env = {"PATH": "/usr/bin:/bin", "LOG": str(tmp_path / "log"), "ENVSUITE_VENV": str(bin.parent), **slurm}
    done = subprocess.run(
        ["bash", EXAMPLES / "slurm.sh", *words.split()], env=env, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 7, f"the evaluation's own exit code: {done.stderr}"
    calls = [line for line in (tmp_path / "log").read_text().splitlines() if " status " not in line]
    head, worker, evaluation = calls
    address = worker.partition("--address=")[2].split()[0]
    assert head == "ray start --head --port=21234 --num-cpus=3 --block" and address.endswith(":21234")
    assert worker == f"ray start --address={address} --num-cpus=3 --block"
    assert evaluation == f"eval {plays} --executor ray --ray-address {address} --resume"
