#!/usr/bin/env python3
"""What it costs that ranks share matrices: training speed of two ranks with a thread each at tensor_parallel 2, beside one rank with two threads.

    .venv/bin/python bench/mesh.py [--rounds 5] [--shape 0.1b] [--json FILE]
    .venv/bin/python bench/mesh.py --ref BUILD    one rank of this build beside one of another: has it become slower?

LoRA and full fine-tuning in bf16, each micro-batch two rows of 1,024 tokens; weights are random. Both sides take turns within a round, and
change their order from round to round. Speed is a process's tokens by the seconds of its steps, the first two left out; a ratio is that of one
round. `exchange` is the share of a step in which rank 0 exchanges rows."""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/system"), str(ROOT / "tests/interop")]
from common import mpirun, run, write  # noqa: E402
from tiny import log_of, write_model, write_tokenizer  # noqa: E402

WARM_UP = 2  # steps
VOCABULARY = 49152
SHAPES = {"0.1b": {"hidden": 640, "intermediate": 2048, "layers": 16, "heads": 10, "kv_heads": 2, "head_dim": 64},
          "0.5b": {"hidden": 1024, "intermediate": 4096, "layers": 24, "heads": 16, "kv_heads": 4, "head_dim": 64}}
CASES = {"lora": {"finetuning_type": "lora", "lora_rank": 8, "lora_target": "all"}, "full": {"finetuning_type": "full"}}
LENGTH, ROWS = 1024, 2


class Bench:
    def __init__(self, folder, build, shape, steps):
        self.folder, self.steps = folder, steps
        write_model(folder / "model", positions=2 * LENGTH, vocab=VOCABULARY, **SHAPES[shape])
        write_tokenizer(folder / "model", VOCABULARY)
        text = "\n".join(" ".join(str(i * k) for k in range(60)) for i in range(40 * (steps + 1)))
        (folder / "texts.json").write_text(json.dumps([{"text": text}]))
        (folder / "dataset_info.json").write_text(json.dumps({"texts": {"file_name": "texts.json", "columns": {"prompt": "text"}}}))
        self.settings = {
            "model_name_or_path": str(folder / "model"), "stage": "pt", "do_train": True, "dataset": "texts", "dataset_dir": str(folder),
            "template": "smollm2", "cutoff_len": LENGTH, "per_device_train_batch_size": ROWS, "global_batch_size": ROWS, "max_steps": steps,
            "num_train_epochs": 1000, "learning_rate": 1e-4, "logging_steps": 1, "save_strategy": "no", "bf16": True,
            "gradient_checkpointing": False, "overwrite_output_dir": True, "output_dir": str(folder / "out")}
        pack = folder / "train.h5"
        run([build / "bin/qft-pack", write(folder / "pack.yaml", self.settings), "--output", pack])
        self.settings["pack"] = str(pack)

    def speed(self, build, case, ranks, threads):
        """Tokens a second, and the share of the steps that exchanges take."""
        degrees = {"tensor_parallel": ranks} if ranks > 1 else {}  # an older build may not know the key
        file = write(self.folder / "run.yaml", {**self.settings, **CASES[case], **degrees})
        mpirun(ranks, ["env", f"OMP_NUM_THREADS={threads}", build / "bin/qft", "train", file])
        steps = [entry for entry in log_of(self.folder / "out") if "loss" in entry]
        tokens = [b["total_tokens"] - a["total_tokens"] for a, b in zip(steps, steps[1:])][WARM_UP - 1:]
        seconds = [n / entry["throughput"] for n, entry in zip(tokens, steps[WARM_UP:])]
        exchange = sum(entry["seconds"].get("exchange", 0.0) for entry in steps[WARM_UP:])
        return sum(tokens) / sum(seconds), exchange / sum(seconds)


def compare(bench, case, ours, theirs, rounds):
    """ours, theirs: build, ranks, threads."""
    speeds, shares = {"ours": [], "theirs": []}, []
    for number in range(rounds):
        sides = [("ours", ours), ("theirs", theirs)]
        for name, (build, ranks, threads) in sides if number % 2 else sides[::-1]:
            speed, share = bench.speed(build, case, ranks, threads)
            speeds[name].append(speed)
            shares += [share] if name == "ours" else []
    ratios = [a / b for a, b in zip(speeds["ours"], speeds["theirs"])]
    print(f"| {case} | {statistics.median(speeds['ours']):.0f} | {statistics.median(speeds['theirs']):.0f} | {statistics.median(ratios):.3f} "
          f"| {min(ratios):.3f} to {max(ratios):.3f} | {statistics.median(shares):.0%} |", flush=True)
    return {"ours": speeds["ours"], "theirs": speeds["theirs"], "ratios": ratios, "exchange": shares}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--ref", type=pathlib.Path, metavar="BUILD", help="another build, beside which one rank of this one runs")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--shape", choices=list(SHAPES), default="0.1b")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6, help=f"of a process, the first {WARM_UP} not counted")
    parser.add_argument("--json", type=pathlib.Path, help="also writes the figures there")
    args = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    ours = (args.build.resolve(), 1, 2) if args.ref else (args.build.resolve(), 2, 1)
    theirs = ((args.ref or args.build).resolve(), 1, 2)
    print(f"{'one rank, two threads' if args.ref else 'two ranks, a thread each'}: {args.build}; beside one rank, two threads: {args.ref or args.build}\n")
    print("| case | tokens/s | tokens/s of the other | ratio of each round, median | range | exchange |\n|---|---|---|---|---|---|")
    figures = {}
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(pathlib.Path(scratch), args.build.resolve(), args.shape, args.steps)
        for case in args.cases:
            figures[case] = compare(bench, case, ours, theirs, args.rounds)
    if args.json:
        args.json.write_text(json.dumps({"shape": args.shape, "threads": 2, "cases": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
