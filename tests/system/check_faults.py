"""What `qft check` says to each of many faults, on nodes made of namespaces. By default several faults at a time, and whether each is
found; with --each one at a time, and that nothing else is called a problem; --table FILE writes the table into a document."""
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from check_cluster import Cluster, permitted
from common import Report, arguments
from tiny import make, write

GIGABIT = "name: a Gigabit Ethernet\ndevice: cpu\nmemory_gb: 8\nmemory_gb_s: 10\nnetwork_gb_s: 0.118\n"


@dataclass
class Fault:
    """The last node has it: `last` and `first` are shell that runs on that node and on the first one, `gpus` what the stand-in for NVML
    says on the last one; `net` is called with the cluster, and with undo=True afterwards. `says`: a regular expression of the
    verdict's text, where NODE is the last one. `excluded`: --exclude names that node."""
    name: str
    probe: str
    level: str
    says: str
    batch: int
    last: str = ""
    first: str = ""
    gpus: str = ""
    net: object = None
    excluded: bool = False
    nodes: int = 2
    arguments: tuple = ()
    also: tuple = ()  # probes that rightly see it too


def mtu(cluster, undo=False):
    cluster.on_node(1, "ip", "link", "set", "eth0", "mtu", 9000 if undo else 1500)


def narrow_switch(cluster, undo=False):
    for i in range(cluster.nodes):
        cluster.on_switch("ip", "link", "set", f"port{i}", "mtu", 9000 if undo else 1500)
        # MPI's own TCP keeps to packets that come through, or nothing would start.
        cluster.on_node(i, "ip", "route", "replace", "10.9.7.0/24", "dev", "eth0", *([] if undo else ["advmss", 1400]))


def gigabit(cluster, undo=False):
    for i in range(cluster.nodes):
        cluster.limit(i, None if undo else "1gbit")


def slow_cable(cluster, undo=False):
    for i in range(cluster.nodes):
        cluster.limit(i, None if undo else "100mbit" if i == cluster.nodes - 1 else "1gbit")


def rdma(state="4: ACTIVE", rate="200 Gb/sec (4X HDR)"):
    """Cards in /sys/class/infiniband: the node's own /sys is moved away, and links lead there for all else."""
    return f"""mkdir -p /tmp/qft-sys && mount -t tmpfs tmpfs /tmp/qft-sys && mkdir -p /tmp/qft-sys/real /tmp/qft-sys/class
mount --rbind /sys /tmp/qft-sys/real
for f in /tmp/qft-sys/real/class/*; do ln -s $f /tmp/qft-sys/class/; done
rm -f /tmp/qft-sys/class/infiniband; p=/tmp/qft-sys/class/infiniband/mlx5_0/ports/1; mkdir -p $p/counters
echo "{state}" > $p/state; echo "{rate}" > $p/rate; echo InfiniBand > $p/link_layer; echo 0 > $p/counters/port_xmit_data
mount --bind /tmp/qft-sys/class /sys/class
mkdir -p /dev/infiniband && mount -t tmpfs tmpfs /dev/infiniband && touch /dev/infiniband/uverbs0
"""


