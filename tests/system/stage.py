"""stage_to on two nodes, which are network and mount namespaces of this machine: each has a disk of its own, the wire between them is
shaped. What only the first node has is copied once over MPI, at the wire's speed, verified, and found again by the next run."""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from check_cluster import Cluster, permitted
from common import Report, arguments, run, with_sessions
from tiny import make, write

RATE = 100  # Mbit/s


class Nodes(Cluster):
    """Two nodes; `here` of each is its own disk. The wire between them is shaped."""

    def __init__(self, tmp):
        super().__init__(tmp, 2)
        self.here, self.disks = tmp / "node", [tmp / f"disk{node}" for node in range(2)]
        for folder in (self.here, *self.disks):
            folder.mkdir()

    def __enter__(self):
        super().__enter__()
        self.limit(1, f"{RATE}mbit")
        self.job("true")  # scripts that know the disks
        return self

    def job(self, *words, each=1):
        mounts = {node: f'mount --bind "{disk}" "{self.here}"\nexport OMP_NUM_THREADS=1\n' for node, disk in enumerate(self.disks)}
        return super().job(*words, setups=mounts, ranks_per_node=each)

    def on_first(self, *command):
        return subprocess.run([str(c) for c in [self.tmp / "node0", *command]], capture_output=True, text=True)

    def received(self):
        """Bytes that came to the second node."""
        return int(run(["ip", "netns", "exec", self.spaces[1], "cat", "/sys/class/net/eth0/statistics/rx_bytes"]).stdout)


def copies(disk):
    return sorted(p.parent for p in disk.glob("*/.qft-staged.json"))


def check_stop(report, nodes, qft, run_file):
    """A signal to stop while 40 MB are on their way."""
    local = nodes.disks[1] / "stopped"
    words = [f"output_dir={nodes.here}/stopped-out", f"stage_to={nodes.here}/stopped"]
    job = subprocess.Popen(nodes.job(qft, "train", run_file, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=with_sessions(os.environ))
    ranks = lambda: [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and is_rank(p, qft, words[0])]
    while job.poll() is None and not any(p.stat().st_size for p in local.glob("tmp-qft-*/extra.json")):
        time.sleep(0.02)
    for rank in ranks():
        os.kill(rank, signal.SIGUSR1)
    begun = time.monotonic()
    said = job.communicate(timeout=60)[1]
    report.holds("a signal while a model is staged: exit code 75, soon", job.returncode == 75 and time.monotonic() - begun < 30, f"{job.returncode} {said[-2000:]}")
    report.equal("  and nothing half is left", [p.name for p in local.glob("tmp-qft-*")], [])


def is_rank(process, program, word):
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0] == str(program).encode() and word.encode() in words


def main():
    args = arguments()
    if why := permitted():
        print(f"skipped: {why}")
        sys.exit(77)
    report = Report()
    qft = args.build / "bin/qft"
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        with Nodes(tmp) as nodes:
            first, second = nodes.disks
            settings = make(first)  # the second node does not have it
            here = str(nodes.here)
            settings = json.loads(json.dumps(settings).replace(str(first), here))
            (first / "model/extra.json").write_bytes(b" " * 40_000_000)  # something to measure
            settings |= {"stage_to": f"{here}/local", "max_steps": 3, "output_dir": f"{here}/out"}
            run_file = write(tmp / "run.yaml", settings)
            before = nodes.received()
            result = nodes.run(qft, "train", run_file, each=2)
            came = nodes.received() - before
            report.holds("a model and data that only one node has", result.returncode == 0, result.stderr[-2000:])
            staged = copies(second / "local")
            size = sum(p.stat().st_size for p in (first / "model").iterdir())
            report.equal("  are copied to the other's disk, not to their own", (len(staged), len(copies(first / "local"))), (3, 0))  # the pack that the run made too
            report.holds("  byte for byte", any((f / "model.safetensors").exists() and (f / "model.safetensors").read_bytes() == (first / "model/model.safetensors").read_bytes()
                                                for f in staged), staged)
            report.holds("  over the wire once", size < came < 1.25 * size, f"{came} of {size}")
            told = [line for line in result.stderr.splitlines() if "staged model" in line]
            seconds = float(told[0].split("staged model: ")[1].split(" s")[0]) if told else 0
            share = size * 8 / seconds / (RATE * 1e6) if seconds else 0
            report.holds("  at 80% of its speed at least", share >= 0.8, f"{share:.2f} in {seconds} s")
            print(f"        {share:.2f} of {RATE} Mbit/s")

            before = nodes.received()
            result = nodes.run(qft, "train", run_file, f"output_dir={here}/again")
            report.holds("the next run finds the copies", result.returncode == 0 and nodes.received() - before < size / 4 and "staging model" not in result.stderr and "staging data" not in result.stderr, result.stderr[-2000:])
            half = second / "model"
            shutil.copytree(first / "model", half)
            os.truncate(half / "model.safetensors", 1000)
            result = nodes.run(qft, "train", run_file, f"output_dir={here}/half")
            report.holds("half a model on the second node's own disk: its copy of the whole is taken", result.returncode == 0
                         and "differs from the first node's files" in result.stderr and "staging model" not in result.stderr, result.stderr[-2000:])
            shutil.rmtree(half)
            (first / "data/numbers.json").write_text((first / "data/numbers.json").read_text().replace("again", "anew"))
            result = nodes.run(qft, "train", run_file, f"output_dir={here}/third")
            report.holds("what has changed is copied again, and only that", result.returncode == 0 and "staging data" in result.stderr and "staging model" not in result.stderr,
                         result.stderr[-2000:])
            result = nodes.run(qft, "train", run_file, f"output_dir={here}/fourth", f"stage_to={here}/small", "stage_limit=0.001")
            report.holds("a limit that it does not fit in", result.returncode == 1 and "stage_limit allows 1.00 MB" in result.stderr, result.stderr[-2000:])
            result = nodes.run(qft, "train", run_file, f"output_dir={here}/fifth", "stage_to=null")
            report.holds("without stage_to the second node says what it misses", result.returncode != 0 and "model" in result.stderr, result.stderr[-500:])

            odd = first / b"model/\xcb\xff.txt".decode(errors="surrogateescape")
            odd.write_text("notes")
            result = nodes.run(qft, "train", run_file, f"output_dir={here}/sixth", f"stage_to={here}/sixth-local")
            report.holds("a name that is no UTF-8 ends the job with an error", result.returncode == 1 and "not UTF-8" in result.stderr, result.stderr[-2000:])
            odd.unlink()

            check_stop(report, nodes, qft, run_file)

            (second / "local/mine").mkdir()
            (second / "local/mine/thesis").write_text("words")
            run([qft, "fetch", "--prune", "1", f"stage_to={second / 'local'}"])
            report.equal("qft fetch --prune 1 leaves what is new", len(copies(second / "local")), 7)  # model, data twice, a pack for each run
            for copy in copies(second / "local"):
                os.utime(copy / ".qft-staged.json", (time.time() - 2 * 86400,) * 2)
            result = run([qft, "fetch", "--prune", "1", f"stage_to={second / 'local'}"])
            report.equal("  and removes what is older", (len(copies(second / "local")), (second / "local/mine/thesis").exists()), (0, True))
    report.finish()


if __name__ == "__main__":
    main()
