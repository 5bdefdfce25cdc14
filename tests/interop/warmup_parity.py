"""Warm-up steps by warmup_ratio and warmup_steps: those of LLaMA-Factory under transformers 4, which has both keys, and under
transformers 5, where a fraction in warmup_steps took the place of warmup_ratio."""
import math
import subprocess
import tempfile

from transformers import TrainingArguments

from common import Report, arguments

TOTALS = [1, 2, 3, 7, 30, 60, 90, 99, 100, 101, 1000, 4999, 70000]
RATIOS = [0, 1e-5, 0.001, 0.01, 0.03, 0.05, 0.07, 0.1, 0.15, 0.29, 0.3, 0.5, 0.57, 0.9, 0.99]
STEPS = [1, 2, 5, 100, 100000]


def main():
    args = arguments()
    report = Report()
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
        result = subprocess.run([args.build / "tests/warmup_probe"], input="\n".join(line for line, _ in rows), capture_output=True, text=True, check=True)
        ours = [int(n) for n in result.stdout.split()]
        wrong = [(line, expected, n) for (line, expected), n in zip(rows, ours, strict=True) if n != expected]
        report.equal(f"{name}, {len(rows)} cases: wrong ones", wrong[:3], [])
    both = subprocess.run([args.build / "tests/warmup_probe"], input="100 warmup_steps=0.2 warmup_ratio=0.1", capture_output=True, text=True)
    report.equal("two fractions that differ are refused", both.returncode, 2)
    report.finish()


main()
