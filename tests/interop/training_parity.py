"""Thirty fp32 LoRA steps of SmolLM2 beside a plain transformers + PEFT loop: same adapter, same order, same losses. Then what
training wrote, in the other tools: the adapter in PEFT, the merged model in transformers. And each optimizer beside its update in PyTorch.

    training_parity.py --build DIR              against the numbers of golden/training_parity.json
    training_parity.py --build DIR --judge yes  asks transformers, minutes long, and writes them anew where all holds

The judge computes in fp64. In fp32 the processor decides how far a run is off, so the yardstick is transformers' own fp32."""
import hashlib
import json
import math
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from common import ROOT, Report, arguments, mpirun, run
import recorded
from models import in_double, labels_of, train
from recorded import rms_error

sys.path.append(str(ROOT / "tests/system"))
from tiny import VOCABULARY, make, write  # noqa: E402

STEPS, BATCH, LR, WARMUP, DECAY, CLIP = 30, 2, 2e-4, 3, 0.01, 1.0
RANK, ALPHA = 8, 16
BETAS = 0.9, 0.999  # transformers' defaults of adam_beta1 and adam_beta2, which it gives to Lion too
WATCHED = 3  # samples whose log-probabilities are compared
FLOOR = 1e-6  # a few roundings to fp32
EXACT = 1e-6  # two programs in fp64 differ by 1e-14, unless a cosine in fp32 has another last bit
BASE = ROOT / "models/smollm2"
DATA = ROOT / "examples/data"
GOLDEN = Path(__file__).with_name("golden") / "training_parity.json"


def cosine(step):
    if step < WARMUP:
        return step / WARMUP
    return max(0.0, 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP))))


def make_adapter(directory):
    """As PEFT would save it, both factors random; a generator in place of PEFT's initialisation, which is free to change."""
    generator = torch.Generator().manual_seed(7)
    config = json.loads((BASE / "config.json").read_text())
    hidden, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    kv = hidden // heads * config["num_key_value_heads"]
    shapes = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (hidden, kv), "self_attn.v_proj": (hidden, kv),
              "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (hidden, inner), "mlp.up_proj": (hidden, inner),
              "mlp.down_proj": (inner, hidden)}
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        for name, (width, rows) in shapes.items():
            stem = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{stem}.lora_A.weight"] = (2 * torch.rand(RANK, width, generator=generator) - 1) / math.sqrt(width)
            tensors[f"{stem}.lora_B.weight"] = (2 * torch.rand(rows, RANK, generator=generator) - 1) * 0.02
    directory.mkdir()
    save_file(tensors, directory / "adapter_model.safetensors", metadata={"format": "pt"})
    (directory / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": ALPHA, "lora_dropout": 0.0, "bias": "none",
        "target_modules": sorted({n.split(".")[1] for n in shapes}), "base_model_name_or_path": str(BASE)}))


def logprobs(model, samples):
    rows = []
    for sample in samples:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([sample["ids"]])).logits[0]
        at = torch.nonzero(labels_of(sample) >= 0)[:, 0]
        targets = torch.tensor(sample["ids"])[at]
        rows.append(torch.log_softmax(logits[at - 1], -1).gather(1, targets[:, None])[:, 0].double())
    return torch.cat(rows)


