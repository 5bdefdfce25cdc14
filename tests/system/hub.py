"""Models, adapters and datasets by their names on a hub. The judges are the hubs' own clients, huggingface_hub and modelscope: they
download from the same local hub, their caches serve qft and qft's serves them, and each byte is on disk once. Runs under mpirun
fetch once; once training has begun no connection is opened."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import Report, arguments, mpirun, run
from hub_faults import Fetcher
from local_hub import LocalHub, Repository
from tiny import make, write

HUGGINGFACE = """
import sys
from huggingface_hub import snapshot_download, hf_hub_download
mode, name, kind = sys.argv[1:4]
print(snapshot_download(name, repo_type=kind, local_files_only=mode == "offline", ignore_patterns=None if mode == "offline" else ["*.bin", "onnx/*"]))
if mode == "offline":
    for file in sys.argv[4:]:
        open(hf_hub_download(name, file, repo_type=kind, local_files_only=True), "rb").read()
"""
MODELSCOPE = """
import sys
from modelscope import snapshot_download, dataset_snapshot_download
mode, name, kind = sys.argv[1:4]
load = dataset_snapshot_download if kind == "dataset" else snapshot_download
print(load(name, local_files_only=mode == "offline"))
"""


def files_of(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


def bytes_on_disk(folder):
    """Of all files of repositories, links not followed; qft's own listing of them does not count."""
    files = [p for p in Path(folder).rglob("*") if p.is_file() and not p.is_symlink()]
    return sum(p.stat().st_size for p in files if not any(part.startswith(".qft-") for part in p.parts))


class Client:
    """A hub's own client in a process of its own."""

    def __init__(self, python, script, fetch):
        self.python, self.script, self.fetch = python, script, fetch

    def __call__(self, mode, name, kind="model", *files):
        environment = self.fetch.environment(HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_UPDATE_CHECK="1",
                                             **({"HF_HUB_OFFLINE": "1"} if mode == "offline" else {}))
        result = subprocess.run([self.python, "-W", "ignore", "-c", self.script, mode, name, kind, *files], capture_output=True, text=True, env=environment)
        return (result.stdout.split() or [result.stderr])[-1]


def check_huggingface(report, hub, fetch, client, model):
    result = fetch("Acme/tiny")
    ours = Path(result.stdout.strip())
    wanted = {n: d for n, d in model.items() if not n.startswith(("onnx", "pytorch")) and n != "README.md"}
    report.holds("qft fetch fetches the files of a model", result.returncode == 0 and files_of(ours) == wanted, result.stderr)
    report.equal("  each byte is on disk once", bytes_on_disk(ours.parents[1] / "blobs"), sum(map(len, wanted.values())))
    hub.forget()
    report.equal("huggingface_hub finds it offline", client("offline", "Acme/tiny", "model", *wanted), str(ours))
    report.equal("  and asks nobody", hub.log, [])
    folder = client("online", "Acme/tiny")
    report.holds("online it fetches only what is missing", folder == str(ours) and not [p for p in hub.served if p in wanted], f"{folder} {hub.served}")

    theirs = client("online", "Acme/theirs")
    size = bytes_on_disk(Path(theirs).parents[1] / "blobs")
    hub.forget()
    result = fetch("Acme/theirs")
    report.equal("qft finds what huggingface_hub fetched", (result.stdout.strip(), hub.served), (theirs, {}))
    report.equal("  each byte is on disk once", bytes_on_disk(Path(theirs).parents[1] / "blobs"), size)

    old = hub.models["Acme/tiny"].refs["main"]
    hub.models["Acme/tiny"].commit({**model, "config.json": model["config.json"] + b"\n"})
    hub.forget()
    newer = Path(fetch("Acme/tiny").stdout.strip())
    report.equal("a newer commit fetches what changed", (newer.name != old, list(hub.served)), (True, ["config.json"]))
    report.equal("the older one is there by its hash", fetch(f"Acme/tiny@{old}").stdout.strip(), str(ours))
    report.equal("huggingface_hub takes the newer one", client("offline", "Acme/tiny"), str(newer))
    hub.models["Acme/tiny"].refs["main"] = old
    fetch("Acme/tiny")


