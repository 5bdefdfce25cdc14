"""pref_bco_weight in fp32 beside LLaMA-Factory's own code, whose numbers make_bco_golden.py has recorded, over six steps; then the same steps in
other divisions of the global batch, and cut and resumed, in fp64: the mean of rewards is that of the whole batch, and goes on."""
import json
import tempfile
from pathlib import Path

from bco_cases import BATCH, CASES, GOLDEN, inputs
from common import Report, arguments, mpirun
from tiny import cut, log_of, write

TOLERANCE = 1e-4
KEYS = ("loss", "grad_norm", "rewards/chosen", "rewards/rejected")


def losses(directory):
    return [{key: entry[key] for key in KEYS} for entry in log_of(directory) if "loss" in entry]


def worst(ours, theirs, key):
    return max(abs(a[key] - b[key]) / max(1.0, abs(b[key])) for a, b in zip(ours, theirs, strict=True))


def main():
    args = arguments()
    qft, report, golden = args.build / "bin/qft", Report(), json.loads(GOLDEN.read_text())
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        made, pairs = inputs(tmp, args.build)
        report.holds("the token ids are those that LLaMA-Factory's code had", pairs == golden["data"])

        def train(out, ranks=1, **options):
            file = write(tmp / "run.yaml", {**made["settings"], "adapter_name_or_path": made["adapter"], "output_dir": str(out),
                                            "per_device_train_batch_size": BATCH, **options})
            mpirun(ranks, [qft, "train", file])
            return losses(out)

        for case in CASES:
            options = {key: value for key, value in case.items() if key != "name"}
            ours, theirs = train(tmp / case["name"], **options), golden["steps"][case["name"]]
            for key in KEYS:
                report.check(f"{case['name']}: {key}", worst(ours, theirs, key), TOLERANCE)
        options = {**{key: value for key, value in CASES[0].items() if key != "name"}, "compute_dtype": "float64", "save_steps": 2}
        whole = train(tmp / "whole", **options)
        for ranks, strategy, each in ((1, "ddp", 1), (2, "zero3", 1), (3, "zero2", 1), (2, "ddp", 2)):
            ours = train(tmp / f"divided-{ranks}-{strategy}", ranks, **{**options, "strategy": strategy, "per_device_train_batch_size": each})
            for key in KEYS:
                report.check(f"micro-batches of {each} under {strategy} on {ranks}: {key}", worst(ours, whole, key), 1e-10)
        cut(tmp / "whole", tmp / "cut", 2)
        resumed = train(tmp / "cut", 2, **{**options, "strategy": "zero3", "per_device_train_batch_size": 1})
        for key in KEYS:
            report.check(f"cut after two steps, and resumed on two ranks: {key}", worst(resumed[-4:], whole[-4:], key), 1e-10)
    report.finish()


if __name__ == "__main__":
    main()