def faults(tmp, build, settings):
    """The table."""
    model, data, out = Path(settings["model_name_or_path"]), tmp / "data", tmp / "out"
    qft = build / "bin/qft"
    shift = f"export LD_PRELOAD={build}/tests/libqft_clock_shift.so QFT_CLOCK_SHIFT="
    full = f"mount -t tmpfs -o size=1m tmpfs {out}; head -c 2m /dev/zero > {out}/filler 2>/dev/null || true"
    many_saves = ("max_steps=200", "save_steps=1")
    return [
        Fault("MTU 1500 on one node, 9000 on the other", "MTU", "problem", r"1500 on NODE", 1, net=mtu, also=("path MTU",)),
        Fault("a switch that drops packets of more than 1500 bytes", "path MTU", "problem", "9000 bytes.*do not arrive on node", 4, net=narrow_switch),
        Fault("100 Mbit/s on one node, 1 Gbit/s on the others", "pairs of nodes", "problem", "NODE is slow with every other node", 3, net=slow_cable,
              excluded=True, nodes=3, arguments=("--machine", tmp / "gigabit.yaml"), also=("all-reduce",)),
        Fault("a link of 10 Gbit/s that carries 1 Gbit/s", "pairs of nodes", "problem", r"1[12]\d\.\d+ MB/s.*eth0 has 1.25 GB/s", 2, net=gigabit, also=("all-reduce",)),
        Fault("a clock that is five minutes fast", "clocks", "problem", r"\+300\.\d s on NODE", 1, last=f"{shift}300", also=("environment",)),
        Fault("a clock that is five seconds slow", "clocks", "warning", r"-5\.\d s on NODE", 2, last=f"{shift}-5", also=("environment",)),
        Fault("nodes with one name", "host names", "warning", "2 nodes have the name node0", 5, last="hostname node0"),
        Fault("another build of qft on one node", "build", "problem", "on NODE", 1,
              last=f"cp {qft} {tmp}/other-qft; echo x >> {tmp}/other-qft; mount --bind {tmp}/other-qft {qft}"),
        Fault("NCCL_SOCKET_IFNAME names no interface of one node", "NCCL interface", "problem", "'ib9' fits no interface on NODE", 1,
              last="export NCCL_SOCKET_IFNAME=ib9", excluded=True, also=("environment",)),
        Fault("a variable that only one node has", "environment", "warning", "NCCL_IB_DISABLE differs", 2, last="export NCCL_IB_DISABLE=1"),
        Fault("a dangling link in the model's folder", "files", "problem", r"tokenizer.json' is a link to '.*', which does not exist on NODE", 1,
              last=f"mount -t tmpfs tmpfs {tmp}/models--Acme--tiny/blobs", excluded=True, also=("run",)),
        Fault("a file that one node lacks", "files", "problem", "special_tokens_map.json' is not there on NODE", 2, excluded=True, also=("run",),
              last=f"mkdir {tmp}/less; cp -r {model}/. {tmp}/less; rm {tmp}/less/special_tokens_map.json; mount --bind {tmp}/less {model}"),
        Fault("weights of the same size with another content", "files", "problem", "model.safetensors' is not the same everywhere", 3, nodes=3,
              excluded=True, also=("run",), arguments=("--machine", tmp / "gigabit.yaml"),
              last=f"cp {model}/model.safetensors {tmp}/w; printf z | dd of={tmp}/w bs=1 seek=20000 conv=notrunc status=none; "
                   f"mount --bind {tmp}/w {model}/model.safetensors"),
        Fault("a Git LFS pointer in place of the data", "files", "problem", "numbers.json' is not the same everywhere", 4, also=("run",),
              last=f"echo 'version https://git-lfs.github.com/spec/v1' > {tmp}/p; mount --bind {tmp}/p {data}/numbers.json"),
        Fault("output_dir on a full disk", "output", "problem", "could not be (made|written) in .*No space left on device on NODE", 1, last=full,
              excluded=True, also=("output sharing", "space")),
        Fault("output_dir mounted read-only", "output", "problem", "Read-only file system on NODE", 2, excluded=True,
              last=f"mount --bind {out} {out}; mount -o remount,ro,bind {out}"),
        Fault("output_dir without inodes", "output", "problem", "no inodes for more than [0-9]+ files on NODE", 4, excluded=True,
              last=f"mount -t tmpfs -o nr_inodes=100 tmpfs {out}", also=("output sharing",)),
        Fault("output_dir private to each node", "output sharing", "warning", "private to each node: 1 of 2 ranks", 5, last=f"mount -t tmpfs tmpfs {out}"),
        Fault("too little room for the checkpoints to come", "space", "problem", "200 checkpoints of .* has [0-9.]+ MB free", 6,
              first=f"mount -t tmpfs -o size=1m tmpfs {out}", arguments=many_saves, also=("output sharing",)),
        Fault("locked memory bounded beside RDMA", "locked memory", "problem", "RDMA needs it unlimited", 2, first="ulimit -l 1024; " + rdma(),
              last="ulimit -l 64; " + rdma(), also=("RDMA", "GPUDirect")),
        Fault("locked memory bounded on one node", "locked memory", "warning", "65.54 kB on NODE", 1, last="ulimit -l 64"),
        Fault("few open files", "open files", "problem", "200 on NODE: 264 is the least", 1, last="ulimit -n 200", excluded=True),
        Fault("a small stack", "stack", "warning", "4.19 MB on NODE", 1, last="ulimit -s 4096"),
        Fault("/dev/shm of 1 MB", "/dev/shm", "problem", "1.05 MB of 1.05 MB free", 1, last="mount -t tmpfs -o size=1m tmpfs /dev/shm", excluded=True),
        Fault("no huge pages on one node", "huge pages", "warning", "switched off on NODE", 1,
              last=f"echo 'always madvise [never]' > {tmp}/thp; mount --bind {tmp}/thp /sys/kernel/mm/transparent_hugepage/enabled"),
        Fault("more threads than CPUs", "oversubscription", "warning", "64 compute threads share", 1, last="export OMP_NUM_THREADS=64",
              also=("environment", "binding")),
        Fault("active RDMA ports that nothing uses", "RDMA", "warning", "messages go by TCP", 2, first=rdma(), last=rdma(), also=("locked memory", "GPUDirect")),
        Fault("the kernel module of GPUDirect is missing", "GPUDirect", "warning", "nvidia_peermem is not loaded", 2, first=rdma(), last=rdma(),
              also=("locked memory", "RDMA")),
        Fault("an RDMA port that is down", "RDMA ports", "problem", "mlx5_0:1 DOWN 10 Gb/s on NODE", 4, first=rdma(), last=rdma("1: DOWN", "10 Gb/sec (4X SDR)"),
              excluded=True, also=("locked memory", "RDMA", "GPUDirect")),
        Fault("an RDMA cable that runs at half its rate", "RDMA ports", "problem", "mlx5_0:1 ACTIVE 100 Gb/s on NODE", 6, first=rdma(),
              last=rdma(rate="100 Gb/sec (4X EDR)"), excluded=True, also=("locked memory", "RDMA", "GPUDirect")),
        Fault("another driver on one node", "GPU driver", "problem", r"535.1 \(CUDA 12.8\) on NODE", 1, gpus="driver 535.1\n"),
        Fault("a GPU that does not answer", "GPU driver", "problem", "GPU 1 of 2 does not answer: GPU is lost on NODE", 4, gpus="lost 1\n", excluded=True, also=("GPUs", "NVLink")),
        Fault("a node with a GPU less", "GPUs", "problem", "1 x NVIDIA Stand-In 80GB on NODE", 2, gpus="gpus 1\n", also=("NVLink",)),
        Fault("a process left on a GPU", "GPU memory", "problem", r"GPU 0 of NODE .*process 4242 \(python3\) with 64.00 GB", 1, gpus="0 process 4242 64000000000\n", excluded=True),
        Fault("memory of a GPU in use by nobody", "GPU memory", "problem", "GPU 0 of NODE has .*names no process", 2, gpus="0 held 30000000000\n", excluded=True),
        Fault("uncorrected ECC errors", "GPU errors", "problem", "GPU 1 of NODE has 3 uncorrected", 1, gpus="1 errors 3\n", excluded=True),
        Fault("a row of GPU memory that waits for a reset", "GPU errors", "problem", "waits for a reset", 2, gpus="0 pending\n", excluded=True),
        Fault("a GPU that is too hot", "GPU clocks", "warning", "slowed down by heat .*1000 MHz of 1980 MHz", 1, gpus="0 slowed 64\n"),
        Fault("GPUs that cannot reach each other", "GPU peers", "warning", "GPU 0 of NODE copies through host memory to GPU 1", 1, gpus="0 peer 4\n"),
        Fault("an NVLink that is down", "NVLink", "problem", "GPU 1 of NODE has 2 of 4 NVLinks down", 1, gpus="1 links 2 2\n", excluded=True),
        Fault("a GPU with half of its PCIe lanes", "PCIe", "warning", "GPU 0 of NODE has 8 of its 16 PCIe lanes", 1, gpus="0 lanes 8\n"),
        Fault("a run that training would refuse", "run", "problem", "template", 5, arguments=("template=klingon",)),
    ]


