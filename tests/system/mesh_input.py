"""Degrees of tensor and context parallelism that do not fit: each ends on all ranks with exit code 2, before anything is written, and with the
values that fit.

    mesh_input.py --build build [--complete yes]    # yes: more cases, and each value that a message gives trains
"""
import os
import re
import shutil
from unittest import mock

import stored_files
import tiny
from common import mpirun
from mesh_runs import LORA, run_checks
from tiny import make, write

SIM = {"QFT_DEVICE": "sim"}
BATCH = {"global_batch_size": None, "gradient_accumulation_steps": 2}


def in_act_order(directory):
    stored_files.convert(directory / "model", lambda weight: stored_files.gptq_tensors(weight, act_order=True), stored_files.gptq_config(act_order=True))


# name, ranks, the model's sizes, keys of the run, words of the message; what else: a change of the model's folder, the environment, the folder
# that stays
CASES = [
    ("ranks that the degree does not divide", 3, {}, {"tensor_parallel": 2},
     ["run.yaml", "tensor_parallel is 2: 2 ranks compute the same samples, but the job has 3 ranks, not a multiple of 2: start 2 or 4 ranks, "
      "or set tensor_parallel to 1"], {}),
    ("more ranks than heads", 2, {"heads": 1, "kv_heads": 1}, {"tensor_parallel": 2},
     ["run.yaml:", ": tensor_parallel: 2 ranks cannot share the 1 query heads and 1 key and value heads of model.layers.0.self_attn",
      "set tensor_parallel to 1"], {}),
    ("more context ranks than heads", 4, {"heads": 2, "kv_heads": 1}, {"context_parallel": 4},
     ["run.yaml:", "4 ranks cannot share the 2 query heads and 1 key and value heads", "set context_parallel to 2"], {}),
    ("blocks of nf4", 2, {}, {"tensor_parallel": 2, "quantization_bit": 4},
     ["2 ranks cannot share the 4 query heads and 2 key and value heads", "2 key heads at a time, so in 1 part (self_attn.o_proj is kept as nf4 in "
      "blocks of 64 numbers)", "set tensor_parallel to 1, or quantization_bit to 8"], {}),
    ("GPTQ in act order over columns", 2, {}, {"tensor_parallel": 2}, ["2 ranks cannot share", "self_attn.o_proj is kept as", "act order"],
     {"change": in_act_order}),
    ("CUDA graphs", 2, {}, {"tensor_parallel": 2, "cuda_graphs": True, "lora_dropout": 0},
     ["cuda_graphs records whole layers, but", "tensor_parallel is 2", "remove cuda_graphs, or set tensor_parallel: 1"], {"environment": SIM}),
]
MORE_CASES = [
    ("a product of degrees", 4, {}, {"tensor_parallel": 3, "context_parallel": 2},
     ["run.yaml", "6 ranks compute the same samples, but the job has 4 ranks", "set tensor_parallel to 1"], {}),
    ("two names that disagree", 2, {}, {"tp": 2, "tensor_model_parallel_size": 4},
     ["tensor_model_parallel_size is '4'", "tp is '2', and both set tensor_parallel: keep one"], {}),
    ("key and value heads that fit no rule", 3, {"heads": 6, "kv_heads": 2}, {"tensor_parallel": 3},
     ["3 ranks cannot share the 6 query heads and 2 key and value heads", "set tensor_parallel to 2 or 4"], {}),
    ("one block of OFT", 2, {}, {"tensor_parallel": 2, "finetuning_type": "oft", "oft_block_size": 32, "oft_target": "o_proj", "lora_dropout": 0},
     ["2 ranks cannot share the 4 query heads", "wraps self_attn.o_proj in blocks of 32", "set tensor_parallel to 1"], {}),
    ("a degree above the ranks", 2, {}, {"tensor_parallel": 4}, ["start 4 ranks, or set tensor_parallel to 2"], {}),
    ("no degree", 2, {}, {"tensor_parallel": 0}, ["tensor_parallel: expected", "'0'"], {}),
    ("one key head of a delta net", 2, {}, {"tensor_parallel": 2},
     ["2 ranks cannot share the 1 key heads and 4 value heads of model.language_model.layers.0.linear_attn", "set tensor_parallel to 1"],
     {"kind": "qwen3_5", "delta_net": {"linear_num_key_heads": 1}}),
]


