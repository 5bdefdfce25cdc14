"""Every sharding strategy, for LoRA and full fine-tuning, with evaluation and checkpoints on the way, gives the numbers and
the files of one rank; and a run changes strategy and number of ranks at a checkpoint without changing a bit of the weights."""
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

import stored_files
from common import Report, arguments, mpirun
from tiny import cut, log_of, make, write

FULL = {"finetuning_type": "full", "learning_rate": 1e-3}
NF4 = {"quantization_bit": 4}
DORA = {**NF4, "use_dora": True, "pissa_init": True, "pissa_convert": True, "alpha_pattern": {"q_proj": 3}}
FP8 = {"quantization_bit": 8, "quantization_method": "fp8"}
RUNS = [({}, "zero3", 3, {}), ({}, "hsdp", 4, {"hsdp_group_size": 2}), ({}, "shard_grad_op", 2, {"breadth_first_micro_batches": 1}),
        (NF4, "ddp", 2, {}), (NF4, "zero3", 3, {"prefetch_bytes": 1}), (NF4, "zero3", 2, {"offload_param": "cpu", "breadth_first_micro_batches": 2}),
        (DORA, "ddp", 2, {}), (DORA, "zero2", 2, {}), (DORA, "zero3", 3, {"prefetch_bytes": 1, "offload_param": "cpu"}),
        (FULL, "zero1", 3, {}), (FULL, "zero2", 2, {"breadth_first_micro_batches": 2}), (FULL, "zero3", 4, {"prefetch_bytes": 1})]
# A model that is quantised in its files, in act order.
STORED_RUNS = [({}, "ddp", 2, {}), ({}, "zero2", 2, {}), ({}, "zero3", 3, {"prefetch_bytes": 1}),
               ({}, "zero3", 2, {"offload_param": "cpu", "breadth_first_micro_batches": 2})]
# Experts and gated delta nets, whose files hold a tensor for each expert.
SPARSE_RUNS = [({"lora_target": "all"}, "zero3", 3, {}), ({"lora_target": "all"}, "zero2", 2, {"breadth_first_micro_batches": 2}), (FULL, "zero3", 2, {}),
               (FP8, "zero3", 2, {}), (FP8, "ddp", 2, {})]


def weights(directory):
    return load_file(min(Path(directory).glob("*.safetensors")))


def worst(ours, theirs):
    assert ours.keys() == theirs.keys(), sorted(ours.keys() ^ theirs.keys())
    return max(np.abs(ours[k].astype(np.float64) - theirs[k]).max() for k in ours)


def relative(ours, theirs, key):
    a, b = [e[key] for e in ours if key in e], [e[key] for e in theirs if key in e]
    assert len(a) == len(b) > 0, f"{key}: {len(a)} values, not {len(b)}"
    return max(abs(x - y) / abs(y) for x, y in zip(a, b))


def compare(report, qft, tmp, settings, runs, model):
    """Each run, number N in tmp/N, with one on one rank, in tmp/lora and tmp/full."""
    references = {}
    for number, (changes, strategy, ranks, more) in enumerate(runs):
        kind = changes.get("finetuning_type", "dora" if "use_dora" in changes else "lora") + str(changes.get("quantization_bit", ""))
        if kind not in references:
            out = references[kind] = tmp / kind
            mpirun(1, [qft, "train", write(tmp / "r.yaml", {**settings, **changes, "output_dir": str(out)})])
        out = tmp / f"{number}"
        run_file = write(tmp / "r.yaml", {**settings, **changes, **more, "strategy": strategy, "output_dir": str(out)})
        mpirun(ranks, [qft, "train", run_file])
        name = f"{model} {kind} {strategy} on {ranks} ranks"
        for key in ("loss", "grad_norm", "eval_loss"):
            report.check(f"{name}: {key}", relative(log_of(out), log_of(references[kind]), key), 1e-10)
        report.check(f"{name}: weights", worst(weights(out), weights(references[kind])), 1e-9 if kind == "full" else 1e-6)
    return references


def main():
    args = arguments()
    qft = args.build / "bin/qft"
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp, "qwen3", samples=26), "save_steps": 4, "val_size": 0.2, "eval_strategy": "steps", "eval_steps": 4}
        references = compare(report, qft, tmp, settings, RUNS, "qwen3")
        sparse = tmp / "sparse"
        compare(report, qft, sparse, {**settings, **make(sparse, "qwen3_5_moe", samples=26)}, SPARSE_RUNS, "qwen3_5_moe")

        gptq = tmp / "gptq"
        stored_settings = {**settings, **make(gptq, "qwen3", samples=26)}
        stored_files.convert(gptq / "model", lambda weight: stored_files.gptq_tensors(weight, act_order=True), stored_files.gptq_config(act_order=True))
        compare(report, qft, gptq, stored_settings, STORED_RUNS, "qwen3 in GPTQ")

        # From a full zero3 run on 4 ranks: to the end of step 4 elsewhere, and on from there.
        source = tmp / f"{len(RUNS) - 1}"
        saved = load_file(source / "checkpoint-4/model.safetensors")
        for strategy, ranks in [("ddp", 2), ("zero2", 3), ("zero3", 1)]:
            out = tmp / f"elsewhere-{strategy}"
            cut(source, out, 4)
            run_file = write(tmp / "r.yaml", {**settings, **FULL, "strategy": strategy, "output_dir": str(out), "max_steps": 4,
                                              "eval_strategy": "no", "val_size": 0.2})
            mpirun(ranks, [qft, "train", run_file])
            report.equal(f"resumed with {strategy} on {ranks} ranks: weights differ by", worst(weights(out), saved), 0)
        out = tmp / "on"
        cut(source, out, 4)
        run_file = write(tmp / "r.yaml", {**settings, **FULL, "strategy": "zero2", "output_dir": str(out)})
        mpirun(3, [qft, "train", run_file])
        for key in ("loss", "grad_norm"):
            report.check(f"resumed with zero2 on 3 ranks: {key} to the end", relative(log_of(out), log_of(references["full"]), key), 1e-10)
    report.finish()


main()
