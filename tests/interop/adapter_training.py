"""Training with other adapters than plain LoRA beside PEFT in fp64: two ranks that share weights and optimizer, from the same start.
Then what training wrote, in PEFT.

The start is PEFT's own initialisation of what does not depend on chance (magnitudes, what PiSSA leaves of the weights), and of the rest
qft's: A, and PiSSA's B, come from its checkpoint of step 0 that a run of one step with learning rate 0 leaves."""
import json
import re
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

from common import ROOT, Report, arguments, mpirun, run
from models import in_double, probe, train
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
    "PiSSA": ({"pissa_init": True, "pissa_iter": -1, "lora_dropout": 0.0},
              dict(target_modules="all-linear", init_lora_weights="pissa")),
    "PiSSA, converted, rsLoRA": ({"pissa_init": True, "pissa_iter": -1, "pissa_convert": True, "use_rslora": True, "lora_dropout": 0.0},
                                 dict(target_modules="all-linear", init_lora_weights="pissa", use_rslora=True)),
    "PiSSA with DoRA on nf4": ({"pissa_init": True, "pissa_iter": -1, "use_dora": True, "quantization_bit": 4, "double_quantization": False,
                                "lora_dropout": 0.0},
                               dict(target_modules="all-linear", init_lora_weights="pissa", use_dora=True)),
}
OFT = {"OFT": ({"oft_block_size": 8}, dict(oft_block_size=8)),
       "OFT by Cayley's transform": ({"oft_rank": 4, "use_cayley_neumann": False}, dict(r=4, oft_block_size=0, use_cayley_neumann=False)),
       "OFT, shared blocks that are adjusted": ({"oft_block_size": 11, "block_share": True, "num_cayley_neumann_terms": 7},
                                               dict(oft_block_size=11, block_share=True, num_cayley_neumann_terms=7))}
CASES |= {name: ({"finetuning_type": "oft", "oft_target": "all", **settings}, {"kind": "OFT", "target_modules": "all-linear", **options})
          for name, (settings, options) in OFT.items()}
PISSA = 2e-6  # PEFT decomposes in fp32


def product_error(peft_model, factors):
    """The largest relative difference of a linear's B A, whose factors may differ in signs."""
    errors = []
    for name, module in peft_model.named_modules():
        if hasattr(module, "lora_A"):
            theirs = module.lora_B["default"].weight @ module.lora_A["default"].weight
            ours = factors[f"{name}.lora_B.weight"].double() @ factors[f"{name}.lora_A.weight"].double()
            errors.append(((ours - theirs).norm() / theirs.norm()).item())
    return max(errors)


def in_nf4(peft_model, starts):
    """Linears of the base as bitsandbytes' codes say them; where training starts, magnitudes as the norms of what that leaves."""
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    for module in peft_model.modules():
        if not hasattr(module, "lora_A"):
            continue
        weight = module.get_base_layer().weight
        codes, state = quantize_4bit(weight.data.float().view(-1, 64), quant_type="nf4")  # a row a block: see quantized.py
        weight.data = dequantize_4bit(codes, state).double().view(weight.shape)
        if starts and module.lora_magnitude_vector:
            whole = weight + module.scaling["default"] * module.lora_B["default"].weight @ module.lora_A["default"].weight
            module.lora_magnitude_vector["default"].weight.data = whole.norm(dim=1).detach()


def theirs(report, name, model_dir, options, start, quantised):
    """PEFT's model with the factors of `start`, and with its own magnitudes and base weights."""
    from peft import LoraConfig, OFTConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)  # PEFT decomposes no fp64
    own = {key: value for key, value in options.items() if key != "kind"}
    config = OFTConfig(task_type="CAUSAL_LM", **own) if "kind" in options else LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, task_type="CAUSAL_LM", **own)
    peft_model = get_peft_model(model, config).to(torch.float64)
    pissa = "init_lora_weights" in options
    factors = load_file(start / ("pissa_init.safetensors" if pissa else "adapter_model.safetensors"))
    if pissa:
        factors = {name.removeprefix("pissa_init."): f for name, f in factors.items()}
        report.check(f"{name}: B A at the start", product_error(peft_model, factors), PISSA)
    if options.get("use_dora") and pissa:
        factors |= {n: f for n, f in load_file(start / "adapter_model.safetensors").items() if "magnitude" in n}
    if quantised:
        in_nf4(peft_model, starts=True)
    magnitudes = []
    with torch.no_grad():
        for key, p in peft_model.named_parameters():
            if not p.requires_grad:
                continue
            ours = factors.pop(key.replace("magnitude_vector.default.weight", "magnitude_vector").replace(".default", ""))
            if "magnitude" in key:
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
        model, left, magnitudes = theirs(report, name, tmp / "model", options, tmp / "start", "quantization_bit" in settings)
        report.equal(f"{name}: tensors that PEFT has not", sorted(left), [])
        report.check(f"{name}: magnitudes at the start", magnitudes, EXACT)
        read = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tmp / "model", dtype=torch.float32), tmp / "out").to(torch.float64)
        merged = None
        if "quantization_bit" in settings:
            in_nf4(read, starts=False)
        else:
            run([build / "bin/qft-ckpt", "merge", tmp / "out", "--base", tmp / "model", "--output", tmp / "merged"])
            merged = AutoModelForCausalLM.from_pretrained(tmp / "merged", dtype=torch.float64)
        with in_double():
            optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, weight_decay=DECAY)
            losses, norms = train(model, samples, optimizer, STEPS, BATCH, CLIP)
            report.check(f"{name}: losses", rms_error([entry["loss"] for entry in log], losses), EXACT)
            report.check(f"{name}: gradient norms", rms_error([entry["grad_norm"] for entry in log], norms), EXACT)
            ids = torch.tensor([samples[0]["ids"]])
            with torch.no_grad():
                mine, judge = read(input_ids=ids).logits, model(input_ids=ids).logits
            report.check(f"{name}: logits of our files in PEFT", ((mine - judge).norm() / judge.norm()).item(), 1e-4)
            if merged:
                with torch.no_grad():
                    mine = merged(input_ids=ids).logits
                report.check(f"{name}: logits of our files merged", ((mine - judge).norm() / judge.norm()).item(), 1e-4)


