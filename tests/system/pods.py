"""The manifests of k8s, pod by pod, as Kubernetes and the MPI operator start them: namespaces with the image as their root, the
commands, hooks and grace of the manifest. SIGTERM to a pod is a checkpoint and 75, and what starts again goes on: pods.py IMAGE_ROOT"""
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from check_cluster import PREFIX, Cluster, permitted, sh
from common import ROOT, Report
from jobs import done, wait_for
from kills import committed, weights
from tiny import make, write

STEPS = 300
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Run in namespaces of its own; its last command is the container's, as process 1.
BEGIN = """
set -e
hostname "$NAME"
mount -t overlay -o "lowerdir=$IMAGE,upperdir=$POD/upper,workdir=$POD/work" overlay "$POD/root"
cd "$POD/root"
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount --rbind /dev dev
mount -t tmpfs shm dev/shm
cp "$POD/hosts" etc/hosts
while read -r from to; do
  mkdir -p "./$to"
  mount --bind "$from" "./$to"
done <"$POD/volumes"
exec env -i HOME=/root PATH="$CONTAINER_PATH" "${@:2}"
"""


class Pod:
    """A container of a manifest on a node of the cluster."""

    def __init__(self, kube, node, name, container, volumes, env=None):
        self.container, self.name = container, name
        self.dir = Path(tempfile.mkdtemp(dir=kube.dir, prefix=f"{name}-"))
        for part in ("upper", "work", "root"):
            (self.dir / part).mkdir()
        (self.dir / "hosts").write_text(kube.hosts)
        (self.dir / "volumes").write_text("".join(f"{source} {target}\n" for target, source in volumes.items()))
        settings = {**{e["name"]: e["value"] for e in container.get("env", [])}, "OMPI_MCA_btl_vader_single_copy_mechanism": "none", **(env or {})}
        command = [*container["command"], *container.get("args", [])]
        begin = ["unshare", "--pid", "--fork", "--kill-child", "bash", "-c", BEGIN, "pod", str(self.dir),
                 *[f"{key}={value}" for key, value in settings.items()],
                 "chroot", ".", "bash", "-c", f"cd {container.get('workingDir', '/')}; exec \"$@\"", "command", *command]
        self.log = (kube.dir / f"{name}.log").open("a")
        self.job = subprocess.Popen([kube.cluster.tmp / f"node{node}", *begin], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                    env={**os.environ, "NAME": name, "IMAGE": str(kube.image), "POD": str(self.dir), "CONTAINER_PATH": PATH})

    def first_process(self):
        """The process 1 of the pod, by its number outside."""
        return int(Path(f"/proc/{self.job.pid}/task/{self.job.pid}/children").read_text().split()[0])

    def terminate(self):
        """As Kubernetes ends a pod: the hook, then SIGTERM to process 1."""
        process = self.first_process()
        hook = self.container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
        if hook:
            subprocess.run(["nsenter", "--target", str(process), "--mount", "--uts", "--net", "--pid", "--root", "--wd", "env", "-i", f"PATH={PATH}", *hook],
                           check=True, timeout=60)
        subprocess.run(["kill", "-TERM", str(process)], check=False)

    def kill(self):
        self.job.kill()  # --kill-child takes the pod with it
        self.job.wait()
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)


class Kube:
    def __init__(self, image, cluster, directory):
        self.image, self.cluster, self.dir = image, cluster, directory
        self.volume = directory / "volume"
        self.volume.mkdir()
        self.settings = {**make(self.volume), "compute_dtype": "float32", "max_steps": STEPS, "save_steps": 100000}
        names = {0: ["launcher"], 1: ["qft-worker-0.qft.default.svc", "qft-0.qft"], 2: ["qft-worker-1.qft.default.svc", "qft-1.qft"]}
        self.hosts = "127.0.0.1 localhost\n" + "".join(f"{PREFIX}{node + 1} {' '.join(known)}\n" for node, known in names.items())
        self.pods = []

    def run_file(self, name):
        """`run.yaml`, which the manifests name, of a run in /work/<name>."""
        file = write(self.volume / "run.yaml", {**self.settings, "output_dir": str(self.volume / name)})
        file.write_text(file.read_text().replace(str(self.volume), "/work"))
        return self.volume / name

    def secret(self, name, files):
        folder = self.dir / name
        folder.mkdir()
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key")
        for target, source in files.items():
            shutil.copy(folder / source, folder / target)
            (folder / target).chmod(0o600)
        return folder

    def pod(self, *args, **options):
        self.pods.append(Pod(self, *args, **options))
        return self.pods[-1]

    def clear(self):
        for pod in self.pods:
            pod.kill()
        self.pods = []

    def log(self, name):
        return (self.dir / f"{name}.log").read_text()


