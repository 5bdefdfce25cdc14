"""A day on a cluster of two nodes, namespaces of this machine with a disk each: the model comes from a hub that only the first node
reaches, check is green, the run stages its inputs, TensorBoard and MLflow watch it, it is killed and goes on: one curve in both."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from check_cluster import permitted, sh
from common import Report, arguments, run, with_sessions
from jobs import done, output_of, ranks
from local_hub import LocalHub, Repository
from stage import Nodes, copies
from tiny import log_of, make, write
from tracking import Server, judges, losses, read_events, same

OUTSIDE = "10.9.8.1"


class Day(Nodes):
    """The first node reaches the world beyond the cluster, the second does not."""

    def __enter__(self):
        super().__enter__()
        self.limit(1, None)  # check would find the wire slow
        self.cable = f"qfto{os.getpid()}"
        sh("ip", "link", "add", self.cable, "type", "veth", "peer", "name", "outside", "netns", self.spaces[0])
        sh("ip", "addr", "add", f"{OUTSIDE}/24", "dev", self.cable)
        sh("ip", "link", "set", self.cable, "up")
        sh("ip", "-n", self.spaces[0], "addr", "add", "10.9.8.2/24", "dev", "outside")
        sh("ip", "-n", self.spaces[0], "link", "set", "outside", "up")
        return self

    def __exit__(self, *error):
        subprocess.run(["ip", "link", "del", self.cable], capture_output=True)
        super().__exit__(*error)

    def start(self, *words, each=1):
        return subprocess.Popen(self.job(*words, each=each), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=with_sessions(os.environ))


def fetch(report, nodes, qft, hub, size):
    result = nodes.on_first(qft, "fetch", "Acme/tiny")
    report.holds("qft fetch on the node that has a network", result.returncode == 0, result.stderr)
    report.equal("  each byte once", hub.served.get("model.safetensors"), size)
    hub.forget()


def check(report, nodes, qft, file):
    result = nodes.run(qft, "check", file, "--json", each=2)
    found = json.loads(result.stdout or "{}")
    bad = [v for v in found.get("verdicts", []) if v["level"] == "problem"]
    report.holds("qft check is green", result.returncode == 0 and found.get("passed") and not bad, bad or result.stderr[:3000])


def watched_run(report, nodes, qft, file, out, server):
    """Killed -9 on both nodes once MLflow has steps beyond the last checkpoint; returns the steps that it is to have in the end."""
    job = nodes.start(qft, "train", file, each=2)
    end = time.monotonic() + 120
    sent = 0
    while sent < 60 and job.poll() is None and time.monotonic() < end:
        time.sleep(0.3)
        runs = server.runs() if done(out) > 0 else []
        sent = max((s for s, _ in runs[0]["history"].get("loss", [])), default=0) if runs else 0
    for pid in ranks(file):
        os.kill(pid, signal.SIGKILL)
    words = output_of(job, file)
    report.holds("the run is staged, trained and watched until it is killed", sent >= 60 and "staging" in words, words[-2000:])
    ahead = max((e["current_steps"] for e in log_of(out)), default=0)
    total = max(ahead, sent) + 20
    result = nodes.run(qft, "train", file, f"max_steps={total}", each=2)
    report.holds("the same command goes on", result.returncode == 0 and "resum" in result.stderr, result.stderr[-2000:])
    report.holds("  and stages nothing again", "staging" not in result.stderr, result.stderr[-2000:])
    return total


def curves(report, python, out, server, total):
    ours = losses(log_of(out))
    report.equal("the log has each step once", [s for s, _ in ours], list(range(1, total + 1)))
    events = read_events(python, next((out / "runs").iterdir()))
    report.holds("TensorBoard: one continuous curve", same(events["scalars"]["train/loss"], ours, 1e-6), events["scalars"]["train/loss"][-5:])
    runs = server.runs()
    report.equal("MLflow: one run, FINISHED", [r["status"] for r in runs], ["FINISHED"])
    report.holds("MLflow: one continuous curve", same(runs[0]["history"]["loss"], ours, 1e-12), runs[0]["history"]["loss"][-5:])


def main():
    args = arguments()
    if why := permitted():
        print(f"skipped: {why}")
        sys.exit(77)
    python, report, qft = judges(), Report(), args.build / "bin/qft"
    with tempfile.TemporaryDirectory() as folder, Day(Path(folder)) as nodes:
        tmp = Path(folder)
        (tmp / "mlflow").mkdir()
        server = Server(python, tmp / "mlflow", OUTSIDE)
        try:
            first, here = nodes.disks[0], nodes.here
            settings = json.loads(json.dumps(make(first)).replace(str(first), str(here)))
            model = {p.name: p.read_bytes() for p in (first / "model").iterdir()}
            shutil.rmtree(first / "model")
            hub = LocalHub(host=OUTSIDE)
            hub.models["Acme/tiny"] = Repository(model)
            for name in [n for n in os.environ if n.startswith(("HF_", "TRANSFORMERS_"))]:
                del os.environ[name]
            os.environ |= {"HF_HOME": str(here / "hf"), "HF_ENDPOINT": hub.url, "MLFLOW_TRACKING_URI": f"http://{OUTSIDE}:{server.port}"}
            settings.pop("num_train_epochs")
            settings |= {"model_name_or_path": "Acme/tiny", "stage_to": str(here / "local"), "report_to": ["tensorboard", "mlflow"], "save_steps": 25,
                         "max_steps": 100000, "logging_steps": 1, "lr_scheduler_type": "constant", "warmup_ratio": 0.0, "lora_dropout": 0.0}
            file, out = write(tmp / "run.yaml", settings), first / "out"
            fetch(report, nodes, qft, hub, len(model["model.safetensors"]))
            check(report, nodes, qft, file)
            server.wait()
            total = watched_run(report, nodes, qft, file, out, server)
            report.equal("nobody asked the hub again", hub.requests(), [])
            report.equal("the second node has copies, the first its own", (len(copies(nodes.disks[1] / "local")), len(copies(first / "local"))), (3, 0))
            curves(report, python, out, server, total)
            page = run([qft, "watch", out, "--once"]).stdout
            report.holds("qft watch says how it went", "finished" in page and f"step {total}/{total}" in page, page)
            report.holds("report.html is there", (out / "report.html").exists())
        finally:
            server.stop()
    report.finish()


if __name__ == "__main__":
    main()
