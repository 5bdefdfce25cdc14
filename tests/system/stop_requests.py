"""Ctrl-C and SIGTERM where a step takes longer than mpirun's patience: under qft-run the run ends with 75 and a checkpoint, at
most one step later; started again it ends with the weights of a run left alone."""
import os
import pty
import subprocess
import tempfile
import time
from pathlib import Path

from common import Report, arguments, mpirun
from jobs import done, wait_for
from kills import committed, weights
from tiny import make, write

STEPS = 6
LAUNCH = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2"]


def start(command, terminal=None):
    """In a session of its own, whose terminal is `terminal`."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    if terminal is None:
        return subprocess.Popen([str(c) for c in command], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen(["setsid", "--ctty", *map(str, command)], env=env, stdin=terminal, stdout=subprocess.DEVNULL, stderr=terminal)


class Terminal:
    def __init__(self):
        self.here, self.there = pty.openpty()

    def press_ctrl_c(self):
        os.write(self.here, b"\x03")
        time.sleep(0.3)


def main():
    args = arguments()
    qft, qft_run = args.build / "bin/qft", args.build / "bin/qft-run"
    report = Report()
    with tempfile.TemporaryDirectory(prefix="qft-stop-") as tmp:
        tmp = Path(tmp)
        # A step of some seconds, which no save but the one asked for interrupts.
        settings = {**make(tmp, samples=400, vocabulary=49152), "compute_dtype": "float32", "global_batch_size": 400, "max_steps": STEPS, "save_steps": 1000}
        mpirun(2, [qft, "train", write(tmp / "whole.yaml", {**settings, "output_dir": str(tmp / "whole")})])
        out = tmp / "out"
        run_file = write(tmp / "run.yaml", {**settings, "output_dir": str(out)})

        def stopped(name, job, interrupt):
            """The job ends with 75 and a checkpoint that is at most one step newer than the request."""
            before = committed(out)
            report.holds(f"{name}: in training", wait_for(lambda: done(out) > max(before, default=0), job))
            time.sleep(0.3)
            steps = done(out)
            interrupt()
            job.wait(120)
            report.equal("    ... exit code", job.returncode, 75)
            after = committed(out)
            report.holds("    ... a checkpoint", len(after) > len(before))
            if after:
                report.holds("    ... at most a step later", after[-1] <= steps + 1, f"step {after[-1]}, asked after {steps}")

        job = start([qft_run, *LAUNCH, qft, "train", run_file])
        stopped("SIGTERM to qft-run", job, job.terminate)
        terminal = Terminal()
        stopped("Ctrl-C", start([qft_run, *LAUNCH, qft, "train", run_file], terminal.there), terminal.press_ctrl_c)
        again = mpirun(2, [qft, "train", run_file], check=False)
        report.equal("started again it ends", again.returncode, 0)
        report.equal("    ... with the same weights", weights(out), weights(tmp / "whole"))

        alone, terminal = tmp / "alone", Terminal()
        long_step = write(tmp / "long.yaml", {**settings, "output_dir": str(alone), "num_train_epochs": 1000})
        job = start([qft, "train", long_step], terminal.there)
        wait_for(lambda: (alone / "trainer_log.jsonl").exists(), job)
        time.sleep(1)
        began = time.monotonic()
        terminal.press_ctrl_c()
        report.equal("Ctrl-C within the first step, without a launcher", job.wait(60), 75)
        report.check("    ... does not wait for its end (seconds)", time.monotonic() - began, 8)
        report.equal("    ... and nothing is committed", committed(alone), [])

        terminal = Terminal()
        job = start([qft_run, *LAUNCH, qft, "train", run_file, "max_steps=1000", f"output_dir={tmp / 'twice'}"], terminal.there)
        wait_for(lambda: done(tmp / "twice") > 0, job)
        began = time.monotonic()
        terminal.press_ctrl_c()
        terminal.press_ctrl_c()
        report.equal("Ctrl-C twice", job.wait(60), 130)
        report.check("    ... ends at once (seconds)", time.monotonic() - began, 8)
    report.finish()


main()
