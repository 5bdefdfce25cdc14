"""A rank that is killed, stopped, or leaves out a call while ranks exchange rows of matrices: the job ends in time, all of it, and the report
names the rank or both calls; on the simulated device too.

    mesh_faults.py --build build [--complete yes]    # yes: each rank in turn, and of four ranks
"""
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from common import Report, arguments
from jobs import done, processes, start
from mesh_runs import Runs
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


class Faults:
    def __init__(self, runs, device):
        self.runs, self.report, self.device = runs, runs.report, device
        self.where = {"QFT_DEVICE": "sim", "QFT_BACKEND_PATH": str(runs.build / "tests")} if device == "sim" else {}

    def start(self, name, ranks, preload=None, **environment):
        # Nearly all collectives of a step are exchanges among tensor ranks: a step has few others.
        settings = self.runs.settings("qwen3", {}, compute_dtype="float32", max_steps=STEPS, num_train_epochs=1,
                                      tensor_parallel=ranks, ddp_timeout=TIMEOUT, output_dir=str(self.runs.directory / name))
        self.run_file = write(self.runs.directory / f"{name}.yaml", settings)
        return start(self.runs.qft, self.run_file, np=ranks, preload=preload, **self.where, **environment)

    def end(self, what, job, began):
        """Waits until the job ends, and returns its report."""
        try:
            text = job.communicate(timeout=ALLOWED + SLACK + 60)[1]
        except subprocess.TimeoutExpired:
            job.kill()
            text = "still running\n" + job.communicate()[1]
        seconds = time.monotonic() - began
        self.report.holds(f"{what}: fails", job.returncode not in (0, None), text)
        self.report.holds("    ... in time", seconds < ALLOWED + SLACK, f"{seconds:.1f} s, {ALLOWED} are promised\n{text}")
        time.sleep(0.2)
        self.report.equal("    ... processes that are left", processes(str(self.run_file)), [])
        return text

    def signalled(self, ranks, rank, number):
        what = f"{self.device}, {ranks} ranks: rank {rank} gets {number.name}"
        job = self.start(f"{number.name}{rank}", ranks)
        out = self.runs.directory / f"{number.name}{rank}"
        limit = time.monotonic() + 120
        while done(out) < 1 and job.poll() is None and time.monotonic() < limit:
            time.sleep(0.02)
        self.report.holds(f"{what}: the run trains before", done(out) >= 1 and job.poll() is None)
        os.kill(rank_process(self.run_file, rank), number)
        text = self.end(what, job, time.monotonic())
        if number == signal.SIGSTOP:
            named = re.search(r"error: watchdog: rank (\d) on \S+ shows no sign of life", text)
            self.report.equal("    ... and is named", named and int(named[1]), rank)
            self.report.holds("    ... the others wait in an exchange", len(re.findall(r"\(number \d+ on 'tensor'\)", text)) >= ranks - 1, text)
        else:
            self.report.holds("    ... and is named", re.search(rf"rank {rank} .*exited on signal 9", text), text)

    def left_out(self, ranks, rank):
        """The rank leaves out one call of an exchange, and then calls others than its peers."""
        job = self.start("left-out", ranks, self.runs.build / "tests/libqft_fault.so", QFT_FAULT=f"{rank}:skip:{HARMED}")
        text = self.end(f"{self.device}, {ranks} ranks: rank {rank} leaves out collective {HARMED}", job, time.monotonic())
        self.report.holds("    ... in training", done(self.runs.directory / "left-out") > 0, text)
        self.report.holds("    ... an exchange", "on 'tensor'" in text, text)
        self.report.holds("    ... and the watchdog says how calls differ",
                          re.search(r"error: watchdog: the ranks (call different collectives|wait in different collectives)", text), text)

    def broken(self, ranks, rank, kind, words):
        """The device's collective library has this fault, in a call of training."""
        what = f"{self.device}, {ranks} ranks: {kind} of a collective on rank {rank}"
        job = self.start(kind, ranks, QFT_SIM_COLLECTIVE_FAULT=f"{kind}:{HARMED}@{rank}")
        text = self.end(what, job, time.monotonic())
        self.report.holds("    ... in training", done(self.runs.directory / kind) > 0, text)
        self.report.holds("    ... is told", re.search(words, text), text)


def main():
    args = arguments(complete="no")
    report = Report()
    complete = args.complete == "yes"
    with tempfile.TemporaryDirectory(prefix="qft-mesh-") as tmp:
        for device in ("cpu", "sim"):
            (Path(tmp) / device).mkdir()
            faults = Faults(Runs(args.build, Path(tmp) / device, report), device)
            for ranks in (2, 4) if complete else (2,):
                for rank in range(ranks) if complete else (1,):
                    faults.signalled(ranks, rank, signal.SIGSTOP)
                    if complete or device == "cpu":
                        faults.signalled(ranks, rank, signal.SIGKILL)
                if device == "cpu":
                    faults.left_out(ranks, ranks - 1)
                    continue
                faults.broken(ranks, 1, "error", r"error on rank 1: simulated collectives: \w+ in group tensor failed: told to fail after \w+[(]")
                if complete:
                    faults.broken(ranks, 1, "stall", r"(number \d+ on 'tensor')")
    report.finish()


main()
