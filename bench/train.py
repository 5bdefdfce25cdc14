#!/usr/bin/env python3
"""Training speed and peak memory, qft and Hugging Face (transformers, PEFT) side by side on the same tokens.

    .venv/bin/python bench/train.py [--cases lora-bf16-512 ...] [--rounds 3] [--json FILE]
    .venv/bin/python bench/train.py --against BUILD ...    beside another build of qft instead: has it become slower? (--device cuda too)
    .venv/bin/python bench/train.py --cpu-time ...         one thread each, and its processor time for the wall's

On a machine with other work the processor time is what that disturbs least. qft's is the difference of a whole run and one of
the first two steps alone.

Each round runs, case by case, qft, HF as it comes, and HF tuned (malloc thresholds, matmul precision "medium") one after another, as
processes of their own with as many threads. Speed is the median over rounds and steps, the first two steps of a process
left out; memory the largest resident set of a process. "of roofline" is qft's share of the speed that the matrix products of
the model alone would have, measured in the same rounds (bench_ops roofline). The tokens are SmolLM2's, of the question and answer data in
examples/data; `blocks` are single sequences of that length, `packed` are rows of whole samples, `samples` are batches of 4, `dpo` batches of 2 preference pairs.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
WARM_UP = 2  # steps
TUNED = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**31)}


@dataclasses.dataclass
class Case:
    finetuning: str
    precision: str
    length: int
    data: str = "blocks"
    dropout: float = 0.0
    checkpointing: bool = False
    dora: bool = False
    nf4: bool = False  # the base in nf4 with double quantisation, as bitsandbytes has it
    peer_collate: str | None = "padded"  # None: nothing to compare with
    blocks: int = 1  # of a step

    @property
    def batch(self):
        return {"samples": 4, "pairs": 2}.get(self.data, self.blocks)

    @property
    def uneven(self):
        """Batches have no one length."""
        return self.data in ("samples", "pairs")


CASES = {
    "lora-bf16-512": Case("lora", "bf16", 512),
    "lora-bf16-512-dropout": Case("lora", "bf16", 512, dropout=0.05),
    "lora-bf16-512-dora": Case("lora", "bf16", 512, dora=True),
    "lora-bf16-512-nf4": Case("lora", "bf16", 512, nf4=True),
    "lora-bf16-2048": Case("lora", "bf16", 2048),
    "lora-bf16-2043": Case("lora", "bf16", 2043),  # no multiple of 8
    "lora-bf16-4x2048": Case("lora", "bf16", 2048, blocks=4),
    "lora-bf16-8x2048": Case("lora", "bf16", 2048, blocks=8),
    "lora-bf16-2048-nf4": Case("lora", "bf16", 2048, nf4=True),
    "lora-bf16-2048-dora": Case("lora", "bf16", 2048, dora=True),
    "lora-bf16-2048-dropout": Case("lora", "bf16", 2048, dropout=0.05),
    "lora-bf16-2048-checkpointing": Case("lora", "bf16", 2048, checkpointing=True),
    "lora-bf16-512-checkpointing": Case("lora", "bf16", 512, checkpointing=True),
    "lora-bf16-8192-checkpointing": Case("lora", "bf16", 8192, checkpointing=True),
    "lora-fp32-512": Case("lora", "fp32", 512),
    "lora-fp32-2048": Case("lora", "fp32", 2048),
    "full-pure_bf16-512": Case("full", "pure_bf16", 512),
    "full-pure_bf16-2048": Case("full", "pure_bf16", 2048),
    "full-bf16-512": Case("full", "bf16", 512),
    "full-fp32-512": Case("full", "fp32", 512),
    "full-bf16-512-checkpointing": Case("full", "bf16", 512, checkpointing=True),
    "lora-bf16-2048-packed": Case("lora", "bf16", 2048, data="packed", peer_collate=None),
    "lora-bf16-dpo": Case("lora", "bf16", 1024, data="pairs"),
    "samples-padded": Case("lora", "bf16", 2048, data="samples"),
    "samples-padding-free": Case("lora", "bf16", 2048, data="samples", peer_collate="flat"),
}


def run_measured(command, env=None):
    """Runs a process; returns (stdout, peak resident set in bytes, processor seconds)."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, **(env or {})})
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if process.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\nexit code {process.returncode}\n{err.read().decode()[-3000:]}")
        return out.read().decode(), usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime


