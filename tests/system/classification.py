"""Classifiers as whole programs: a new head is the same on any layout, packed rows give the same steps, a cut run resumes to the same bytes,
commands of ms-swift run as they are, texts without labels are scored, and what is wrong is told."""
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from common import Report, arguments, mpirun, run
from tiny import check_refused, cut, log_of, make, write

SAMPLES = 12
KEYS = ["loss", "grad_norm", "acc"]
# ms-swift's examples/train/seq_cls/qwen2_5/sft.sh, but for what names the model and the data, and for the sizes of a tiny run.
SWIFT = """--tuner_type lora --load_from_cache_file true --split_dataset_ratio 0.2 --torch_dtype bfloat16 --num_train_epochs 1
--per_device_train_batch_size 1 --per_device_eval_batch_size 1 --learning_rate 1e-4 --lora_rank 8 --lora_alpha 32 --target_modules all-linear
--gradient_accumulation_steps 2 --eval_steps 2 --save_steps 50 --save_total_limit 2 --logging_steps 1 --max_length 2048 --warmup_ratio 0.05
--dataloader_num_workers 4 --task_type seq_cls --use_chat_template false""".split()


def add_texts(tmp):
    records = [{"query": f"The number {i} {'again ' * (i % 5)}", "label": i % 3} for i in range(SAMPLES)]
    several = [{**r, "label": [k for k in range(3) if i >> k & 1]} for i, r in enumerate(records)]
    numbers = [{**r, "label": i / SAMPLES} for i, r in enumerate(records)]
    for name, data in (("texts", records), ("several", several), ("numbers", numbers), ("plain", [{"query": r["query"]} for r in records]),
                       ("beyond", [*records[:5], {**records[5], "label": 3}])):
        (tmp / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in data))
    (tmp / "table.csv").write_text("sentence,label\n" + "".join(f"{r['query']},{r['label']}\n" for r in records))


def losses(directory, keys=KEYS):
    return [[entry[k] for k in keys] for entry in log_of(directory) if "loss" in entry]


def gap(a, b):
    return max(abs(x - y) / max(1.0, abs(y)) for one, other in zip(a, b, strict=True) for x, y in zip(one, other))


def check_layouts(report, qft, tmp, settings):
    """One rank, and three under zero3; items alone, and all of a step in a row."""
    mpirun(1, [qft, "train", write(tmp / "one.yaml", {**settings, "output_dir": str(tmp / "one")})])
    mpirun(3, [qft, "train", write(tmp / "three.yaml", {**settings, "output_dir": str(tmp / "three"), "strategy": "zero3"})])
    report.check("a new head on three ranks", gap(losses(tmp / "three"), losses(tmp / "one")), 1e-10)
    whole = {**settings, "max_steps": 3, "cutoff_len": 1024, "disable_shuffling": True}
    mpirun(1, [qft, "train", write(tmp / "alone.yaml", {**whole, "global_batch_size": SAMPLES, "output_dir": str(tmp / "alone")})])
    mpirun(1, [qft, "train", write(tmp / "rows.yaml", {**whole, "global_batch_size": 1, "packing": True, "output_dir": str(tmp / "rows")})])
    report.check("all texts in one row", gap(losses(tmp / "rows"), losses(tmp / "alone")), 1e-10)


def check_resume(report, qft, tmp, settings):
    file = write(tmp / "whole.yaml", {**settings, "output_dir": str(tmp / "whole"), "save_steps": 3, "finetuning_type": "full"})
    mpirun(2, [qft, "train", file])
    cut(tmp / "whole", tmp / "cut", 3)
    mpirun(1, [qft, "train", write(tmp / "cut.yaml", {**settings, "output_dir": str(tmp / "cut"), "save_steps": 3, "finetuning_type": "full"})])
    ours, theirs = (load_file(tmp / d / "model.safetensors") for d in ("cut", "whole"))
    report.equal("a resumed run: tensors", sorted(ours), sorted(theirs))
    report.check("a resumed run on another number of ranks", max(float(np.abs(ours[n] - theirs[n]).max()) for n in theirs), 1e-7)


def check_swift(report, qft, tmp, settings):
    for name, more in (("texts", ["--num_labels", "3"]), ("table", ["--num_labels", "3"]),
                       ("several", ["--num_labels", "3", "--problem_type", "multi_label_classification"]),
                       ("numbers", ["--num_labels", "1", "--problem_type", "regression"])):
        out, data = tmp / f"swift-{name}", tmp / (f"{name}.csv" if name == "table" else f"{name}.jsonl")
        mpirun(2, [qft, "train", "--model", settings["model_name_or_path"], "--dataset", data, "--output_dir", out, *SWIFT, *more])
        entries = log_of(out)
        metric = [e["eval_acc"] for e in entries if "eval_acc" in e]
        report.holds(f"ms-swift, {name}: evaluations", any("eval_loss" in e for e in entries) and bool(metric) == (name != "numbers"), entries[-2:])
        config = json.loads((out / "adapter_config.json").read_text())
        report.equal(f"ms-swift, {name}: the adapter", (config["task_type"], config["modules_to_save"]), ("SEQ_CLS", ["score"]))


