"""Learning rates of every schedule, step by step and past its end, as transformers' get_scheduler has them."""
import json
import subprocess

import torch
from transformers import get_scheduler

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


def main():
    args = arguments()
    report = Report()
    for name, kwargs in CASES:
        # transformers divides by total - warm-up, which is 0 where all steps are warm-up.
        sizes = [(w, t) for w, t in SIZES if name != "polynomial" or t > w]
        asked = [{"name": name, "kwargs": kwargs, "peak": PEAK, "warmup": w, "total": t, "steps": t + 5} for w, t in sizes]
        result = subprocess.run([args.build / "tests/schedule_probe"], input="\n".join(map(json.dumps, asked)), capture_output=True, text=True, check=True)
        worst = 0.0
        for line, (warmup, total) in zip(result.stdout.splitlines(), sizes, strict=True):
            ours, expected = [float(x) for x in line.split()], theirs(name, kwargs, warmup, total, total + 5)
            worst = max(worst, *(abs(a - b) / PEAK for a, b in zip(ours, expected, strict=True)))
        report.check(f"{name} {json.dumps(kwargs) if kwargs else ''}", worst, 1e-12)
    report.finish()


main()
