"""Runs of tensor and context parallelism: tiny models, data for each stage, and what one rank and a layout are compared by."""
import json
import shutil
import tempfile
from pathlib import Path

from safetensors.numpy import load

from common import Report, arguments, mpirun
from tiny import log_of, make, write

LAYOUTS = {"tp 2 x cp 2": (4, {"tensor_parallel": 2, "context_parallel": 2}), "tp 2": (2, {"tensor_parallel": 2})}
LORA = {"lora_target": "all", "lora_rank": 4, "lora_dropout": 0.1}
PAIRS = {**LORA, "stage": "dpo", "dataset": "pairs", "pref_beta": 0.5, "pref_ftx": 0.1}
IN_BLOCKS = {"hidden": 64, "intermediate": 128, "head_dim": 32}  # two ranks cut it between blocks of 64 numbers
UNEVEN = {"hidden": 48, "intermediate": 50, "heads": 6, "kv_heads": 2}  # tensor ranks: four have 2, 1, 2 and 1 heads
# What trains: the model, its sizes, keys of the run.
TASKS = {"LoRA with dropout": ("qwen3", {}, LORA),
         "DPO": ("qwen3", {}, PAIRS),
         "seq_cls": ("qwen3", {}, {**LORA, "stage": "seq_cls", "num_labels": 3, "dataset": "classes"}),
         "QLoRA in nf4": ("llama", IN_BLOCKS, {**LORA, "quantization_bit": 4}),
         "experts": ("qwen2_moe", {}, {**LORA, "moe_aux_loss_coef": 0.01}),
         "gated delta nets": ("qwen3_5", {}, LORA)}
# Numbers of a log line that say nothing about time or memory.
COMPARED = ("loss", "grad_norm", "rewards/", "logps/", "acc", "router/")


def add_data(directory):
    """Beside tiny.make()'s records: pairs, texts with labels."""
    counts = [" ".join(str(i + k) for k in range(2 + i % 7)) for i in range(16)]
    sets = {"pairs": ([{"instruction": f"Count from {i} {'please ' * (i % 5)}", "chosen": n, "rejected": "no " * (1 + i % 4)} for i, n in enumerate(counts)],
                      {"ranking": True, "columns": {"prompt": "instruction", "chosen": "chosen", "rejected": "rejected"}}),
            "classes": ([{"text": n, "label": i % 3} for i, n in enumerate(counts)], {"columns": {"prompt": "text", "label": "label"}})}
    info = json.loads((directory / "dataset_info.json").read_text())
    for name, (records, entry) in sets.items():
        (directory / f"{name}.json").write_text(json.dumps(records))
        info[name] = {"file_name": f"{name}.json", **entry}
    (directory / "dataset_info.json").write_text(json.dumps(info))


class Runs:
    """Runs in a folder; each has an output directory of its name."""

    def __init__(self, build, directory, report):
        self.build, self.qft, self.directory, self.report = build, build / "bin/qft", Path(directory), report

    def settings(self, kind, sizes=None, **changes):
        """Of a run in fp64 on a model of this kind and sizes. Each step is a global batch of six samples."""
        place = self.directory / "-".join([kind, *map(str, (sizes or {}).values())])
        settings = make(place, kind, **(sizes or {}))
        add_data(place / "data")
        return {**settings, "max_steps": 2, "warmup_ratio": 0.0, "save_strategy": "no", **changes}

    def train(self, name, ranks, settings, check=True, threads=1, **changes):
        out = self.directory / name
        shutil.rmtree(out, ignore_errors=True)
        file = write(self.directory / f"{name}.yaml", {**settings, **changes, "output_dir": str(out)})
        return out, mpirun(ranks, ["env", f"OMP_NUM_THREADS={threads}", self.qft, "train", file], check=check)

    def resume(self, out, ranks, settings, **changes):
        """Goes on in this output directory."""
        file = write(self.directory / f"{out.name}.yaml", {**settings, **changes, "output_dir": str(out)})
        return mpirun(ranks, [self.qft, "train", file])

    def log(self, name):
        return [entry for entry in log_of(self.directory / name) if "loss" in entry]

    def same_numbers(self, what, name, one, limit=1e-10, steps=None):
        """Compares the log of a run with the log of another one: all numbers that both report."""
        ours, theirs = self.log(name), self.log(one)
        self.report.equal(f"{what}: steps", len(ours), steps or len(theirs))
        keys = sorted({key for entry in theirs for key in entry if key.startswith(COMPARED)})
        self.report.holds(f"{what}: loss and norm are among the numbers", {"loss", "grad_norm"} <= {*keys}, keys)
        worst = {key: max(abs(a[key] - b[key]) / max(abs(b[key]), 1e-6) for a, b in zip(ours, theirs)) for key in keys}
        key = max(worst, key=worst.get)
        self.report.check(f"{what}: {len(keys)} numbers a step, most in {key}", worst[key], limit)

    def same_files(self, what, name, one, limit=1e-10):
        """Compares the files for users byte by byte; of a model that is saved in fp64, the weights as numbers."""
        files = lambda run: {p.name: p.read_bytes() for p in (self.directory / run).iterdir() if p.name.endswith(("safetensors", "config.json"))}
        ours, theirs = files(name), files(one)
        self.report.equal(f"{what}: files", sorted(ours), sorted(theirs))
        self.report.holds(f"{what}: weights are among them", any(name.endswith("safetensors") for name in theirs), sorted(theirs))
        if (model := "model.safetensors") in theirs:
            a, b = load(ours.pop(model)), load(theirs.pop(model))
            self.report.equal(f"{what}: a model's tensors", {k: (t.dtype, t.shape) for k, t in a.items()}, {k: (t.dtype, t.shape) for k, t in b.items()})
            self.report.check(f"{what}: weights", max(abs(a[k] - b[k]).max() for k in a.keys() & b.keys()), limit)
        self.report.equal(f"{what}: files that differ", [name for name in theirs if ours.get(name) != theirs[name]], [])


def run_checks(checks):
    """Calls checks(runs, whether --complete is yes) with a folder that is removed behind it, and reports."""
    args = arguments(complete="no")
    report = Report()
    with tempfile.TemporaryDirectory(prefix="qft-mesh-") as tmp:
        checks(Runs(args.build, tmp, report), args.complete == "yes")
    report.finish()
