"""Memory of ranks that share matrices or sequences: on each rank the peak is what was predicted, and saved activations fall as the degree rises.

    mesh_memory.py --build build [--complete yes]    # yes: also on the CPU, with a model whose weights are most of a process
"""
import json
import os
from unittest import mock

from common import mpirun, run
from mesh_runs import run_checks
from tiny import log_of, make, write, write_model, write_tokenizer

MB = 10**6
FULL = {"finetuning_type": "full", "gradient_checkpointing": True}
LORA = {"finetuning_type": "lora", "lora_rank": 8, "gradient_checkpointing": False}
LAYOUTS = [(1, {}), (2, {"tensor_parallel": 2}), (2, {"context_parallel": 2})]
MORE = [*LAYOUTS, (4, {"tensor_parallel": 4}), (4, {"tensor_parallel": 2, "strategy": "zero3"}), (4, {"tensor_parallel": 2, "strategy": "zero2"}),
        (4, {"context_parallel": 4}), (4, {"tensor_parallel": 2, "context_parallel": 2})]
SMALL = {"hidden": 256, "intermediate": 768, "layers": 4, "heads": 8, "kv_heads": 4, "head_dim": 32, "vocab": 8192}
LARGE = {"hidden": 512, "intermediate": 2048, "layers": 16, "heads": 8, "kv_heads": 4, "head_dim": 64, "vocab": 49152}


class Memory:
    def __init__(self, runs, shape, environment):
        self.qft, self.report, self.environment = runs.qft, runs.report, environment
        self.directory = runs.directory / str(shape["hidden"])
        # Rows are full and all tokens are labels, so that each rank's part of a micro-batch is as large as the plan says.
        self.settings = {**make(self.directory, samples=300), "packing": True, "train_on_prompt": True, "cutoff_len": 256, "max_steps": 1,
                         "save_strategy": "no", "lora_dropout": 0.0, "compute_dtype": "auto", "bf16": True, "global_batch_size": 4, "per_device_train_batch_size": 2, "learning_rate": 1e-4}
        write_model(self.directory / "model", positions=512, **shape)
        write_tokenizer(self.directory / "model", shape["vocab"])
        # Packed once, so that a rank that has packed too is no larger than the others.
        pack = self.directory / "train.h5"
        run([runs.build / "bin/qft-pack", write(self.directory / "pack.yaml", {**self.settings, **LORA}), "--output", pack])
        self.settings["pack"] = str(pack)

    def results(self, ranks, changes):
        out = self.directory / "out"
        file = write(self.directory / "run.yaml", {**self.settings, **changes, "overwrite_output_dir": True, "output_dir": str(out)})
        with mock.patch.dict(os.environ, self.environment):
            mpirun(ranks, [self.qft, "train", file])
        return json.loads((out / "train_results.json").read_text()), [e for e in log_of(out) if "loss" in e][-1]["memory"]

    def compare(self, what, changes, layouts):
        activations = {}
        for ranks, layout in layouts:
            results, peaks = self.results(ranks, {**changes, **layout})
            tensor, context = (layout.get(f"{axis}_parallel", 1) for axis in ("tensor", "context"))
            name = f"{what}, tp {tensor} x cp {context} on {ranks} ranks{', ' + layout['strategy'] if 'strategy' in layout else ''}"
            self.report.equal(f"{name}: ranks with a peak", len(peaks), ranks)
            off = max((results["memory_predicted"] / peak - 1 for peak in peaks), key=abs)
            self.report.check(f"{name}: peaks from {min(peaks) / MB:.1f} to {max(peaks) / MB:.1f} MB, predicted off by {off:+.1%}", abs(off), 0.1)
            held, planned = (results[f"memory_activations{word}"] for word in ("", "_predicted"))
            self.report.check(f"    ... activations {held / MB:.2f} MB, predicted off by", abs(planned / held - 1), 0.1)
            activations.setdefault((tensor, context), held)
        for (tensor, context), held in activations.items():
            if tensor > 1 and context == 1 and (1, 1) in activations:  # context ranks keep whole sequences of some heads too
                self.report.check(f"{what}: activations at tp {tensor} are 1/{tensor} but for", abs(held * tensor / activations[1, 1] - 1), 0.2)


def checks(runs, complete):
    sim = {"QFT_DEVICE": "sim", "QFT_BACKEND_PATH": str(runs.build / "tests")}
    places = {"the simulated device": (SMALL, sim), **({"the CPU": (LARGE, {})} if complete else {})}
    for place, (shape, environment) in places.items():
        memory = Memory(runs, shape, environment)
        memory.compare(f"{place}: full, recomputed", FULL, MORE if complete else LAYOUTS[1:])
        memory.compare(f"{place}: LoRA, nothing recomputed", LORA, MORE if complete else LAYOUTS)


run_checks(checks)