def manifest(file, kind):
    return next(part for part in yaml.safe_load_all((ROOT / "k8s" / file).read_text()) if part["kind"] == kind)


def asked_to_go(report, kube, what, out, first, goes):
    """The pod `goes` is ended in training; the run then ends with 75 in the pod `first`."""
    before = committed(out)
    at = done(out)
    ready = wait_for(lambda: done(out) >= max(at, max(before, default=0)) + 20, first.job)
    report.holds(f"{what}: in training", ready)
    if not ready:
        sys.exit(kube.log(first.name))
    goes.terminate()
    report.equal("    ... the run ends with", first.job.wait(60), 75)
    report.equal("    ... checkpoints", len(committed(out)), len(before) + 1)


def ends_well(report, kube, what, out, first, whole):
    report.equal(f"{what} ends with", first.job.wait(300), 0)
    if first.job.returncode != 0:
        print(kube.log(first.name))
    report.equal("    ... with the weights of a run left alone", weights(out), whole)


def mpi_operator(report, kube):
    """Keys, host file and variables are as the operator of kubeflow/mpi-operator gives them (v2beta1, Open MPI). Returns the weights of a
    run that is left alone."""
    spec = manifest("qft-mpijob.yaml", "MPIJob")["spec"]
    launcher, worker = (spec["mpiReplicaSpecs"][name]["template"]["spec"]["containers"][0] for name in ("Launcher", "Worker"))
    keys = kube.secret("operator-keys", {"id_rsa": "key", "id_rsa.pub": "key.pub", "authorized_keys": "key.pub"})
    config = kube.dir / "config"
    config.mkdir()
    (config / "hostfile").write_text("".join(f"qft-worker-{i}.qft.default.svc slots=1\n" for i in range(2)))
    env = {"OMPI_MCA_orte_keep_fqdn_hostnames": "true", "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
           "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10", "OMPI_MCA_orte_set_default_slots": "1"}
    volumes = {"/work": kube.volume, spec["sshAuthMountPath"]: keys}

    def start_worker(i):
        return kube.pod(i + 1, f"qft-worker-{i}", worker, volumes, {"K_MPI_JOB_ROLE": "worker"})

    def start_launcher():
        return kube.pod(0, "launcher", launcher, {**volumes, "/etc/mpi": config}, env)

    workers = [start_worker(i) for i in range(2)]
    out = kube.run_file("whole")
    report.equal("MPIJob, left alone", start_launcher().job.wait(300), 0)
    whole = weights(out)
    out = kube.run_file("mpijob")
    first = start_launcher()
    asked_to_go(report, kube, "MPIJob, SIGTERM to the launcher's pod", out, first, first)
    first = start_launcher()
    asked_to_go(report, kube, "MPIJob, a worker's pod is ended", out, first, workers[1])
    workers[1].job.wait(30)
    start_worker(1)
    ends_well(report, kube, "MPIJob, started again", out, start_launcher(), whole)
    kube.clear()
    return whole


def plain_job(report, kube, whole):
    container = manifest("qft-job.yaml", "Job")["spec"]["template"]["spec"]["containers"][0]
    keys = kube.secret("job-keys", {"id_ed25519": "key", "authorized_keys": "key.pub"})
    volumes = {"/work": kube.volume, "/ssh": keys}
    out = kube.run_file("job")

    def start():
        return [kube.pod(i + 1, f"qft-{i}", container, volumes, {"JOB_COMPLETION_INDEX": str(i), "GPUS": "1"}) for i in range(2)]

    for goes in range(2):
        pods = start()
        asked_to_go(report, kube, f"Job, pod {goes} is ended", out, pods[0], pods[goes])
        kube.clear()
    ends_well(report, kube, "Job, started again", out, start()[0], whole)
    kube.clear()


def main():
    why = permitted()
    if why:
        print(why)
        sys.exit(77)
    report = Report()
    with tempfile.TemporaryDirectory(prefix="qft-pods-") as tmp, Cluster(Path(tmp), 3) as cluster:
        kube = Kube(Path(sys.argv[1]).resolve(), cluster, Path(tmp))
        try:
            plain_job(report, kube, mpi_operator(report, kube))
        finally:
            kube.clear()
    report.finish()


main()
