#!/usr/bin/env python3
"""The kernels of a training step on a GPU, by each build: how often each runs and how long.

    python3 bench/kernel_times.py --library kernel_times.so --builds BUILD... --model MODEL [--case lora-bf16-2048] [--keep FOLDER]

bench/kernel_times.cpp makes the library. A step's figures are the difference of a run of six steps and one of two. FOLDER keeps every
record: start in ns, duration in ns, stream, grid or bytes, name.
"""

import argparse
import collections
import os
import pathlib
import tempfile

from train import CASES, Bench, run_measured, write_run_file

STEPS = (2, 6)


def records(bench, build, library, steps, path):
    settings = write_run_file(bench.folder, {**bench.settings, "max_steps": steps})
    run_measured([build / "bin/qft", "train", settings], {"CUDA_INJECTION64_PATH": str(library), "KERNEL_TIMES": str(path)})
    lines = [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []
    return [(line[4], int(line[1])) for line in lines if len(line) == 5]


def of_a_step(bench, build, library, keep):
    """Name -> (calls, microseconds) of a step, and a text if there are no records."""
    totals = []
    for steps in STEPS:
        total = collections.defaultdict(lambda: [0, 0])
        for name, nanos in records(bench, build, library, steps, keep / f"{build.name}.{bench.case_name}.{steps}.tsv"):
            total[name][0] += 1
            total[name][1] += nanos
        totals.append(total)
    few, many = totals
    count = STEPS[1] - STEPS[0]
    return {name: ((many[name][0] - few[name][0]) / count, (many[name][1] - few[name][1]) / count / 1000) for name in many}


def by_profiler(bench, build, keep):
    """Without records: Nsight Compute's, in a table of its own. It runs kernels one at a time."""
    settings, table = write_run_file(bench.folder, {**bench.settings, "max_steps": STEPS[0]}), keep / f"{build.name}.ncu.csv"
    print(f"no records: does libcupti lie in LD_LIBRARY_PATH? Nsight Compute's are in {table.name}", flush=True)
    run_measured(["ncu", "--clock-control", "none", "--cache-control", "none", "--metrics", "gpu__time_duration.sum", "--csv", "--launch-count", "1500",
                  "--log-file", table, build / "bin/qft", "train", settings])


def short(name):
    return name.replace("void ", "").replace("at::native::", "").split("(")[0][:100]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--builds", type=pathlib.Path, nargs="+", required=True, help="those that do not exist are left out")
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--case", choices=list(CASES), default="lora-bf16-2048")
    parser.add_argument("--keep", type=pathlib.Path)
    args = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        keep = (args.keep or scratch).resolve()
        keep.mkdir(parents=True, exist_ok=True)
        bench = Bench(args.builds[0].resolve(), args.model, CASES[args.case], STEPS[1], scratch, "cuda")
        bench.case_name = args.case
        for build in filter(pathlib.Path.exists, args.builds):
            step = {name: figures for name, figures in of_a_step(bench, build.resolve(), args.library.resolve(), keep).items() if figures[0] > 0}
            print(f"## {build}: {sum(n for n, _ in step.values()):.0f} kernels and copies a step, {sum(us for _, us in step.values()) / 1000:.2f} ms\n"
                  f"| calls a step | us a step | us a call | kernel |\n|---|---|---|---|")
            for name, (calls, micros) in sorted(step.items(), key=lambda item: -item[1][1])[:60]:
                print(f"| {calls:.1f} | {micros:.1f} | {micros / calls:.1f} | {short(name)} |", flush=True)
            if not step:
                by_profiler(bench, build.resolve(), keep)


if __name__ == "__main__":
    main()
