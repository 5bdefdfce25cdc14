"""A run that is cut and resumed ends in the very bytes of the run that was not.

    resume.py --build build [--cuts N] [--only PATTERN]    # at N of its steps, each of eight kinds of run
"""
import re
import tempfile
from pathlib import Path

from common import Report, arguments, mpirun
from tiny import cut, log_of, make, write

SAME = ["loss", "grad_norm", "lr", "epoch", "total_tokens", "skipped_updates"]
# Gradients overflow until the scale has come down.
FP16 = {"compute_dtype": "auto", "fp16": True, "fp16_initial_scale_power": 24, "fp16_hysteresis": 1, "strategy": "zero2"}


def main():
    args = arguments(cuts=3, only="")
    qft = args.build / "bin/qft"
    report = Report()
    cases = [("LoRA fp32", {"compute_dtype": "float32"}, 2), ("LoRA bf16, packed", {"compute_dtype": "auto", "bf16": True, "packing": True}, 2),
             ("full fp32", {"compute_dtype": "float32", "finetuning_type": "full", "learning_rate": 1e-3}, 3),
             ("LoRA fp16", FP16, 2),
             ("full bf16 by Lion", {"compute_dtype": "auto", "bf16": True, "finetuning_type": "full", "learning_rate": 1e-4, "optim": "lion_32bit",
                                    "weight_decay": 0.1, "strategy": "zero3"}, 2),
             ("freeze with noise", {"compute_dtype": "float32", "finetuning_type": "freeze", "freeze_trainable_layers": 1, "freeze_extra_modules": "embed_tokens",
                                    "neftune_noise_alpha": 5, "learning_rate": 1e-3, "strategy": "zero3"}, 2),
             ("DoRA by PiSSA, with modules", {"compute_dtype": "auto", "bf16": True, "use_dora": True, "pissa_init": True, "rank_pattern": {"q_proj": 2}, "additional_target": "embed_tokens,norm",
                                    "loraplus_lr_ratio": 4, "strategy": "zero2"}, 2),
             ("full pure bf16", {"compute_dtype": "auto", "pure_bf16": True, "finetuning_type": "full", "learning_rate": 1e-3}, 1)]
    for name, changes, ranks in cases:
        if not re.search(args.only, name):
            continue
        with tempfile.TemporaryDirectory() as tmp:
            tmp = Path(tmp)
            settings = {**make(tmp), **changes, "save_steps": 1}
            whole = write(tmp / "whole.yaml", {**settings, "output_dir": str(tmp / "whole")})
            mpirun(ranks, [qft, "train", whole])
            reference = log_of(tmp / "whole")
            if name == "LoRA fp16":
                skipped = reference[-1].get("skipped_updates", 0)
                report.holds("fp16: some updates are skipped, not all", 0 < skipped < len(reference) // 2)
                report.holds("fp16: the loss falls", reference[-1]["loss"] < reference[0]["loss"] - 0.5)
            last = len(reference) - 1
            for step in sorted({1 + round(i * (last - 1) / max(1, args.cuts - 1)) for i in range(args.cuts)}):
                part = tmp / f"cut{step}"
                cut(tmp / "whole", part, step)
                run_file = write(tmp / "cut.yaml", {**settings, "output_dir": str(part)})
                mpirun(ranks, [qft, "train", run_file])
                resumed = log_of(part)
                lines = sum(any(a.get(k) != b.get(k) for k in SAME) for a, b in zip(reference, resumed))
                report.equal(f"{name}: log lines that differ after a cut at {step}", lines + abs(len(reference) - len(resumed)), 0)
                same = all(file.read_bytes() == (part / file.name).read_bytes() for file in (tmp / "whole").glob("*.safetensors"))
                report.holds(f"{name}: the same weights after a cut at {step}", same)
    report.finish()


main()