def write_run_file(folder, settings):
    """JSON is YAML."""
    path = folder / "run.yaml"
    path.write_text(json.dumps({key: str(value) if isinstance(value, pathlib.Path) else value for key, value in settings.items()}))
    return path


def write_data(folder, case, steps):
    """A data set of enough tokens; returns the settings that name it."""
    records = []
    for file in sorted((ROOT / "examples/data").glob("*train*.json*")):
        text = file.read_text()
        records += [json.loads(line) for line in text.splitlines()] if file.suffix == ".jsonl" else json.loads(text)
    rng = random.Random(1)
    if case.data == "blocks":
        texts, size = [], 0
        while size < 8 * case.length * (case.batch * steps + 1):  # bytes; a token has about four
            record = rng.choice(records)
            texts.append("\n".join(str(value) for value in record.values() if isinstance(value, str)))
            size += len(texts[-1])
        (folder / "d.json").write_text(json.dumps([{"text": "\n".join(texts)}]))
        columns = {"columns": {"prompt": "text"}}
        settings = {"stage": "pt"}
    elif case.data == "pairs":
        answers = lambda: " ".join(rng.choice(records)["output"] for _ in range(rng.randint(2, 12)))  # noqa: E731
        (folder / "d.json").write_text(json.dumps([{"instruction": rng.choice(records)["instruction"], "chosen": answers(),
                                                    "rejected": answers()} for _ in range(case.batch * steps)]))
        columns = {"ranking": True, "columns": {"prompt": "instruction", "chosen": "chosen", "rejected": "rejected"}}
        settings = {"stage": "dpo", "pref_loss": "sigmoid", "pref_beta": 0.1}
    else:
        count = case.batch * steps if case.data == "samples" else 40 * steps
        (folder / "d.json").write_text(json.dumps([rng.choice(records) for _ in range(count)]))
        columns = {}
        settings = {"stage": "sft", "train_on_prompt": True, "packing": case.data == "packed"}
    (folder / "dataset_info.json").write_text(json.dumps({"d": {"file_name": "d.json", **columns}}))
    return {**settings, "dataset": "d", "dataset_dir": folder, "template": "smollm2", "cutoff_len": case.length}


class Bench:
    def __init__(self, build, model, case, steps, folder, device="cpu", experts=None, cpu_time=False):
        self.cpu_time = cpu_time
        self.case, self.steps, self.folder, self.device, self.experts = case, steps, folder, device, experts
        self.build, self.model = build, model
        settings = write_data(folder, case, steps)
        settings["model_name_or_path"] = model
        self.pack, items = folder / "p.h5", folder / "items.jsonl"
        run_measured([build / "bin/qft-pack", write_run_file(folder, settings), "--output", self.pack])
        lines, *_ = run_measured([build / "bin/qft-pack", "export", self.pack])
        kept = [line for line in lines.splitlines() if case.data != "blocks" or len(json.loads(line)["ids"]) == case.length]
        items.write_text("\n".join(json.dumps(self.with_labels(json.loads(line))) for line in kept[: steps * case.batch]) + "\n")
        self.items = items
        self.settings = {
            **settings, "pack": self.pack, "do_train": True, "finetuning_type": case.finetuning, "lora_rank": 8,
            "lora_target": "all", "lora_dropout": case.dropout, **({"use_dora": True} if case.dora else {}),
            **({"quantization_bit": 4, "quantization_method": "bnb"} if case.nf4 else {}), "per_device_train_batch_size": case.batch,
            "gradient_accumulation_steps": 1, "max_steps": steps, "num_train_epochs": 100, "learning_rate": 1e-4,
            "logging_steps": 1, "save_strategy": "no", "gradient_checkpointing": case.checkpointing,
            "bf16": case.precision == "bf16", "pure_bf16": case.precision == "pure_bf16",
            "overwrite_output_dir": True, "output_dir": folder / "out"}

    @staticmethod
    def with_labels(item):  # in stage pt everything is a label
        if "chosen" in item:
            return item
        return {"ids": item["ids"], "label_spans": item.get("label_spans", [[0, len(item["ids"])]])}

    def qft(self, build=None):
        command = [(build or self.build) / "bin/qft", "train"]
        _, memory, seconds = run_measured([*command, write_run_file(self.folder, self.settings)])
        entries = [json.loads(line) for line in (self.folder / "out/trainer_log.jsonl").read_text().splitlines()]
        if self.cpu_time:
            *_, first = run_measured([*command, write_run_file(self.folder, {**self.settings, "max_steps": WARM_UP})])
            return self.case.batch * self.case.length * (self.steps - WARM_UP) / (seconds - first), memory
        steps = [entry for entry in entries if "loss" in entry]
        if self.case.uneven:
            counts = [entry["total_tokens"] for entry in steps]
            tokens = [after - before for before, after in zip(counts, counts[1:])][WARM_UP - 1:]
            return sum(tokens) / sum(n / e["throughput"] for n, e in zip(tokens, steps[WARM_UP:])), memory
        speeds = [entry["throughput"] for entry in steps[WARM_UP:]]
        return statistics.median(speeds), max(max(e["memory"]) for e in entries) if self.device == "cuda" else memory

    def peer(self, tuned):
        case = self.case
        command = [sys.executable, ROOT / "bench/hf_train.py", "--model", self.model, "--items", self.items, "--finetuning",
                   case.finetuning, "--precision", case.precision, "--dropout", str(case.dropout), "--batch", str(case.batch),
                   "--collate", case.peer_collate, "--device", self.device]
        command += ["--checkpointing"] if case.checkpointing else []
        command += ["--dora"] if case.dora else []
        command += ["--nf4"] if case.nf4 else []
        command += ["--pairs"] if case.data == "pairs" else []
        command += ["--experts", self.experts] if self.experts else []
        out, memory, _ = run_measured(command + (["--tuned"] if tuned else []), TUNED if tuned else None)
        result = json.loads(out)
        memory = result["memory"] or memory
        steps = list(zip(result["tokens"], result["cpu_seconds" if self.cpu_time else "seconds"]))[WARM_UP:]
        if case.uneven:  # all tokens over all time
            return sum(t for t, _ in steps) / sum(s for _, s in steps), memory
        return statistics.median(t / s for t, s in steps), memory

    def add_round(self, sides):
        sides["qft"].append(self.qft())
        if self.case.peer_collate:
            sides["HF"].append(self.peer(tuned=False))
            if self.device == "cpu":
                sides["HF tuned"].append(self.peer(tuned=True))
        if self.device == "cpu" and not self.case.uneven:
            sides["roofline"].append((roofline(self.build, self.model, self.case), 0))


