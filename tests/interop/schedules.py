"""Learning rates of every schedule, step by step and past its end, as transformers' get_scheduler has them. Warm-up steps by
warmup_ratio and warmup_steps: those of LLaMA-Factory under transformers 4, which has both keys, and under transformers 5, where a
fraction in warmup_steps took the place of warmup_ratio."""
import json
import math
import subprocess
import tempfile

import torch
from transformers import TrainingArguments, get_scheduler

from common import Report, arguments

PEAK = 3e-4
SIZES = [(0, 7), (1, 1), (3, 10), (10, 110), (50, 120)]  # warm-up, total
CASES = [("linear", {}), ("constant", {}), ("constant_with_warmup", {}), ("cosine", {}), ("cosine", {"num_cycles": 1.3}),
         ("cosine_with_restarts", {}), ("cosine_with_restarts", {"num_cycles": 4}), ("polynomial", {}),
         ("polynomial", {"lr_end": 1e-5, "power": 2.5}), ("inverse_sqrt", {}), ("inverse_sqrt", {"timescale": 77}),
         ("cosine_with_min_lr", {"min_lr": 1e-5}), ("cosine_with_min_lr", {"min_lr_rate": 0.2, "num_cycles": 0.8}),
         ("cosine_warmup_with_min_lr", {"min_lr_rate": 0.1}), ("cosine_warmup_with_min_lr", {"min_lr": 2e-5, "warmup_lr_rate": 0.3}),
         ("warmup_stable_decay", {"num_decay_steps": 4}), ("warmup_stable_decay", {"num_decay_steps": 3, "min_lr_ratio": 0.1}),
         *(("warmup_stable_decay", {"num_decay_steps": 2, "num_stable_steps": 1, "warmup_type": rise, "decay_type": fall})
           for rise, fall in (("linear", "linear"), ("cosine", "1-sqrt"), ("1-sqrt", "cosine")))]
TOTALS = [1, 2, 3, 7, 30, 60, 90, 99, 100, 101, 1000, 4999, 70000]
RATIOS = [0, 1e-5, 0.001, 0.01, 0.03, 0.05, 0.07, 0.1, 0.15, 0.29, 0.3, 0.5, 0.57, 0.9, 0.99]
STEPS = [1, 2, 5, 100, 100000]


def theirs(name, kwargs, warmup, total, steps):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=PEAK)
    scheduler = get_scheduler(name, optimizer, warmup, total, kwargs)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def check_rates(report, build):
    for name, kwargs in CASES:
        # transformers divides by total - warm-up, which is 0 where all steps are warm-up.
        sizes = [(w, t) for w, t in SIZES if name != "polynomial" or t > w]
        asked = [{"name": name, "kwargs": kwargs, "peak": PEAK, "warmup": w, "total": t, "steps": t + 5} for w, t in sizes]
        result = subprocess.run([build / "tests/schedule_probe"], input="\n".join(map(json.dumps, asked)), capture_output=True, text=True, check=True)
        worst = 0.0
        for line, (warmup, total) in zip(result.stdout.splitlines(), sizes, strict=True):
            ours, expected = [float(x) for x in line.split()], theirs(name, kwargs, warmup, total, total + 5)
            worst = max(worst, *(abs(a - b) / PEAK for a, b in zip(ours, expected, strict=True)))
        report.check(f"{name} {json.dumps(kwargs) if kwargs else ''}", worst, 1e-12)


def check_warmup(report, build):
    with tempfile.TemporaryDirectory() as tmp:
        steps_of = {value: TrainingArguments(tmp, warmup_steps=value, report_to="none").get_warmup_steps for value in RATIOS + STEPS}
    cases = {}  # name -> [(line, expected)]
    for total in TOTALS:
        for value in RATIOS:
            cases.setdefault("warmup_steps below 1", []).append((f"{total} warmup_steps={value}", steps_of[value](total)))
            cases.setdefault("warmup_ratio, as that", []).append((f"{total} warmup_ratio={value} warmup_steps=0", steps_of[value](total)))
        cases.setdefault("warmup_ratio 1: all steps", []).append((f"{total} warmup_ratio=1", math.ceil(total * 1.0)))
        for value in STEPS:
            cases.setdefault("warmup_steps from 1 on", []).append((f"{total} warmup_steps={value}", steps_of[value](total)))
            cases.setdefault("warmup_steps beside a ratio", []).append((f"{total} warmup_steps={value} warmup_ratio=0.1", value))
        cases.setdefault("null", []).append((f"{total} warmup_ratio=null warmup_steps=null", 0))
    for name, rows in cases.items():
        result = subprocess.run([build / "tests/warmup_probe"], input="\n".join(line for line, _ in rows), capture_output=True, text=True, check=True)
        ours = [int(n) for n in result.stdout.split()]
        wrong = [(line, expected, n) for (line, expected), n in zip(rows, ours, strict=True) if n != expected]
        report.equal(f"{name}, {len(rows)} cases: wrong ones", wrong[:3], [])
    both = subprocess.run([build / "tests/warmup_probe"], input="100 warmup_steps=0.2 warmup_ratio=0.1", capture_output=True, text=True)
    report.equal("two fractions that differ are refused", both.returncode, 2)


def main():
    args, report = arguments(), Report()
    check_rates(report, args.build)
    check_warmup(report, args.build)
    report.finish()


main()
