"""The scripts of slurm/ under a SLURM of two nodes (scripts/test-slurm.sh): stopped in every way, under both launchers, as arrays, in
chains and interactive, a job goes on from its checkpoint and ends with the weights of a run left alone; what is cancelled stays so."""
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from common import ROOT, Report, arguments, mpirun
from jobs import done, ranks, wait_for
from kills import committed, weights
from tiny import make, write

STEPS = 400
SIZE = ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=1", "--time=10"]


def slurm(*command, check=True, **options):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=check, **options).stdout.strip()


def fact(job, name):
    return re.search(rf"\b{name}=(\w+)", slurm("scontrol", "--oneliner", "show", "job", job)).group(1)


def state(job):
    return fact(job, "JobState")


def wait_until(condition, patience=240, every=0.2):
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(every)
    return True


def finished(job):
    """A job that waits to start again starts soon, but not while its first start still ends: that would be its end."""
    if state(job) == "PENDING" and fact(job, "Reason") == "BeginTime":
        time.sleep(3)
        slurm("scontrol", "update", f"JobId={job}", "StartTime=now", check=False)  # it may have begun by now
    return state(job) in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")


class Runs:
    def __init__(self, build, directory):
        self.dir = Path(directory)
        self.settings = {**make(directory, vocabulary=49152), "compute_dtype": "float32", "max_steps": STEPS, "save_steps": 100000}
        records = [{"instruction": f"Say the number {100 + i}", "input": "", "output": "one two three"} for i in range(40)]
        (self.dir / "data/numbers.json").write_text(json.dumps(records))
        # One machine plays two: ranks must not meet in its shared memory.
        self.env = {**os.environ, "PATH": f"{ROOT}/apps:{build}/bin:{os.environ['PATH']}", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "tcp,self"}
        for name in ("finetune", "pack"):
            self.change(name)

    def change(self, name):
        """The script as its marked lines say for nodes without GPUs; what the programs need is exported there, not by sbatch."""
        needs = "\n".join(f"export {key}={self.env[key]}" for key in ("PATH", "OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_btl"))
        text = (ROOT / f"slurm/{name}.sbatch").read_text()
        text = re.sub("# <- 3.*", needs, re.sub("(?m)^#SBATCH --(gpus-per-node|cpus-per-gpu).*\n", "", text)).replace("##SBATCH", "#SBATCH")
        (self.dir / f"{name}.sbatch").write_text(re.sub("--partition=[a-z]+", "--partition=cpu", text))

    def run_file(self, name):
        return write(self.dir / f"{name}.yaml", {**self.settings, "output_dir": str(self.dir / name)})

    def submit(self, log, *command, options=(), launcher=""):
        return slurm("sbatch", "--parsable", *SIZE, f"--chdir={self.dir}", f"--output={self.dir}/{log}.log", *options, *command,
                     env={**os.environ, "LAUNCHER": launcher})

    def train(self, name, **options):
        return self.submit(name, self.dir / "finetune.sbatch", self.run_file(name), **options)

    def log(self, name):
        return (self.dir / f"{name}.log").read_text()


def usr1(job, _):
    slurm("scancel", "--batch", "--signal=USR1", job)


def pre_empt(job, directory):
    slurm("sbatch", "--partition=first", "--nodes=2", "--exclusive", "--time=1", f"--output={directory}/first.log", "--wrap", "sleep 3")


def in_training(report, name, out):
    started = wait_until(lambda: done(out) >= 20, patience=120, every=0.02)
    report.holds(f"{name}: in training", started)
    if not started:
        print((out.parent / f"{name}.log").read_text())


@contextlib.contextmanager
def held(runs, name):
    """The ranks of a run stand still until its log tells of a signal: none is over before, however fast the machine."""
    before = runs.log(name).count("qft-run: SIG")
    stopped = ranks(runs.dir / f"{name}.yaml")
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    yield
    wait_until(lambda: runs.log(name).count("qft-run: SIG") > before, patience=60)
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def completes(report, runs, job, log):
    report.holds("    ... it ends", wait_until(lambda: finished(job)))
    report.equal("    ... well", state(job), "COMPLETED")
    if state(job) != "COMPLETED":
        print(runs.log(log))


