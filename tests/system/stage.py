"""stage_to on two nodes, which are network and mount namespaces of this machine: each has a disk of its own, the wire between them is
shaped. What only the first node has is copied once over MPI, at the wire's speed, verified, and found again by the next run."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import Report, arguments, run, with_sessions
from tiny import make, write

RATE = 200  # Mbit/s


class Nodes:
    """Two nodes; /node of each is its own disk, /first only the first one's."""

    def __init__(self, folder):
        self.folder, self.names = Path(folder), [f"qft-stage-{end}{os.getpid()}" for end in "ab"]

    def __enter__(self):
        a, b = self.names
        for name in self.names:
            run(["ip", "netns", "add", name])
        run(["ip", "link", "add", "qfts", "netns", a, "type", "veth", "peer", "name", "qfts", "netns", b])
        for i, name in enumerate(self.names):
            run(["ip", "-n", name, "addr", "add", f"10.9.7.{i + 1}/24", "dev", "qfts"])
            run(["ip", "-n", name, "link", "set", "qfts", "up"])
            run(["ip", "-n", name, "link", "set", "lo", "up"])
            run(["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", "qfts", "root", "tbf", "rate", f"{RATE}mbit", "burst", "256kb", "latency", "50ms"])
            (self.folder / f"disk{i}").mkdir()
        (self.folder / "node").mkdir()
        # A process learns from its address which node it is on.
        self.enter = self.folder / "enter"
        self.enter.write_text(f"""#!/bin/bash
ip -o addr show dev qfts | grep -q 10.9.7.1/ && i=0 || i=1
exec unshare -m --propagation unchanged bash -c 'mount --make-rprivate / && mount --bind "{self.folder}/disk'$i'" "{self.folder}/node" && exec "$@"' bash "$@"
""")
        self.agent = self.folder / "agent"
        self.agent.write_text(f'#!/bin/bash\nshift\nexec ip netns exec {b} bash -c "$*"\n')
        for script in [self.enter, self.agent]:
            script.chmod(0o755)
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def run(self, *command, each=1):
        return subprocess.run([str(c) for c in ["ip", "netns", "exec", self.names[0], "mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", self.agent,
                                                "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "10.9.7.0/24", "--mca", "oob_tcp_if_include", "10.9.7.0/24",
                                                "--host", f"10.9.7.1:{each},10.9.7.2:{each}", "-np", 2 * each, "--bind-to", "none", "-x", "OMP_NUM_THREADS=1",
                                                self.enter, *command]],
                              capture_output=True, text=True, env=with_sessions(os.environ))

    def received(self):
        """Bytes that came to the second node."""
        return int(run(["ip", "netns", "exec", self.names[1], "cat", "/sys/class/net/qfts/statistics/rx_bytes"]).stdout)


def copies(disk):
    return sorted(p.parent for p in disk.glob("*/.qft-staged.json"))


def main():
    args = arguments()
    if os.geteuid() != 0 or not all(map(shutil.which, ["ip", "tc", "unshare"])):
        print("skipped: needs root, ip, tc and unshare")
        sys.exit(77)
    report = Report()
    qft = args.build / "bin/qft"
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        with Nodes(tmp) as nodes:
            first, second = tmp / "disk0", tmp / "disk1"
            settings = make(first)  # the second node does not have it
            here = str(tmp / "node")
            settings = json.loads(json.dumps(settings).replace(str(first), here))
            (first / "model/extra.json").write_bytes(b" " * 30_000_000)  # something to measure
            settings |= {"stage_to": f"{here}/local", "max_steps": 3, "output_dir": f"{here}/out"}
            run_file = write(tmp / "run.yaml", settings)
            before = nodes.received()
            result = nodes.run(qft, "train", run_file, each=2)
            came = nodes.received() - before
            report.holds("a model and data that only one node has", result.returncode == 0, result.stderr[-2000:])
            staged = copies(second / "local")
            size = sum(p.stat().st_size for p in (first / "model").iterdir())
            report.equal("  are copied to the other's disk, not to their own", (len(staged), len(copies(first / "local")) if (first / "local").exists() else 0), (2, 0))
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
            report.holds("the next run finds the copies", result.returncode == 0 and nodes.received() - before < size / 4 and "staging" not in result.stderr, result.stderr[-2000:])
            (first / "data/numbers.json").write_text((first / "data/numbers.json").read_text().replace("again", "anew"))
            result = nodes.run(qft, "train", run_file, f"output_dir={here}/third")
            report.holds("what has changed is copied again, and only that", result.returncode == 0 and "staging data" in result.stderr and "staging model" not in result.stderr,
                         result.stderr[-2000:])
            result = nodes.run(qft, "train", run_file, f"output_dir={here}/fourth", f"stage_to={here}/small", "stage_limit=0.001")
            report.holds("a limit that it does not fit in", result.returncode == 1 and "stage_limit allows 1.00 MB" in result.stderr, result.stderr[-2000:])
            result = nodes.run(qft, "train", run_file, f"output_dir={here}/fifth", "stage_to=null")
            report.holds("without stage_to the second node says what it misses", result.returncode != 0 and "model" in result.stderr, result.stderr[-500:])

            (second / "local/mine").mkdir()
            (second / "local/mine/thesis").write_text("words")
            run([qft, "fetch", "--prune", "1", f"stage_to={second / 'local'}"])
            report.equal("qft fetch --prune 1 leaves what is new", len(copies(second / "local")), 3)
            for copy in copies(second / "local"):
                os.utime(copy / ".qft-staged.json", (time.time() - 2 * 86400,) * 2)
            result = run([qft, "fetch", "--prune", "1", f"stage_to={second / 'local'}"])
            report.equal("  and removes what is older", (len(copies(second / "local")), (second / "local/mine/thesis").exists()), (0, True))
    report.finish()


if __name__ == "__main__":
    main()