def work_of(model, tokens):
    """The products of a model's forward pass as bench_ops takes them: routers and the delta rule's own are left out, and experts
    have as many rows each."""
    c = json.loads((model / "config.json").read_text())
    hidden, layers, heads = c["hidden_size"], c["num_hidden_layers"], c["num_attention_heads"]
    kv_heads, dim = c.get("num_key_value_heads", heads), c.get("head_dim") or hidden // heads
    linear = sum(kind == "linear_attention" for kind in c.get("layer_types") or [])
    full, gates = layers - linear, 2 if linear else 1
    products = [(tokens, hidden, (gates * heads + 2 * kv_heads) * dim, full), (tokens, heads * dim, hidden, full)]
    if linear:
        keys = c["linear_num_key_heads"] * c["linear_key_head_dim"]
        values = c["linear_num_value_heads"] * c["linear_value_head_dim"]
        columns = 2 * keys + 2 * values + 2 * c["linear_num_value_heads"]
        products += [(tokens, hidden, columns, linear), (tokens, values, hidden, linear)]
    if experts := c.get("num_experts"):
        width, rows = c["moe_intermediate_size"], tokens * c["num_experts_per_tok"] // experts
        products += [(rows, hidden, 2 * width, experts * layers), (rows, width, hidden, experts * layers)]
    else:
        width = c["intermediate_size"]
        products += [(tokens, hidden, 2 * width, layers), (tokens, width, hidden, layers)]
    return [":".join(map(str, product)) for product in products] + [f"attention:{heads * dim}:{full}",
                                                                    f"head:{hidden}:{c['vocab_size']}"]


def roofline(build, model, case):
    """Tokens/s if a step took only the model's matrix products and attention at their rate."""
    dtype = "float" if case.precision == "fp32" else "bfloat16"
    out, *_ = run_measured([build / "bin/bench_ops", str(case.length), dtype, os.environ["OMP_NUM_THREADS"], "roofline",
                           *work_of(model, case.length)])
    seconds = json.loads(out)
    step = seconds["forward"] * (2 if case.checkpointing else 1) + seconds["input_gradients"]
    return case.length / (step + (seconds["weight_gradients"] if case.finetuning == "full" else 0))