def check_scores(report, qft, tmp, settings):
    """Of texts without labels too, and by an export."""
    use = {**settings, "adapter_name_or_path": str(tmp / "one"), "output_dir": str(tmp / "scored")}
    said = {}
    for name in ("texts", "plain"):
        told = run([qft, "score", write(tmp / "score.yaml", {**use, "eval_dataset": str(tmp / f"{name}.jsonl")}), "--output", tmp / f"{name}.out", "--json"])
        said[name] = [json.loads(line) for line in (tmp / f"{name}.out").read_text().splitlines()]
        report.equal(f"{name}: loss and acc are told", sorted(json.loads(told.stdout).keys() & {"loss", "acc"}), ["acc", "loss"] if name == "texts" else [])
    report.equal("texts without labels: what is said", [s["logits"] for s in said["plain"]], [s["logits"] for s in said["texts"]])
    run([qft, "export", write(tmp / "export.yaml", {**use, "export_dir": str(tmp / "exported")})])
    whole = {**settings, "model_name_or_path": str(tmp / "exported"), "eval_dataset": str(tmp / "texts.jsonl"), "output_dir": str(tmp / "scored2")}
    run([qft, "score", write(tmp / "whole_score.yaml", whole), "--output", tmp / "whole.out"])
    ours = [json.loads(line)["logits"] for line in (tmp / "whole.out").read_text().splitlines()]
    report.check("an export says the same", gap(ours, [s["logits"] for s in said["texts"]]), 1e-4)


def check_bad_input(report, qft, tmp, settings):
    trained = {"adapter_name_or_path": str(tmp / "one")}
    bad = {"output_dir": str(tmp / "bad")}
    shutil.copytree(tmp / "one", tmp / "headless")
    tensors = load_file(tmp / "headless/adapter_model.safetensors")
    save_file({n: t for n, t in tensors.items() if "score" not in n}, tmp / "headless/adapter_model.safetensors", metadata={"format": "pt"})
    cases = [("no number of labels", "train", {"num_labels": None, **bad}, "which needs num_labels", 2),
             ("labels of a language model", "train", {"stage": "sft", **bad}, "belongs to a classifier, but", 2),
             ("one label of one", "train", {"num_labels": 1, "problem_type": "single_label_classification", **bad}, "every text has the same label", 2),
             ("a label beyond the last", "train", {"dataset": str(tmp / "beyond.jsonl"), **bad}, "record 5 of", 2),
             ("texts without labels", "train", {"dataset": str(tmp / "plain.jsonl"), **bad}, "12 of 12 texts have no label", 2),
             ("a list for one label", "train", {"dataset": str(tmp / "several.jsonl"), **bad}, "expected one number", 2),
             ("other labels than the adapter's", "eval", {**trained, "num_labels": 4}, "is of a classifier of 3 labels", 2),
             ("a classifier as a language model", "eval", {**trained, "stage": "sft", "num_labels": None, "dataset": "numbers", "eval_dataset": "numbers"},
              "is of a classifier of 3 labels", 2),
             ("an adapter without its head", "eval", {"adapter_name_or_path": str(tmp / "headless")}, "has no classification head", 1),
             ("the base model alone", "score", {}, "it is not a classifier", 2),
             ("an export to GGUF", "export", {**trained, "export_dir": str(tmp / "gguf"), "export_format": "gguf"}, "is not implemented: export in 16 bits", 2),
             ("answers of a classifier", "generate", {**trained, "prompt": "hello"}, "a classifier does not write answers", 2),
             ("another task of ms-swift", "train", {"stage": None, "num_labels": None, "task_type": "reranker", **bad}, "stage reranker scores documents of queries", 2)]
    check_refused(report, qft, tmp / "bad.yaml", {**settings, "eval_dataset": settings["dataset"], "output_dir": str(tmp / "evaluated")}, cases)
    plan = run([qft, "plan", write(tmp / "plan.yaml", settings), "--ranks", "2"])
    report.holds("qft plan plans a classifier", "zero3" in plan.stdout, plan.stdout)


def main():
    args = arguments()
    qft = args.build / "bin/qft"
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp, "qwen3"), "stage": "seq_cls", "num_labels": 3, "dataset": str(tmp / "texts.jsonl"), "lora_dropout": 0.0,
                    "global_batch_size": 4}
        add_texts(tmp)
        check_layouts(report, qft, tmp, settings)
        check_resume(report, qft, tmp, settings)
        check_swift(report, qft, tmp, settings)
        check_scores(report, qft, tmp, settings)
        check_bad_input(report, qft, tmp, settings)
    report.finish()


main()
