"""A checkpoint that an earlier qft wrote, with a manifest of version 1: today's reads it, and takes the steps that the earlier one took.

checkpoint_v1/ was written on three ranks, under zero3, by `qft train` with the settings below and save_steps 5; trainer_log.jsonl is the
whole run's."""
import json
import shutil
import tempfile
from pathlib import Path

from common import Report, arguments, mpirun, run
from tiny import log_of, make, write

FIXTURE = Path(__file__).with_name("checkpoint_v1")
SETTINGS = {"lora_rank": 2, "lora_target": "q_proj,v_proj", "strategy": "zero3", "save_steps": 5}


def version_of(checkpoint):
    return json.loads((checkpoint / "manifest.json").read_text())["version"]


def main():
    args = arguments()
    qft, ckpt = args.build / "bin/qft", args.build / "bin/qft-ckpt"
    report = Report()
    reference = log_of(FIXTURE)
    report.equal("the fixture has a manifest of version", version_of(FIXTURE / "checkpoint-5"), 1)
    report.holds("it verifies", run([ckpt, "verify", FIXTURE / "checkpoint-5"], check=False).returncode == 0)
    for ranks, strategy in ((1, "ddp"), (2, "zero3"), (3, "zero1")):
        with tempfile.TemporaryDirectory() as tmp:
            tmp = Path(tmp)
            settings = {**make(tmp), **SETTINGS, "strategy": strategy}
            shutil.copytree(FIXTURE, tmp / "out")
            mpirun(ranks, [qft, "train", write(tmp / "run.yaml", settings)])
            ours = log_of(tmp / "out")
            report.equal(f"{strategy} on {ranks}: steps", len(ours), len(reference))
            for key in ("loss", "grad_norm", "lr"):
                worst = max(abs(a[key] - b[key]) / max(abs(b[key]), 1e-30) for a, b in zip(ours[5:], reference[5:]))
                report.check(f"    ... {key} after the resume", worst, 1e-10)
            report.equal("    ... and saves a manifest of version", version_of(tmp / "out/checkpoint-10"), 2)
            new = tmp / "checkpoint-5"
            run([ckpt, "reshard", FIXTURE / "checkpoint-5", "--output", new, "--ranks", "4"])
            report.equal("resharded: a manifest of version", version_of(new), 2)
            told = json.loads(run([ckpt, "diff", "--json", FIXTURE / "checkpoint-5", new]).stdout)
            report.equal("    ... tensors that changed", [t["name"] for t in told["tensors"] if not t["equal"]], [])
    report.finish()


main()