def stopped_and_requeued(report, runs, whole):
    for launcher, how, stop in (("", "USR1", usr1), ("mpirun", "USR1", usr1), ("", "pre-emption", pre_empt), ("mpirun", "pre-emption", pre_empt)):
        name = f"{how}-{launcher or 'default'}"
        out = runs.dir / name
        job = runs.train(name, launcher=launcher)
        in_training(report, name, out)
        with held(runs, name):
            stop(job, runs.dir)
        completes(report, runs, job, name)
        report.equal("    ... checkpoints: where it stopped, and the last", len(committed(out)), 2)
        report.equal("    ... with the same weights", weights(out), whole)
        report.holds("    ... and knew its end all the time", "is unknown" not in runs.log(name))


def cancelled(report, runs, _):
    out = runs.dir / "cancelled"
    job = runs.train("cancelled")
    wait_until(lambda: done(out) >= 20)
    slurm("scancel", job)
    wait_until(lambda: finished(job))
    time.sleep(3)
    report.equal("scancel: the job stays cancelled", state(job), "CANCELLED")
    report.equal("    ... checkpoints", len(committed(out)), 1)


def signalled_early(report, runs, _):
    job = runs.train("early")
    wait_until(lambda: state(job) == "RUNNING")
    time.sleep(0.5)
    usr1(job, None)
    report.holds("an early USR1: the job ends", wait_until(lambda: finished(job)))
    report.equal("    ... well", state(job), "COMPLETED")


def array(report, runs, whole):
    """The task that is stopped has, by itself, the number of the array."""
    names = {task: f"array-{task}" for task in (1, 2)}
    for name in names.values():
        runs.run_file(name)
    job = runs.submit("array-%a", runs.dir / "finetune.sbatch", runs.dir / "array-%a.yaml", options=["--array=1-2"])
    for name in names.values():
        in_training(report, name, runs.dir / name)
    numbers = {task: fact(f"{job}_{task}", "JobId") for task in names}
    report.holds("    ... one task has the array's number", job in numbers.values())
    first = next(task for task, number in numbers.items() if number == job)
    with held(runs, names[first]):
        usr1(f"{job}_{first}", None)
    for task, name in names.items():
        completes(report, runs, f"{job}_{task}", name)
        report.equal(f"    ... starts of task {task}", int(fact(f"{job}_{task}", "Restarts")) + 1, 2 if task == first else 1)
        report.equal("    ... with the same weights", weights(runs.dir / name), whole)


def chain(report, runs, whole):
    """Where no job may be requeued: the next one waits for the end of the one before."""
    out = runs.dir / "chain"
    first = runs.train("chain", options=["--no-requeue"])
    second = runs.train("chain", options=["--no-requeue", f"--dependency=afterany:{first}"])
    in_training(report, "a chain's first job", out)
    with held(runs, "chain"):
        usr1(first, None)
    report.holds("    ... it ends", wait_until(lambda: finished(first)))
    report.equal("    ... with 75, and is not put back", (state(first), re.search("ExitCode=(\\d+)", slurm("scontrol", "show", "job", first)).group(1)),
                 ("FAILED", "75"))
    report.holds("    ... and says who goes on", "the next job of the chain" in runs.log("chain"))
    report.holds("its second job ends", wait_until(lambda: finished(second)))
    report.equal("    ... well", state(second), "COMPLETED")
    report.equal("    ... with the same weights", weights(out), whole)


def interactive(report, runs, whole):
    """salloc in a terminal, in which Ctrl-C is pressed; then the same command again."""
    for launcher in ("srun", "mpirun"):
        name = f"interactive-{launcher}"
        out, run_file = runs.dir / name, runs.run_file(name)
        command = ["setsid", "--ctty", "salloc", "--partition=cpu", *SIZE, "qft-run", "qft", "train", str(run_file)]
        env = {**runs.env, "LAUNCHER": launcher}
        here, there = pty.openpty()
        with (runs.dir / f"{name}.log").open("w") as log:
            job = subprocess.Popen(command, stdin=there, stdout=log, stderr=log, cwd=runs.dir, env=env)
            report.holds(f"salloc, {launcher}: in training", wait_for(lambda: done(out) >= 20, job))
            os.write(here, b"\x03")
            job.wait(120)
        report.equal("    ... Ctrl-C ends it with a checkpoint", len(committed(out)), 1)
        report.holds("    ... and nothing is put into the queue", "an interactive job" in runs.log(name) and not slurm("squeue", "--noheader"))
        again = subprocess.run(command[2:], stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=runs.dir, env=env, timeout=240)
        report.equal("    ... the same command ends", again.returncode, 0)
        report.equal("    ... with the same weights", weights(out), whole)


