"""Rank 0 runs out of memory while a save gathers: all ranks end with the reason, none waits for another, and no checkpoint is lost."""
import re
import tempfile
from pathlib import Path

from common import Report, arguments
from jobs import start
from tiny import make, write

TIMEOUT = 20  # ddp_timeout: a rank that is waited for in vain shows as the watchdog's report


def main():
    args = arguments()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="qft-save-memory-") as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp), "strategy": "zero3", "compute_dtype": "float32", "max_steps": 2, "save_steps": 1, "ddp_timeout": TIMEOUT}
        # What is gathered: masters, moments and adapter of a checkpoint; the model of one; the adapter at the end.
        cases = {"state, copied": ({}, 1), "adapter, written at once": ({"async_save": False}, 1),
                 "adapter at the end": ({"max_steps": 1}, 2),
                 "model, copied": ({"finetuning_type": "full", "save_only_model": True}, 1)}
        for name, (changes, moment) in cases.items():
            out = tmp / name.replace(" ", "-").replace(",", "")
            run_file = write(tmp / "run.yaml", {**settings, **changes, "output_dir": str(out)})
            job = start(args.build / "bin/qft", run_file, preload=args.build / "tests/libqft_fault.so", QFT_FAULT=f"0:full:{moment}")
            text = job.communicate()[1]
            told = re.search(r"out of memory: rank 0 on \S+, in .*async_save: false", text)
            report.holds(f"{name}: ends with the reason", job.returncode == 1 and told and "watchdog" not in text, text)
            report.holds("    ... on every rank", "MPI_ABORT" not in text, text)
            left = sorted(path.name for path in out.glob("*checkpoint-*"))
            report.equal("    ... and only what was committed is there", left, ["checkpoint-1"] if moment == 2 else [])
    report.finish()


main()
