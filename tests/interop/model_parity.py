"""Logits, loss and gradients of tiny random models of each architecture, and of SmolLM2, against transformers and PEFT.

The judge is transformers in fp64. In fp32 the processor decides how far a model is off, so the yardstick of qft's error is
transformers' own in fp32, here and now."""
import collections
import copy
import math
import re
import tempfile
from pathlib import Path

import torch

from common import ROOT, Report, arguments
from models import by_expert, chosen, forget_lengths, in_double, is_moe, labels_of, make_model, make_sequences, probe, relative_error, tiny_configs

EXACT = 1e-6  # two programs in fp64 differ by 1e-14, unless a cosine in fp32 has another last bit
KINDS = {"qwen2_tied", "qwen3", "llama_biases", "qwen3_5"}  # models for every kind of adapter
FLOOR = 1e-6  # a few roundings to fp32: transformers may happen to be exact


def router_losses(out, config, balance, z):
    """What the routers of one sequence add to the loss of its tokens' mean."""
    from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

    experts = getattr(config, "num_experts", None) or config.num_local_experts
    total = balance * load_balancing_loss_func(out.router_logits, experts, config.num_experts_per_tok)
    return total + z * sum(torch.logsumexp(logits, -1).square().mean() for logits in out.router_logits)


def reference(model, sequences, balance=0.0, z=0.0):
    """With the losses of the routers, of each sequence by itself, weighed by its tokens. Like model_probe's: "logits" of each sequence, the token-mean "loss" over all, and "grad.<name>" of what is trainable."""
    by_expert(model).zero_grad()
    count = sum(int((labels_of(s) >= 0).sum()) for s in sequences)
    tokens = sum(len(s["ids"]) for s in sequences)
    logits, loss = [], 0.0
    for s in sequences:
        forget_lengths(model)
        whole = model(input_ids=torch.tensor([s["ids"]]), **({"output_router_logits": True} if balance else {}))
        out = whole.logits[0]
        logits.append(out.detach())
        part = torch.nn.functional.cross_entropy(out[:-1], labels_of(s)[1:], reduction="sum", ignore_index=-100) / count
        if balance:
            part = part + router_losses(whole, model.config, balance, z) * len(s["ids"]) / tokens
        part.backward()
        loss += part.item()
    grads = {"grad." + in_files(n.replace("magnitude_vector.default.weight", "magnitude_vector").replace(".default", ""), model.config): p.grad.clone() for n, p in model.named_parameters() if p.requires_grad}
    return {"logits": torch.cat(logits), "loss": torch.tensor([loss], dtype=torch.float64), **grads}


def in_files(name, config):
    """qft's name of a parameter: as files have it."""
    if config.model_type == "mixtral" and not ("experts" in name and "lora_" in name):
        return name.replace(".mlp.", ".block_sparse_moe.")
    return name


def errors(ours, judge):
    """Of logits, loss, and the gradients of each kind of weight: all layers' tensors together, as which one is worst is chance. One
    wrong tensor of 30 is seen all the same: it is off by far more than five times what rounding does to it."""
    kinds = collections.defaultdict(list)
    for name in judge:
        if name.startswith("grad."):
            difference = (ours[name].double() - judge[name].double()).norm() / judge[name].double().norm().clamp_min(1e-12)
            kinds[re.sub(r"\.\d+\.", ".*.", name)].append(difference.item())
    return {"logits": relative_error(ours["logits"], judge["logits"]), "loss": relative_error(ours["loss"], judge["loss"]),
            **{kind: math.sqrt(sum(e * e for e in all_layers) / len(all_layers)) for kind, all_layers in kinds.items()}}


def together(draws):
    """Errors of several models as one."""
    return {what: math.sqrt(sum(draw[what] ** 2 for draw in draws) / len(draws)) for what in draws[0]}


def compare(report, name, ours, judge, theirs=None):
    """`theirs`: transformers in the type that ours has; none for fp64, which is the judge's own."""
    report.equal(f"{name}: gradients", sum(k.startswith("grad.") for k in ours), sum(k.startswith("grad.") for k in judge))
    check(report, name, errors(ours, judge), errors(theirs, judge) if theirs else None)


def check(report, name, ours, yardstick):
    for what, error in ours.items():
        report.check(f"{name}: {what}" + (f" (transformers {yardstick[what]:.1e})" if yardstick else ""), error,
                     1.5 * yardstick[what] + FLOOR if yardstick else EXACT)


def within(ours, yardstick):
    return all(error <= 1.5 * yardstick[what] + FLOOR for what, error in ours.items())