class Nodes:
    """Runs `qft check` with faults."""

    def __init__(self, args, tmp, report):
        self.build, self.tmp, self.report = args.build, tmp, report
        repository = tmp / "models--Acme--tiny"  # as in a hub's cache: files are links
        model, store = repository / "snapshots/main", repository / "blobs"
        self.settings = {**make(tmp), "output_dir": str(tmp / "out"), "save_steps": 10, "max_steps": 20}
        store.mkdir(parents=True)
        shutil.move(tmp / "model", model)
        self.settings["model_name_or_path"] = str(model)
        (tmp / "out").mkdir()
        shutil.move(model / "tokenizer.json", store)
        (model / "tokenizer.json").symlink_to(store / "tokenizer.json")
        (tmp / "gigabit.yaml").write_text(GIGABIT)
        self.file = write(tmp / "run.yaml", self.settings)
        self.faults = faults(tmp, args.build, self.settings)

    def check(self, cluster, chosen, *arguments):
        stand_in = f"export QFT_NVML_LIBRARY={self.build}/tests/libqft_nvml_stand_in.so QFT_NVML_STAND_IN={self.tmp}/gpus"
        last = cluster.nodes - 1
        (self.tmp / "gpus").write_text("gpus 2\n")
        (self.tmp / "gpus-last").write_text("gpus 2\n" + "".join(f.gpus for f in chosen))
        setups = dict.fromkeys(range(cluster.nodes), stand_in + "\n")
        setups[0] += "".join(f.first + "\n" for f in chosen)
        setups[last] = stand_in + "-last\n" + "".join(f.last + "\n" for f in chosen)
        nets = list(dict.fromkeys(f.net for f in chosen if f.net))
        for net in nets:
            net(cluster)
        given = list(dict.fromkeys(a for f in chosen for a in f.arguments))
        try:
            return cluster.check(self.build / "bin/qft", self.file, *given, *arguments, setups=setups)
        finally:
            for net in nets:
                net(cluster, undo=True)

    def judge(self, fault, found, err):
        """The verdict that answers a fault."""
        says = fault.says.replace("NODE", f"node{fault.nodes - 1}")
        answers = [v for v in found["verdicts"] if v["probe"] == fault.probe and v["level"] == fault.level and re.search(says, v["text"])]
        seen = [f"{v['level']} {v['text']}" for v in found["verdicts"] if v["probe"] == fault.probe] or err[-800:]
        self.report.holds(f"{fault.name}: {fault.level} of '{fault.probe}'", answers, seen)
        if answers:
            self.report.holds("  with a remedy", answers[0]["remedy"])
            self.report.holds("  and the node to leave out", not fault.excluded or f"node{fault.nodes - 1}" in found["exclude"], found["exclude"])
        return answers[0] if answers else None


