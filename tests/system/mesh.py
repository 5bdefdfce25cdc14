"""Ranks that share matrices and sequences train as one rank: losses, norms, metrics and saved files of each kind of run in fp64; a run that
changes its layout at checkpoints; the first margin of preferences, which is exactly 0.

    mesh.py --build build [--complete yes]    # yes: more layouts and strategies, full fine-tuning
"""
import re
import tempfile

from common import Report, arguments
from mesh_runs import LAYOUTS, LORA, PAIRS, TASKS, Runs, context_is_refused
from tiny import cut

FULL = {"finetuning_type": "full", "learning_rate": 1e-3}
MORE_LAYOUTS = {"tp 4": (4, {"tensor_parallel": 4}), "tp 2 x zero2 2": (4, {"tensor_parallel": 2, "strategy": "zero2"}),
                "tp 2 x ddp 2": (4, {"tensor_parallel": 2, "strategy": "ddp"}), "cp 2": (2, {"context_parallel": 2}),
                "tp 2 x cp 2 x zero3 2": (8, {"tensor_parallel": 2, "context_parallel": 2, "strategy": "zero3"})}
MORE_TASKS = {"full": ("qwen3", {}, FULL), "full, experts and delta nets": ("qwen3_next", {}, FULL),
              "full, packed": ("qwen3", {}, {**FULL, "packing": True})}
AT_MOST_TWO = ("nf4", "delta nets")  # blocks or key heads for two tensor ranks
UNEVEN = {"hidden": 48, "intermediate": 50, "heads": 6, "kv_heads": 2}  # tensor ranks: four have 2, 1, 2 and 1 heads


def check_tasks(runs, tasks, layouts):
    for task, (kind, sizes, changes) in tasks.items():
        settings = runs.settings(kind, sizes, **changes)
        runs.train("one", 1, settings)
        for layout, (ranks, degrees) in layouts.items():
            if degrees.get("tensor_parallel", 1) > 2 and any(words in task for words in AT_MOST_TWO):
                continue
            what = f"{task}, {layout}"
            _, result = runs.train("several", ranks, settings, check="context_parallel" not in degrees, **degrees)
            if context_is_refused(result):
                print(f"skipped {what}: context_parallel is refused")
                continue
            runs.report.equal(f"{what}: exit code", result.returncode, 0)
            if result.returncode:
                print(result.stderr)
                continue
            runs.same_numbers(what, "several", "one")
            runs.same_files(what, "several", "one")


def check_first_margin(runs, kinds):
    """Policy and reference are equal in the first step, so the same products give the same bits."""
    for what, changes in kinds.items():
        settings = runs.settings("qwen3", **{**PAIRS, **changes, "max_steps": 2, "learning_rate": 1e-2})
        for ranks in (2, 4):
            runs.train("pairs", ranks, settings, tensor_parallel=ranks)
            margins = [entry["rewards/margins"] for entry in runs.log("pairs")]
            runs.report.equal(f"DPO, {what}, tp {ranks}: the first margin", margins[0], 0.0)
            runs.report.holds("    ... but not the second", margins[1] != 0.0, margins)


def check_resumed(runs):
    """Stopped after step 2 of 4, resumed on three ranks, and after step 3 on four that share matrices."""
    settings = runs.settings("qwen3", UNEVEN, **LORA, max_steps=4)
    settings |= {"save_strategy": "steps", "save_steps": 1, "lora_dropout": 0.3}
    runs.train("one", 1, settings)
    whole, _ = runs.train("whole", 4, settings, tensor_parallel=2, strategy="zero3")
    runs.same_numbers("dropout, tp 2 x zero3 2", "whole", "one", steps=4)
    before = whole
    for step, name, ranks, layout in ((2, "three", 3, {"strategy": "zero3"}), (3, "four", 4, {"tensor_parallel": 4})):
        held = runs.directory / f"held-{name}"
        cut(before, held, step)
        result = runs.resume(held, ranks, settings, **layout)
        runs.report.holds(f"goes on at step {step} on {name} ranks", re.search(rf"at step {step}\b", result.stderr), result.stderr)
        runs.same_numbers("    ... equal to the run that was not stopped", held.name, "whole", steps=4)
        before = held


def main():
    args = arguments(complete="no")
    report = Report()
    complete = args.complete == "yes"
    with tempfile.TemporaryDirectory() as tmp:
        runs = Runs(args.build, tmp, report)
        check_tasks(runs, {**TASKS, **(MORE_TASKS if complete else {})}, {**LAYOUTS, **(MORE_LAYOUTS if complete else {})})
        check_first_margin(runs, {"LoRA": {}, **({"full": FULL} if complete else {})})
        check_resumed(runs)
    report.finish()


main()
