"""Thirty fp32 LoRA steps on alpaca_en_demo beside a plain transformers + PEFT loop: same adapter, same order, same losses.
Then what training wrote, in the other tools: the adapter in PEFT, the merged model in transformers."""
import json
import math
import sys
import tempfile
from pathlib import Path

import torch

from common import ROOT, Report, arguments, mpirun, run
from models import labels_of, relative_error

STEPS, BATCH, LR, WARMUP = 30, 2, 2e-4, 3


def cosine(step):
    if step < WARMUP:
        return step / WARMUP
    return max(0.0, 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))))


def logprobs(model, sample):
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([sample["ids"]])).logits[0].float()
    rows = [p - 1 for begin, end in sample["label_spans"] for p in range(max(1, begin), end)]
    targets = torch.tensor([sample["ids"][r + 1] for r in rows])
    return torch.log_softmax(logits[rows], -1).gather(1, targets[:, None])[:, 0]


def reference_losses(model, samples):
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=LR, weight_decay=0.01)
    losses, norms = [], []
    for step in range(STEPS):
        batch = samples[step * BATCH:(step + 1) * BATCH]
        count = sum(int((labels_of(s) >= 0).sum()) for s in batch)
        total = 0.0
        for s in batch:
            out = model(input_ids=torch.tensor([s["ids"]])).logits[0]
            loss = torch.nn.functional.cross_entropy(out[:-1].float(), labels_of(s)[1:], reduction="sum") / count
            loss.backward()
            total += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, 1.0).item())
        for group in optimizer.param_groups:
            group["lr"] = LR * cosine(step)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses, norms


def compare_logprobs(report, what, qft, run_file, overrides, samples, model, tmp):
    out = tmp / "logprobs.jsonl"
    run([qft, "eval", run_file, f"predict_logprobs={out}", *overrides])
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [x["ids"] for x in lines] == [s["ids"] for s in samples], "eval wrote other samples"
    worst = 0.0
    for line, sample in list(zip(lines, samples))[:8]:
        worst = max(worst, relative_error(torch.tensor(line["logprobs"]), logprobs(model, sample)))
    report.check(what, worst, 1e-4)


def main():
    args = arguments()
    data = ROOT.parent / "shared/data"
    if not data.exists():
        print("skipped: no shared test data")
        sys.exit(77)
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(2)
    base = ROOT / "models/smollm2"
    bin_dir = args.build / "bin"
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"))
        model.save_pretrained(tmp / "initial")
        run_file = tmp / "run.yaml"
        run_file.write_text(f"""
model_name_or_path: {base}
adapter_name_or_path: {tmp / 'initial'}
stage: sft
do_train: true
finetuning_type: lora
dataset: alpaca_en_demo
dataset_dir: {data}
template: smollm2
cutoff_len: 160
max_samples: {STEPS * BATCH}
disable_shuffling: true
output_dir: {tmp / 'out'}
per_device_train_batch_size: 1
gradient_accumulation_steps: 1
per_device_eval_batch_size: 4
learning_rate: {LR}
weight_decay: 0.01
lr_scheduler_type: cosine
warmup_steps: {WARMUP}
max_steps: {STEPS}
logging_steps: 1
save_strategy: "no"
compute_dtype: float32
gradient_checkpointing: false
""")
        run([bin_dir / "qft-pack", run_file, "--output", tmp / "train.h5"])
        exported = run([bin_dir / "qft-pack", "export", tmp / "train.h5"]).stdout
        samples = [json.loads(line) for line in exported.splitlines()]
        compare_logprobs(report, "log-probabilities with PEFT's initial adapter", bin_dir / "qft", run_file,
                         [f"eval_pack={tmp / 'train.h5'}"], samples, model, tmp)
        mpirun(BATCH, [bin_dir / "qft", "train", run_file, f"pack={tmp / 'train.h5'}"])
        log = [json.loads(line) for line in (tmp / "out/trainer_log.jsonl").read_text().splitlines()]
        losses, norms = reference_losses(model, samples)
        ours = [entry["loss"] for entry in log if "loss" in entry]
        assert len(ours) == STEPS, f"{len(ours)} log lines"
        report.check(f"losses of {STEPS} steps", max(abs(a - b) / b for a, b in zip(ours, losses)), 1e-3)
        report.check("gradient norms", max(abs(e["grad_norm"] - n) / n for e, n in zip(log, norms)), 1e-2)
        print(f"        first {ours[0]:.5f} / {losses[0]:.5f}, last {ours[-1]:.5f} / {losses[-1]:.5f} (ours / theirs)")

        tuned = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), tmp / "out")
        adapter = [f"adapter_name_or_path={tmp / 'out'}", f"eval_pack={tmp / 'train.h5'}"]
        compare_logprobs(report, "our adapter in PEFT", bin_dir / "qft", run_file, adapter, samples, tuned, tmp)
        run([bin_dir / "qft", "export", run_file, f"adapter_name_or_path={tmp / 'out'}", f"export_dir={tmp / 'merged'}"])
        merged = AutoModelForCausalLM.from_pretrained(tmp / "merged", dtype=torch.float32)
        exact = [f"model_name_or_path={tmp / 'merged'}", "adapter_name_or_path=", f"eval_pack={tmp / 'train.h5'}"]
        compare_logprobs(report, "our merged model in transformers", bin_dir / "qft", run_file, exact, samples, merged, tmp)
        drift = max((logprobs(merged, s) - logprobs(tuned, s)).abs().mean().item() for s in samples[:4])
        print(f"        merged against adapter: mean difference {drift:.4f} (the files' bf16 rounding)")
    report.finish()


main()
