"""Data, an adapter and a value head for the tests of preferences and reward models, and what a pack makes of the data."""
import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from common import ROOT, run

sys.path.append(str(ROOT / "tests/system"))
from tiny import log_of, make, write  # noqa: E402,F401

SAMPLES, RANK = 12, 3
WEIGHT, BIAS = "v_head.summary.weight", "v_head.summary.bias"


def add_pairs(directory):
    """Data sets `pairs`, and `answers` that are liked or not, of odd lengths."""
    records = [{"instruction": f"Say the number {i} {'again ' * (i % 5)}", "input": "", "chosen": " ".join(str(i + k) for k in range(2 + i % 7)),
                "rejected": "no " * (1 + i % 4)} for i in range(SAMPLES)]
    (directory / "pairs.json").write_text(json.dumps(records))
    answers = [{"instruction": r["instruction"], "input": "", "output": r["chosen" if i % 3 else "rejected"], "good": bool(i % 3)}
               for i, r in enumerate(records)]
    (directory / "answers.json").write_text(json.dumps(answers))
    columns = {"prompt": "instruction", "query": "input"}
    info = json.loads((directory / "dataset_info.json").read_text())
    info["pairs"] = {"file_name": "pairs.json", "ranking": True, "columns": {**columns, "chosen": "chosen", "rejected": "rejected"}}
    info["answers"] = {"file_name": "answers.json", "columns": {**columns, "response": "output", "kto_tag": "good"}}
    (directory / "dataset_info.json").write_text(json.dumps(info))


def make_adapter(directory, model_dir, dora=False):
    """As PEFT saves it, all tensors random: the reference differs from the policy in the first step."""
    c = json.loads((Path(model_dir) / "config.json").read_text())
    hidden, inner, heads, kv = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    shapes = {"self_attn.q_proj": (hidden, heads), "self_attn.v_proj": (hidden, kv), "self_attn.o_proj": (heads, hidden), "mlp.down_proj": (inner, hidden)}
    generator, tensors = torch.Generator().manual_seed(3), {}
    for layer in range(c["num_hidden_layers"]):
        for name, (width, rows) in shapes.items():
            stem = f"base_model.model.model.layers.{layer}.{name}"
            tensors[f"{stem}.lora_A.weight"] = torch.randn(RANK, width, generator=generator) / width**0.5
            tensors[f"{stem}.lora_B.weight"] = torch.randn(rows, RANK, generator=generator) * 0.1
            if dora:
                tensors[f"{stem}.lora_magnitude_vector"] = torch.rand(rows, generator=generator) + 0.5
    directory.mkdir()
    save_file(tensors, directory / "adapter_model.safetensors", metadata={"format": "pt"})
    (directory / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 2 * RANK, "lora_dropout": 0.0, "bias": "none", "use_dora": dora,
        "target_modules": sorted({n.split(".")[1] for n in shapes}), "base_model_name_or_path": str(model_dir)}))
    return directory


def with_lora(model, task):
    """The model of transformers with an adapter of PEFT for this task; its second factors are not zero, so it changes the first step."""
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(model, LoraConfig(task_type=task, r=RANK, lora_alpha=2 * RANK, lora_dropout=0.0,
                                             target_modules=["q_proj", "v_proj", "o_proj", "down_proj"]))
    for name, tensor in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(tensor, std=0.1)
    return model


def copy_tokenizer(base, directory):
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(base / name, directory)


def make_head(directory, hidden, bias=None, by_torch=False):
    """As LLaMA-Factory's fix_valuehead_checkpoint leaves it beside the weights. `bias`: None for a random one."""
    generator = torch.Generator().manual_seed(11)
    tensors = {WEIGHT: torch.randn(1, hidden, generator=generator) / hidden**0.5,
               BIAS: torch.randn(1, generator=generator) if bias is None else torch.tensor([bias])}
    if by_torch:
        torch.save(tensors, directory / "value_head.bin")
    else:
        save_file(tensors, directory / "value_head.safetensors", metadata={"format": "pt"})
    return tensors


def settings_of(directory, **more):
    """Those of a run on a tiny Qwen3 with the data above, whose adapter brings its own rank."""
    settings = {**make(directory, "qwen3"), "lora_dropout": 0.0, "disable_shuffling": True, "lr_scheduler_type": "constant", "warmup_ratio": 0.0,
                **more}
    for key in ("lora_rank", "lora_alpha"):
        settings.pop(key, None)
    add_pairs(directory / "data")
    return settings


def items_of(build, directory, settings, stage, dataset):
    """What is trained, in order: token ids and labels of each sequence."""
    alone = {**{k: v for k, v in settings.items() if not k.startswith(("eval_", "do_"))}, "stage": stage, "dataset": dataset, "do_train": True}
    pack, file = build / "bin/qft-pack", directory / f"{stage}.h5"
    run([pack, write(directory / "pack.yaml", alone), "--output", file])
    return [json.loads(line) for line in run([pack, "export", file]).stdout.splitlines()]
