#!/usr/bin/env python3
"""Writes golden/*.golden.jsonl: LLaMA-Factory's own output for the small datasets there. Run again after its rules change:

    uv venv lf && uv pip install -p lf llamafactory==0.9.5 'transformers==4.57.3' torch torchvision torchaudio
    lf/bin/python tests/encode/make_goldens.py

The first line of a file names its tokenizer, template, dataset, stage and all options that differ from the defaults.
Then one line per sample: ids, and label_spans [begin, end) of the learned tokens; pairs have chosen and rejected.
"""

import contextlib
import copy
import json
import logging
import os
import tempfile
from pathlib import Path
from unittest import mock

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

from llamafactory.data import get_dataset, get_template_and_fix_tokenizer  # noqa: E402
from llamafactory.data.template import TEMPLATES  # noqa: E402
from llamafactory.hparams import DataArguments, ModelArguments  # noqa: E402
from transformers import AutoTokenizer, Seq2SeqTrainingArguments  # noqa: E402

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
IGNORED = -100
# Paths of the names in the first lines. The first is in the repository, examples/make_smollm2.py makes the second.
TOKENIZERS = {"tiny": ROOT / "tests/tokenizer/data/tiny", "smollm2": ROOT / "models/smollm2"}

# tokenizer, template, dataset, stage, options
CASES = [
    ("tiny", "qwen", "chat", "sft", {}),
    ("tiny", "qwen", "chat", "sft", {"mask_history": True}),
    ("tiny", "qwen", "chat", "sft", {"train_on_prompt": True}),
    ("tiny", "qwen", "chat", "sft", {"cutoff_len": 96}),
    ("tiny", "qwen3", "chat", "sft", {"enable_thinking": False}),
    ("tiny", "qwen3", "questions", "sft", {}),
    ("tiny", "qwen", "questions", "sft", {"default_system": "Be brief."}),
    ("tiny", "qwen", "pairs", "rm", {"cutoff_len": 64}),
    ("tiny", "empty", "texts", "pt", {"cutoff_len": 40, "packing": False}),
    ("tiny", "empty", "texts", "pt", {"cutoff_len": 40, "packing": True}),
    ("tiny", "empty", "texts", "pt", {"cutoff_len": 40}),
    ("smollm2", "smollm2", "questions", "sft", {}),
    ("smollm2", "smollm2", "questions", "sft", {"cutoff_len": 48}),
    ("smollm2", "smollm2", "questions", "sft", {"train_on_prompt": True}),
    ("smollm2", "smollm2", "chat", "sft", {}),
    ("smollm2", "smollm2", "chat", "sft", {"mask_history": True, "cutoff_len": 128}),
    ("smollm2", "chatml", "chat", "sft", {"tool_format": "qwen"}),
    ("smollm2", "default", "chat", "sft", {}),
    ("smollm2", "smollm2", "pairs", "rm", {}),
    ("smollm2", "empty", "texts", "pt", {"cutoff_len": 24, "packing": True}),
]


def spans(labels):
    """Returns [begin, end) of the runs of learned labels."""
    result = []
    for i, label in enumerate(labels):
        if label == IGNORED:
            continue
        if result and result[-1][1] == i:
            result[-1][1] = i + 1
        else:
            result.append([i, i + 1])
    return result


def sequence(ids, labels):
    assert all(label in (IGNORED, token) for token, label in zip(ids, labels)), "a label that is not its own token"
    return {"ids": ids, "label_spans": spans(labels)}


def plain_copy(source, target):
    """Saves the tokenizer with its special tokens as texts, which every version of transformers reads."""
    target.mkdir()
    (target / "tokenizer.json").write_bytes((source / "tokenizer.json").read_bytes())
    config = json.loads((source / "tokenizer_config.json").read_text(encoding="utf-8"))
    config = {key: value["content"] if key.endswith("_token") and isinstance(value, dict) else value for key, value in config.items()}
    (target / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (target / "config.json").write_text('{"model_type": "llama"}')
    return target


def encoded(tokenizer_dir, template_name, dataset, stage, options, scratch):
    path = str(plain_copy(tokenizer_dir, Path(scratch) / "tokenizer"))
    model_args = ModelArguments(model_name_or_path=path, cache_dir=scratch)
    data_args = DataArguments(template=template_name, dataset=dataset, dataset_dir=str(HERE / "golden"), overwrite_cache=True, **options)
    if data_args.packing is None:  # LLaMA-Factory's command-line parser does this later
        data_args.packing = stage == "pt"
    tokenizer = AutoTokenizer.from_pretrained(path)
    template = get_template_and_fix_tokenizer(tokenizer, data_args)
    training_args = Seq2SeqTrainingArguments(output_dir=scratch, do_train=True, report_to=[])
    module = get_dataset(template, model_args, data_args, training_args, stage, tokenizer=tokenizer)
    for row in module["train_dataset"]:
        if stage == "rm":
            yield {"chosen": sequence(row["chosen_input_ids"], row["chosen_labels"]),
                   "rejected": sequence(row["rejected_input_ids"], row["rejected_labels"])}
        elif stage == "pt":
            yield {"ids": row["input_ids"]}
        else:
            yield sequence(row["input_ids"], row["labels"])


def main():
    logging.disable(logging.WARNING)
    for old in (HERE / "golden").glob("*.golden.jsonl"):
        old.unlink()
    for tokenizer, template, dataset, stage, options in CASES:
        header = {"tokenizer": tokenizer, "template": template, "dataset": dataset, "stage": stage, **options}
        words = [f"{key}_{value}".replace(" ", "_").rstrip(".") for key, value in options.items()]
        file = HERE / "golden" / ("_".join([tokenizer, template, dataset, *words]) + ".golden.jsonl")
        # LLaMA-Factory writes a run's options into its template table.
        with tempfile.TemporaryDirectory() as scratch, mock.patch.dict(TEMPLATES, copy.deepcopy(TEMPLATES)), \
                open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet):
            lines = list(encoded(TOKENIZERS[tokenizer], template, dataset, stage, options, scratch))
        text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in [header, *lines])
        file.write_text(text, encoding="utf-8")
        print(f"{file.name}: {len(lines)} samples")


main()
