"""Reward models as whole programs: a new head is the same on any layout, a cut run resumes to the same bytes, an export keeps the head,
run files of LLaMA-Factory and ms-swift run as they are, and what is wrong is told."""
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from common import Report, arguments, mpirun, run
from tiny import check_refused, cut, log_of, make, write

SAMPLES = 12
KEYS = ["loss", "grad_norm", "accuracy", "rewards/chosen", "rewards/rejected", "rewards/margins"]
LLAMA_FACTORY = """
model_name_or_path: MODEL
trust_remote_code: true
stage: rm
do_train: true
finetuning_type: lora
lora_rank: 8
lora_target: all
dataset: pairs
dataset_dir: DATA
template: smollm2
cutoff_len: 2048
max_samples: 1000
preprocessing_num_workers: 16
dataloader_num_workers: 4
output_dir: OUT
logging_steps: 10
save_steps: 500
plot_loss: true
overwrite_output_dir: true
save_only_model: false
report_to: none
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 180000000
resume_from_checkpoint: null
val_size: 0.1
per_device_eval_batch_size: 1
eval_strategy: steps
eval_steps: 500
"""
SWIFT = """
rlhf_type: rm
model: MODEL
train_type: lora
dataset: pairs
dataset_dir: DATA
template: smollm2
torch_dtype: bfloat16
num_train_epochs: 1
per_device_train_batch_size: 1
per_device_eval_batch_size: 1
learning_rate: 1e-4
lora_rank: 8
lora_alpha: 32
target_modules: all-linear
gradient_accumulation_steps: 4
eval_steps: 100
save_steps: 100
save_total_limit: 2
logging_steps: 1
max_length: 2048
output_dir: OUT
warmup_ratio: 0.05
dataloader_num_workers: 4
dataset_num_proc: 4
"""


def add_pairs(directory):
    records = [{"instruction": f"Say the number {i} {'again ' * (i % 5)}", "input": "", "chosen": " ".join(str(i + k) for k in range(2 + i % 7)),
                "rejected": "no " * (1 + i % 4)} for i in range(SAMPLES)]
    (directory / "pairs.json").write_text(json.dumps(records))
    info = json.loads((directory / "dataset_info.json").read_text())
    info["pairs"] = {"file_name": "pairs.json", "ranking": True,
                     "columns": {"prompt": "instruction", "query": "input", "chosen": "chosen", "rejected": "rejected"}}
    (directory / "dataset_info.json").write_text(json.dumps(info))


def check_layouts(report, qft, tmp, settings):
    """Where there is no head, training starts from one that the seed alone decides."""
    runs = {}
    for name, ranks, more in [("one", 1, {}), ("zero3", 3, {"strategy": "zero3"}), ("another seed", 1, {"seed": 8, "disable_shuffling": True})]:
        run_file = write(tmp / f"{name}.yaml", {**settings, **more, "output_dir": str(tmp / name)})
        mpirun(ranks, [qft, "train", run_file])
        runs[name] = [[entry[key] for key in KEYS] for entry in log_of(tmp / name) if "loss" in entry]
    worst = np.abs(np.array(runs["zero3"]) - np.array(runs["one"])).max()
    report.check("a new head: zero3 on three ranks beside one", worst, 1e-9)
    report.holds("a new head: another seed gives another", abs(runs["another seed"][0][0] - runs["one"][0][0]) > 1e-6, runs)
    heads = [load_file(tmp / name / "value_head.safetensors")["v_head.summary.weight"] for name in ("one", "zero3")]
    report.check("a new head: the same in the end", np.abs(heads[0] - heads[1]).max(), 1e-6)


def check_resume(report, qft, tmp, settings):
    for method, ranks, more in [("lora", 2, {"strategy": "zero2", "lora_dropout": 0.1}), ("full", 2, {"strategy": "zero3"})]:
        changes = {**settings, **more, "finetuning_type": method, "compute_dtype": "float32", "learning_rate": 1e-3, "save_steps": 1}
        whole, part = tmp / f"whole-{method}", tmp / f"part-{method}"
        mpirun(ranks, [qft, "train", write(tmp / "whole.yaml", {**changes, "output_dir": str(whole)})])
        cut(whole, part, 2)
        mpirun(ranks, [qft, "train", write(tmp / "part.yaml", {**changes, "output_dir": str(part)})])
        report.equal(f"{method}: log lines after a cut", [[e.get(k) for k in KEYS] for e in log_of(part)], [[e.get(k) for k in KEYS] for e in log_of(whole)])
        for name in ("value_head.safetensors", "adapter_model.safetensors" if method == "lora" else "model.safetensors"):
            report.holds(f"{method}: the same {name} after a cut", (whole / name).read_bytes() == (part / name).read_bytes())
        checkpoint = max(whole.glob("checkpoint-*"), key=lambda p: int(p.name.split("-")[1]))
        report.holds(f"{method}: a checkpoint has the head too", (checkpoint / "value_head.safetensors").read_bytes() == (whole / "value_head.safetensors").read_bytes())
    run([qft, "export", write(tmp / "export.yaml", {"model_name_or_path": settings["model_name_or_path"], "adapter_name_or_path": str(tmp / "whole-lora"),
                                                    "export_dir": str(tmp / "merged")})])
    report.holds("an export keeps the head", (tmp / "merged/value_head.safetensors").read_bytes() == (tmp / "whole-lora/value_head.safetensors").read_bytes())
    score = write(tmp / "score.yaml", {k: v for k, v in settings.items() if k != "finetuning_type"})
    told = [json.loads(run([qft, "score", score, "--json", "--output", tmp / "lines.jsonl", *keys]).stdout)["mean"]
            for keys in ([f"adapter_name_or_path={tmp / 'whole-lora'}"], [f"model_name_or_path={tmp / 'merged'}"])]
    report.check("the merged model's scores are the adapter's", abs(told[0] - told[1]), 1e-5)


