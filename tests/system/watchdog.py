"""A rank that dies, stops, sleeps or skips a collective, anywhere between load and end: the job ends in time, and all of it.

    watchdog.py --build build [--positions N]    # N places over the whole run for each kind of harm
"""
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from common import Report, arguments
from jobs import processes, start
from tiny import make, write

TIMEOUT = 3   # ddp_timeout, seconds
ALLOWED = TIMEOUT + 5 + 4  # what is promised, and what mpirun takes to end a job
START = 60 - TIMEOUT  # more than that while the ranks come together: the run file has not been read
PHASES = {"load", "pack", "train", "eval", "save"}


def main():
    args = arguments(positions=4)
    qft, preload = args.build / "bin/qft", args.build / "tests/libqft_fault.so"
    report, phases = Report(), set()
    with tempfile.TemporaryDirectory(prefix="qft-watchdog-") as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp, vocabulary=49152), "compute_dtype": "float32", "max_steps": 6, "save_steps": 2, "val_size": 0.2, "eval_strategy": "steps",
                    "eval_steps": 2, "per_device_eval_batch_size": 1, "ddp_timeout": TIMEOUT, "overwrite_output_dir": True,
                    "resume_from_checkpoint": "false"}
        count = tmp / "count"
        began = time.monotonic()
        whole = start(qft, write(tmp / "whole.yaml", {**settings, "output_dir": str(tmp / "whole")}), preload=preload, QFT_FAULT_COUNT=str(count))
        text = whole.communicate()[1]
        usual = time.monotonic() - began
        report.equal("without harm", whole.returncode, 0)
        if whole.returncode:
            print(text)
        calls = int(count.read_text())
        harms = ("kill", "stop", "sleep", "skip")
        for h, action in enumerate(harms):
            for place in range(args.positions):  # each harm at places of its own
                rank = place % 2
                number = 1 + (2 * (len(harms) * place + h) + 1) * calls // (2 * len(harms) * args.positions)
                name = f"rank {rank} {action} at collective {number} of {calls}"
                run_file = write(tmp / "run.yaml", {**settings, "output_dir": str(tmp / f"{action}{place}")})
                began = time.monotonic()
                job = start(qft, run_file, preload=preload, QFT_FAULT=f"{rank}:{action}:{number}")
                try:
                    text = job.communicate(timeout=usual * 3 + ALLOWED + START + 60)[1]
                except subprocess.TimeoutExpired:
                    job.kill()
                    text = "still running\n" + job.communicate()[1]
                found = re.findall(r"^  rank (\d) on \S+: phase (\w+)", text, re.M)
                phases |= {phase for _, phase in found}
                late = time.monotonic() - began - usual * 3 - ALLOWED  # other processes may hold the start up
                late -= START if {phase for _, phase in found} == {"start"} else 0
                report.holds(f"{name}: fails", job.returncode != 0)
                report.holds("    ... in time", late <= 0, f"{late:.1f} s late")
                time.sleep(0.2)
                report.equal("    ... processes that are left", processes(str(tmp)), [])
                if action == "stop":
                    named = re.search(r"error: watchdog: rank (\d) on ", text)
                    report.equal("    ... and the culprit is named", named and int(named[1]), rank)
                elif action == "sleep":  # inside the collective, where no rank is more to blame than another
                    report.equal("    ... and each rank's collective is", text.count(" (number "), 2)
                if report.failed:
                    print(text)
                    report.finish()
        # A checkpoint is committed once its files are written, so the phase of a late collective depends on the disk.
        wanted = len(PHASES) if args.positions >= 12 else 2
        report.holds(f"phases seen: {' '.join(sorted(phases))}", len(phases & PHASES) >= wanted, f"{wanted} are wanted")

        job = start(qft, write(tmp / "run.yaml", {**settings, "max_steps": 100000, "output_dir": str(tmp / "long")}))
        while not (tmp / "long/trainer_log.jsonl").exists() and job.poll() is None:
            time.sleep(0.05)
        job.send_signal(signal.SIGKILL)
        began = time.monotonic()
        while processes(str(tmp)) and time.monotonic() - began < 20:
            time.sleep(0.1)
        report.check("mpirun killed: seconds until no rank is left", time.monotonic() - began, 10)
        job.stderr.close()
        job.wait()
    report.finish()


main()
