#!/usr/bin/env python3
"""A whole LoRA run from files to adapter, start-up and tokenisation included: qft against transformers + PEFT.

    .venv/bin/python bench/epoch.py [--samples 300] [--data alpaca.json] [--rounds 1]

One epoch at batch size 4, bf16, LoRA r8 on all linear layers. The other side is a plain loop over batches, padded to the
longest sample (its default) and padding-free; only padded for a model with delta nets, whose state transformers' own code carries from
one sample into the next. Also: seconds from the start of the process to the end of the first step.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from train import ROOT, write_run_file

COLLATE = {"HF padded": "padded", "HF padding-free": "flat"}


def ways_of(model):
    text = json.loads((model / "config.json").read_text())
    return ["HF padded"] if "linear_attention" in (text.get("layer_types") or []) else list(COLLATE)


def load_records(path):
    text = path.read_text()
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def run_qft(build, model, folder):
    log = folder / "out/trainer_log.jsonl"
    settings = {"model_name_or_path": model, "stage": "sft", "do_train": True, "finetuning_type": "lora", "lora_rank": 8,
                "dataset": "d", "dataset_dir": folder, "template": "smollm2", "cutoff_len": 2048, "bf16": True,
             "per_device_train_batch_size": 4, "gradient_accumulation_steps": 1, "num_train_epochs": 1, "learning_rate": 1e-4,
             "gradient_checkpointing": False, "logging_steps": 1, "output_dir": folder / "out", "overwrite_output_dir": True,
             "overwrite_cache": True}
    run_file = write_run_file(folder, settings)
    log.unlink(missing_ok=True)
    first = None
    start = time.time()
    with open(folder / "qft.err", "wb") as err:
        process = subprocess.Popen([build / "bin/qft", "train", run_file], stderr=err)
        while process.poll() is None:
            if first is None and log.exists() and log.stat().st_size > 0:
                first = time.time() - start
            time.sleep(0.005 if first is None else 0.1)
    if process.returncode != 0:
        sys.exit((folder / "qft.err").read_text()[-3000:])
    return time.time() - start, first


# The peer's own preparation: what a short script with the tokenizer's chat template does.
PREPARE = """
import json, sys
from transformers import AutoTokenizer
model, source, target = sys.argv[1:4]
tokenizer = AutoTokenizer.from_pretrained(model)
with open(target, "w") as out:
    for r in json.load(open(source)):
        question = "\\n".join(part for part in (r["instruction"], r.get("input")) if part)
        messages = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        head = tokenizer.encode(prompt, add_special_tokens=False)
        ids = (head + tokenizer.encode(r["output"] + "<|im_end|>\\n", add_special_tokens=False))[:2048]
        out.write(json.dumps({"ids": ids, "label_spans": [[min(len(head), len(ids)), len(ids)]]}) + "\\n")
"""


def run_peer(model, folder, collate):
    start = time.time()
    items = folder / "items.jsonl"
    subprocess.run([sys.executable, "-c", PREPARE, model, folder / "d.json", items], check=True)
    prepared = time.time() - start
    out = subprocess.run([sys.executable, ROOT / "bench/hf_train.py", "--model", model, "--items", items, "--batch", "4",
                          "--collate", collate], check=True, capture_output=True, text=True).stdout
    # A script of one process would import once: the second start is not counted.
    result = json.loads(out)
    return min(time.time() - start, prepared + result["first_step"] + sum(result["seconds"][1:])), result["first_step"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models/smollm2")
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "examples/data/hpc_qa_train.json")
    parser.add_argument("--samples", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=1)
    args = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    ways = ways_of(args.model)
    runs = {"qft": [], **{name: [] for name in ways}}
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        records = load_records(args.data)[: args.samples]
        (folder / "d.json").write_text(json.dumps(records))
        (folder / "dataset_info.json").write_text(json.dumps({"d": {"file_name": "d.json"}}))
        for _ in range(args.rounds):
            runs["qft"].append(run_qft(args.build, args.model, folder))
            for name in ways:
                runs[name].append(run_peer(args.model, folder, COLLATE[name]))
    print(f"{len(records)} samples of {args.data.name}\n\n| | whole run, s | of qft | first step done, s |\n|---|---|---|---|")
    base = statistics.median(wall for wall, _ in runs["qft"])
    for name, results in runs.items():
        wall, first = (statistics.median(column) for column in zip(*results))
        print(f"| {name} | {wall:.1f} | {wall / base:.1f}x | {first:.2f} |")


if __name__ == "__main__":
    main()
