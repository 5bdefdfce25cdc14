"""Ranks that share matrices and sequences train as one rank: losses, norms, metrics and saved files of each kind of run in fp64; a run that
changes its layout at checkpoints; the first margin of preferences, which is exactly 0.

    mesh.py --build build [--complete yes]

As it is: DPO, QLoRA, a classifier with experts and gated delta nets, each at tp 2 x cp 2; DPO at tp 4; the run with other layouts at each
checkpoint.
Complete: all tasks of mesh_runs.py and full fine-tuning, in seven layouts; rounding in bf16.
"""
import re
import statistics

from mesh_runs import LAYOUTS, LORA, PAIRS, TASKS, UNEVEN, run_checks
from tiny import cut

FULL = {"finetuning_type": "full", "learning_rate": 1e-3}
MORE_LAYOUTS = {"tp 4": (4, {"tensor_parallel": 4}), "tp 2 x zero2 2": (4, {"tensor_parallel": 2, "strategy": "zero2"}),
                "tp 2 x ddp 2": (4, {"tensor_parallel": 2, "strategy": "ddp"}), "cp 2": (2, {"context_parallel": 2}),
                "tp 2 x cp 2 x zero3 2": (8, {"tensor_parallel": 2, "context_parallel": 2, "strategy": "zero3"})}
MORE_TASKS = {"full": ("qwen3", {}, FULL), "full, experts and delta nets": ("qwen3_next", {}, FULL),
              "full, packed": ("qwen3", {}, {**FULL, "packing": True}), "full, DPO": ("qwen3", {}, {**PAIRS, **FULL})}
# These runs differ most: what the others show is in them too.
QUICK = {**{task: TASKS[task] for task in ("DPO", "QLoRA in nf4", "gated delta nets")},
         "seq_cls with experts": ("qwen2_moe", {}, {**TASKS["seq_cls"][2], "moe_aux_loss_coef": 0.01})}
AT_MOST_TWO = ("nf4", "delta nets")  # blocks or key heads for two tensor ranks


def check_first_margin(runs, what, name):
    """Policy and reference are equal in the first step, so the same products give the same bits."""
    margins = [entry["rewards/margins"] for entry in runs.log(name)]
    runs.report.equal(f"{what}: the first margin", margins[0], 0.0)
    runs.report.holds("    ... but not the second", margins[1] != 0.0, margins)


def check_layout(runs, what, ranks, settings, degrees):
    """Compares with run "one"."""
    _, result = runs.train("several", ranks, settings, check=False, **degrees)
    runs.report.holds(f"{what}: trains", result.returncode == 0, result.stderr)
    if result.returncode == 0:
        runs.same_numbers(what, "several", "one")
        runs.same_files(what, "several", "one")
        if settings["stage"] == "dpo":
            check_first_margin(runs, what, "several")


def check_tasks(runs, tasks, layouts):
    """Each task in each layout that suits it."""
    for task, (kind, sizes, changes) in tasks.items():
        settings = runs.settings(kind, sizes, **changes)
        runs.train("one", 1, settings)
        for layout, (ranks, degrees) in layouts.items():
            if degrees.get("tensor_parallel", 1) > 2 and any(words in task for words in AT_MOST_TWO):
                continue
            check_layout(runs, f"{task}, {layout}", ranks, settings, degrees)


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


def error(runs, name, judge):
    """The root mean square of relative differences of losses, over steps."""
    pairs = zip(runs.log(name), runs.log(judge))
    return statistics.mean([(a["loss"] / b["loss"] - 1) ** 2 for a, b in pairs]) ** 0.5


def check_rounding(runs, tasks):
    """In bf16 each exchange rounds sums, so losses differ from one rank's. fp64 judges; the yardstick is one rank's own error in bf16, all tasks
    together. Beside it: what another number of threads changes."""
    errors = {"one rank": [], "two threads": [], "tp 2 x cp 2": []}
    for task, (kind, sizes, changes) in tasks.items():
        settings = runs.settings(kind, sizes, **changes) | {"max_steps": 6}
        bf16 = settings | {"compute_dtype": "auto", "bf16": True}
        runs.train("judge", 1, settings)
        runs.train("one rank", 1, bf16)
        runs.train("two threads", 1, bf16, threads=2)
        runs.train("tp 2 x cp 2", 4, bf16, tensor_parallel=2, context_parallel=2)
        for name, all_tasks in errors.items():
            all_tasks.append(error(runs, name, "judge"))
        print(f"        {task}: losses in bf16 beside fp64: " + ", ".join(f"{name} {all_tasks[-1]:.1e}" for name, all_tasks in errors.items())
              + f"; two threads beside one {error(runs, 'two threads', 'one rank'):.1e}, tp 2 x cp 2 beside one rank {error(runs, 'tp 2 x cp 2', 'one rank'):.1e}")
    whole = {name: sum(e * e for e in all_tasks) ** 0.5 for name, all_tasks in errors.items()}
    runs.report.check("losses in bf16 of tp 2 x cp 2", whole["tp 2 x cp 2"], 1.5 * whole["one rank"])


def checks(runs, complete):
    if complete:
        check_tasks(runs, {**TASKS, **QUICK, **MORE_TASKS}, {**LAYOUTS, **MORE_LAYOUTS})
        check_rounding(runs, TASKS)
    else:
        check_tasks(runs, QUICK, dict([*LAYOUTS.items()][:1]))
        check_tasks(runs, {"DPO": TASKS["DPO"]}, {"tp 4": MORE_LAYOUTS["tp 4"]})  # copies of a key and value head
    check_resumed(runs)


run_checks(checks)
