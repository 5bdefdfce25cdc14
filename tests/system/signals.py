"""SIGUSR1 at random moments: before the first step the run ends with 75 and nothing committed, during training with 75 and
a checkpoint, after the last step with 0; started again it ends with the weights of a run that was left alone.

    signals.py --build build [--signals N] [--seed S]    # N met, a sixth of them or more in each of the three
"""
import json
import random
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from common import Report, arguments, mpirun, run
from jobs import done, output_of, ranks, start, wait_for
from kills import committed, weights
from tiny import make, write

STEPS = 30


def main():
    args = arguments(signals=9, seed=1)
    qft, ckpt = args.build / "bin/qft", args.build / "bin/qft-ckpt"
    rng = random.Random(args.seed)
    report, seen = Report(), {"loading": 0, "training": 0, "done": 0}
    with tempfile.TemporaryDirectory(prefix="qft-signals-") as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp, vocabulary=49152), "compute_dtype": "float32", "max_steps": STEPS, "save_steps": 1000}
        began = time.monotonic()
        mpirun(2, [qft, "train", write(tmp / "whole.yaml", {**settings, "output_dir": str(tmp / "whole")})])
        usual = time.monotonic() - began
        for number in range(args.signals):
            out = tmp / f"out{number}"
            run_file = write(tmp / f"run{number}.yaml", {**settings, "output_dir": str(out)})
            job = start(qft, run_file)
            wait_for(lambda: len(ranks(run_file)) == 2, job)
            if number % 3 == 0:
                time.sleep(rng.uniform(0, usual / 6))
            else:
                step = STEPS if number % 3 == 2 else rng.randrange(1, STEPS)
                wait_for(lambda: done(out) >= step, job)
                time.sleep(rng.uniform(0, 0.02))
            job.send_signal(signal.SIGUSR1)
            text = output_of(job, run_file)
            steps = committed(out)
            if job.returncode == 75 and not steps:
                seen["loading"] += 1
                report.holds(f"signal {number}: before the first step", "before the first step" in text, text)
            elif job.returncode == 75:
                seen["training"] += 1
                state = json.loads((out / f"checkpoint-{steps[-1]}/trainer_state.json").read_text())
                report.equal(f"signal {number}: at step {steps[-1]}", state["global_step"], steps[-1])
                report.equal("    ... the checkpoint verifies", run([ckpt, "verify", out / f"checkpoint-{steps[-1]}"], check=False).returncode, 0)
            else:
                seen["done"] += 1
                report.equal(f"signal {number}: after the last step", job.returncode, 0)
                if job.returncode:
                    print(text)
            again = mpirun(2, [qft, "train", run_file], check=False)
            report.equal("    ... started again it ends", again.returncode, 0)
            report.holds("    ... with the same weights", again.returncode == 0 and weights(out) == weights(tmp / "whole"))
        chat = subprocess.Popen([qft, "chat", tmp / "whole.yaml"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(3)
        chat.terminate()
        report.equal("qft chat, which has nothing to commit, ends at once", chat.wait(60), -signal.SIGTERM)
        report.holds(f"seen: {seen}", min(seen.values()) >= args.signals // 6, f"each should be at least {args.signals // 6}")
    report.finish()


main()