def theirs(adapter, dtype, trainable=False):
    """PEFT's model, or with no adapter a plain one; `adapter` may hold a whole model."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    if not (adapter / "adapter_config.json").exists():
        return AutoModelForCausalLM.from_pretrained(adapter, dtype=dtype)
    model = AutoModelForCausalLM.from_pretrained(BASE, dtype=dtype)
    return PeftModel.from_pretrained(model, adapter, is_trainable=trainable).to(dtype)


def in_both_types(compute, adapter, **options):
    """compute(model) in fp64, the judge, and in fp32."""
    judge = theirs(adapter, torch.float64, **options)
    with in_double():
        values = compute(judge)
    del judge
    return values, compute(theirs(adapter, torch.float32, **options))


def train_theirs(model, samples, steps=STEPS, lr=LR, decay=DECAY, rule=torch.optim.AdamW, schedule=cosine):
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    optimizer = rule([{"params": [p for n, p in named if "norm" not in n], "weight_decay": decay},
                      {"params": [p for n, p in named if "norm" in n], "weight_decay": 0.0}], lr=lr, betas=BETAS)

    def set_rate(step):
        for group in optimizer.param_groups:
            group["lr"] = lr * schedule(step)

    losses, norms = train(model, samples, optimizer, steps, BATCH, CLIP, before_update=set_rate)
    return {"losses": losses, "gradient norms": norms}


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, program 1."""

    def __init__(self, groups, lr, betas):
        super().__init__(groups, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, decay, (beta1, beta2) = group["lr"], group["weight_decay"], group["betas"]
            for p in group["params"]:
                momentum = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p -= lr * (torch.sign(beta1 * momentum + (1 - beta1) * p.grad) + decay * p)
                momentum.copy_(beta2 * momentum + (1 - beta2) * p.grad)


class Muon(torch.optim.Optimizer):
    """torch.optim.Muon with adjust_lr_fn match_rms_adamw for matrices but the embedding, AdamW for all else, as LLaMA-Factory has it; its
    Newton-Schulz iterations in the type of the weights."""

    def __init__(self, groups, lr, betas):
        super().__init__(groups, {"lr": lr})
        self.rest = torch.optim.AdamW([{**group, "params": [p for p in group["params"] if not self.takes(p)]} for group in self.param_groups], lr=lr, betas=betas)

    @staticmethod
    def takes(p):
        return p.dim() == 2 and p.shape[0] != VOCABULARY

    @torch.no_grad()
    def step(self):
        for group, rest in zip(self.param_groups, self.rest.param_groups):
            lr = rest["lr"] = group["lr"]
            for p in filter(self.takes, group["params"]):
                momentum = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p)).lerp_(p.grad, 0.05)
                x = p.grad.lerp(momentum, 0.95)
                x = x / x.norm()
                for _ in range(5):
                    gram = x @ x.T
                    x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
                p.mul_(1 - lr * group["weight_decay"]).sub_(x, alpha=0.2 * math.sqrt(max(p.shape)) * lr)
        self.rest.step()


def fingerprints(adapter, samples):
    """Of all that the judge's numbers depend on."""
    of = lambda data: hashlib.sha256(data).hexdigest()
    settings = [STEPS, BATCH, LR, WARMUP, DECAY, CLIP, RANK, ALPHA, WATCHED]
    return {"models/smollm2 (examples/make_smollm2.py)": of((BASE / "model.safetensors").read_bytes()),
            "its config.json": of((BASE / "config.json").read_bytes()),
            "the initial adapter": of((adapter / "adapter_model.safetensors").read_bytes()),
            "samples of examples/data/hpc_qa_train.json": of(json.dumps(samples).encode()),
            "settings of the run": of(json.dumps(settings).encode())}


def record(adapter, samples):
    import peft
    import transformers

    def numbers(model):
        return {"initial log-probabilities": logprobs(model, samples[:WATCHED]).tolist(), **train_theirs(model, samples)}

    judge, single = in_both_types(numbers, adapter, trainable=True)
    versions = {m.__name__: m.__version__ for m in (torch, transformers, peft)}
    return {"made by": "tests/interop/training_parity.py --build build --judge yes", "versions": versions,
            "inputs": fingerprints(adapter, samples), "fp64": judge,
            "fp32 error": {what: rms_error(single[what], judge[what]) for what in judge}}


def compare_optimizer(report, build, optim, rule):
    """Full fine-tuning of a tiny model, all in fp64, by two ranks that share the optimizer."""
    from transformers import AutoModelForCausalLM

    steps, lr, decay = 8, 1e-3, 0.1
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp, samples=steps * BATCH), "finetuning_type": "full", "optim": optim, "learning_rate": lr, "weight_decay": decay,
                    "max_grad_norm": CLIP, "lr_scheduler_type": "constant", "warmup_ratio": 0, "disable_shuffling": True,
                    "global_batch_size": BATCH, "max_steps": steps, "save_strategy": "no", "strategy": "zero3"}
        run_file = write(tmp / "run.yaml", settings)
        run([build / "bin/qft-pack", run_file, "--output", tmp / "train.h5"])
        samples = [json.loads(line) for line in run([build / "bin/qft-pack", "export", tmp / "train.h5"]).stdout.splitlines()]
        mpirun(BATCH, [build / "bin/qft", "train", run_file, f"pack={tmp / 'train.h5'}"])
        log = [entry for entry in map(json.loads, (tmp / "out/trainer_log.jsonl").read_text().splitlines()) if "loss" in entry]
        model = AutoModelForCausalLM.from_pretrained(tmp / "model", dtype=torch.float64)
        with in_double():
            theirs = train_theirs(model, samples, steps, lr, decay, rule, lambda step: 1)
        for what, key in (("losses", "loss"), ("gradient norms", "grad_norm")):
            report.check(f"{optim}: {what}", rms_error([entry[key] for entry in log], theirs[what]), EXACT)
        ours, judge = load_file(tmp / "out/model.safetensors"), model.state_dict()
        off = sum(int(((ours[n].double() - judge[n]).abs() > EXACT).sum()) for n in ours)
        # A sign that a last bit decides is no error.
        report.check(f"{optim}: part of the weights that are off", off / sum(v.numel() for v in ours.values()), 1e-4)


