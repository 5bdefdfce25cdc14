"""Each loss of preferences in fp32 beside TRL's own trainers, whose numbers make_trl_goldens.py has recorded: loss, gradient norm and metrics
of each step, on one rank and on two, in micro-batches and without."""
import json
import tempfile
from pathlib import Path

from common import Report, arguments, mpirun, worst
from preferences import log_of, write
from trl_cases import BATCH, CASES, GOLDEN, inputs

TOLERANCE = 1e-4
# Ours, by TRL's name where that is another.
NAMES = {"reward": {"margin": "rewards/margins"}, "orpo": {"log_odds_ratio": "odds_ratio_loss", "nll_loss": "sft_loss"}}
# TRL's numbers that are of another thing: logits of prompts and padding too, or of what qft does not report.
OTHERS = {"cpo": {"logits/chosen", "logits/rejected"}, "orpo": {"logits/chosen", "logits/rejected", "log_odds_chosen"},
          "kto": {"logits/chosen", "logits/rejected"}, "reward": {"min_reward", "max_reward", "mean_reward"}}


def main():
    args = arguments()
    qft, report, golden = args.build / "bin/qft", Report(), json.loads(GOLDEN.read_text())
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        made, data = inputs(tmp, args.build)
        report.holds("the token ids are those that TRL had", data == golden["data"])
        report.equal("runs", sorted(golden["steps"]), sorted(case["name"] for case in CASES))
        for number, case in enumerate(CASES):
            ranks, out = 1 + number % 2, tmp / f"out{number}"
            options = {**made["settings"], "output_dir": str(out), "strategy": "zero3" if ranks > 1 else "ddp",
                       "per_device_train_batch_size": BATCH // ranks // case.get("accumulation", 1), **case["qft"]}
            if options["finetuning_type"] == "lora":
                options["adapter_name_or_path"] = made["adapter"]
            mpirun(ranks, [qft, "train", write(tmp / "run.yaml", options)])
            log, steps = [entry for entry in log_of(out) if "loss" in entry], golden["steps"][case["name"]]
            report.equal(f"{case['name']}: steps", len(log), len(steps["loss"]))
            others = OTHERS.get(case["trainer"], set()) | ({"nll_loss"} if case["trl"].get("cpo_alpha") == 0.0 else set())
            if "accumulation" in case:  # means of micro-batches' means over their labels
                others = {"logits/chosen", "logits/rejected"}
            for name in sorted(steps.keys() - others):
                ours = [entry[NAMES.get(case["trainer"], {}).get(name, name)] for entry in log]
                theirs = [-value if name == "log_odds_ratio" else value for value in steps[name]]
                report.check(f"{case['name']}: {name}", worst(ours, theirs), TOLERANCE)
    report.finish()


if __name__ == "__main__":
    main()
