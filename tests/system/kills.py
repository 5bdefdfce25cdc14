"""SIGKILL at random moments, every other time while a checkpoint is being written: nothing committed is lost, and the run
that is started again and again ends with the weights of one that was left alone.

    kills.py --build build [--kills N] [--seed S]
"""
import hashlib
import os
import random
import re
import signal
import tempfile
import time
from pathlib import Path

from common import Report, arguments, mpirun, run
from jobs import output_of, ranks, start, wait_for
from tiny import make, write


def committed(out):
    return sorted(int(p.name.split("-")[1]) for p in Path(out).glob("checkpoint-*") if re.fullmatch(r"checkpoint-\d+", p.name))


def weights(out):
    return hashlib.sha256((Path(out) / "adapter_model.safetensors").read_bytes()).hexdigest()


def writing(out):
    return any(Path(out).glob("tmp-checkpoint-*"))


def main():
    args = arguments(kills=6, seed=1)
    qft, ckpt = args.build / "bin/qft", args.build / "bin/qft-ckpt"
    rng = random.Random(args.seed)
    report = Report()
    with tempfile.TemporaryDirectory(prefix="qft-kills-") as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp), "compute_dtype": "float32", "max_steps": 40 + 12 * args.kills, "save_steps": 1, "save_total_limit": 4}
        whole = write(tmp / "whole.yaml", {**settings, "output_dir": str(tmp / "whole"), "save_steps": 1000})
        mpirun(2, [qft, "train", whole])
        out, run_file = tmp / "out", write(tmp / "run.yaml", {**settings, "output_dir": str(tmp / "out")})
        kills = inside = lost = 0
        while kills < args.kills:
            job = start(qft, run_file)
            if not wait_for(lambda: len(ranks(run_file)) == 2, job):
                report.holds(f"start after {kills} kills", False, output_of(job, run_file))
                break
            if kills % 2 == 0:
                wait_for(lambda: writing(out), job)
                time.sleep(rng.uniform(0, 0.02))
            elif kills % 6 == 1:  # before the first step, too
                time.sleep(rng.uniform(0, 2))
            else:
                goal = max(committed(out), default=0) + rng.randint(1, 10)
                wait_for(lambda: max(committed(out), default=0) >= goal, job)
                time.sleep(rng.uniform(0, 0.05))
            before, in_save = committed(out), writing(out)
            victims = ranks(run_file)
            if not victims or job.poll() is not None:  # it had ended by itself
                text = output_of(job, run_file)
                report.holds(f"start after {kills} kills", job.returncode == 0, f"exit code {job.returncode}\n{text}")
                break
            os.kill(rng.choice(victims), signal.SIGKILL)
            output_of(job, run_file)
            kills, inside = kills + 1, inside + in_save
            after = committed(out)
            lost += bool(before) and (not after or max(after) < max(before))
            for step in after[-2:]:
                lost += run([ckpt, "verify", out / f"checkpoint-{step}"], check=False).returncode != 0
        report.equal("kills", kills, args.kills)
        report.equal(f"{kills} kills, {inside} of them inside a save: committed steps lost or broken", lost, 0)
        report.holds("    ... some were inside a save", inside > 0)
        last = mpirun(2, [qft, "train", run_file], check=False)
        report.equal("the last start ends well", last.returncode, 0)
        if last.returncode:
            print(last.stderr)
            report.finish()
        report.holds("the weights are those of the run left alone", weights(out) == weights(tmp / "whole"))
        report.equal("temporary directories that are left", list(out.glob("tmp-*")), [])
    report.finish()


if __name__ == "__main__":
    main()
