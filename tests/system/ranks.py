"""The same global batches give the same losses and gradient norms on 1, 2, 3 and 4 ranks, in every order, and a resume on
another number of ranks goes on in the same way."""
import tempfile
from pathlib import Path

from common import Report, arguments, mpirun
from tiny import cut, log_of, make, write


def difference(ours, theirs, key):
    assert len(ours) == len(theirs), f"{len(ours)} steps, not {len(theirs)}"
    return max(abs(a[key] - b[key]) / abs(b[key]) for a, b in zip(ours, theirs))


def main():
    args = arguments()
    qft = args.build / "bin/qft"
    report = Report()
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