def both_types(report, name, build, tmp, make, sequences, draws=1, losses={}, **options):
    """In fp64 and fp32. `make(seed)` gives a model in fp32 and the settings that name its files. With `draws`, models of other seeds
    are added to the first until their errors in fp32 together are within the limit, so many at most: where a row of a delta net's
    output is near zero, its norm divides rounding errors by their own size, and in one model a few such rows decide whose are larger."""
    ours, theirs = [], []
    for seed in range(draws):
        single, settings = make(seed)
        with in_double():
            judge = reference(copy.deepcopy(single).to(torch.float64), sequences, **losses)
        own = lambda dtype: probe(build, tmp, {**settings, "compute_dtype": dtype}, sequences, **options)  # noqa: E731
        compare(report, f"{name} float64" + (f", seed {seed}" if seed else ""), own("float64"), judge)
        ours.append(errors(own("float32"), judge))
        theirs.append(errors(reference(single, sequences, **losses), judge))
        if within(together(ours), together(theirs)):
            break
    check(report, f"{name} float32" + (f", {len(ours)} models" if len(ours) > 1 else ""), together(ours), together(theirs))


def adapters_of(name, config):
    """By name, what LoRA wraps; for models with experts also the fused weights of all experts, one alone and both. Others have
    DoRA, and targets by an expression and ranks of their own."""
    adapters = {"LoRA": dict(target_modules="all-linear")}
    if name in KINDS:
        adapters["DoRA"] = dict(target_modules="all-linear", use_dora=True)
        adapters["patterns"] = dict(target_modules=r"model\.layers\.[0-1]\..*proj[a-z_]*", rank_pattern={"down_proj": 7, r"layers\.1\..*up_proj": 2},
                                    alpha_pattern={"mlp.down_proj": 5, r".*1\.mlp\.up_proj": 9}, use_dora=True, use_rslora=True)
    if is_moe(config):
        fused = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
        adapters["fused"] = dict(target_modules=["q_proj", "v_proj"], target_parameters=fused)
        adapters["down"] = dict(target_modules=["k_proj"], target_parameters=fused[1:])
    return adapters


def adapted(model, folder, targets):
    """A PEFT model over a copy of it, of random factors, saved to the folder."""
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(copy.deepcopy(model), LoraConfig(r=4, lora_alpha=12, lora_dropout=0.0, task_type="CAUSAL_LM", **targets))
    torch.manual_seed(3)
    with torch.no_grad():
        for n, p in model.named_parameters():
            if "lora_" in n:
                p.copy_(torch.rand_like(p) + 0.5 if "magnitude" in n else torch.randn_like(p) * 0.1)
    model.save_pretrained(folder)
    return model


def lengths_for(config):
    """Of dynamic scaling: within, up to and beyond the positions, the longest first."""
    return [64, 20, 5, 40, 33, 32] if config.rope_parameters["rope_type"] == "dynamic" else [5, 33, 2, 120]


def tiny(report, build, name, config):
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        base = {"model_name_or_path": str(tmp / "model"), "stage": "sft", "output_dir": str(tmp / "out")}
        full = {**base, "finetuning_type": "full"}
        draws = 5 if "linear_attention" in (getattr(config, "layer_types", None) or []) else 1

        def plain(seed):  # shards of 60 kB: most tensors end up in different files
            return make_model(config, tmp / "model", torch.float32, seed=seed, max_shard_size="60KB")

        def both(label, make, **options):
            both_types(report, f"{name} {label}", build, tmp, make, make_sequences(config.vocab_size, lengths_for(config), seed=1), draws, **options)

        both("full", lambda seed: (plain(seed), {**full, "gradient_checkpointing": False}))
        if is_moe(config):
            both("routers' losses", lambda seed: (plain(seed), {**full, "moe_aux_loss_coef": 0.3, "moe_z_loss_coef": 0.01}),
                 losses={"balance": 0.3, "z": 0.01}, group=2, micro_batch=2)
        for label, targets in adapters_of(name, config).items():
            settings = {**base, "finetuning_type": "lora", "adapter_name_or_path": str(tmp / label), "gradient_checkpointing": True}
            both(label, lambda seed: (adapted(plain(seed), tmp / label, targets), settings), group=2, micro_batch=2)


def smollm2(report, build):
    """A real model with its pre-trained weights, so deep that fp32 is off by 1e-4 on some processors."""
    from transformers import AutoModelForCausalLM

    directory = ROOT / "models/smollm2"
    load = lambda dtype: AutoModelForCausalLM.from_pretrained(directory, dtype=dtype)
    sequences = make_sequences(49152, [40, 7, 130], seed=4)
    settings = {"model_name_or_path": str(directory), "stage": "sft", "finetuning_type": "full", "compute_dtype": "float32"}
    with tempfile.TemporaryDirectory() as tmp:
        ours = probe(build, tmp, {**settings, "output_dir": tmp}, sequences)
    theirs = reference(load(torch.float32), sequences)
    with in_double():
        judge = reference(load(torch.float64), sequences)
    compare(report, "SmolLM2 full float32", ours, judge, theirs)


def main():
    args = arguments(only=None)
    report = Report()
    torch.set_num_threads(2)
    for name, config in chosen(tiny_configs(), args.only).items():
        tiny(report, args.build, name, config)
    if not args.only:
        smollm2(report, args.build)
    report.finish()


if __name__ == "__main__":
    main()
