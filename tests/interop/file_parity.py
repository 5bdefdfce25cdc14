"""Files in which two places say one thing, or which another class wrote: the loss is transformers' and PEFT's, or a refusal names the key."""
import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "system"))
from common import Report, arguments, run
from model_parity import compare, reference
from models import in_double, make_model, make_sequences, probe, tiny_configs
import vision_text

LENGTHS = [5, 50]


def edit(folder, name="config.json", drop=(), **keys):
    path = folder / name
    content = {**json.loads(path.read_text()), **keys}
    path.write_text(json.dumps({k: v for k, v in content.items() if k not in drop}))


def settings(tmp, model, **more):
    return {"model_name_or_path": str(model), "stage": "sft", "output_dir": str(tmp / "out"), "compute_dtype": "float64",
            "finetuning_type": "full", **more}


def judge_of(folder, sequences):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(torch.float64)
    with in_double():
        return reference(model, sequences)


def heads(report, build, tmp, config):
    """A head beside tied embeddings: another one, and the same."""
    sequences = make_sequences(config.vocab_size, LENGTHS, seed=1)
    make_model(config, tmp / "tied")
    tensors = load_file(tmp / "tied/model.safetensors")
    table = tensors["model.embed_tokens.weight"]
    for name, head in (("another head", table + torch.randn_like(table)), ("the same head", table)):
        save_file({**tensors, "lm_head.weight": head.clone()}, tmp / "tied/model.safetensors", metadata={"format": "pt"})
        compare(report, name, probe(build, tmp, settings(tmp, tmp / "tied"), sequences), judge_of(tmp / "tied", sequences))


def places(report, build, tmp, configs):
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0}
    short = {"rope_type": "yarn", "factor": 4.0}
    cases = [("qwen3", "rope_scaling beside rope_parameters", {"rope_scaling": yarn}, ()),
             ("qwen3", "original positions in both places", {"rope_scaling": {**short, "original_max_position_embeddings": 64}, "original_max_position_embeddings": 32}, ("rope_parameters",)),
             ("mixtral", "no theta", {}, ("rope_parameters",))]
    for kind, name, keys, drop in cases:
        folder = tmp / name.replace(" ", "_")
        config = configs[kind]
        make_model(config, folder)
        edit(folder, drop=drop, **keys)
        sequences = make_sequences(config.vocab_size, LENGTHS, seed=2)
        compare(report, name, probe(build, tmp, settings(tmp, folder), sequences), judge_of(folder, sequences))


def other_names(report, build, tmp):
    """An adapter of the text class over a model that sees, and one of the class that sees over the text model."""
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM, Qwen3_5ForConditionalGeneration

    vision_text.make(tmp / "sees")
    text = AutoModelForCausalLM.from_pretrained(tmp / "sees")
    text.save_pretrained(tmp / "text")
    sequences = make_sequences(211, LENGTHS, seed=3)
    for seed, (made_of, kind, base) in enumerate([("text", AutoModelForCausalLM, "sees"), ("sees", Qwen3_5ForConditionalGeneration, "text")]):
        pattern = rf"model\.{'language_model.' if made_of == 'sees' else ''}layers\.\d\..*(q_proj|in_proj_qkv|down_proj)"
        model = get_peft_model(kind.from_pretrained(tmp / made_of), LoraConfig(r=4, lora_alpha=12, target_modules=pattern, task_type="CAUSAL_LM"))
        torch.manual_seed(seed)
        with torch.no_grad():
            for name, p in model.named_parameters():
                if "lora_" in name:
                    p.copy_(0.1 * torch.randn_like(p))
        model.save_pretrained(tmp / f"ad_{made_of}")
        edit(tmp / f"ad_{made_of}", "adapter_config.json", base_model_name_or_path=str(tmp / base), later_setting=16, kasa_config=None, revision="")
        with in_double():
            judge = reference(model.double(), sequences)
        run_file = settings(tmp, tmp / base, finetuning_type="lora", adapter_name_or_path=str(tmp / f"ad_{made_of}"))
        ours = probe(build, tmp, run_file, sequences)
        inner = "base_model.model.model.language_model."
        as_theirs = {n.replace(inner, "base_model.model.model.") if made_of == "text" else n.replace("base_model.model.model.layers", inner + "layers"): t
                     for n, t in ours.items()} if any(n.startswith("grad.") for n in ours) else ours
        compare(report, f"an adapter of the class {kind.__name__} over '{base}'", as_theirs, judge)
    report.holds("an adapter of the text class has names of its own",
                 all(n.startswith("base_model.model.model.layers.") for n in load_file(tmp / "ad_text/adapter_model.safetensors")))


def refused(report, build, tmp):
    """What PEFT computes otherwise."""
    def check(label, folder, words):
        result = run([build / "bin/qft-ckpt", "merge", folder, "--base", tmp / "sees", "--output", tmp / "merged"], check=False)
        report.holds(f"{label} refused by name", result.returncode != 0 and words in result.stderr, result.stderr)

    for name, value in (("alora_invocation_tokens", [1, 5]), ("layers_to_transform", [0])):
        shutil.copytree(tmp / "ad_text", tmp / name)
        edit(tmp / name, "adapter_config.json", **{name: value})
        check(f"{name} is", tmp / name, f"{name} = {json.dumps(value, separators=(',', ':'))}")
    tensors = load_file(tmp / "ad_text/adapter_model.safetensors")
    shutil.copytree(tmp / "ad_text", tmp / "saved")
    save_file({**tensors, "base_model.model.model.embed_tokens.weight": torch.ones(211, 48)}, tmp / "saved/adapter_model.safetensors")
    check("saved embeddings are", tmp / "saved", "embed_tokens.weight' (embeddings saved")


def main():
    args = arguments()
    report = Report()
    torch.set_num_threads(2)
    configs = tiny_configs()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        heads(report, args.build, tmp, configs["qwen2_tied"])
        places(report, args.build, tmp, configs)
        other_names(report, args.build, tmp)
        refused(report, args.build, tmp)
    report.finish()


main()
