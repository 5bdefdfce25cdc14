"""Weights of tokens: runs with loss_scale, and with weights of messages and records, beside a plain torch loop over transformers' model
in fp64 (the sum of w * -log p over the number of labels), on one to three ranks, under several strategies and divisions."""
import json
import tempfile
from pathlib import Path

from common import Report, arguments, mpirun, run
from tiny import log_of, make, write

SAMPLES, BATCH, LR = 18, 6, 3e-3
RUNS = [(1, "ddp", 1), (2, "zero3", 2), (3, "zero2", 1), (2, "hsdp", 3)]


def write_data(directory):
    """Calls and thoughts, answers that count otherwise, and records that do."""
    records = []
    for i in range(SAMPLES):
        call = f"<tool_call>\n{{\"name\": \"f{i}\"}}\n</tool_call>"
        talk = [{"role": "user", "content": f"Count from {i}"}, {"role": "assistant", "content": " ".join(str(i + k) for k in range(3 + i % 4))},
                {"role": "user", "content": "And now?"}, {"role": "assistant", "content": f"<think>\n\n</think>\n\nNow {i}.{call if i % 2 else ''}"}]
        if i % 3 == 1:
            talk[1]["loss_scale"] = 0.5 * (1 + i % 4)
        if i % 3 == 2:
            talk[1]["loss"] = False
        records.append({"messages": talk, "weight": 0.25 * (1 + i % 5)})
    (directory / "weighed.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return directory / "weighed.jsonl"


def weights_of(item):
    import torch

    weights = torch.zeros(len(item["ids"]), dtype=torch.float64)
    for (begin, end), weight in zip(item["label_spans"], item.get("span_weights", [1.0] * len(item["label_spans"]))):
        weights[begin:end] = weight
    weights[0] = 0
    return weights


def judge(model_dir, dft, items):
    """Loss, norm, mean of -log p and of the weights of each step."""
    import torch
    from transformers import AutoModelForCausalLM

    from models import in_double

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    steps = []
    with in_double():
        for first in range(0, len(items), BATCH):
            losses, nlls, counts = [], [], []
            for item in items[first:first + BATCH]:
                weight = weights_of(item)[1:]
                logits = model(input_ids=torch.tensor([item["ids"]])).logits[0][:-1][weight > 0]
                nll = torch.nn.functional.cross_entropy(logits, torch.tensor(item["ids"][1:])[weight > 0], reduction="none")
                weight = weight[weight > 0] * (torch.exp(-nll.detach()) if dft else 1.0)
                losses.append((nll * weight).sum())
                nlls.append(nll.detach())
                counts.append(weight)
            labels = sum(len(n) for n in nlls)
            loss = sum(losses) / labels
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
            steps.append({"loss": loss.item(), "grad_norm": norm, "token/nll": torch.cat(nlls).mean().item(), "token/weight": torch.cat(counts).mean().item()})
            optimizer.step()
            optimizer.zero_grad()
    return steps


def check_run(report, tmp, qft, pack, name, settings, dft):
    expected = None
    for ranks, strategy, micro in RUNS:
        out = tmp / f"{name}-{ranks}-{strategy}"
        file = write(tmp / f"{out.name}.yaml", {**settings, "output_dir": str(out), "strategy": strategy, "per_device_train_batch_size": micro, "use_dft_loss": dft})
        mpirun(ranks, [qft, "train", file])
        made = next((out / "packs").glob("train.h5"))
        if expected is None:
            items = [json.loads(line) for line in run([pack, "export", made]).stdout.splitlines()]
            report.holds(f"{name}: weights in the pack", any("span_weights" in item for item in items), items[0])
            expected = judge(settings["model_name_or_path"], dft, items)
            run([pack, "verify", made])
        log = [entry for entry in log_of(out) if "loss" in entry]
        report.equal(f"{name}: steps", len(log), len(expected))
        for key in expected[0]:
            report.check(f"{name}: {key}, {ranks} ranks, {strategy}", max(abs(e[key] - s[key]) / abs(s[key]) for e, s in zip(log, expected)), 1e-9)
    return made


def main():
    args = arguments()
    qft, pack = args.build / "bin/qft", args.build / "bin/qft-pack"
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp, "qwen3", samples=SAMPLES), "dataset": str(write_data(tmp)), "finetuning_type": "full", "disable_shuffling": True, "learning_rate": LR,
                    "num_train_epochs": 1, "lr_scheduler_type": "constant", "warmup_ratio": 0.0, "global_batch_size": BATCH, "loss_scale": "hermes+ignore_empty_think"}
        made = check_run(report, tmp, qft, pack, "cross-entropy", settings, False)
        check_run(report, tmp, qft, pack, "dft", settings, True)
        told = run([qft, "train", write(tmp / "other.yaml", {**settings, "dataset": None, "pack": str(made), "loss_scale": "react", "output_dir": str(tmp / "other")})], check=False)
        report.equal("a pack of another loss_scale: exit code", told.returncode, 2)
        report.holds("... and why", "loss_scale is react, hermes+ignore_empty_think in the pack" in told.stderr, told.stderr)
        told = run([qft, "train", write(tmp / "bad.yaml", {**settings, "loss_scale": "herms", "output_dir": str(tmp / "bad")})], check=False)
        report.equal("an unknown scheme: exit code", told.returncode, 2)
        report.holds("... and the near one", "did you mean 'hermes'" in told.stderr, told.stderr)
    report.finish()


main()
