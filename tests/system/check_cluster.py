"""A cluster in namespaces for tests of `qft check`: nodes with a network, a mount table and a host name of their own, joined by a
switch. What is wrong with a node is a piece of shell that runs on it before the program does."""
import json
import os
import subprocess

from common import with_sessions

PREFIX = "10.9.7."
SPACES = "unshare --mount --propagation private --uts"


def sh(*command):
    subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)


class Cluster:
    """As a context manager; needs root. `sys` of a node is that of its network namespace."""

    def __init__(self, tmp, nodes):
        self.tmp, self.nodes, self.names = tmp / f"cluster{nodes}", nodes, [f"node{i}" for i in range(nodes)]
        self.spaces = [f"qfc{os.getpid()}-{nodes}-{i}" for i in range(nodes)]
        self.switch = f"qfc{os.getpid()}-{nodes}-s"
        self.tmp.mkdir()
        # Names are known on every node: nobody waits for a name server.
        (self.tmp / "hosts").write_text("127.0.0.1 localhost\n" + "".join(f"{PREFIX}{i + 1} {name}\n" for i, name in enumerate(self.names)))

    def __enter__(self):
        try:
            self._join()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _join(self):
        sh("ip", "netns", "add", self.switch)
        sh("ip", "-n", self.switch, "link", "add", "name", "sw0", "mtu", 9000, "type", "bridge")
        sh("ip", "-n", self.switch, "link", "set", "sw0", "up")
        for i, space in enumerate(self.spaces):
            sh("ip", "netns", "add", space)
            sh("ip", "link", "add", "eth0", "mtu", 9000, "netns", space, "type", "veth", "peer", "name", f"port{i}", "mtu", 9000, "netns", self.switch)
            sh("ip", "-n", self.switch, "link", "set", f"port{i}", "master", "sw0", "up")
            sh("ip", "-n", space, "addr", "add", f"{PREFIX}{i + 1}/24", "dev", "eth0")
            sh("ip", "-n", space, "link", "set", "eth0", "up")
            sh("ip", "-n", space, "link", "set", "lo", "up")
            self._script(i, "")
        agent = "#!/bin/bash\nhost=$1; shift\n" + f'exec "{self.tmp}/node$((${{host##*.}} - 1))" bash -c "$*"\n'
        self._executable("agent", agent)

    def _script(self, node, setup):
        """The program that runs another one on that node. PMIx asks no munge: where its daemon is gone that takes seconds."""
        setup = setup.replace("'", "'\\''")
        inner = f"hostname node{node}\nmount --bind {self.tmp}/hosts /etc/hosts\nmount --bind /dev/null /etc/resolv.conf\nexport PMIX_MCA_psec=native\n{setup}\nexec \"$@\""
        self._executable(f"node{node}", f"#!/bin/bash\nexec ip netns exec {self.spaces[node]} {SPACES} bash -c '{inner}' bash \"$@\"\n")

    def _executable(self, name, text):
        (self.tmp / name).write_text(text)
        (self.tmp / name).chmod(0o755)

    def __exit__(self, *_):
        for space in [*self.spaces, self.switch]:
            subprocess.run(["ip", "netns", "del", space], capture_output=True)

    def on_node(self, node, *command):
        sh("ip", "netns", "exec", self.spaces[node], *command)

    def on_switch(self, *command):
        sh("ip", "netns", "exec", self.switch, *command)

    def limit(self, node, rate):
        """Both directions of the node's cable; None: as fast as it can."""
        for run, device in ((lambda *c: self.on_node(node, *c), "eth0"), (self.on_switch, f"port{node}")):
            if rate:
                run("tc", "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
            else:
                run("tc", "qdisc", "del", "dev", device, "root")

    def job(self, program, *arguments, setups=(), ranks_per_node=1):
        """The words that start it on all nodes. `setups`: shell by node."""
        for node in range(self.nodes):
            self._script(node, dict(setups).get(node, ""))
        hosts = ",".join(f"{PREFIX}{i + 1}:{ranks_per_node}" for i in range(self.nodes))
        command = [self.tmp / "node0", "mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", self.tmp / "agent", "--mca", "btl", "tcp,self",
                   "--mca", "btl_tcp_if_include", PREFIX + "0/24", "--mca", "oob_tcp_if_include", PREFIX + "0/24", "--host", hosts,
                   "-np", self.nodes * ranks_per_node, "--bind-to", "none", program, *arguments]
        return [str(word) for word in command]

    def run(self, *words, **options):
        return subprocess.run(self.job(*words, **options), capture_output=True, text=True, env=with_sessions(os.environ), timeout=120)

    def check(self, program, *arguments, **options):
        """The report of `qft check --json` and the exit code; stderr where it wrote none."""
        result = self.run(program, "check", *arguments, "--json", **options)
        try:
            return result.returncode, json.loads(result.stdout), result.stderr
        except ValueError:
            return result.returncode, {"passed": False, "exclude": [], "verdicts": []}, result.stdout + result.stderr


def permitted():
    """Why namespaces cannot be made here; empty: they can."""
    if os.geteuid() != 0:
        return "needs root"
    probe = f"qfc{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode != 0:
        return f"no network namespaces: {made.stderr.strip()}"
    entered = subprocess.run(["ip", "netns", "exec", probe, *SPACES.split(), "true"], capture_output=True, text=True)
    shaped = subprocess.run(["ip", "netns", "exec", probe, "tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "1mbit", "burst", "32kb", "latency", "50ms"],
                            capture_output=True, text=True)
    sh("ip", "netns", "del", probe)
    return "" if entered.returncode == shaped.returncode == 0 else f"namespaces: {entered.stderr}{shaped.stderr}"
