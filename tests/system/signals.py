"""SIGUSR1 at random moments: before the first step the run ends with 75 and nothing committed, during training with 75 and
a checkpoint, after the last step with 0; started again it ends with the weights of a run that was left alone.

    signals.py --build build [--signals N] [--seed S]
"""
import json
import random
import signal
import tempfile
import time
from pathlib import Path

from common import Report, arguments, mpirun, run
from jobs import output_of, ranks, start, wait_for
from kills import committed, weights
from tiny import make, write


def main():
    args = arguments(signals=6, seed=1)
    qft, ckpt = args.build / "bin/qft", args.build / "bin/qft-ckpt"
    rng = random.Random(args.seed)
    report, seen = Report(), {"loading": 0, "training": 0, "done": 0}
    with tempfile.TemporaryDirectory(prefix="qft-signals-") as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp), "compute_dtype": "float32", "max_steps": 30, "save_steps": 1000}
        began = time.monotonic()
        mpirun(2, [qft, "train", write(tmp / "whole.yaml", {**settings, "output_dir": str(tmp / "whole")})])
        usual = time.monotonic() - began
        for number in range(args.signals):
            out = tmp / f"out{number}"
            run_file = write(tmp / f"run{number}.yaml", {**settings, "output_dir": str(out)})
            job = start(qft, run_file)
            wait_for(lambda: len(ranks(run_file)) == 2, job)
            if number % 2 == 1:
                wait_for(lambda: (out / "trainer_log.jsonl").exists(), job)
                time.sleep(rng.uniform(0, usual / 3))
            else:
                time.sleep(rng.uniform(0, usual / 6))
            job.send_signal(signal.SIGUSR1)
            text = output_of(job, run_file)
            steps = committed(out)
            if job.returncode == 75 and not steps:
                seen["loading"] += 1
                report.check(f"signal {number}: before the first step", int("before the first step" not in text), 0)
            elif job.returncode == 75:
                seen["training"] += 1
                state = json.loads((out / f"checkpoint-{steps[-1]}/trainer_state.json").read_text())
                report.check(f"signal {number}: at step {steps[-1]}", int(state["global_step"] != steps[-1]), 0)
                report.check("    ... the checkpoint verifies", run([ckpt, "verify", out / f"checkpoint-{steps[-1]}"], check=False).returncode, 0)
            else:
                seen["done"] += 1
                report.check(f"signal {number}: after the last step", job.returncode, 0)
                if job.returncode:
                    print(text)
            again = mpirun(2, [qft, "train", run_file], check=False)
            report.check("    ... started again it ends", again.returncode, 0)
            report.check("    ... with the same weights", int(again.returncode != 0 or weights(out) != weights(tmp / "whole")), 0)
        report.check(f"seen: {seen}", int(seen["loading"] == 0 or seen["training"] == 0), 0)
    report.finish()


main()