# Options of sbatch, the ranks and the threads of each that they mean. n0 has 16 CPUs, n1 has 8, and each 4 GPUs.
LAYOUTS = (
    (["--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=2"], 4, 2),
    (["--nodes=2", "--exclusive"], 8, 2),
    (["--nodes=2", "--ntasks=5", "--cpus-per-task=2"], 5, 2),
    (["--nodes=2", "--ntasks=3", "--ntasks-per-node=2"], 3, 1),
    (["--nodes=2", "--gpus-per-node=2", "--cpus-per-gpu=2"], 4, 2),
    (["--nodes=2", "--ntasks-per-node=2", "--gpus-per-task=1", "--cpus-per-task=2"], 4, 2),
    (["--nodes=2", "--ntasks-per-gpu=1", "--gpus-per-node=2"], 4, 1),
    (["--nodes=2", "--ntasks-per-node=2", "--mem-per-cpu=60"], 4, 1),
    (["--nodes=2", "--ntasks-per-node=2", "--mem=200"], 4, 1),
    (["--nodes=2", "--gpus-per-node=2", "--cpus-per-gpu=1", "--mem-per-gpu=60"], 4, 1),
)
# What a user's environment may bring along: PMI-2 as srun's library, and the memory variables of another job.
INHERITED = ({}, {"SLURM_MPI_TYPE": "pmi2"}, {"SLURM_MEM_PER_CPU": "60", "SLURM_MEM_PER_NODE": "200"})


def layouts(report, runs, _):
    """What is started in place of qft tells its rank, and the percent signs that it was given."""
    tells = runs.dir / "qft"
    tells.write_text('#!/bin/bash\necho "rank ${OMPI_COMM_WORLD_RANK:-$SLURM_PROCID} of ${OMPI_COMM_WORLD_SIZE:-$SLURM_STEP_NUM_TASKS}, '
                     '$OMP_NUM_THREADS threads: $*"\n')
    tells.chmod(0o755)
    cases = [(options, n, threads, {}) for options, n, threads in LAYOUTS] + [(*LAYOUTS[0], inherited) for inherited in INHERITED[1:]]
    for options, n, threads, inherited in cases:
        for launcher in ("", "mpirun"):
            log = runs.dir / "layout.log"
            log.unlink(missing_ok=True)
            exports = "".join(f"export {key}={value}; " for key, value in {**inherited, "LAUNCHER": launcher}.items())
            job = slurm("sbatch", "--parsable", "--array=3", "--time=2", f"--chdir={runs.dir}", f"--output={log}", *options, "--wrap",
                        f"{exports}exec {ROOT}/apps/qft-run {tells} out-%a-50%%-%abc", env=runs.env)
            report.holds(f"{' '.join(options)} {exports}: it ends", wait_until(lambda: finished(f"{job}_3"), patience=60))
            seen = sorted(line for line in log.read_text().splitlines() if line.startswith("rank"))
            wanted = [f"rank {i} of {n}, {threads} threads: out-3-50%-%abc" for i in range(n)]
            report.equal("    ... ranks, threads and arguments", seen, wanted)
            if seen != wanted:
                print(log.read_text())
            report.holds("    ... and what was replaced is told", "out-%a-50%%-%abc is out-3-50%-%abc" in log.read_text())


def pack(report, runs, whole):
    runs.run_file("packed")
    job = runs.submit("pack", runs.dir / "pack.sbatch", runs.dir / "packed.yaml", runs.dir / "train.h5")
    report.holds("pack.sbatch: it ends", wait_until(lambda: finished(job)))
    report.equal("    ... well", state(job), "COMPLETED")
    job = runs.submit("packed", runs.dir / "finetune.sbatch", runs.dir / "packed.yaml", f"pack={runs.dir}/train.h5", options=[f"--dependency=afterok:{job}"])
    completes(report, runs, job, "packed")
    report.equal("    ... a run of that pack has the same weights", weights(runs.dir / "packed"), whole)


def main():
    args = arguments(only="")
    report = Report()
    with tempfile.TemporaryDirectory(prefix="qft-slurm-") as tmp:
        runs = Runs(args.build.resolve(), tmp)
        mpirun(2, [args.build / "bin/qft", "train", runs.run_file("whole")])
        whole = weights(runs.dir / "whole")
        for part in (layouts, stopped_and_requeued, cancelled, signalled_early, array, chain, interactive, pack):
            if args.only in ("", part.__name__):
                part(report, runs, whole)
    report.finish()


main()