def evaluated(qft, run_file, pack, tmp, *overrides):
    out = tmp / "logprobs.jsonl"
    run([qft, "eval", run_file, f"eval_pack={pack}", f"predict_logprobs={out}", *overrides])
    return [x for line in out.read_text().splitlines() for x in json.loads(line)["logprobs"]]


def compare_live(report, what, ours, directory, samples):
    judge, single = in_both_types(lambda model: logprobs(model, samples), directory)
    yardstick = rms_error(single, judge)
    report.check(f"{what} (transformers {yardstick:.1e})", rms_error(ours, judge), 1.5 * yardstick + FLOOR)


def write_run_file(tmp):
    run_file = tmp / "run.yaml"
    run_file.write_text(f"""
model_name_or_path: {BASE}
adapter_name_or_path: {tmp / 'initial'}
stage: sft
do_train: true
finetuning_type: lora
dataset: hpc_qa_train
dataset_dir: {DATA}
template: smollm2
cutoff_len: 48
max_samples: {STEPS * BATCH}
disable_shuffling: true
output_dir: {tmp / 'out'}
per_device_train_batch_size: 1
gradient_accumulation_steps: 1
per_device_eval_batch_size: 4
learning_rate: {LR}
weight_decay: {DECAY}
max_grad_norm: {CLIP}
lr_scheduler_type: cosine
warmup_steps: {WARMUP}
max_steps: {STEPS}
logging_steps: 1
save_strategy: "no"
compute_dtype: float32
gradient_checkpointing: false
""")
    return run_file


def main():
    args = arguments(judge="")
    torch.set_num_threads(2)
    qft, pack_program = args.build / "bin/qft", args.build / "bin/qft-pack"
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        make_adapter(tmp / "initial")
        run_file = write_run_file(tmp)
        run([pack_program, run_file, "--output", tmp / "train.h5"])
        run([pack_program, run_file, "--output", tmp / "watched.h5", f"max_samples={WATCHED}"])
        samples = [json.loads(line) for line in run([pack_program, "export", tmp / "train.h5"]).stdout.splitlines()]
        if args.judge:
            golden = record(tmp / "initial", samples)
            recorded.check_again(report, golden, GOLDEN)
        else:
            golden = json.loads(GOLDEN.read_text())
        for what, value in fingerprints(tmp / "initial", samples).items():
            report.equal(f"{what}: the recorded numbers are of the same", value, golden["inputs"][what])

        ours = {"initial log-probabilities": evaluated(qft, run_file, tmp / "watched.h5", tmp)}
        mpirun(BATCH, [qft, "train", run_file, f"pack={tmp / 'train.h5'}"])
        log = [json.loads(line) for line in (tmp / "out/trainer_log.jsonl").read_text().splitlines()]
        ours["losses"] = [entry["loss"] for entry in log if "loss" in entry]
        ours["gradient norms"] = [entry["grad_norm"] for entry in log if "loss" in entry]
        for what, judge in golden["fp64"].items():
            report.equal(f"{what}: values", len(ours[what]), len(judge))
            yardstick = golden["fp32 error"][what]
            report.check(f"{what} (transformers {yardstick:.1e})", rms_error(ours[what], judge), 1.5 * yardstick + FLOOR)
        print(f"        first loss {ours['losses'][0]:.6f}, last {ours['losses'][-1]:.6f}")

        tuned = evaluated(qft, run_file, tmp / "watched.h5", tmp, f"adapter_name_or_path={tmp / 'out'}")
        compare_live(report, "our adapter in PEFT", tuned, tmp / "out", samples[:WATCHED])
        run([qft, "export", run_file, f"adapter_name_or_path={tmp / 'out'}", f"export_dir={tmp / 'merged'}"])
        merged = evaluated(qft, run_file, tmp / "watched.h5", tmp, f"model_name_or_path={tmp / 'merged'}", "adapter_name_or_path=")
        compare_live(report, "our merged model in transformers", merged, tmp / "merged", samples[:WATCHED])
        drift = rms_error(merged, tuned)
        report.check("merged against adapter (the files' bf16 rounding)", drift, 0.05)
    compare_optimizer(report, args.build, "adamw_torch", torch.optim.AdamW)
    compare_optimizer(report, args.build, "lion_32bit", Lion)
    compare_optimizer(report, args.build, "muon", Muon)
    if args.judge:
        recorded.write(report, golden, GOLDEN)
    report.finish()


main()
