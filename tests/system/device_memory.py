"""Memory of a device: what a run is predicted to take is the peak that the simulated device's allocator counts, in all and by part."""
import json
import os
import tempfile
from pathlib import Path

from common import Report, arguments, mpirun
from tiny import DELTA_NET, make, write, write_model, write_tokenizer

MB = 10**6
FULL = {"finetuning_type": "full", "global_batch_size": 4}
LORA = {"finetuning_type": "lora", "lora_rank": 8, "per_device_train_batch_size": 2, "global_batch_size": 8}
KEPT = {"gradient_checkpointing": False}
OFFLOADED = {"offload_optimizer": "cpu", "offload_param": "cpu"}
# Masters on the device, weights of the same type in host memory: two copies.
WEIGHTS_OFFLOADED = {"bf16": False, "pure_bf16": True, "offload_param": "cpu"}
CASES = [("ddp", 1, FULL), ("zero2", 2, FULL | KEPT), ("zero3", 2, FULL), ("zero3", 2, FULL | OFFLOADED), ("zero3", 2, FULL | WEIGHTS_OFFLOADED),
         ("ddp", 1, LORA), ("zero1", 2, LORA | KEPT),
         ("zero3", 2, LORA), ("zero3", 1, LORA | OFFLOADED)]
# Gated delta nets over 4 rows of 2,048 tokens: what their gates and norms take is more than all else.
WIDE = {"linear_num_key_heads": 8, "linear_num_value_heads": 16, "linear_key_head_dim": 16, "linear_value_head_dim": 64}
BATCH = {"per_device_train_batch_size": 4, "global_batch_size": 4}
LONG = {"compute_dtype": "auto", "cutoff_len": 2048, "max_steps": 1}


def main():
    args = arguments()
    report = Report()
    os.environ |= {"QFT_DEVICE": "sim", "QFT_BACKEND_PATH": str(args.build / "tests")}
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        # Rows are full, so that each micro-batch is as large as the plan says.
        settings = make(tmp, samples=200) | {"packing": True, "cutoff_len": 128, "max_steps": 2, "save_strategy": "no", "compute_dtype": "auto", "bf16": True}
        write_model(tmp / "model", hidden=256, intermediate=768, layers=4, heads=4, kv_heads=2, head_dim=64, positions=512, vocab=8192)
        write_tokenizer(tmp / "model", 8192)
        DELTA_NET.update(WIDE)
        (tmp / "hybrid").mkdir()
        hybrid = settings | make(tmp / "hybrid", "qwen3_5", samples=400, hidden=64, head_dim=32, positions=2048) | LONG
        cases = [(*case, settings) for case in CASES] + [("ddp", 1, changes | BATCH, hybrid) for changes in (FULL, LORA | KEPT)]
        for i, (strategy, ranks, changes, settings) in enumerate(cases):
            out = tmp / str(i)
            mpirun(ranks, [args.build / "bin/qft", "train", write(tmp / f"{i}.yaml", {**settings, **changes, "strategy": strategy, "output_dir": str(out)})])
            results = json.loads((out / "train_results.json").read_text())
            words = [*(["hybrid"] if settings is hybrid else []), changes["finetuning_type"], *(["nothing recomputed"] if KEPT.items() <= changes.items() else []),
                     *(["offloaded"] if OFFLOADED.items() <= changes.items() else []),
                     *(["weights offloaded"] if WEIGHTS_OFFLOADED.items() <= changes.items() else [])]
            off = results["memory_predicted"] / results["memory_peak"] - 1
            report.check(f"{strategy} on {ranks}, {', '.join(words)}: peak {results['memory_peak'] / MB:.1f} MB, predicted off by {off:+.1%}",
                         abs(off), 0.1)
    report.finish()


main()