def check_modelscope(report, hub, fetch, client, model):
    if subprocess.run([client.python, "-c", "import modelscope"], capture_output=True).returncode != 0:
        print("skipped: no modelscope here (scripts/setup.sh test)")
        return
    result = fetch("--hub", "modelscope", "Acme/tiny")
    ours = Path(result.stdout.strip())
    report.holds("from ModelScope", result.returncode == 0 and (ours / "model.safetensors").read_bytes() == model["model.safetensors"], result.stderr)
    hub.forget()
    report.equal("modelscope finds it offline", client("offline", "Acme/tiny"), str(ours))
    report.equal("  online too", client("online", "Acme/tiny"), str(ours))
    report.holds("  and fetches only what is missing", "model.safetensors" not in hub.served and "config.json" not in hub.served, hub.served)
    theirs = client("online", "Acme/theirs")
    hub.forget()
    result = fetch("--hub", "modelscope", "Acme/theirs")
    report.equal("qft finds what modelscope fetched", (result.stdout.strip(), hub.served), (theirs, {}))
    theirs_too = hub.models["Acme/theirs"].commits[hub.models["Acme/theirs"].refs["main"]]
    report.equal("  each byte is on disk once", bytes_on_disk(fetch.home / "ms/models/Acme--theirs"), sum(map(len, theirs_too.values())))
    old = fetch.home / "ms/models/Old/Name-1___5"
    shutil.copytree(theirs, old)
    plan = subprocess.run([fetch.qft, "plan", write(fetch.home / "old.yaml", {"model_name_or_path": "Old/Name-1.5", "stage": "sft"}), "--ranks", "1"],
                          capture_output=True, text=True, env=fetch.environment())
    report.equal("a model of an older client's cache is found", plan.returncode, 0)


def check_choices(report, hub, fetch, model):
    for words, expected in [(["--no-weights"], "tokenizer.json"), (["--all"], "onnx/model.onnx"), (["--include", "*.onnx"], "onnx/model.onnx")]:
        to = fetch.home / f"to{words[0]}"
        result = fetch("Acme/tiny", "--to", to, *words)
        there = files_of(to)
        report.holds(f"qft fetch {' '.join(words)} --to DIR", result.returncode == 0 and expected in there
                     and ("model.safetensors" in there) == (words[0] == "--all"), f"{result.stderr} {list(there)}")
    again = fetch("Acme/tiny", "--to", fetch.home / "to--all", "--all")
    report.holds("a second time nothing comes", "already complete" in again.stderr, again.stderr)
    told = json.loads(fetch("Acme/tiny", "--json").stdout)[0]
    report.equal("--json", (told["id"], told["commit"], told["fetched_bytes"]), ("Acme/tiny", hub.models["Acme/tiny"].refs["main"], 0))
    hub.models["Acme/pickled"] = Repository({n.replace("model.safetensors", "pytorch_model.bin"): d for n, d in model.items()})
    report.holds(".bin where there are no safetensors", "pytorch_model.bin" in files_of(fetch("Acme/pickled").stdout.strip()))


def forget_caches(fetch):
    """Both hubs': a run takes a model from where it is."""
    for cache in ("hf", "ms"):
        shutil.rmtree(fetch.home / cache, ignore_errors=True)


def check_runs(report, hub, fetch, settings, tmp):
    """Training under mpirun from names of a hub alone."""
    settings = {**settings, "model_name_or_path": "Acme/tiny", "max_steps": 4, "logging_steps": 1}
    run_file = write(tmp / "run.yaml", settings)
    forget_caches(fetch)
    hub.forget()
    environment = {**fetch.environment(), "OMP_NUM_THREADS": "1"}
    trace = tmp / "trace"
    tracer = ["strace", "-f", "-qq", "-e", "trace=connect,openat", "-o", trace] if shutil.which("strace") else []
    result = run([*tracer, fetch.qft, "train", run_file], check=False, env=environment)
    size = len(hub.models["Acme/tiny"].commits[hub.models["Acme/tiny"].refs["main"]]["model.safetensors"])
    report.holds("a run fetches its model", result.returncode == 0 and hub.served.get("model.safetensors") == size, result.stderr[-1500:])
    if tracer:
        lines = trace.read_text().splitlines()
        begun = next((i for i, line in enumerate(lines) if "trainer_log.jsonl" in line and "O_WRONLY" in line), len(lines))
        connects = [i for i, line in enumerate(lines) if re.search(r"connect\(\d+, \{sa_family=AF_INET6?,", line)]
        report.holds("  with connections before training", any(i < begun < len(lines) for i in connects), lines[-5:])
        report.equal("  and none once it has begun", [lines[i] for i in connects if i > begun], [])
    else:
        print("skipped: no strace here")

    forget_caches(fetch)
    hub.forget()
    result = run(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", 2, fetch.qft, "train", run_file, f"output_dir={tmp / 'two'}"], check=False,
                 env=environment)
    report.holds("under mpirun each byte comes once", result.returncode == 0 and hub.served.get("model.safetensors") == size, result.stderr[-1500:])
    hub.forget()
    result = run(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", 2, fetch.qft, "train", run_file, f"output_dir={tmp / 'three'}"], check=False,
                 env=environment)
    report.equal("from the cache nobody is asked", (result.returncode, hub.log), (0, []))
    adapter = json.loads((tmp / "three/adapter_config.json").read_text())
    report.equal("the adapter names its base as the run did", adapter["base_model_name_or_path"], "Acme/tiny")
    result = run(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", 2, fetch.qft, "train", run_file, "model_name_or_path=Acme/nowhere",
                  f"output_dir={tmp / 'four'}"], check=False, env={**environment, "HF_ENDPOINT": "http://127.0.0.1:9"})
    report.holds("without a network: said once, with what to do", result.returncode == 1 and result.stderr.count("qft fetch Acme/nowhere") == 1,
                 result.stderr)
    hub.models["Acme/lora"] = Repository({p.name: p.read_bytes() for p in (tmp / "three").iterdir() if p.is_file() and p.name.startswith("adapter")})
    result = run([fetch.qft, "generate", "adapter_name_or_path=Acme/lora", "prompt=1 2", "max_new_tokens=4", "template=smollm2"], check=False, env=environment)
    report.holds("an adapter by its name brings its base", result.returncode == 0 and "Acme/lora" in result.stderr, result.stderr)
    return environment


