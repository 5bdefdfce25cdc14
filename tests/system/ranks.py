"""The same global batches give the same losses and gradient norms on 1, 2, 3 and 4 ranks, in every order, and a resume on
another number of ranks goes on in the same way."""
import tempfile
from pathlib import Path

from common import Report, arguments, mpirun
from tiny import cut, log_of, make, write


def difference(ours, theirs, key):
    assert len(ours) == len(theirs), f"{len(ours)} steps, not {len(theirs)}"
    return max(abs(a[key] - b[key]) / abs(b[key]) for a, b in zip(ours, theirs))


def check_loop_options(qft, report):
    """dataloader_drop_last leaves out what does not fill a micro-batch of every rank, scale_lr_by_world_size multiplies the rate."""
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp, "qwen3", samples=11), "num_train_epochs": 2, "lr_scheduler_type": "constant", "warmup_ratio": 0}
        settings.pop("global_batch_size")  # 1 on each of 2 ranks
        seen = {}
        for name, changes in [("plain", {}), ("both", {"dataloader_drop_last": True, "scale_lr_by_world_size": True})]:
            told = mpirun(2, [qft, "train", write(tmp / "r.yaml", {**settings, **changes, "output_dir": str(tmp / name)})])
            seen[name] = log_of(tmp / name)
        report.equal("steps of 2 epochs of 11 samples on 2 ranks", len(seen["plain"]), 12)
        report.equal("the same with dataloader_drop_last", len(seen["both"]), 10)
        report.equal("scale_lr_by_world_size: learning rates", [e["lr"] for e in seen["both"]], [2 * e["lr"] for e in seen["plain"][:10]])
        report.holds("the log says both numbers", "learning_rate 0.01 times 2 ranks" in told.stderr + told.stdout, told.stderr)


def main():
    args = arguments()
    qft = args.build / "bin/qft"
    report = Report()
    check_loop_options(qft, report)
    for name, changes in [("LoRA", {}), ("full, packed", {"finetuning_type": "full", "packing": True, "learning_rate": 1e-3})]:
        with tempfile.TemporaryDirectory() as tmp:
            tmp = Path(tmp)
            settings = {**make(tmp, "qwen3"), **changes, "save_steps": 5}
            mpirun(1, [qft, "train", write(tmp / "r.yaml", {**settings, "output_dir": str(tmp / "one")})])
            reference = log_of(tmp / "one")
            for ranks, group in [(2, 1), (3, 2), (4, 1), (1, 6), (2, 3)]:
                out = tmp / f"{ranks}x{group}"
                mpirun(ranks, [qft, "train", write(tmp / "r.yaml", {**settings, "output_dir": str(out), "breadth_first_micro_batches": group})])
                ours = log_of(out)
                for key in ("loss", "grad_norm"):
                    report.check(f"{name}: {ranks} ranks, g = {group}: {key} of {len(ours)} steps", difference(ours, reference, key), 1e-10)
            out = tmp / "elastic"
            cut(tmp / "one", out, 5)
            mpirun(3, [qft, "train", write(tmp / "r.yaml", {**settings, "output_dir": str(out)})])
            report.check(f"{name}: resumed on 3 ranks", difference(log_of(out), reference, "loss"), 1e-10)
    report.finish()


main()
