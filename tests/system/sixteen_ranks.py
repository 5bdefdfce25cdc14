"""Sixteen ranks under ZeRO-3 by DeepSpeed's JSON, optimizer and weights offloaded, with a curriculum: a rank is killed, the run
resumes, is told to stop, and ends on eight. Every step takes the samples of one rank that was left alone, to the same loss.

    sixteen_ranks.py --build build [--steps N]
"""
import json
import os
import re
import signal
import tempfile
from pathlib import Path

from common import ROOT, Report, arguments, mpirun
from elastic import relative
from jobs import output_of, ranks, start, wait_for
from kills import committed
from tiny import log_of, make, write

SHARES = {"explain": [80, 40, 25], "reasoning": [20, 40, 35], "topology": [0, 20, 40]}  # percent in each stage
SIZES = {"explain": 40, "reasoning": 30, "topology": 9}  # topology is short for its share: it repeats


def leveled_samples(directory):
    """Answers of as many digits, which are as many tokens, as samples of their level came before."""
    records = [{"instruction": f"Say {level}", "input": "", "output": "7" * (1 + i), "difficulty": level}
               for level, size in SIZES.items() for i in range(size)]
    (directory / "data/levels.json").write_text(json.dumps(records))
    (directory / "data/dataset_info.json").write_text(json.dumps({"levels": {"file_name": "levels.json"}}))


def taken(log):
    """Tokens and labels of each step."""
    counts = [(entry["total_tokens"], entry["label_tokens"]) for entry in log]
    return [(a - b, c - d) for (a, c), (b, d) in zip(counts, [(0, 0), *counts])]


def position(out, step):
    """In the data, as a checkpoint has it."""
    return json.loads((out / f"checkpoint-{step}/manifest.json").read_text())["state"]["data"]


def main():
    args = arguments(steps=10)
    qft = args.build / "bin/qft"
    report = Report()
    with tempfile.TemporaryDirectory(prefix="qft-sixteen-") as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp, "qwen3"), "dataset": "levels", "finetuning_type": "full", "learning_rate": 1e-3, "max_steps": args.steps,
                    "global_batch_size": 20, "use_curriculum": True, "save_steps": 1, "save_total_limit": 3}
        leveled_samples(tmp)
        alone = mpirun(1, [qft, "train", write(tmp / "alone.yaml", {**settings, "output_dir": str(tmp / "alone"), "save_steps": 1000})]).stderr
        reference = log_of(tmp / "alone")
        out = tmp / "out"
        run_file = write(tmp / "run.yaml", {**settings, "output_dir": str(out), "deepspeed": str(ROOT / "configs/deepspeed/zero3_offload.json")})

        job = start(qft, run_file, np=16)
        wait_for(lambda: max(committed(out), default=0) >= args.steps // 4, job)
        os.kill(ranks(run_file)[5], signal.SIGKILL)
        told = output_of(job, run_file)
        killed_at = max(committed(out))
        report.holds(f"killed after step {killed_at}: under ZeRO-3 on 16 ranks", "zero3: 16 ranks" in told and job.returncode != 0, told)

        job = start(qft, run_file, np=16)
        wait_for(lambda: max(committed(out)) >= args.steps // 2, job)
        job.send_signal(signal.SIGUSR1)
        told = output_of(job, run_file)
        stopped_at = max(committed(out))
        report.equal(f"resumed and stopped after step {stopped_at}: exit code", job.returncode, 75)
        report.holds("    ... it went on from the step before the kill", re.search(rf"resumed from .* at step {killed_at}\b", told), told)

        last = mpirun(8, [qft, "train", run_file], check=False)
        report.holds("finished on 8 ranks", last.returncode == 0, last.stderr)
        report.holds("    ... in three parts", killed_at < stopped_at < args.steps, (killed_at, stopped_at))
        ours = log_of(out)
        report.equal("tokens and labels of every step", taken(ours), taken(reference))
        for key in ("loss", "grad_norm"):
            report.check(f"{key} of every step", relative(ours, reference, key), 1e-9)
        report.equal("the position in the data at the end", position(out, args.steps), position(tmp / "alone", args.steps))
        for stage, line in enumerate(line for line in alone.splitlines() if "curriculum, " in line):
            for level, shares in SHARES.items():
                reached = re.search(rf"{level} ([\d.]+) %", line)
                report.check(f"stage {stage + 1}: {level}, percent", abs(float(reached[1]) - shares[stage]), 0.05)
    report.finish()


if __name__ == "__main__":
    main()
