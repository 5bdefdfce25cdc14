"""slurm/finetune-cpu.sbatch under a SLURM of two nodes (scripts/nightly_slurm.sh): stopped in every way, under both launchers, the
job goes on from its checkpoint and ends with the weights of a run left alone; what is cancelled stays so."""
import json
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path

from common import ROOT, Report, arguments, mpirun
from jobs import done
from kills import committed, weights
from tiny import make, write

STEPS = 400


def slurm(*command, check=True):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=check).stdout.strip()


def state(job):
    return re.search(r"JobState=(\w+)", slurm("scontrol", "show", "job", job)).group(1)


def wait_until(condition, patience=240):
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


class Runs:
    def __init__(self, build, directory):
        self.dir = Path(directory)
        self.settings = {**make(directory, vocabulary=49152), "compute_dtype": "float32", "max_steps": STEPS, "save_steps": 100000}
        records = [{"instruction": f"Say the number {100 + i}", "input": "", "output": "one two three"} for i in range(40)]
        (self.dir / "data/numbers.json").write_text(json.dumps(records))
        # One machine plays two: ranks must not meet in its shared memory.
        needs = f"export PATH={build}/bin:$PATH OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl=tcp,self"
        script = (ROOT / "slurm/finetune-cpu.sbatch").read_text()
        self.script = self.dir / "finetune-cpu.sbatch"
        self.script.write_text(re.sub("# <- 3.*", needs, script))

    def run_file(self, name):
        return write(self.dir / f"{name}.yaml", {**self.settings, "output_dir": str(self.dir / name)})

    def submit(self, name, launcher):
        options = ["--parsable", "--ntasks-per-node=1", "--cpus-per-task=1", "--time=10", f"--chdir={self.dir}", f"--output={self.dir}/{name}.log"]
        env = {**os.environ, "LAUNCHER": launcher}
        return subprocess.run(["sbatch", *options, str(self.script), str(self.run_file(name))], env=env, capture_output=True, text=True,
                              check=True).stdout.strip()

    def finished(self, job):
        """A job that waits to start again starts soon, but not while its first start still ends: that would be its end."""
        if state(job) == "PENDING":
            time.sleep(3)
            slurm("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)  # it may have begun by now
        return state(job) in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")


def usr1(job, _):
    slurm("scancel", "--batch", "--signal=USR1", job)


def pre_empt(job, directory):
    slurm("sbatch", "--partition=first", "--nodes=2", "--exclusive", "--time=1", f"--output={directory}/first.log", "--wrap", "sleep 3")


def main():
    args = arguments()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="qft-slurm-") as tmp:
        runs = Runs(args.build.resolve(), tmp)
        mpirun(2, [args.build / "bin/qft", "train", runs.run_file("whole")])
        whole = weights(runs.dir / "whole")
        for launcher, how, stop in (("", "USR1", usr1), ("mpirun", "USR1", usr1), ("", "pre-emption", pre_empt)):
            name = f"{how}-{launcher or 'default'}"
            out = runs.dir / name
            job = runs.submit(name, launcher)
            report.holds(f"{name}: in training", wait_until(lambda: done(out) >= 20))
            stop(job, runs.dir)
            report.holds("    ... it ends", wait_until(lambda: runs.finished(job)))
            report.equal("    ... well", state(job), "COMPLETED")
            if state(job) != "COMPLETED":
                print((runs.dir / f"{name}.log").read_text())
            report.equal("    ... checkpoints: where it stopped, and the last", len(committed(out)), 2)
            report.equal("    ... with the same weights", weights(out), whole)
            report.holds("    ... and knew its end all the time", "is unknown" not in (runs.dir / f"{name}.log").read_text())
        out = runs.dir / "cancelled"
        job = runs.submit("cancelled", "")
        wait_until(lambda: done(out) >= 20)
        slurm("scancel", job)
        wait_until(lambda: runs.finished(job))
        time.sleep(3)
        report.equal("scancel: the job stays cancelled", state(job), "CANCELLED")
        report.equal("    ... checkpoints", len(committed(out)), 1)
        job = runs.submit("early", "")
        wait_until(lambda: state(job) == "RUNNING")
        time.sleep(0.5)
        usr1(job, None)
        report.holds("an early USR1: the job ends", wait_until(lambda: runs.finished(job)))
        report.equal("    ... well", state(job), "COMPLETED")
    report.finish()


main()
