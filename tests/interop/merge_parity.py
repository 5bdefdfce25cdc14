"""qft-ckpt merge and qft export write the same bytes, and transformers computes with them what PEFT's merge gives. The judge
is PEFT's merge in fp64; the yardstick is PEFT's own in the type of the weights."""
import json
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from common import ROOT, Report, arguments, run
from models import by_expert, in_double, make_model, relative_error, tiny_configs


FLOOR = 1e-7  # one rounding to fp32


def make_adapter(model, directory, **options):
    from peft import LoraConfig, get_peft_model

    peft_model = get_peft_model(model, LoraConfig(r=4, lora_alpha=12, lora_dropout=0.0, task_type="CAUSAL_LM", **options))
    torch.manual_seed(3)
    with torch.no_grad():
        for name, p in peft_model.named_parameters():
            if "lora_" in name:
                p.copy_(torch.rand_like(p) + 0.5 if "magnitude" in name else torch.randn_like(p) * 0.1)
    peft_model.save_pretrained(directory)


def weights(directory):
    merged = {}
    for shard in sorted(Path(directory).glob("*.safetensors")):
        merged.update(load_file(shard))
    return merged


def stacked(tensors):
    """Tensors of single experts as transformers holds them: all experts' in one, gate before up."""
    names = {"gate_proj": "gate_up_proj", "w1": "gate_up_proj", "down_proj": "down_proj", "w2": "down_proj"}
    result = {}
    for name in sorted(tensors, key=lambda n: [int(part) if part.isdigit() else part for part in n.split(".")] if ".experts." in n else []):
        if ".experts." not in name:
            result[name.replace(".block_sparse_moe.", ".mlp.")] = tensors[name]
            continue
        stem, linear, _ = name.rsplit(".", 2)
        if linear not in names:
            continue
        other = {"gate_proj": "up_proj", "w1": "w3"}.get(linear)
        parts = [tensors[name]] + ([tensors[f"{stem}.{other}.weight"]] if other else [])
        target = stem.rsplit(".", 1)[0].replace(".block_sparse_moe.", ".mlp.") + "." + names[linear]
        result.setdefault(target, []).append(torch.cat(parts))
    return {n: torch.stack(t) if isinstance(t, list) else t for n, t in result.items()}


def logits(model, ids):
    with torch.no_grad():
        return by_expert(model).eval()(input_ids=ids).logits


def compare(args, report, label, config, dtype, options):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    ckpt = args.build / "bin/qft-ckpt"
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        base, adapter, merged, exported = tmp / "base", tmp / "adapter", tmp / "merged", tmp / "exported"
        make_adapter(make_model(config, base, dtype, max_shard_size="60KB"), adapter, **options)
        run([ckpt, "merge", adapter, "--base", base, "--output", merged, "--shard-size", 5])
        run([ckpt, "merge", adapter, "--base", base, "--output", tmp / "small", "--shard-size", 5e-5])
        (tmp / "export.yaml").write_text(json.dumps({
            "model_name_or_path": str(base), "adapter_name_or_path": str(adapter), "export_dir": str(exported),
            "finetuning_type": "lora", "template": "default", "export_size": 5}))
        run([args.build / "bin/qft", "export", tmp / "export.yaml"])

        names = sorted(p.name for p in merged.iterdir())
        different = [n for n in names if (exported / n).exists() and (merged / n).read_bytes() != (exported / n).read_bytes()]
        report.equal(f"{label}: the files are qft export's", names, sorted(p.name for p in exported.iterdir()))
        report.equal(f"{label}: files with other bytes", different, [])
        report.equal(f"{label}: qft-ckpt diff says equal", run([ckpt, "diff", "--strict", merged, exported], check=False).returncode, 0)
        report.equal(f"{label}: shards of 50 kB hold the same", run([ckpt, "diff", merged, tmp / "small"], check=False).returncode, 0)
        report.holds(f"{label}: more than one shard", len(list((tmp / "small").glob("model-*.safetensors"))) > 3)
        report.equal(f"{label}: qft-ckpt diff sees the adapter", run([ckpt, "diff", base, merged], check=False).returncode, 1)

        load = lambda directory, kind: AutoModelForCausalLM.from_pretrained(directory, dtype=kind)
        theirs = lambda kind: PeftModel.from_pretrained(load(base, kind), adapter).merge_and_unload()
        judge, reference = theirs(torch.float64), theirs(dtype)
        exact, reference = judge.state_dict(), reference.state_dict()
        mine = stacked(weights(merged))
        error = lambda tensors: max(relative_error(tensors[n], exact[n]) for n in mine)
        report.check(f"{label}: weights (PEFT {error(reference):.1e})", error(mine), 1.5 * error(reference) + FLOOR)

        # The weights as they were stored, in fp64: only they differ, not the rounding of every operation after them.
        ids = torch.arange(1, 60)[None]
        stored = {directory: load(directory, torch.float64) for directory in (merged, tmp / "small")}
        rounded = load(base, torch.float64)
        rounded.load_state_dict({n: t.double() for n, t in reference.items()})
        near = 1e-5 if dtype == torch.float32 else 1e-3
        with in_double():
            target, yardstick = logits(judge, ids), relative_error(logits(rounded, ids), logits(judge, ids))
            for directory, ours in stored.items():
                report.check(f"{label}: logits of {directory.name} (PEFT {yardstick:.1e})", relative_error(logits(ours, ids), target),
                             1.5 * yardstick + FLOOR)
                report.check(f"{label}: logits of {directory.name} against PEFT's weights",
                             relative_error(logits(ours, ids), logits(rounded, ids)), near)
        elements = sum(t.numel() for t in mine.values())
        share = sum((mine[n].double() != reference[n].double()).sum().item() for n in mine) / elements
        if dtype != torch.float32:
            report.check(f"{label}: share of elements rounded otherwise", share, 1e-3)


