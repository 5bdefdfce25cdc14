"""`deterministic: true`: losses, gradient norms and weights are the same bits on any number of ranks, also after a resume on
another number.

    deterministic.py --build build [--ranks 4]    # on 1, 2, ... and RANKS ranks
"""
import tempfile
from pathlib import Path

from common import Report, arguments, mpirun
from tiny import cut, log_of, make, write

SAME = ["loss", "grad_norm", "eval_loss", "lr", "epoch", "total_tokens", "label_tokens"]
FULL = {"finetuning_type": "full", "learning_rate": 1e-3}
# Of 26 samples 5 are held out: the last step of an epoch is short, and no number of ranks divides the micro-batches of all.
CASES = [("LoRA bf16", {"compute_dtype": "auto", "bf16": True, "global_batch_size": 7, "per_device_train_batch_size": 2}),
         ("full fp32", {**FULL, "compute_dtype": "float32", "global_batch_size": 5}),
         ("full pure bf16, packed", {**FULL, "compute_dtype": "auto", "pure_bf16": True, "packing": True, "global_batch_size": 3, "max_steps": 10})]


def main():
    args = arguments(ranks=4)
    qft = args.build / "bin/qft"
    report = Report()
    for name, changes in CASES:
        with tempfile.TemporaryDirectory() as tmp:
            tmp = Path(tmp)
            settings = {**make(tmp, "qwen3", samples=26), "num_train_epochs": 3, "val_size": 5, "eval_strategy": "steps", "eval_steps": 4, "save_steps": 4,
                        "strategy": "auto", "deterministic": True, **changes}

            def compare(ranks, out, what):
                mpirun(ranks, [qft, "train", write(tmp / "run.yaml", {**settings, "output_dir": str(out)})])
                ours, theirs = log_of(out), log_of(tmp / "one")
                lines = sum(any(a.get(k) != b.get(k) for k in SAME) for a, b in zip(ours, theirs)) + abs(len(ours) - len(theirs))
                report.equal(f"{name}: {what}: log lines of {len(theirs)} that differ", lines, 0)
                weights = next((tmp / "one").glob("*.safetensors")).name
                report.holds("    ... the same weights", (out / weights).read_bytes() == (tmp / "one" / weights).read_bytes())

            mpirun(1, [qft, "train", write(tmp / "run.yaml", {**settings, "output_dir": str(tmp / "one")})])
            report.holds(f"{name}: nine steps", max(e["current_steps"] for e in log_of(tmp / "one")) >= 9)
            for ranks in [r for r in (2, 3, 4, 8) if r <= args.ranks]:
                compare(ranks, tmp / f"on{ranks}", f"{ranks} ranks")
            cut(tmp / "one", tmp / "resumed", 4)
            compare(3, tmp / "resumed", "resumed on 3 ranks")
            without = {**settings, "deterministic": False, "debug_sync": True, "output_dir": str(tmp / "without")}
            # One rank adds its micro-batches as they come; two may happen to add them like the tree of sums.
            told = mpirun(1, [qft, "train", write(tmp / "run.yaml", without)]).stderr
            report.holds("    ... debug_sync is checked on a GPU, or said to have no effect", "NVIDIA" in told or "debug_sync is true, which has no effect" in told, told)
            differs = [e.get("grad_norm") for e in log_of(tmp / "without")] != [e.get("grad_norm") for e in log_of(tmp / "one")]
            report.holds("    ... without the key bits differ (or this shows nothing)", differs)
            if changes.get("finetuning_type") != "full":
                refused = mpirun(2, [qft, "train", write(tmp / "run.yaml", {**settings, "strategy": "zero3"})], check=False)
                report.holds("zero3 is refused by name", refused.returncode == 2 and "zero3" in refused.stderr, refused.stderr)
    report.finish()


if __name__ == "__main__":
    main()