PARTS = """
import sys
from huggingface_hub import hf_hub_download
for file in sys.argv[4:]:
    hf_hub_download(sys.argv[2], file, repo_type=sys.argv[3])
"""


def check_stop(report, hub, cdn, fetch, settings, tmp, environment):
    """Asked to stop while its model comes, a run ends as any that has trained nothing: with 75."""
    hub.models["Acme/slow"] = Repository({"config.json": b"{}", "model.safetensors": bytes(8_000_000)})
    hub.forget()
    cdn.delay = 0.05
    run_file = write(tmp / "slow.yaml", {**settings, "model_name_or_path": "Acme/slow", "output_dir": str(tmp / "slow")})
    process = subprocess.Popen([fetch.qft, "train", run_file], stderr=subprocess.PIPE, text=True, env=environment)
    while not hub.served.get("model.safetensors") and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGUSR1)
    said = process.communicate(timeout=60)[1]
    cdn.delay = 0.0
    report.holds("a signal while the model comes: exit code 75", process.returncode == 75 and "submit the job again" in said, f"{process.returncode} {said}")


def check_parts(report, hub, fetch, settings, tmp, environment):
    """What a cache has of a dataset or a model may be a part, which somebody fetched file by file."""
    records = json.loads((Path(settings["dataset_dir"]) / "numbers.json").read_text())
    lines = lambda rows: "".join(json.dumps(r) + "\n" for r in rows).encode()
    hub.datasets["Acme/shards"] = Repository({f"{n}/train-{i}.jsonl": lines(records[5 * i:5 * i + 5]) for n in ("en", "zh") for i in range(2)})
    part = Client(sys.executable, PARTS, fetch)
    folder = tmp / "parts"
    folder.mkdir()
    (folder / "dataset_info.json").write_text(json.dumps({n: {"hf_hub_url": "Acme/shards", "folder": n} for n in ("en", "zh")}
                                                         | {"all": {"hf_hub_url": "Acme/shards"}}))

    def pack(names, model="Acme/tiny", **more):
        return run([args.build / "bin/qft-pack", write(tmp / "pack.yaml", {**settings, "model_name_or_path": model, "dataset_dir": str(folder), "dataset": names}),
                    "--output", tmp / "parts.h5", "--json"], check=False, env={**environment, **more})

    def items(result):
        return json.loads(result.stdout or "{}").get("items")

    pack("all")  # the model
    for names, expected in [("all", 20), ("en", 10)]:
        shutil.rmtree(fetch.cache / "datasets--Acme--shards", ignore_errors=True)
        part("online", "Acme/shards", "dataset", "en/train-0.jsonl")
        result = pack(names)
        report.equal(f"dataset: {names}, of which one file is in the cache: all come", items(result), expected)
    result = pack("zh")
    report.equal("  another folder of it later", items(result), 10)
    shutil.rmtree(fetch.cache / "datasets--Acme--shards")
    for names, expected in [("en,zh", 20), ("en,all", 30)]:
        result = pack(names)
        report.equal(f"dataset: {names}, parts of one repository", items(result), expected)
        shutil.rmtree(fetch.cache / "datasets--Acme--shards")
    pack("zh")
    hub.forget()
    report.equal("  which then is known to be there", (items(pack("zh")), hub.log), (10, []))
    shutil.rmtree(fetch.cache / "datasets--Acme--shards")
    part("online", "Acme/shards", "dataset", "en/train-0.jsonl")
    result = pack("all", HF_HUB_OFFLINE="1")
    report.holds("  offline it is taken with a warning", items(result) == 5 and "may lack files" in result.stderr, result.stderr)

    files = hub.models["Acme/tiny"].commits[hub.models["Acme/tiny"].refs["main"]]
    hub.models["Acme/partly"] = Repository({**files, "generation_config.json": b'{"eos_token_id": 1}'})
    part("online", "Acme/partly", "model", *[n for n in files if "/" not in n and n != "tokenizer_config.json"])
    snapshot = next((fetch.cache / "models--Acme--partly/snapshots").iterdir())
    result = pack("all", model="Acme/partly")
    report.holds("a model of which small files are missing", result.returncode == 0 and (snapshot / "generation_config.json").exists(), result.stderr)


