"""Every operation of a LoRA step on the simulated device, which logs them (QFT_SIM_LOG): products get operands that are aligned to
16 bytes, for any number of tokens, because a GPU's fast kernels need that.

    .venv/bin/python tests/system/products.py --build build [--table]     --table: how many operations a layer queues, by name
"""
import argparse
import collections
import json
import os
import tempfile
from pathlib import Path
from unittest import mock

import tiny
from common import ROOT, Report, mpirun
from tiny import make, write

KINDS = {"dense": "qwen3", "experts": "qwen3_moe", "hybrid with experts": "qwen3_5_moe"}
BYTES = {"BFloat16": 2, "Half": 2, "Float": 4}
SHAPE = {"hidden": 64, "intermediate": 96, "head_dim": 16}
SETTINGS = {"max_steps": 1, "save_strategy": "no", "overwrite_output_dir": True, "global_batch_size": 1, "compute_dtype": "auto", "bf16": True,
            "lora_rank": 8, "lora_target": "all", "lora_dropout": 0.0}


def operations(build, kind, layers=2):
    """Of one micro-batch and its step. Widths are multiples of 8, as real models have them; the number of tokens is not."""
    with tempfile.TemporaryDirectory() as tmp, mock.patch.dict(tiny.EXPERTS, num_experts=8), mock.patch.dict(tiny.DELTA_NET, linear_num_value_heads=8):
        settings = make(tmp, kind, layers=layers, **SHAPE) | SETTINGS
        log = Path(tmp) / "operations.jsonl"
        with mock.patch.dict(os.environ, {"QFT_DEVICE": "sim", "QFT_BACKEND_PATH": str(build / "tests"), "QFT_SIM_LOG": str(log)}):
            mpirun(1, [build / "bin/qft", "train", write(Path(tmp) / "run.yaml", settings)])
        return [json.loads(line) for line in log.read_text().splitlines()]


def is_product(operation):
    return any(word in operation["operation"] for word in ("mm", "matmul"))


def unaligned(operand):
    """A matrix that does not start at a multiple of 16 bytes, or whose rows do not."""
    sizes, strides, size = operand["sizes"], operand["strides"], BYTES.get(operand["type"])
    if size is None or len(sizes) < 2 or min(sizes) <= 1:  # fp64, which has no such kernels; a vector
        return False
    return operand["aligned"] < 16 or min(strides[-2:]) != 1 or max(strides[-2:]) * size % 16 != 0


def text(operation):
    return operation["operation"] + "".join(f" {o['type']} {o['sizes']} by {o['strides']} at {o['aligned']}" for o in operation["operands"])


def table(build):
    for name, kind in KINDS.items():
        few, many = (collections.Counter(o["operation"] for o in operations(build, kind, layers)) for layers in (2, 4))
        each = {operation: (many[operation] - few[operation]) / 2 for operation in many}
        products = sum(n for operation, n in each.items() if is_product({"operation": operation}))
        print(f"{name}: {sum(each.values()):.1f} operations a layer, {products:.1f} of them products")
        print("  " + ", ".join(f"{operation} {n:g}" for operation, n in sorted(each.items(), key=lambda item: -item[1]) if n))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if args.table:
        table(args.build)
        return
    report = Report()
    for name, kind in KINDS.items():
        all_of_them = operations(args.build, kind)
        products = [o for o in all_of_them if is_product(o)]
        report.holds(f"{name}: the log has its products", len(products) > 50, len(products))
        report.equal(f"{name}: products with unaligned operands", sorted({text(o) for o in products if any(map(unaligned, o["operands"]))}), [])
    report.finish()


main()