def oft_of_peft(report, build):
    """An adapter that PEFT made: its logits with and without a merge, by each program."""
    from peft import OFTConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    for name, options in {"series": {}, "Cayley's transform, shared": {"use_cayley_neumann": False, "block_share": True}}.items():
        with tempfile.TemporaryDirectory() as tmp:
            tmp = Path(tmp)
            settings = make(tmp, samples=2)
            # Files are read outside of fp64 mode, in which safetensors takes fp32 for fp64.
            load = lambda directory: AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)  # noqa: E731
            torch.manual_seed(0)
            peft_model = get_peft_model(load(tmp / "model"), OFTConfig(oft_block_size=8, target_modules="all-linear", init_weights=False,
                                                                       task_type="CAUSAL_LM", **options))
            peft_model.save_pretrained(tmp / "adapter")
            run([build / "bin/qft-ckpt", "merge", tmp / "adapter", "--base", tmp / "model", "--output", tmp / "merged"])
            merged = load(tmp / "merged")
            ids = list(range(5, 40))
            run_file = {**settings, "finetuning_type": "oft", "adapter_name_or_path": str(tmp / "adapter"), "compute_dtype": "float64"}
            ours = probe(build, tmp, run_file, [{"ids": ids, "label_spans": [[0, len(ids)]]}])
            with in_double(), torch.no_grad():
                judge = peft_model.to(torch.float64)(input_ids=torch.tensor([ids])).logits
                mine = merged.to(torch.float64)(input_ids=torch.tensor([ids])).logits
            error = lambda logits: ((logits - judge[0]).norm() / judge[0].norm()).item()  # noqa: E731
            report.check(f"PEFT's OFT, {name}: logits", error(ours["logits"]), EXACT)
            report.check(f"PEFT's OFT, {name}: logits of the merged model", error(mine[0]), 1e-4)


def nearness(report, build):
    """How much farther from each weight B A of the fast decomposition is than the nearest of its rank: no more than PEFT's."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp, samples=2), "max_steps": 1, "learning_rate": 0, "save_strategy": "no", "pissa_init": True, "lora_dropout": 0.0,
                    "global_batch_size": 2}
        mpirun(2, [build / "bin/qft", "train", write(tmp / "run.yaml", settings)])
        model = AutoModelForCausalLM.from_pretrained(tmp / "model", dtype=torch.float32)
        weights = {name: p.detach().clone() for name, p in model.named_parameters()}
        torch.manual_seed(0)
        peft_model = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", init_lora_weights="pissa_niter_16"))
        ours, excess = load_file(tmp / "out/pissa_init.safetensors"), {"ours": [], "PEFT's": []}
        for name, module in peft_model.named_modules():
            if not hasattr(module, "lora_A"):
                continue
            w = weights[name.removeprefix("base_model.model.") + ".weight"].double()
            least = torch.linalg.svdvals(w)[4:].norm()
            for whose, a, b in (("ours", *(ours[f"pissa_init.{name}.lora_{x}.weight"] for x in "AB")),
                                ("PEFT's", module.lora_A["default"].weight, module.lora_B["default"].weight)):
                excess[whose].append((((w - 2 * b.detach().double() @ a.detach().double()).norm() / least).item() - 1))
    report.check("PiSSA by iteration: farther than the nearest, over what PEFT's is", max(excess["ours"]) / max(excess["PEFT's"]), 1.5)


def main():
    args = arguments(only="")
    torch.set_num_threads(1)
    report = Report()
    for name, (settings, options) in CASES.items():
        if not re.search(args.only, name):
            continue
        compare(report, args.build, name, settings, options, "ddp" if name == "patterns" else "zero3")
    if re.search(args.only, "OFT"):
        oft_of_peft(report, args.build)
    if re.search(args.only, "PiSSA"):
        nearness(report, args.build)
    report.finish()


main()
