"""Downloads that go wrong: a wrong token, a missing name, a server that stops, a hash that differs, a full disk. Every one is said
clearly, nothing half is seen under its final name, and what came is not fetched again."""
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import Report, arguments, with_sessions
from local_hub import LocalHub, Repository

SECRET = "hf_secretsecretsecret"
WEIGHTS = "model.safetensors"


def files(bytes_=2_000_000, seed=0):
    return {"config.json": b"{}\n", "tokenizer.json": b'{"version": "1.0"}\n' * 50, WEIGHTS: random.Random(seed).randbytes(bytes_)}


class Fetcher:
    """`qft fetch` with a home of its own."""

    def __init__(self, qft, hub, home):
        self.qft, self.hub, self.home = qft, hub, Path(home)
        self.cache = self.home / "hf/hub"

    def environment(self, **more):
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "MODELSCOPE_", "TRANSFORMERS_")) and "proxy" not in k.lower()}
        return {**kept, "HOME": str(self.home), "HF_HOME": str(self.home / "hf"), "MODELSCOPE_CACHE": str(self.home / "ms"),
                "HF_ENDPOINT": self.hub.url, "MODELSCOPE_ENDPOINT": self.hub.url, **more}

    def start(self, *words, **environment):
        return subprocess.Popen([str(self.qft), "fetch", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=with_sessions(self.environment(**environment)))

    def __call__(self, *words, before=(), **environment):
        return subprocess.run([*before, str(self.qft), "fetch", *map(str, words)], capture_output=True, text=True,
                              env=self.environment(**environment))

    def parts(self):
        return [p for p in self.home.rglob("*.incomplete*") if p.is_file()]

    def half_models(self):
        """Folders that look like a model and have not all of its files."""
        return [str(p.parent) for p in self.home.rglob("config.json") if not (p.parent / WEIGHTS).exists()]


def check_refusals(report, hub, fetch):
    hub.models["Acme/gated"] = Repository(files(), token=SECRET, gated=True)
    hub.models["Acme/private"] = Repository(files(), token=SECRET)
    hub.datasets["Acme/gated"] = Repository({"train.jsonl": b"{}"}, token=SECRET, gated=True)
    hub.models["Acme/gguf"] = Repository({"config.json": b"{}", "model.gguf": b"x"})
    hub.models["Acme/many"] = Repository({"config.json": b"{}"} | {f"d/{i}": b"x" for i in range(2998)})
    hub.models["Acme/torn"] = Repository({"config.json": b"{}", "model.safetensors.index.json": json.dumps(
        {"weight_map": {"a": "model-1.safetensors"}}).encode()})
    wrong = "hf_wrongwrongwrong"
    for what, words, environment, parts in [
        ("a name that is not there", ["Acme/none"], {}, ["there is no model Acme/none", "private", "HF_TOKEN"]),
        ("on ModelScope", ["--hub", "modelscope", "Acme/none"], {}, ["there is no model Acme/none", "MODELSCOPE_API_TOKEN"]),
        ("a revision that is not there", ["Acme/tiny", "--revision", "v7"], {}, ["no revision 'v7'", "it has main"]),
        ("on ModelScope", ["--hub", "modelscope", "Acme/tiny@v7"], {}, ["no revision 'v7'", "it has main"]),
        ("a gated model without a token", ["Acme/gated"], {}, ["gated", "accept its conditions", "set HF_TOKEN"]),
        ("a gated dataset", ["--dataset", "Acme/gated"], {}, ["gated", f"{hub.url}/datasets/Acme/gated"]),
        ("a private model without a token", ["Acme/private"], {}, ["private", "no token is given"]),
        ("a wrong token", ["Acme/gated"], {"HF_TOKEN": wrong}, ["refuses the token of HF_TOKEN"]),
        ("on ModelScope", ["--hub", "modelscope", "Acme/tiny"], {"MODELSCOPE_API_TOKEN": wrong}, ["refuses the token of MODELSCOPE_API_TOKEN"]),
        ("a listing that ModelScope cuts", ["--hub", "modelscope", "Acme/many"], {}, ["lists only the first 3000"]),
        ("weights of another kind", ["Acme/gguf"], {}, ["no weights that qft reads", "model.gguf", "--all"]),
        ("an index that names what is not there", ["Acme/torn"], {}, ["names 'model-1.safetensors'"]),
        ("a name that is none", ["../../etc/passwd"], {}, ["does not name a model on a hub"]),
        ("a revision that leads out", ["Acme/tiny", "--revision", "../../../x"], {}, ["not a revision"]),
        ("HF_HUB_OFFLINE", ["Acme/tiny"], {"HF_HUB_OFFLINE": "1"}, ["HF_HUB_OFFLINE=1"]),
        ("no server at all", ["Acme/tiny"], {"HF_ENDPOINT": "http://127.0.0.1:9"}, ["127.0.0.1:9", "connect"]),
        ("a server that is no hub", ["Acme/tiny"], {"HF_ENDPOINT": hub.url + "/cdn"}, [hub.url.removeprefix("http://")]),
    ]:
        result = fetch(*words, **environment)
        report.holds(f"{what}: an error that says what to do", result.returncode in (1, 2) and all(p in result.stderr for p in parts), result.stderr)
        report.holds("  without a secret", wrong not in result.stderr + result.stdout and SECRET not in result.stderr)
    report.equal("no half model", fetch.half_models(), [])
    result = fetch("Acme/gated", HF_TOKEN=SECRET)
    report.equal("with the right token it comes", result.returncode, 0)
    (fetch.home / "hf").mkdir(exist_ok=True)
    (fetch.home / "hf/token").write_text(SECRET + "\n")
    report.equal("with that of the token file too", fetch("Acme/private").returncode, 0)
    (fetch.home / "hf/token").unlink()
    kept = b"".join(p.read_bytes() for p in fetch.home.rglob("*") if p.is_file() and p.stat().st_size < 100_000)
    report.holds("no file has the token", SECRET.encode() not in kept)


def check_token_goes_nowhere_else(report, hub, cdn, fetch):
    for words, environment in [(["Acme/gated"], {"HF_TOKEN": SECRET}), (["--hub", "modelscope", "Acme/gated"], {"MODELSCOPE_API_TOKEN": SECRET})]:
        cdn.log.clear()
        hub.log.clear()
        result = fetch(*words, "--to", fetch.home / f"to{len(words)}", **environment)
        sent = json.dumps(cdn.log)
        report.holds(f"{' '.join(words)}: the hub gets the token", result.returncode == 0 and SECRET in json.dumps(hub.log), result.stderr)
        report.holds("  the host that it redirects to does not", len(cdn.log) == 1 and SECRET not in sent, sent)


def check_interruptions(report, hub, cdn, fetch):
    data = files(3_000_000, seed=1)
    hub.models["Acme/stops"] = Repository(data)
    size = len(data[WEIGHTS])
    cdn.served, cdn.stop_after = {}, {WEIGHTS: 1_200_000}
    result = fetch("Acme/stops")
    report.holds("a server that stops in the middle: it goes on by range", result.returncode == 0, result.stderr)
    report.equal("  no byte came twice", cdn.served[WEIGHTS], size)

    hub.models["Acme/dies"] = Repository(files(3_000_000, seed=2))
    cdn.served, cdn.stop_after = {}, {WEIGHTS: -1_500_000}
    always = fetch("Acme/dies", "--patience", 4)
    kept = sum(p.stat().st_size for p in fetch.parts())
    report.holds("a server that stops for good: an error that says how much came",
                 always.returncode == 1 and "The received bytes are kept" in always.stderr, always.stderr)
    report.holds("  and it is there", kept >= 1_500_000, str(kept))
    report.equal("  no half model", fetch.half_models(), [])
    cdn.stop_after, cdn.served = {}, {}
    report.equal("  the next call fetches the rest", (fetch("Acme/dies").returncode, cdn.served[WEIGHTS]), (0, size - kept))

    hub.models["Acme/killed"] = Repository(files(6_000_000, seed=3))
    cdn.served, cdn.delay = {}, 0.01
    process = fetch.start("Acme/killed")
    while cdn.served.get(WEIGHTS, 0) < 3_000_000 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    time.sleep(0.1)
    before, cdn.delay = cdn.served[WEIGHTS], 0.0
    report.equal("kill -9: no half model", fetch.half_models(), [])
    result = fetch("Acme/killed")
    again = cdn.served[WEIGHTS] - 6_000_000
    report.holds("  costs only what was on its way", result.returncode == 0 and before > 0 and again <= 2_000_000, f"{again} bytes again")

    hub.models["Acme/plain"] = Repository(files(2_000_000, seed=4))
    cdn.served, cdn.no_range, cdn.stop_after = {}, True, {WEIGHTS: 1_000_000}
    result = fetch("Acme/plain")
    cdn.no_range = False
    report.holds("a server without ranges: from the beginning", result.returncode == 0, result.stderr)

    hub.models["Acme/signed"] = Repository(files(100_000, seed=12))
    cdn.refuses[WEIGHTS] = (403, 1)
    report.equal("a storage that refuses a signature: a new one is asked for", fetch("Acme/signed").returncode, 0)
    for status in (403, 416):
        hub.models["Acme/refused"] = Repository(files(100_000, seed=status))
        cdn.refuses[WEIGHTS] = (status, 1000)
        result = fetch("Acme/refused")
        asked = 1000 - cdn.refuses.pop(WEIGHTS)[1]
        report.holds(f"a storage that always answers {status}: it is named, and the account is not blamed", result.returncode == 1
                     and f"{cdn.url.removeprefix('http://')} answers {status}" in result.stderr and "gated" not in result.stderr, result.stderr)
        report.holds("  after a few requests", asked < 10, asked)


def check_content(report, hub, cdn, fetch):
    data = files(1_000_000, seed=6)
    hub.models["Acme/wrong"] = Repository(data)
    cdn.wrong[WEIGHTS] = bytes(len(data[WEIGHTS]))
    result = fetch("Acme/wrong")
    there, stated = hashlib.sha256(cdn.wrong[WEIGHTS]).hexdigest(), hashlib.sha256(data[WEIGHTS]).hexdigest()
    report.holds("a file whose sha256 differs: an error with both", result.returncode == 1 and there in result.stderr and stated in result.stderr,
                 result.stderr)
    report.holds("  it is gone, and no model is seen", not [p for p in fetch.parts() if p.stat().st_size] and not fetch.half_models())
    cdn.wrong.clear()
    hub.wrong["config.json"] = b"[]\n"
    hub.models["Acme/small"] = Repository(files(1000, seed=7))
    result = fetch("Acme/small")
    report.holds("a small file whose git hash differs", result.returncode == 1 and "git hash" in result.stderr, result.stderr)
    hub.wrong.clear()
    for path in ["../../../escaped", "/tmp/escaped", "a/../../b", "x\ny"]:
        hub.extra = [{"type": "file", "path": path, "size": 1, "oid": "0" * 40}]
        result = fetch("Acme/small", "--all")
        report.holds(f"a listing with {path!r}", result.returncode == 1 and "not a path in the repository" in result.stderr, result.stderr)
    hub.extra = []
    to = fetch.home / "mine"
    to.mkdir()
    (to / "config.json").write_text("my own")
    result = fetch("Acme/small", "--to", to)
    report.holds("a file of somebody else's in --to stays", result.returncode == 1 and (to / "config.json").read_text() == "my own", result.stderr)
    hub.page = 2
    report.equal("a listing of several pages", fetch("Acme/small", "--to", fetch.home / "paged").returncode, 0)
    hub.page = 1000


def check_together(report, hub, cdn, fetch):
    hub.models["Acme/shared"] = Repository(files(4_000_000, seed=8))
    cdn.served, cdn.delay = {}, 0.05  # longer than the last of the processes takes to start
    processes = [fetch.start("Acme/shared") for _ in range(3)]
    errors = [p.communicate()[1] for p in processes]
    cdn.delay = 0.0
    report.equal("three processes at once", [p.returncode for p in processes], [0] * 3)
    report.equal("  fetch each byte once", cdn.served[WEIGHTS], 4_000_000)
    report.holds("  the others say that they wait", sum("waiting for another process" in e for e in errors) == 2, errors)


def check_full_disk(report, hub, cdn, fetch):
    disk = fetch.home / "small-disk"
    disk.mkdir()
    inside = f'mount -t tmpfs -o size=2m tmpfs "{disk}" && '
    namespace = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    if subprocess.run([*namespace, "sh", "-c", inside + "true"], capture_output=True).returncode != 0:
        print("skipped: no mount namespaces here")
        return
    hub.models["Acme/large"] = Repository(files(4_000_000, seed=9))
    cdn.served = {}
    script = inside + '"$@"; code=$?; find "$HF_HOME" -name config.json >&2; exit $code'
    result = fetch("Acme/large", before=[*namespace, "sh", "-c", script, "sh"], HF_HOME=str(disk))
    report.holds("a disk that has no room: said before anything large comes", result.returncode == 1 and "free" in result.stderr and WEIGHTS not in cdn.served,
                 result.stderr)
    report.holds("  no half model", "snapshots" not in result.stderr, result.stderr)
    # Others fill it meanwhile.
    hub.models["Acme/fits"] = Repository(files(1_500_000, seed=10))
    cdn.delay = 0.05
    fill = f'(until find "$HF_HOME" -name "*.incomplete*" -size +60k 2>/dev/null | grep -q .; do sleep 0.02; done; head -c 2000000 /dev/zero >"{disk}/fill" 2>/dev/null) & "$@"; code=$?; wait; find "$HF_HOME" -name config.json >&2; ls -l "$HF_HOME"/hub/*/blobs >&2; exit $code'
    result = fetch("Acme/fits", before=[*namespace, "sh", "-c", inside + fill, "sh"], HF_HOME=str(disk))
    cdn.delay = 0.0
    report.holds("a disk that fills up on the way", result.returncode == 1 and "No space left" in result.stderr and "kept" in result.stderr, result.stderr)
    report.holds("  no half model", "snapshots" not in result.stderr, result.stderr)


def main():
    args = arguments()
    report = Report()
    cdn = LocalHub()
    hub = LocalHub(storage=cdn)
    hub.models["Acme/tiny"] = Repository(files())
    with tempfile.TemporaryDirectory() as tmp:
        fetch = Fetcher(args.build / "bin/qft", hub, tmp)
        check_refusals(report, hub, fetch)
        check_token_goes_nowhere_else(report, hub, cdn, fetch)
        check_interruptions(report, hub, cdn, fetch)
        check_content(report, hub, cdn, fetch)
        check_together(report, hub, cdn, fetch)
        check_full_disk(report, hub, cdn, fetch)
    report.finish()


if __name__ == "__main__":
    main()