def check_other_tools(report, qft, tmp, settings):
    for tool, text in [("LLaMA-Factory", LLAMA_FACTORY), ("ms-swift", SWIFT)]:
        out = tmp / tool
        file = tmp / f"{tool}.yaml"
        file.write_text(text.replace("MODEL", settings["model_name_or_path"]).replace("DATA", settings["dataset_dir"]).replace("OUT", str(out)))
        mpirun(2, [qft, "train", file])
        entries = [e for e in log_of(out) if "loss" in e]
        report.holds(f"{tool}'s run file: steps with an accuracy", entries and all(0 <= e["accuracy"] <= 1 for e in entries), entries)
        report.equal(f"{tool}'s run file: the head", sorted(load_file(out / "value_head.safetensors")), ["v_head.summary.bias", "v_head.summary.weight"])


def check_bad_input(report, qft, tmp, settings):
    trained = tmp / "one"
    for name, shape in (("narrow", (1, 16)), ("two", (2, 32))):
        shutil.copytree(trained, tmp / name)
        save_file({"v_head.summary.weight": np.zeros(shape, np.float32), "v_head.summary.bias": np.zeros(1, np.float32)}, tmp / name / "value_head.safetensors")
    shutil.copytree(trained, tmp / "headless")
    (tmp / "headless/value_head.safetensors").unlink()
    shutil.copytree(trained, tmp / "other")
    save_file({"summary.weight": np.zeros((1, 32), np.float32)}, tmp / "other/value_head.safetensors")
    use = lambda name: {"adapter_name_or_path": str(tmp / name)}
    cases = [("a head of another width", "eval", use("narrow"), "'v_head.summary.weight' has shape [1, 16], but the model's config.json requires [1, 32]", 1),
             ("a head of two outputs, in training", "train", {**use("two"), "output_dir": str(tmp / "bad")}, "has shape [2, 32]", 1),
             ("an adapter without a head", "eval", use("headless"), "has no value_head.safetensors (nor value_head.bin): it is not a reward model", 2),
             ("the base model alone", "score", {}, "it is not a reward model", 2),
             ("a head by other names", "eval", use("other"), "v_head.summary.weight", 1),
             ("log-probabilities", "eval", {**use("one"), "predict_logprobs": str(tmp / "l.jsonl")}, "qft score writes scores", 2),
             ("packing", "train", {"packing": True, "output_dir": str(tmp / "bad")}, "remove packing", 2),
             ("answers of a reward model", "generate", {**use("one"), "prompt": "hello"}, "a reward model does not write answers", 2),
             ("pairs and answers together", "score", {**use("one"), "eval_dataset": ["pairs", "numbers"]}, "score them one after another", 2),
             ("an export to GGUF", "export", {**use("one"), "export_dir": str(tmp / "gguf"), "export_format": "gguf"}, "GGUF cannot hold its head ('value_head.safetensors')", 2),
             ("single answers in training", "train", {"dataset": "numbers", "output_dir": str(tmp / "bad")}, "holds no preference pairs", 2)]
    check_refused(report, qft, tmp / "bad.yaml", {**settings, "output_dir": str(tmp / "evaluated")}, cases)
    plan = run([qft, "plan", write(tmp / "plan.yaml", settings), "--ranks", "2"])
    report.holds("qft plan plans a reward model", "zero3" in plan.stdout, plan.stdout)


def main():
    args = arguments()
    qft = args.build / "bin/qft"
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp, "qwen3"), "stage": "rm", "dataset": "pairs", "eval_dataset": "pairs", "lora_dropout": 0.0, "global_batch_size": 4}
        add_pairs(tmp / "data")
        check_layouts(report, qft, tmp, settings)
        check_resume(report, qft, tmp, settings)
        check_other_tools(report, qft, tmp, settings)
        check_bad_input(report, qft, tmp, settings)
    report.finish()


main()
