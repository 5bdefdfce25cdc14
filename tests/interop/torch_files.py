"""Models and adapters saved as .bin are those saved as safetensors: qft-ckpt and qft export give the same bytes for both."""
import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from common import ROOT, Report, arguments, mpirun, run
from models import make_model, tiny_configs

sys.path.insert(0, str(ROOT / "tests/system"))
import tiny  # noqa: E402


def as_bin(directory, target):
    """The model as transformers saved it before safetensors: weights, shards and index by torch.save()."""
    target.mkdir()
    for path in directory.iterdir():
        rename = lambda name: name.replace("model", "pytorch_model", 1).replace(".safetensors", ".bin")
        if path.suffix == ".safetensors":
            torch.save(load_file(path), target / rename(path.name))
        elif path.name.endswith("index.json"):
            index = json.loads(path.read_text())
            index["weight_map"] = {tensor: rename(file) for tensor, file in index["weight_map"].items()}
            (target / "pytorch_model.bin.index.json").write_text(json.dumps(index))
        else:
            shutil.copy(path, target)


def make_adapters(model, folder):
    from peft import LoraConfig, get_peft_model

    peft_model = get_peft_model(model, LoraConfig(r=4, lora_alpha=12, target_modules="all-linear", task_type="CAUSAL_LM"))
    torch.manual_seed(3)
    with torch.no_grad():
        for name, p in peft_model.named_parameters():
            if "lora_" in name:
                p.copy_(torch.randn_like(p) * 0.1)
    for safe in (True, False):
        peft_model.save_pretrained(folder / ("adapter_safe" if safe else "adapter_bin"), safe_serialization=safe)


def same_files(a, b):
    names = sorted(p.name for p in a.iterdir())
    return names == sorted(p.name for p in b.iterdir()) and all((a / n).read_bytes() == (b / n).read_bytes() for n in names)


def compare(args, report, label, config, dtype, shards):
    ckpt = lambda *words, **options: run([args.build / "bin/qft-ckpt", *words], check=False, **options)
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        model = make_model(config, tmp / "safe", dtype, **({"max_shard_size": "60KB"} if shards else {}))
        as_bin(tmp / "safe", tmp / "bin")
        report.equal(f"{label}: shards", len(list((tmp / "bin").glob("*.bin"))) > 1, shards)
        report.equal(f"{label}: qft-ckpt diff", ckpt("diff", tmp / "safe", tmp / "bin").returncode, 0)
        report.equal(f"{label}: qft-ckpt verify", ckpt("verify", tmp / "bin").returncode, 0)
        torch.save(model.state_dict(), tmp / "whole.pt")
        told = json.loads(ckpt("inspect", "--json", tmp / "whole.pt").stdout)[0]
        report.equal(f"{label}: qft-ckpt inspect of a .pt", told["parameters"], sum(t.numel() for t in model.state_dict().values()))

        make_adapters(model, tmp)
        report.holds(f"{label}: peft wrote a pickle", (tmp / "adapter_bin/adapter_model.bin").exists())
        for name, base, adapter in (("safe", "safe", "adapter_safe"), ("bin", "bin", "adapter_bin")):
            result = ckpt("merge", tmp / adapter, "--base", tmp / base, "--output", tmp / f"merged_{name}")
            report.holds(f"{label}: qft-ckpt merge, {name}", result.returncode == 0, result.stderr)
        report.holds(f"{label}: both merges are the same", same_files(tmp / "merged_safe", tmp / "merged_bin"))


def preferred(args, report):
    """safetensors win where both are there; the .bin beside them is not even opened."""
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        make_model(tiny_configs()["qwen3"], tmp / "model")
        (tmp / "model/pytorch_model.bin").write_bytes(b"no zip")
        result = run([args.build / "bin/qft-ckpt", "verify", tmp / "model"], check=False)
        report.holds("safetensors win", result.returncode == 0, result.stdout + result.stderr)


def convert(args, report):
    class Evil:
        def __reduce__(self):
            return print, ("x",)

    ckpt = args.build / "bin/qft-ckpt"
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        weight = torch.randn(300, 200)
        torch.save({"state": {"a": weight, "tied": weight, "t": weight.t().bfloat16()}, "step": 3}, tmp / "aligner.pt")
        run([ckpt, "convert", tmp / "aligner.pt", "--output", tmp / "aligner.safetensors"])
        save_file({"state.a": weight, "state.tied": weight.clone(), "state.t": weight.t().bfloat16().contiguous()}, tmp / "judge")
        report.equal("qft-ckpt convert", load_file(tmp / "aligner.safetensors").keys(), load_file(tmp / "judge").keys())
        report.holds("qft-ckpt convert: tensors", all(torch.equal(t, load_file(tmp / "judge")[n])
                                                      for n, t in load_file(tmp / "aligner.safetensors").items()))
        report.equal("qft-ckpt diff of files", run([ckpt, "diff", tmp / "aligner.pt", tmp / "judge"], check=False).returncode, 0)
        torch.save({"w": weight, "evil": Evil()}, tmp / "evil.pt")
        result = run([ckpt, "convert", tmp / "evil.pt", "--output", tmp / "evil.safetensors"], check=False)
        report.holds("a function of the file is refused by name", "asks for '__builtin__.print'" in result.stderr, result.stderr)
        report.holds("with what to do", "weights_only=False" in result.stderr and not (tmp / "evil.safetensors").exists())


def trained(args, report):
    """Two ranks with sharded weights read the ranges that they own: the same losses from both."""
    losses = []
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = tiny.make(tmp)
        as_bin(tmp / "model", tmp / "model_bin")
        for model in ("model", "model_bin"):
            run_file = tiny.write(tmp / f"{model}.yaml", {
                **settings, "model_name_or_path": str(tmp / model), "output_dir": str(tmp / f"out_{model}"), "max_steps": 2,
                "strategy": "zero3", "finetuning_type": "full"})
            mpirun(2, [args.build / "bin/qft", "train", run_file])
            log = (tmp / f"out_{model}/trainer_log.jsonl").read_text().splitlines()
            losses.append([json.loads(line)["loss"] for line in log if "loss" in json.loads(line)])
    report.equal("a run from .bin: losses of its steps", losses[1], losses[0])
    report.equal("a run from .bin: steps", len(losses[1]), 2)


def main():
    args = arguments()
    report = Report()
    configs = tiny_configs()
    compare(args, report, "qwen2_tied bf16", configs["qwen2_tied"], torch.bfloat16, shards=True)
    compare(args, report, "qwen3 fp32", configs["qwen3"], torch.float32, shards=False)
    preferred(args, report)
    convert(args, report)
    trained(args, report)
    report.finish()


main()
