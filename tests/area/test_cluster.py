"""The files for Kubernetes and SLURM, checked by what reads them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.area.buckets import free_port

CLUSTER = Path(__file__).parents[2] / "docs" / "cluster"


def test_the_pods_of_kuberay_are_valid():
    validate = pytest.importorskip("kubernetes_validate").validate
    job = yaml.safe_load((CLUSTER / "kuberay.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]["rayClusterSpec"]
    assert spec["enableInTreeAutoscaling"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    for group in groups:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, **group["template"]}
        validate(pod, "1.31", strict=True)
    assert groups[1]["minReplicas"] == 0 < groups[1]["maxReplicas"]
    said = job["spec"]["entrypoint"].split()
    assert said[:2] == ["adadino", "predict-area"]
    assert "--watch" in said


def test_the_script_for_slurm_is_a_script():
    subprocess.run(["bash", "-n", CLUSTER / "region.sbatch"], check=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="SLURM runs on Linux")
def test_slurm_would_start_the_script(tmp_path):
    programs = {name: shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") for name in NEEDED}
    missing = [name for name, path in programs.items() if path is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and {', '.join(NEEDED)} (apt install slurmctld munge)")
    (tmp_path / "state").mkdir()
    key = tmp_path / "key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    config = tmp_path / "slurm.conf"
    config.write_text(
        SLURM.format(host=socket.gethostname().split(".")[0], at=tmp_path, port=free_port())
    )
    files = {name: f"--{name}={tmp_path / name}" for name in ("socket", "pid-file", "log-file")}
    munge = subprocess.Popen(
        [programs["munged"], "-F", "--force", f"--key-file={key}", *files.values(),
         f"--seed-file={tmp_path / 'seed'}"],
    )  # fmt: skip
    env = {**os.environ, "SLURM_CONF": str(config)}
    master = subprocess.Popen([programs["slurmctld"], "-D", "-c"], env=env)
    try:
        deadline = time.monotonic() + 60
        command = [programs["sbatch"], "--test-only", CLUSTER / "region.sbatch", "a", "b", "c"]
        while True:
            said = subprocess.run(command, env=env, capture_output=True, text=True)
            if said.returncode == 0 or time.monotonic() > deadline:
                break
            time.sleep(0.5)
    finally:
        for process in (master, munge):
            process.terminate()
            process.wait()
    assert said.returncode == 0, said.stderr
    assert "to start at" in said.stderr
    assert "on nodes n[1-4]" in said.stderr


NEEDED = ("munged", "slurmctld", "sbatch")
# Nodes in a cloud: they need not be there for the controller to plan with them.
SLURM = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={at}/socket
StateSaveLocation={at}/state
SlurmctldPidFile={at}/ctld.pid
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
GresTypes=gpu
ResumeProgram=/bin/true
SuspendProgram=/bin/true
SuspendTime=300
NodeName=n[1-4] CPUs=64 RealMemory=256000 Gres=gpu:4 State=CLOUD
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