def measure(args):
    """Yields each case's figures. All cases take their turns in every round, so that a machine that is slower for a while is slower for
    all of them."""
    with tempfile.TemporaryDirectory() as scratch:
        benches = {}
        for name in args.cases:
            folder = pathlib.Path(scratch) / name
            folder.mkdir()
            benches[name] = Bench(args.build, args.model, CASES[name], args.steps, folder, args.device, args.experts, args.cpu_time)
        runs = {name: {"qft": [], "HF": [], "HF tuned": [], "roofline": []} for name in args.cases}
        for _ in range(args.rounds):
            for name, bench in benches.items():
                bench.add_round(runs[name])
    for name, sides in runs.items():
        yield name, {side: {"tokens_per_second": statistics.median(speed for speed, _ in each), "memory": max(m for _, m in each)}
                     for side, each in sides.items() if each}


def compare(build, other, model, name, rounds, steps, device):
    """One row: both builds in turns, so that what else the machine does meets both alike; and both builds' losses."""
    speeds, losses, memory = {build: [], other: []}, {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(build, model, CASES[name], steps, pathlib.Path(scratch), device)
        for number in range(rounds):
            for side in (build, other) if number % 2 else (other, build):
                speed, memory[side] = bench.qft(side)
                speeds[side].append(speed)
                log = [json.loads(line) for line in (bench.folder / "out/trainer_log.jsonl").read_text().splitlines()]
                losses[side] = [(entry["loss"], entry["grad_norm"]) for entry in log if "loss" in entry]
    ratios = [ours / theirs for ours, theirs in zip(speeds[build], speeds[other])]
    cells = [name, f"{statistics.median(speeds[build]):.0f}", f"{statistics.median(speeds[other]):.0f}",
             f"{statistics.median(ratios):.3f}", f"{min(ratios):.3f} to {max(ratios):.3f}",
             f"{max(speeds[build]) / max(speeds[other]):.3f}"]
    figures = {"speeds": [speeds[build], speeds[other]], "memory": [memory[build], memory[other]],
               "loss and gradient norm": [losses[build], losses[other]]}
    return "| " + " | ".join(cells) + " |", figures


def row(name, sides):
    ours = sides["qft"]
    cells = [name, f"{ours['tokens_per_second']:.0f}", f"{ours['memory'] / 1e9:.2f}",
             f"{ours['tokens_per_second'] / sides['roofline']['tokens_per_second']:.0%}" if "roofline" in sides else ""]
    for peer in ("HF", "HF tuned"):
        if peer not in sides:
            cells += ["", "", ""]
            continue
        theirs = sides[peer]
        cells += [f"{theirs['tokens_per_second']:.0f}", f"{ours['tokens_per_second'] / theirs['tokens_per_second']:.2f}x",
                  f"{ours['memory'] / theirs['memory']:.2f}"]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models/smollm2")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--experts", help="transformers' experts_implementation, for a model with experts")
    parser.add_argument("--steps", type=int, default=8, help="of a process, the first two not counted")
    parser.add_argument("--cpu-time", action="store_true", help="one thread each; tokens a second of its processor time")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--against", type=pathlib.Path, metavar="BUILD", help="another build of qft, instead of Hugging Face")
    parser.add_argument("--json", type=pathlib.Path, help="also writes the figures there (--against: a line for each case)")
    args = parser.parse_args()
    args.cases = list(dict.fromkeys(args.cases))
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ.setdefault("OMP_NUM_THREADS", "1" if args.cpu_time else str(len(os.sched_getaffinity(0))))
    if args.cpu_time and (os.environ["OMP_NUM_THREADS"] != "1" or any(CASES[name].data != "blocks" for name in args.cases)):
        parser.error("--cpu-time is for one thread (OMP_NUM_THREADS=1) and cases of single sequences")
    if args.against:
        print("| case | tokens/s | tokens/s of the other | ratio of each round, median | range | best to best |\n|---|---|---|---|---|---|")
        for name in args.cases:
            line, figures = compare(args.build.resolve(), args.against.resolve(), args.model, name, args.rounds, args.steps, args.device)
            print(line, flush=True)
            if args.json:
                with args.json.open("a") as file:
                    file.write(json.dumps({"model": args.model.name, "case": name, **figures}) + "\n")
        return
    print("| case | qft tokens/s | GB | of roofline | HF tokens/s | qft/HF | memory | HF tuned tokens/s | qft/HF | memory |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    results = {}
    for name, sides in measure(args):
        results[name] = sides
        print(row(name, sides), flush=True)
    if args.json:
        figures = {"date": time.strftime("%Y-%m-%d"), "threads": int(os.environ["OMP_NUM_THREADS"]), "cases": results}
        args.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
