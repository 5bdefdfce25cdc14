"""Training with other adapters than plain LoRA beside PEFT in fp64: two ranks that share weights and optimizer, from the same start.
Then what training wrote, in PEFT.

The start is PEFT's own initialisation of what does not depend on chance (magnitudes), and of the rest qft's: A comes from its
checkpoint of step 0 that a run of one step with learning rate 0 leaves."""
import json
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

from common import ROOT, Report, arguments, mpirun, run
from models import in_double, train
from recorded import rms_error

sys.path.append(str(ROOT / "tests/system"))
from tiny import make, write  # noqa: E402

STEPS, BATCH, LR, DECAY, CLIP = 6, 2, 1e-2, 0.1, 1.0
EXACT = 1e-6  # the files have fp32; two programs in fp64 differ by less

CASES = {
    "DoRA": ({"use_dora": True, "lora_dropout": 0.0}, dict(target_modules="all-linear", use_dora=True)),
    "patterns": ({"lora_target": r"model\.layers\.1\..*(q_proj|down_proj)", "rank_pattern": {"down_proj": 2}, "alpha_pattern": {"q_proj": 4},
                  "lora_dropout": 0.0},
                 dict(target_modules=r"model\.layers\.1\..*(q_proj|down_proj)", rank_pattern={"down_proj": 2}, alpha_pattern={"q_proj": 4})),
}


def theirs(model_dir, options, start):
    """PEFT's model with the factors of `start`, and with its own magnitudes."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float64)
    peft_model = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, task_type="CAUSAL_LM", **options)).to(torch.float64)
    factors = load_file(start / "adapter_model.safetensors")
    magnitudes = []
    with torch.no_grad():
        for name, p in peft_model.named_parameters():
            if not p.requires_grad:
                continue
            ours = factors.pop(name.replace("magnitude_vector.default.weight", "magnitude_vector").replace(".default", ""))
            if "magnitude" in name:
                magnitudes.append((ours.double() - p).norm() / p.norm())
            else:
                p.copy_(ours)
    return peft_model, factors, max(magnitudes, default=torch.tensor(0.0)).item()


def compare(report, build, name, settings, options, strategy):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        whole = {**make(tmp, samples=STEPS * BATCH), "learning_rate": LR, "weight_decay": DECAY, "max_grad_norm": CLIP,
                 "lr_scheduler_type": "constant", "warmup_ratio": 0, "disable_shuffling": True, "global_batch_size": BATCH, "max_steps": STEPS,
                 "save_strategy": "no", "strategy": strategy, **settings}
        run_file = write(tmp / "run.yaml", whole)
        run([build / "bin/qft-pack", run_file, "--output", tmp / "train.h5"])
        samples = [json.loads(line) for line in run([build / "bin/qft-pack", "export", tmp / "train.h5"]).stdout.splitlines()]
        qft = lambda *more: mpirun(BATCH, [build / "bin/qft", "train", run_file, f"pack={tmp / 'train.h5'}", *more])
        qft("max_steps=1", "learning_rate=0", f"output_dir={tmp / 'start'}")
        qft()
        log = [entry for entry in map(json.loads, (tmp / "out/trainer_log.jsonl").read_text().splitlines()) if "loss" in entry]
        model, left, magnitudes = theirs(tmp / "model", options, tmp / "start")
        report.equal(f"{name}: tensors that PEFT has not", sorted(left), [])
        report.check(f"{name}: magnitudes at the start", magnitudes, EXACT)
        read = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp / "model", dtype=torch.float64), tmp / "out").to(torch.float64)
        with in_double():
            optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, weight_decay=DECAY)
            losses, norms = train(model, samples, optimizer, STEPS, BATCH, CLIP)
            report.check(f"{name}: losses", rms_error([entry["loss"] for entry in log], losses), EXACT)
            report.check(f"{name}: gradient norms", rms_error([entry["grad_norm"] for entry in log], norms), EXACT)
            ids = torch.tensor([samples[0]["ids"]])
            with torch.no_grad():
                mine, judge = read(input_ids=ids).logits, model(input_ids=ids).logits
            report.check(f"{name}: logits of our files in PEFT", ((mine - judge).norm() / judge.norm()).item(), 1e-4)


def main():
    args = arguments()
    torch.set_num_threads(1)
    report = Report()
    for name, (settings, options) in CASES.items():
        compare(report, args.build, name, settings, options, "zero3" if name == "DoRA" else "ddp")
    report.finish()


main()