def healthy(nodes, cluster):
    """No fault, no problem: all probes, the self-test among them, in ten seconds."""
    code, found, err = nodes.check(cluster, [])
    bad = [v for v in found["verdicts"] if v["level"] == "problem"]
    nodes.report.holds("two healthy nodes pass", code == 0 and found["passed"] and not bad, bad or err)
    nodes.report.equal("and none is left out", found["exclude"], [])
    nodes.report.holds("the self-test ran", any(v["probe"] == "self-test" for v in found["verdicts"]))


def one_by_one(nodes, clusters):
    """Each fault alone, and what check said to it."""
    rows = []
    for fault in nodes.faults:
        code, found, err = nodes.check(clusters[fault.nodes], [fault], "--only", "^(?!compute)")
        verdict = nodes.judge(fault, found, err)
        others = {v["probe"] for v in found["verdicts"] if v["level"] == "problem"} - {fault.probe, *fault.also}
        nodes.report.equal("  and nothing else is called a problem", others, set())
        failed = any(v["level"] == "problem" for v in found["verdicts"])
        nodes.report.holds("  the exit code says so", (code != 0) == failed, code)
        if verdict:
            rows.append((fault, verdict, found["exclude"]))
    return rows


def several(nodes, clusters):
    for batch in sorted({f.batch for f in nodes.faults}):
        chosen = [f for f in nodes.faults if f.batch == batch]
        code, found, err = nodes.check(clusters[max(f.nodes for f in chosen)], chosen, "--only", "^(?!compute)")
        for fault in chosen:
            nodes.judge(fault, found, err)
        nodes.report.holds(f"batch {batch} fails", code != 0, code)


def write_table(file, rows, tmp):
    """Between the two marks in the document."""
    lines = ["| fault | verdict | what check said | left out |", "|---|---|---|---|"]
    for fault, verdict, exclude in rows:
        text = verdict["text"].replace(str(tmp), "/shared").replace("|", "\\|")
        lines.append(f"| {fault.name} | {verdict['level']} | {verdict['probe']}: {text} | {', '.join(exclude)} |")
    text = file.read_text()
    begin, end = text.index("<!-- faults -->\n") + len("<!-- faults -->\n"), text.index("<!-- end of faults -->")
    file.write_text(text[:begin] + "\n".join(lines) + "\n" + text[end:])


def main():
    args = arguments(each="no", table=None)
    why = permitted()
    if why:
        print(f"skipped: {why}")
        sys.exit(77)
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        nodes = Nodes(args, tmp, report)
        with Cluster(tmp, 2) as two, Cluster(tmp, 3) as three:
            clusters = {2: two, 3: three}
            healthy(nodes, two)
            if args.each == "yes":
                rows = one_by_one(nodes, clusters)
                if args.table:
                    write_table(Path(args.table), rows, tmp)
            else:
                several(nodes, clusters)
    report.finish()


main()
