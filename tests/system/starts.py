"""How programs start and end beside launchers, limits and signals: launchers that MPI does not see, help without MPI, many starts at
once, ulimit -u and -f, a closed pipe, SIGHUP, SIGUSR2, SIGXCPU, SIGTERM twice and on a start that hangs.

    starts.py --build build [--starts N]    # N plain starts side by side
"""
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common import Report, arguments
from jobs import done, output_of, ranks, start, wait_for
from kills import committed
from tiny import make, write

LAUNCHERS = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_SIZE", "FLUX_JOB_SIZE",
             "JSM_NAMESPACE_SIZE", "WORLD_SIZE")
NOBODY = 65534


class Starts:
    def __init__(self, args, tmp):
        self.qft, self.pack, self.tmp, self.report = (args.build / "bin/qft").resolve(), (args.build / "bin/qft-pack").resolve(), tmp, Report()
        self.settings = {**make(tmp), "compute_dtype": "float32", "save_steps": 1000000, "max_steps": 1000000, "logging_steps": 1}
        self.env = {k: v for k, v in os.environ.items() if k not in LAUNCHERS and k != "OMPI_MCA_orte_tmpdir_base"}

    def run(self, *words, **env):
        return subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=120, env={**self.env, **env})

    def run_file(self, name, **keys):
        return write(self.tmp / f"{name}.yaml", {**self.settings, "output_dir": str(self.tmp / name), **keys})

    def launchers(self):
        for variable in LAUNCHERS:
            tried = self.run(self.qft, "train", self.run_file("launched"), **{variable: "2"})
            self.report.holds(f"{variable}=2 with one rank is refused", tried.returncode != 0 and variable in tried.stderr and "says 2" in tried.stderr, tried.stderr)
        self.report.holds("nothing was left behind", not (self.tmp / "launched").exists())

    def texts(self):
        """With an MPI that cannot start."""
        for words in (["--help"], ["--version"], ["train", "--help"], ["plan", "-h"]):
            shown = self.run(self.qft, *words, OMPI_MCA_ess="none")
            self.report.holds(f"qft {' '.join(words)} without MPI", shown.returncode == 0 and shown.stdout.startswith(("qft", "usage")), shown.stderr)
        shown = self.run(self.pack, "--help", OMPI_MCA_ess="none")
        self.report.holds("qft-pack --help without MPI", shown.returncode == 0 and "usage" in shown.stdout, shown.stderr)
        others = self.run(self.qft, "--version", OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="1")
        self.report.equal("the second rank prints nothing", (others.returncode, others.stdout), (0, ""))

    def many(self, count):
        file = self.run_file("checked")
        with ThreadPoolExecutor(8) as pool:
            ended = list(pool.map(lambda _: self.run(self.qft, "generate", file, "prompt=hi", "max_new_tokens=1"), range(count)))
        bad = [e.stderr for e in ended if e.returncode]
        self.report.holds(f"{count} plain starts side by side", not bad, bad[:1])
        for name, env in (("no TMPDIR", {"TMPDIR": "/nonexistent"}), ("no HOME", {"HOME": ""})):
            tried = self.run(self.qft, "generate", file, "prompt=hi", "max_new_tokens=1", **env)
            self.report.equal(name, tried.returncode, 0)

    def limited(self, limit, file):
        """Under a limit of the shell, which does not bind root."""
        words = ["bash", "-c", f"ulimit {limit}; exec {self.qft} train {file}"]
        if os.geteuid() == 0:
            words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *words]
        return self.run(*words, OMP_NUM_THREADS="2")

    def limits(self):
        if os.geteuid() == 0 and shutil.which("setpriv") is None:
            print("SKIPPED: limits of processes: there is no setpriv")
            return
        for path in [self.tmp, *self.tmp.rglob("*")]:
            path.chmod(0o777 if path.is_dir() else 0o666)
        file = self.run_file("threads", max_steps=1)
        for threads in (4, 5, 7, 9) if os.geteuid() == 0 else ():  # of a user who has no other process
            tried = self.limited(f"-u {threads}", file)
            self.report.holds(f"ulimit -u {threads}", tried.returncode == 1 and "ulimit -u" in tried.stderr, f"{tried.returncode}\n{tried.stderr}")
        self.report.equal("ulimit -u 40 is enough", self.limited("-u 40", file).returncode, 0)
        tried = self.limited("-f 8", self.run_file("blocks", max_steps=1))
        self.report.holds("ulimit -f 8", tried.returncode == 1 and "File too large" in tried.stderr, f"{tried.returncode}\n{tried.stderr}")

    def stopped(self, label, send, **keys):
        """A run that is stopped while it trains ends with 75 and a checkpoint."""
        name = label.replace(" ", "-")
        file = self.run_file(name, **keys)
        job = subprocess.Popen([self.qft, "train", file], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=self.env)
        wait_for(lambda: done(self.tmp / name) >= 2, job)
        send(job)
        code = job.wait(60)
        self.report.holds(f"{label}: 75 and a checkpoint", code == 75 and committed(self.tmp / name), f"{code}")
        job.stdout.close()

    def signals(self):
        for number in (signal.SIGHUP, signal.SIGUSR2, signal.SIGXCPU):
            self.stopped(number.name, lambda job: job.send_signal(number))

        def twice(job):
            job.terminate()
            time.sleep(0.05)
            job.terminate()

        def behind_a_closed_pipe(job):
            job.stdout.close()
            time.sleep(0.2)
            job.send_signal(signal.SIGINT)

        self.stopped("SIGTERM twice", twice)
        self.stopped("SIGINT behind a closed pipe", behind_a_closed_pipe)

    def hung(self):
        """A rank that stands still holds up the other before the first step."""
        file = self.run_file("hung")
        job = start(self.qft, file)
        wait_for(lambda: len(ranks(file)) == 2, job)
        asked, still = ranks(file)
        os.kill(still, signal.SIGSTOP)
        began = time.monotonic()
        os.kill(asked, signal.SIGTERM)
        wait_for(lambda: asked not in ranks(file), job, patience=60)
        self.report.holds("SIGTERM ends a start that hangs within some ten seconds", time.monotonic() - began < 13, time.monotonic() - began)
        os.kill(still, signal.SIGKILL)
        self.report.holds("    ... and says so", "nothing was trained" in output_of(job, file))

    def modes(self):
        before = os.umask(0o002)
        try:
            built = self.run(self.pack, self.run_file("packed"), "--output", self.tmp / "group.h5")
            mode = stat.S_IMODE((self.tmp / "group.h5").stat().st_mode) if built.returncode == 0 else built.stderr
        finally:
            os.umask(before)
        self.report.equal("a pack has 0666 less the umask", mode, 0o664)


def main():
    args = arguments(starts=24)
    with tempfile.TemporaryDirectory(prefix="qft-starts-") as tmp:
        starts = Starts(args, Path(tmp))
        starts.launchers()
        starts.texts()
        starts.many(args.starts)
        starts.modes()
        starts.signals()
        starts.hung()
        starts.limits()
        starts.report.finish()


main()
