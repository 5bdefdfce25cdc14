"""A run that TensorBoard and MLflow watch: both get each step once, though the run is killed and resumed and the server is down.

The judges are the real readers: TensorBoard's EventAccumulator and a real `mlflow server`, which is asked itself.
"""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
from pathlib import Path

from common import ROOT, Report, arguments, mpirun, run
from jobs import done, output_of, ranks, start, wait_for
from tiny import log_of, make, write

SECRET = "hush-5up3r"

READ_EVENTS = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
print(json.dumps({"scalars": {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]},
                  "texts": {tag: events.Tensors(tag)[-1].tensor_proto.string_val[0].decode() for tag in events.Tags()["tensors"]}}))
"""

def judges():
    """Python with tensorboard and mlflow: QFT_WATCH_PYTHON, else that of .venv-watch, which setup.sh makes."""
    python = Path(os.environ.get("QFT_WATCH_PYTHON", ROOT / ".venv-watch/bin/python"))
    if not python.exists():
        print(f"skipped: no {python} with tensorboard and mlflow (scripts/setup.sh test)")
        sys.exit(77)
    return python


def read_events(python, directory):
    result = subprocess.run([python, "-c", READ_EVENTS, str(directory)], capture_output=True, text=True)
    if result.returncode:
        sys.exit(f"TensorBoard cannot read the events: {result.stderr[-2000:]}")
    return json.loads(result.stdout.splitlines()[-1])


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A real `mlflow server`, and a door before it that can be shut."""

    def __init__(self, python, folder, host="127.0.0.1"):
        self.host, self.port, self.door = host, free_port(), free_port()
        self.log = open(folder / "server.log", "w")
        self.process = subprocess.Popen(
            [python.parent / "mlflow", "server", "--host", host, "--port", str(self.port), "--workers", "1",
             "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder / "artifacts")],
            stdout=self.log, stderr=self.log, start_new_session=True, env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"})
        self.open = None

    def wait(self):
        for _ in range(1200):
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection((self.host, self.port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        sys.exit(f"mlflow server did not start: {Path(self.log.name).read_text()[-2000:]}")

    def ask(self, method, body=None):
        request = urllib.request.Request(f"http://{self.host}:{self.port}/api/2.0/mlflow/{method}",
                                         None if body is None else json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def history(self, run, key):
        query = urllib.parse.urlencode({"run_id": run, "metric_key": key, "max_results": 25000})
        return [(m["step"], m["value"]) for m in self.ask(f"metrics/get-history?{query}").get("metrics", [])]

    def runs(self):
        """All that the server has, the oldest run first."""
        found = []
        for r in self.ask("runs/search", {"experiment_ids": ["0"], "order_by": ["attributes.start_time"]}).get("runs", []):
            info, data = r["info"], r["data"]
            found.append({"id": info["run_id"], "name": info["run_name"], "status": info["status"],
                          "params": {p["key"]: p["value"] for p in data.get("params", [])},
                          "tags": {t["key"]: t["value"] for t in data.get("tags", [])},
                          "history": {key: self.history(info["run_id"], key) for key in ("loss", "eval_loss") if any(m["key"] == key for m in data.get("metrics", []))},
                          "artifacts": [f["path"] for f in self.ask(f"artifacts/list?run_id={info['run_id']}").get("files", [])]})
        return found

    def open_door(self):
        listener = socket.create_server(("127.0.0.1", self.door))
        self.open = listener

        def pump(source, target):
            try:
                while data := source.recv(65536):
                    target.sendall(data)
            except OSError:
                pass
            for end in (source, target):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

        def serve():
            while True:
                try:
                    guest, _ = listener.accept()
                    host = socket.create_connection(("127.0.0.1", self.port))
                except OSError:
                    return
                for pair in ((guest, host), (host, guest)):
                    threading.Thread(target=pump, args=pair, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()

    def stop(self):
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.wait()


def losses(log):
    return [(e["current_steps"], e["loss"]) for e in log if "loss" in e]


def same(ours, theirs, limit):
    return [s for s, _ in ours] == [s for s, _ in theirs] and all(abs(a - b) <= limit * abs(b) for (_, a), (_, b) in zip(ours, theirs))


def check_killed_and_resumed(report, python, server, qft, tmp, settings):
    """kill -9 once MLflow has steps that no checkpoint has; the resumed run goes on in both."""
    out = Path(settings["output_dir"])
    file = write(tmp / "run.yaml", {**settings, "report_to": ["tensorboard", "mlflow"], "run_name": "a day: on/the cluster",
                                    "save_steps": 50, "max_steps": 100000, "eval_strategy": "steps", "eval_steps": 20, "val_size": 4})
    job = start(qft, file)
    wait_for(lambda: done(out) > 120, job)

    def delivered():
        runs = server.runs()
        return runs and max((s for s, _ in runs[0]["history"].get("loss", [])), default=0) > 60

    while not delivered():
        time.sleep(0.5)
    for pid in ranks(file):
        os.kill(pid, signal.SIGKILL)
    output_of(job, file)
    killed_at = max(e["current_steps"] for e in log_of(out))
    sent = max(s for s, _ in server.runs()[0]["history"]["loss"])
    last = max(int(d.name.split("-")[1]) for d in out.glob("checkpoint-*"))
    report.equal("a run that was killed is still running for MLflow", server.runs()[0]["status"], "RUNNING")
    report.holds("the log is ahead of the last checkpoint", killed_at > last, (killed_at, last))
    total = (max(killed_at, sent) // 10 + 3) * 10
    result = mpirun(2, [qft, "train", file, f"max_steps={total}"])
    report.holds("the resumed run says where metrics go", "mlflow: metrics go to http://" in result.stderr and "tensorboard: metrics go to" in result.stderr, result.stderr)

    log = log_of(out)
    ours, evaluated = losses(log), [(e["current_steps"], e["eval_loss"]) for e in log if "eval_loss" in e]
    report.equal("the log has each step once", [s for s, _ in ours], list(range(1, total + 1)))
    folders = [d for d in (out / "runs").iterdir()]
    report.equal("one folder for both parts of the run", [d.name for d in folders], ["a day: on_the cluster"])
    events = read_events(python, folders[0])
    report.holds("TensorBoard: one continuous curve of the loss", same(events["scalars"]["train/loss"], ours, 1e-6), events["scalars"]["train/loss"][-5:])
    report.holds("TensorBoard: the evaluations too", same(events["scalars"]["eval/loss"], evaluated, 1e-6), events["scalars"].get("eval/loss"))
    tags = {"train/learning_rate", "train/grad_norm", "train/epoch", "train/tokens_per_second", "train/memory_peak", "seconds/forward"}
    report.equal("TensorBoard: tags that are missing", sorted(tags - events["scalars"].keys()), [])
    report.equal("TensorBoard: the settings are a text", json.loads(events["texts"]["args/text_summary"])["lora_rank"], 4)

    runs = server.runs()
    report.equal("MLflow: one run", len(runs), 1)
    theirs = runs[0]["history"]
    report.equal("MLflow: each step once", [s for s, _ in theirs["loss"]], list(range(1, total + 1)))
    report.holds("MLflow: one continuous curve of the loss", same(theirs["loss"], ours, 1e-12), theirs["loss"][-5:])
    report.holds("MLflow: the evaluations too", same(theirs["eval_loss"], evaluated, 1e-12), theirs["eval_loss"])
    report.equal("MLflow: name and status", (runs[0]["name"], runs[0]["status"]), ("a day: on/the cluster", "FINISHED"))
    report.equal("MLflow: parameters", (runs[0]["params"]["lora_rank"], runs[0]["params"]["max_steps"]), ("4", "100000"))
    report.equal("MLflow: a changed setting is a tag", runs[0]["tags"].get("changed.max_steps"), str(total))
    report.equal("MLflow: tags", [runs[0]["tags"][k] for k in ("qft.ranks", "team", "mlflow.source.name")], ["2", "night shift", "qft train"])
    wanted = {"run.json", "trainer_log.jsonl", "all_results.json", "training_loss.svg", "trainer_state.json"}
    report.equal("MLflow: results that are missing", sorted(wanted - set(runs[0]["artifacts"])), [])


def check_outage(report, server, qft, tmp, settings):
    """The server is down while a run starts, and comes back; another run ends without it."""
    mute = {**settings, "report_to": "mlflow", "output_dir": str(tmp / "mute"), "max_steps": 20}
    began = time.monotonic()
    plain = mpirun(2, [qft, "train", write(tmp / "plain.yaml", {**mute, "report_to": "none", "output_dir": str(tmp / "plain")})])
    took = time.monotonic() - began
    began = time.monotonic()
    result = mpirun(2, [qft, "train", write(tmp / "mute.yaml", mute)])
    report.check("a run without its server: seconds more", time.monotonic() - began - took, 17)
    report.equal("it warns of it once, and at the end of what is missing", result.stderr.count("warning"), 2)
    report.holds("and says how to send it", f"`qft track {tmp / 'mute'}` sends the rest" in result.stderr, result.stderr)
    report.holds("no secret is shown", SECRET not in result.stderr, result.stderr)
    report.holds("the result is the same", losses(log_of(tmp / "mute")) == losses(log_of(tmp / "plain")), plain.stderr)
    before = len(server.runs())
    server.open_door()
    said = run([qft, "track", tmp / "mute"]).stdout
    report.holds("`qft track` sends it afterwards", "mlflow has the whole run of" in said, said)
    run([qft, "track", tmp / "mute"])
    runs = server.runs()
    report.equal("twice is one run", len(runs), before + 1)
    report.holds("with each step", same(runs[-1]["history"]["loss"], losses(log_of(tmp / "mute")), 1e-12), runs[-1]["history"].get("loss"))
    report.equal("and its end", runs[-1]["status"], "FINISHED")

    server.open.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
    server.open.close()
    late = {**settings, "report_to": "mlflow", "output_dir": str(tmp / "late"), "max_steps": 100000, "logging_steps": 1}
    file = write(tmp / "late.yaml", late)
    job = start(qft, file)
    wait_for(lambda: done(tmp / "late") > 40, job)
    time.sleep(2.5)
    server.open_door()
    while not (now := server.runs()[-1])["history"].get("loss") or now["id"] == runs[-1]["id"]:
        time.sleep(0.5)
    for pid in ranks(file):
        os.kill(pid, signal.SIGUSR1)
    words = output_of(job, file)
    report.holds("a server that comes back gets the gap", "mlflow answers again" in words and words.count("warning  [0/2] mlflow") <= 1, words)
    final = server.runs()[-1]
    report.holds("of each step", same(final["history"]["loss"], losses(log_of(tmp / "late")), 1e-12), final["history"]["loss"][:5])
    report.equal("a run that was stopped is KILLED", final["status"], "KILLED")


def check_refusals(report, qft, tmp, settings):
    file = write(tmp / "refused.yaml", {**settings, "output_dir": str(tmp / "refused"), "max_steps": 2})
    for name, env, words in [("wandb", {}, "wandb sync"), ("mlflow", {"MLFLOW_TRACKING_URI": ""}, "mlflow server --host 127.0.0.1 --port 5000"),
                             ("mlflow", {"MLFLOW_TRACKING_URI": "./mlruns"}, "a local store"), ("tensorbored", {}, "use tensorboard")]:
        result = run([qft, "train", file, f"report_to={name}"], check=False, env={**os.environ, **env})
        report.holds(f"report_to {name} with {env} is refused", result.returncode == 2 and words in result.stderr, result.stderr)
    report.holds("before anything is written", not (tmp / "refused").exists())


def secrets_in(folder):
    return [f for f in folder.rglob("*") if f.is_file() and SECRET.encode() in f.read_bytes()]


def main():
    args = arguments()
    python = judges()
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        tmp = Path(folder)
        (tmp / "mlflow").mkdir()
        server = Server(python, tmp / "mlflow")
        try:
            settings = make(tmp) | {"lr_scheduler_type": "constant", "warmup_ratio": 0.0, "lora_dropout": 0.0}
            settings.pop("num_train_epochs")
            qft = args.build / "bin/qft"
            os.environ["MLFLOW_TAGS"] = json.dumps({"team": "night shift"})
            check_refusals(report, qft, tmp, settings)
            server.wait()
            os.environ["MLFLOW_TRACKING_URI"] = f"http://me:{SECRET}@127.0.0.1:{server.port}"
            check_killed_and_resumed(report, python, server, qft, tmp, settings)
            os.environ["MLFLOW_TRACKING_URI"] = f"http://me:{SECRET}@127.0.0.1:{server.door}"
            check_outage(report, server, qft, tmp, settings)
            report.equal("no file holds the password", secrets_in(tmp), [])
        finally:
            server.stop()
    report.finish()


if __name__ == "__main__":
    main()