def check_datasets(report, hub, fetch, settings, tmp, environment):
    records = json.loads((Path(settings["dataset_dir"]) / "numbers.json").read_text())
    lines = lambda rows: "".join(json.dumps(r) + "\n" for r in rows).encode()
    readme = b"---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train_sft\n    path: parts/a-*\n  - split: test\n    path: parts/b-*\n---\n# Data\n"
    hub.datasets["Acme/numbers"] = Repository({"README.md": readme, "parts/a-0.jsonl": lines(records[:20]), "parts/b-0.jsonl": lines(records[20:25]),
                                               "parts/c-0.jsonl": lines(records[25:])})
    hub.datasets["Acme/words"] = Repository({"train.jsonl": lines(records[:10]), "test.jsonl": lines(records[10:])})
    folder = tmp / "hubdata"
    folder.mkdir()
    (folder / "dataset_info.json").write_text(json.dumps({
        "a": {"hf_hub_url": "Acme/numbers", "split": "train_sft"}, "b": {"hf_hub_url": "Acme/numbers", "split": "test[:3]"},
        "ms": {"ms_hub_url": "Acme/words"}, "gone": {"hf_hub_url": "Acme/gone"}}))
    for names, items in [("a", 20), ("b", 3), ("ms", 10), ("Acme/words", 10), ("Acme/words#4", 4)]:
        result = run([args.build / "bin/qft-pack", write(tmp / "pack.yaml", {**settings, "model_name_or_path": "Acme/tiny", "dataset_dir": str(folder), "dataset": names}),
                      "--output", tmp / "pack.h5", "--json"], check=False, env=environment)
        report.holds(f"dataset: {names}", result.returncode == 0 and json.loads(result.stdout or "{}").get("items") == items, result.stderr + result.stdout)
    result = run([fetch.qft, "fetch", write(tmp / "fetch.yaml", {**settings, "model_name_or_path": "Acme/tiny", "dataset_dir": str(folder), "dataset": "a,ms"}), "--json"],
                 check=False, env=environment)
    report.equal("qft fetch RUN.yaml fetches all that it names", sorted(r["id"] for r in json.loads(result.stdout or "[]")), ["Acme/numbers", "Acme/tiny", "Acme/words"])
    result = run([args.build / "bin/qft-pack", write(tmp / "pack.yaml", {**settings, "model_name_or_path": "Acme/tiny", "dataset_dir": str(folder), "dataset": "gone"}),
                  "--output", tmp / "gone.h5"], check=False, env=environment)
    report.holds("a dataset that is not there", result.returncode == 1 and "there is no dataset Acme/gone" in result.stderr, result.stderr)


def main():
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = make(tmp)
        model = {p.name: p.read_bytes() for p in (tmp / "model").iterdir()}
        model |= {"README.md": b"# tiny\n", "pytorch_model.bin": b"x" * 70000, "onnx/model.onnx": b"y" * 70000}
        cdn = LocalHub()
        hub = LocalHub(storage=cdn)
        cdn.served = hub.served
        hub.models["Acme/tiny"], hub.models["Acme/theirs"] = Repository(model), Repository({**model, "README.md": b"# theirs\n"})
        forget = hub.forget
        hub.forget = lambda: (forget(), setattr(cdn, "served", hub.served), cdn.log.clear())
        fetch = Fetcher(args.build / "bin/qft", hub, tmp / "home")
        fetch.home.mkdir()
        check_huggingface(report, hub, fetch, Client(sys.executable, HUGGINGFACE, fetch), model)
        check_modelscope(report, hub, fetch, Client(args.modelscope, MODELSCOPE, fetch), model)
        check_choices(report, hub, fetch, model)
        environment = check_runs(report, hub, fetch, settings, tmp)
        check_datasets(report, hub, fetch, settings, tmp, environment)
        check_parts(report, hub, fetch, settings, tmp, environment)
        check_stop(report, hub, cdn, fetch, settings, tmp, environment)
    report.finish()


if __name__ == "__main__":
    args = arguments(modelscope=sys.executable)
    main()
