#!/usr/bin/env python3
"""Compares two builds of qft: packs, logged numbers, checkpoints, adapters, models and exports of 14 runs must be the same bits.

    scripts/same_bits.py OLD_BUILD NEW_BUILD [--only PATTERN]

Every stage, LoRA, DoRA, OFT and full training, a base in nf4, zero3, packed rows, fp64 and bf16; and a run that the old build begins
and the new one resumes."""
import argparse
import hashlib
import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/system"), str(ROOT / "tests/interop")]
from common import Report, mpirun, run  # noqa: E402
from tiny import log_of, make, write  # noqa: E402

FULL = {"finetuning_type": "full"}
LORA = {"lora_target": "all"}
RUNS = {
    "pt, full, packed, zero3": {"stage": "pt", "dataset": "texts", "packing": True, "strategy": "zero3", **FULL},
    "sft, LoRA": {**LORA},
    "sft, LoRA, packed rows": {"neat_packing": True, **LORA},
    "sft, DoRA, bf16": {"use_dora": True, "compute_dtype": "auto", "bf16": True, **LORA},
    "sft, OFT": {"finetuning_type": "oft", "oft_block_size": 8, "lora_dropout": 0},
    "sft, LoRA on nf4, zero2": {"quantization_bit": 4, "strategy": "zero2", "compute_dtype": "float32", **LORA},
    "sft, full, bf16, recomputed, zero1": {"compute_dtype": "auto", "bf16": True, "gradient_checkpointing": True, "strategy": "zero1", **FULL},
    "sft, freeze, adamw_8bit": {"finetuning_type": "freeze", "freeze_trainable_layers": 1, "optim": "adamw_8bit"},
    "dpo, LoRA, zero3": {"stage": "dpo", "dataset": "pairs", "strategy": "zero3", **LORA},
    "kto, LoRA": {"stage": "kto", "dataset": "marked", "per_device_train_batch_size": 2, "global_batch_size": 4, **LORA},
    "rm, LoRA": {"stage": "rm", "dataset": "pairs", **LORA},
    "seq_cls, LoRA": {"stage": "seq_cls", "num_labels": 2, "dataset": "classes", **LORA},
    "sft, LoRA, experts and delta nets, zero3": {"model": "qwen3_5_moe", "strategy": "zero3", **LORA},
}
RESUMED = "sft, full, zero3, resumed"
# What a file records of its run and not of its numbers.
TIMES = re.compile(r"time|seconds|elapsed|throughput|memory|system|runtime|per_second|stall|_id$|host|version|phases")


def add_data(directory):
    """Beside tiny.make()'s records: texts, pairs, marked answers, classes."""
    data = directory / "data"
    number = [" ".join(str(i + k) for k in range(3 + i % 9)) for i in range(40)]
    sets = {
        "texts": ([{"text": n} for n in number], {"columns": {"prompt": "text"}}),
        "pairs": ([{"instruction": f"Count from {i}", "chosen": n, "rejected": n[::-1]} for i, n in enumerate(number)],
                  {"ranking": True, "columns": {"prompt": "instruction", "chosen": "chosen", "rejected": "rejected"}}),
        "marked": ([{"instruction": f"Count from {i}", "output": n, "kto_tag": i % 3 != 0} for i, n in enumerate(number)],
                   {"columns": {"prompt": "instruction", "response": "output", "kto_tag": "kto_tag"}}),
        "classes": ([{"text": n, "label": i % 2} for i, n in enumerate(number)], {"columns": {"prompt": "text", "label": "label"}}),
    }
    info = json.loads((data / "dataset_info.json").read_text())
    for name, (records, entry) in sets.items():
        (data / f"{name}.json").write_text(json.dumps(records))
        info[name] = {"file_name": f"{name}.json", **entry}
    (data / "dataset_info.json").write_text(json.dumps(info))


def numbers_of(value, key=""):
    """A JSON value without what differs from run to run."""
    if isinstance(value, dict):
        return {k: numbers_of(v, k) for k, v in value.items() if not TIMES.search(k)}
    return [numbers_of(v) for v in value] if isinstance(value, list) else value


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def contents(build, out):
    """By name: what a run left that must not change."""
    found = {"log": [numbers_of(entry) for entry in log_of(out)]}
    for file in sorted(out.rglob("*")):
        if file.suffix == ".safetensors" or file.name in ("adapter_config.json", "all_results.json"):
            found[str(file.relative_to(out))] = digest(file) if file.suffix == ".safetensors" else numbers_of(json.loads(file.read_text()))
        elif file.suffix == ".h5":
            found[str(file.relative_to(out))] = run([build / "bin/qft-pack", "export", file]).stdout
        elif file.parent.name.startswith("checkpoint-") and file.suffix in (".bin", ".data", ".qft"):
            found[str(file.relative_to(out))] = digest(file)
        elif file.name == "manifest.json":
            found[str(file.relative_to(out))] = json.loads(file.read_text())["tensors"]
    return found


def train(build, directory, settings):
    out = Path(settings["output_dir"])
    mpirun(2, [build / "bin/qft", "train", write(directory / "run.yaml", settings)], timeout=300)
    if (out / "adapter_config.json").exists() and settings["stage"] not in ("rm", "seq_cls") and "quantization_bit" not in settings:
        run([build / "bin/qft", "export", f"model_name_or_path={settings['model_name_or_path']}", f"adapter_name_or_path={out}",
             f"export_dir={out / 'exported'}", f"template={settings['template']}"])
    return contents(build, out)


def compare(report, name, old, new):
    report.equal(f"{name}: the same files", sorted(new), sorted(old))
    report.equal(f"{name}: {len(old)} files and logs, the same bits", [f for f in old if new.get(f) != old[f]], [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=lambda p: Path(p).resolve())
    parser.add_argument("new", type=lambda p: Path(p).resolve())
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory() as name:
        tmp = Path(name)
        for kind in ("qwen3", "qwen3_5_moe"):
            base = make(tmp / kind, kind)
            add_data(tmp / kind)
            common = {**base, "lora_dropout": 0.1, "max_steps": 4, "save_steps": 2, "global_batch_size": 4, "output_dir": str(tmp / "out")}
            for what, changes in RUNS.items():
                if changes.get("model", "qwen3") != kind or not re.search(args.only, what):
                    continue
                settings = {**common, **{k: v for k, v in changes.items() if k != "model"}}
                found = []
                for build in (args.old, args.new):
                    shutil.rmtree(tmp / "out", ignore_errors=True)
                    found.append(train(build, tmp, settings))
                compare(report, what, *found)
        if re.search(args.only, RESUMED):
            settings = {**make(tmp / "resumed", "qwen3"), **FULL, "strategy": "zero3", "lora_dropout": 0, "max_steps": 6, "save_steps": 3,
                        "output_dir": str(tmp / "out"), "lr_scheduler_type": "constant"}
            shutil.rmtree(tmp / "out", ignore_errors=True)
            whole = train(args.old, tmp, settings)
            for file in (tmp / "out").iterdir():
                if file.name not in ("checkpoint-3", "trainer_log.jsonl", "run.json"):
                    shutil.rmtree(file) if file.is_dir() else file.unlink()
            resumed = train(args.new, tmp, settings)
            compare(report, RESUMED, {k: v for k, v in whole.items() if "packs" not in k}, {k: v for k, v in resumed.items() if "packs" not in k})
    report.finish()


main()
