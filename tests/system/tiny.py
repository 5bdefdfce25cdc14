"""A tiny random model with SmolLM2's tokenizer and a small dataset: a whole run takes seconds."""
import json
import shutil
from pathlib import Path

import torch

from common import ROOT, make_model

TOKENIZER = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"]


def copy_tokenizer(directory):
    for name in TOKENIZER:
        source = ROOT / "models/smollm2" / name
        if source.exists():
            shutil.copy(source, directory)


def make(directory, kind="llama", samples=40):
    """DIRECTORY/model and DIRECTORY/data; returns the run file's settings as a dict."""
    from transformers import LlamaConfig, Qwen3Config

    directory = Path(directory)
    shape = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                 vocab_size=49152, tie_word_embeddings=True, max_position_embeddings=512)
    config = Qwen3Config(**shape, head_dim=8) if kind == "qwen3" else LlamaConfig(**shape)
    make_model(config, directory / "model", torch.float32)
    copy_tokenizer(directory / "model")
    data = directory / "data"
    data.mkdir(exist_ok=True)
    records = [{"instruction": f"Say the number {i} {'again ' * (i % 7)}", "input": "", "output": " ".join(str(i + k) for k in range(3 + i % 11))}
               for i in range(samples)]
    (data / "numbers.json").write_text(json.dumps(records))
    (data / "dataset_info.json").write_text(json.dumps({"numbers": {"file_name": "numbers.json"}}))
    return {
        "model_name_or_path": str(directory / "model"), "stage": "sft", "do_train": True, "finetuning_type": "lora",
        "lora_rank": 4, "lora_dropout": 0.1, "dataset": "numbers", "dataset_dir": str(data), "template": "smollm2",
        "cutoff_len": 128, "output_dir": str(directory / "out"), "global_batch_size": 6, "per_device_train_batch_size": 1,
        "learning_rate": 1e-2, "num_train_epochs": 2, "lr_scheduler_type": "cosine", "warmup_ratio": 0.1, "logging_steps": 1,
        "save_steps": 100, "compute_dtype": "float64", "seed": 7,
    }


def write(path, settings):
    Path(path).write_text("".join(f"{k}: {json.dumps(v)}\n" for k, v in settings.items()))
    return path


def cut(source, target, step):
    """TARGET: a copy of the output directory SOURCE without what came after the checkpoint of STEP."""
    shutil.copytree(source, target)
    for checkpoint in target.glob("checkpoint-*"):
        if int(checkpoint.name.split("-")[1]) > step:
            shutil.rmtree(checkpoint)
    for file in target.glob("*.safetensors"):
        file.unlink()


def log_of(directory):
    return [json.loads(line) for line in (Path(directory) / "trainer_log.jsonl").read_text().splitlines()]
