"""A rank that is killed, stopped, or leaves out a call while ranks exchange rows of matrices: the job ends in time, all of it, and the report
names the rank or both calls; on the simulated device too.

    mesh_faults.py --build build [--complete yes]    # yes: each rank in turn, and of four ranks; a killed rank and a stall on the device too
"""
import os
import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from jobs import done, processes, start
from mesh_runs import Runs, run_checks
from tiny import write

TIMEOUT = 3  # ddp_timeout, seconds
ALLOWED = TIMEOUT + 5 + 4  # the promise, and the time mpirun takes to end a job
SLACK = 20  # other work may slow the job down
STEPS = 100000  # nobody gets there
HARMED = 300  # a collective of training, after the first step


def rank_process(run_file, rank):
    mark = f"OMPI_COMM_WORLD_RANK={rank}\0".encode()
    return next(pid for pid in processes(str(run_file))
                if Path(f"/proc/{pid}/comm").read_text() == "qft\n" and mark in Path(f"/proc/{pid}/environ").read_bytes())


class Job:
    """A run that nobody waits for to end by itself. Nearly all collectives of a step are exchanges among tensor ranks: a step has few others."""

    def __init__(self, faults, name, ranks, preload=None, **environment):
        self.report, self.what = faults.report, f"{faults.device}, {ranks} ranks: {name}"
        self.out = faults.runs.directory / f"{ranks}-{name.replace(' ', '-')}"
        self.run_file = write(f"{self.out}.yaml", {**faults.settings, "tensor_parallel": ranks, "output_dir": str(self.out)})
        self.process = start(faults.runs.qft, self.run_file, np=ranks, preload=preload, **faults.where, **environment)
        self.began = time.monotonic()

    def say(self, what, condition, seen=""):
        """In full: several jobs speak in turn."""
        self.report.holds(f"{self.what}: {what}", condition, seen)

    def wait_for_step(self):
        limit = time.monotonic() + 120
        while done(self.out) < 1 and self.process.poll() is None and time.monotonic() < limit:
            time.sleep(0.02)
        self.say("the run trains before", done(self.out) >= 1 and self.process.poll() is None)
        self.began = time.monotonic()

    def end(self):
        """Waits until the job ends, and returns its report."""
        try:
            text = self.process.communicate(timeout=ALLOWED + SLACK + 60)[1]
        except subprocess.TimeoutExpired:
            self.process.kill()
            text = "still running\n" + self.process.communicate()[1]
        seconds = time.monotonic() - self.began
        self.say("the job fails", self.process.returncode not in (0, None), text)
        self.say("... in time", seconds < ALLOWED + SLACK, f"{seconds:.1f} s, {ALLOWED} are promised\n{text}")
        time.sleep(0.2)
        left = processes(str(self.run_file))
        self.say("... and no process is left", not left, left)
        self.say("... after a step", done(self.out) >= 1, text)
        return text


class Faults:
    def __init__(self, runs, device):
        self.runs, self.report, self.device = runs, runs.report, device
        self.where = {"QFT_DEVICE": "sim", "QFT_BACKEND_PATH": str(runs.build / "tests")} if device == "sim" else {}
        self.settings = runs.settings("qwen3", compute_dtype="float32", max_steps=STEPS, num_train_epochs=1, ddp_timeout=TIMEOUT)

    def signalled(self, ranks, rank, number):
        job = Job(self, f"rank {rank} gets {number.name}", ranks)
        job.wait_for_step()
        os.kill(rank_process(job.run_file, rank), number)
        text = job.end()
        if number == signal.SIGSTOP:
            named = re.search(r"error: watchdog: rank (\d) on \S+ shows no sign of life", text)
            job.say("the report names it", named and int(named[1]) == rank, text)
            # Of nearly all jobs in an exchange; a rank that is stopped behind its part of a step's last one leaves the others in the step's end.
            # Rank 0 knows what all ranks do. If it is stopped, another rank reports what it does itself.
            waiting = {int(r) for r in re.findall(r"rank (\d) on \S+: .*\(number \d+ on '(?:tensor|world)'\)", text)}
            job.say("and the call of each other rank", waiting - {0} if rank == 0 else waiting >= {*range(ranks)} - {rank}, text)
        else:
            job.say("the report names it", re.search(rf"rank {rank} .*exited on signal 9", text), text)

    def left_out(self, ranks, rank):
        """The rank leaves out one call of an exchange, and then calls others than its peers."""
        fault = {"QFT_FAULT": f"{rank}:skip:{HARMED}"}
        job = Job(self, f"rank {rank} leaves out collective {HARMED}", ranks, self.runs.build / "tests/libqft_fault.so", **fault)
        text = job.end()
        job.say("it is of an exchange", "on 'tensor'" in text, text)
        job.say("the watchdog says how calls differ",
                re.search(r"error: watchdog: the ranks (call different collectives|wait in different collectives)", text), text)

    def broken(self, ranks, rank, kind, words):
        """The device's collective library has this fault, in a call of training."""
        job = Job(self, f"{kind} of a collective on rank {rank}", ranks, QFT_SIM_COLLECTIVE_FAULT=f"{kind}:{HARMED}@{rank}")
        text = job.end()
        job.say("the report tells it", re.search(words, text), text)


def cases(runs, complete):
    for device in ("cpu", "sim"):
        (runs.directory / device).mkdir()
        faults = Faults(Runs(runs.build, runs.directory / device, runs.report), device)
        for ranks in (2, 4) if complete else (2,):
            for rank in range(ranks) if complete else (1,):
                yield partial(faults.signalled, ranks, rank, signal.SIGSTOP)
                if complete or device == "cpu":
                    yield partial(faults.signalled, ranks, rank, signal.SIGKILL)
            if device == "cpu":
                yield partial(faults.left_out, ranks, ranks - 1)
                continue
            # Rank 1 says it, or the watchdog of either rank.
            yield partial(faults.broken, ranks, 1, "error", r"rank 1\b.*told to fail after \w+[(]")
            if complete:
                yield partial(faults.broken, ranks, 1, "stall", r"(number \d+ on 'tensor')")


def checks(runs, complete):
    """Most of a job's time is a wait for the watchdog, so two or three go at once."""
    with ThreadPoolExecutor(2 if complete else 3) as several:
        for done_case in [several.submit(case) for case in cases(runs, complete)]:
            done_case.result()


run_checks(checks)