def entries(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def check(report, what, result, words):
    text = result.stdout + result.stderr
    bad = [w for w in words if w not in text] + [w for w in ("Traceback", "frame #", "Segmentation") if w in text]
    report.equal(f"{what}: exit code", result.returncode, 2)
    report.holds("    ... says what would work", not bad, f"missing, or a stack trace: {bad}\n{text}")
    report.holds("    ... once", len(re.findall(r"^error: ", text, re.M)) == 1, text)


def advised(text):
    """The key and the degrees that a message gives."""
    found = re.search(r"set (tensor_parallel|context_parallel)(?: to|:) (\d+)(?: or (\d+))?", text)
    return [(found[1], int(degree)) for degree in found.groups()[1:] if degree] if found else []


class Case:
    def __init__(self, build, directory, case):
        self.name, self.ranks, sizes, self.changes, self.words, more = case
        self.qft, self.directory = build / "bin/qft", directory
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        self.environment = {**os.environ, **({"QFT_BACKEND_PATH": str(build / "tests")} if "environment" in more else {}), **more.get("environment", {})}
        with mock.patch.dict(tiny.DELTA_NET, more.get("delta_net", {})):
            self.settings = {**make(directory, more.get("kind", "qwen3"), **sizes), **LORA, "max_steps": 1, "save_strategy": "no"}
        if "change" in more:
            more["change"](directory)

    def run(self, ranks=None, **changes):
        changes = {**self.settings, **self.changes, **changes}
        file = write(self.directory / "run.yaml", {key: value for key, value in changes.items() if value is not None})
        with mock.patch.dict(os.environ, self.environment):
            return mpirun(ranks or self.ranks, [self.qft, "train", file], check=False, timeout=120)


def check_case(report, case, complete):
    (case.directory / "run.yaml").touch()
    before = entries(case.directory)
    result = case.run()
    check(report, case.name, result, case.words)
    left = [name for name in entries(case.directory) if name not in before]
    report.equal("    ... and leaves nothing behind", left, [])
    # On the simulated device cuda_graphs is refused for other reasons too: here it is removed, which is the first thing that the message says.
    for key, degree in (advised(result.stderr) if "cuda_graphs" not in case.changes else [("cuda_graphs", None)]) if complete else []:
        taken = [key for key in ("tp", "tensor_model_parallel_size") if key in case.changes]
        ranks = degree if degree and case.ranks % degree else case.ranks
        result = case.run(ranks, overwrite_output_dir=True, **{**dict.fromkeys(taken), key: degree})
        report.holds(f"    ... {key}: {degree} trains", result.returncode == 0, result.stderr)


def check_resumed_batch(report, build, directory):
    """Ranks that begin to share matrices are fewer data ranks, and keep the global batch. They cannot if the micro-batch changes too."""
    case = Case(build, directory, ("", 2, {}, {**BATCH, "max_steps": 1, "save_strategy": "steps", "save_steps": 1}, [], {}))
    files = lambda: {path: path.read_bytes() for path in directory.rglob("*") if path.is_file() and path.name != "run.yaml"}
    report.equal("a run of two data ranks", case.run().returncode, 0)
    before = files()
    changes = {"tensor_parallel": 2, "per_device_train_batch_size": 4, "max_steps": 2}
    result = case.run(**changes)
    check(report, "resumed on one data rank with larger micro-batches", result,
          ["cannot resume: global_batch_size is 8 here, 4 in the checkpoint", "set global_batch_size: 4"])
    after = files()
    report.equal("    ... files that are new, gone or changed", [str(p) for p in before.keys() | after.keys() if before.get(p) != after.get(p)], [])
    result = case.run(**changes, global_batch_size=4)
    report.holds("    ... 4 trains", result.returncode == 0 and "step 2/2" in result.stderr, result.stderr)


def check_unequal(report, build, directory):
    """Ranks whose run files differ."""
    case = Case(build, directory, ("", 1, {}, {}, [], {}))
    file = write(directory / "run.yaml", case.settings)
    train = [case.qft, "train", file]
    result = mpirun(1, [*train, "tensor_parallel=2", ":", "-np", "1", *train], check=False, timeout=120)
    check(report, "ranks with other degrees", result, ["tensor_parallel is 2 on rank 0, but 1 on rank 1: give all ranks the same run file"])


def checks(runs, complete):
    for case in CASES + (MORE_CASES if complete else []):
        check_case(runs.report, Case(runs.build, runs.directory / "case", case), complete)
    check_unequal(runs.report, runs.build, runs.directory / "unequal")
    check_resumed_batch(runs.report, runs.build, runs.directory / "batch")


run_checks(checks)
