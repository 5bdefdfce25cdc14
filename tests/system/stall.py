"""How long training waits for a checkpoint, against the step that it interrupts, on SmolLM2-135M at accumulation 8: less than
1 % of a step for LoRA, less than 5 % for full fine-tuning.

    stall.py --build build [--ranks 1] [--steps 8]    # on a machine that has nothing else to do
"""
import json
import statistics
import tempfile
from pathlib import Path

from common import ROOT, Report, arguments, mpirun, run
from tiny import log_of, write

SAVE_EVERY = 2
CASES = [("LoRA", {"lora_rank": 8}, 0.01), ("full", {"finetuning_type": "full", "learning_rate": 1e-5}, 0.05)]


def main():
    args = arguments(ranks=1, steps=8)
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        records = [{"instruction": f"Count from {i}", "input": "", "output": " ".join(str(i + k) for k in range(60))} for i in range(800)]
        (tmp / "numbers.json").write_text(json.dumps(records))
        (tmp / "dataset_info.json").write_text(json.dumps({"numbers": {"file_name": "numbers.json"}}))
        settings = {"model_name_or_path": str(ROOT / "models/smollm2"), "stage": "sft", "do_train": True, "finetuning_type": "lora",
                    "dataset": "numbers", "dataset_dir": str(tmp), "template": "smollm2", "cutoff_len": 512, "packing": True, "bf16": True,
                    "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "max_steps": args.steps, "logging_steps": 1,
                    "save_steps": SAVE_EVERY, "save_total_limit": 2}
        for name, changes, limit in CASES:
            out = tmp / name
            run_file = write(tmp / f"{name}.yaml", {**settings, **changes, "output_dir": str(out)})
            command = [args.build / "bin/qft", "train", run_file]
            run(command) if args.ranks == 1 else mpirun(args.ranks, command)
            log = log_of(out)
            step = statistics.median((b["total_tokens"] - a["total_tokens"]) / b["throughput"] for a, b in zip(log, log[1:]))
            # The last save comes after the last line; it is waited for, since nothing is left to do meanwhile.
            stall = sum(e["seconds"]["save"] for e in log) / ((args.steps - 1) // SAVE_EVERY)
            report.check(f"{name}: a save holds training up for {1000 * stall:.1f} ms of a step of {step:.2f} s", stall / step, limit)
    report.finish()


if __name__ == "__main__":
    main()