def smollm2(args, report):
    """A merge needs the memory of a tensor, not of the model."""
    base = ROOT / "models/smollm2"
    if not (base / "model.safetensors").exists():
        return
    rank, tensors = 16, {}
    for name, t in load_file(base / "model.safetensors").items():
        if "_proj.weight" in name:
            stem = "base_model.model." + name.removesuffix(".weight")
            tensors[stem + ".lora_A.weight"] = torch.randn(rank, t.shape[1]) * 0.01
            tensors[stem + ".lora_B.weight"] = torch.randn(t.shape[0], rank) * 0.01
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        (tmp / "adapter").mkdir()
        save_file(tensors, tmp / "adapter/adapter_model.safetensors")
        (tmp / "adapter/adapter_config.json").write_text(json.dumps({
            "peft_type": "LORA", "r": rank, "lora_alpha": 32, "target_modules": "all-linear",
            "base_model_name_or_path": str(base)}))
        bytes_in = (base / "model.safetensors").stat().st_size
        command = [args.build / "bin/qft-ckpt", "merge", tmp / "adapter", "--output", tmp / "merged", "--json"]
        summary = json.loads(run(["/usr/bin/env", "python3", "-c", (
            "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=sys.stderr);"
            "print('{\"peak\": %d}' % (resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024))"), *command]).stdout)
        report.check("SmolLM2: peak memory over the model's bytes", summary["peak"] / bytes_in, 0.35)
        report.equal("SmolLM2: verify", run([args.build / "bin/qft-ckpt", "verify", tmp / "merged"], check=False).returncode, 0)


def main():
    args = arguments(only=None)
    report = Report()
    configs = tiny_configs()
    cases = [("qwen2_tied", torch.float32, {"target_modules": "all-linear"}),
             ("qwen3", torch.bfloat16, {"target_modules": "all-linear", "use_rslora": True}),
             ("llama_biases", torch.float16, {"target_modules": ["q_proj", "down_proj"]}),
             ("qwen3_tied", torch.float32, {"target_modules": r".*layers\.[02]\..*(q|v|up)_proj", "use_dora": True, "rank_pattern": {"v_proj": 2},
                                            "alpha_pattern": {r".*\.up_proj": 3}}),
             ("qwen2_untied", torch.bfloat16, {"target_modules": "all-linear", "use_dora": True}),
             ("qwen3_moe", torch.float32, {"target_modules": ["q_proj"], "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}),
             ("qwen2_moe", torch.bfloat16, {"target_modules": "all-linear"}),
             ("olmo2", torch.bfloat16, {"target_modules": "all-linear"}),
             ("arcee_biases", torch.float32, {"target_modules": "all-linear"}),
             ("qwen3_next", torch.float32, {"target_modules": "all-linear"}),
             ("qwen3_5", torch.bfloat16, {"target_modules": "all-linear"}),
             ("mixtral", torch.float32, {"target_modules": ["o_proj"], "target_parameters": ["mlp.experts.gate_up_proj"]})]
    for name, dtype, options in cases:
        if name.startswith(args.only or ""):
            compare(args, report, f"{name} {str(dtype).split('.')[1]}", configs[name], dtype, options)
    if not args.only:
        smollm2(args, report)
    report.finish()


if __name__ == "__main__":
    main()
