"""What trains x the base's format x optimizer x strategy x {dense, experts and delta nets}: each on two ranks gives the numbers and files of
one rank in fp64, or is refused with a reason.

    matrix.py --build build [--part N] [--pairs K] [--only PATTERN] [--jobs N] [--write]

--part N takes every N-th cell, --pairs K so many of each one's six pairs of model and strategy, --jobs N cells at a time; --write makes
docs/matrix.md anew."""
import argparse
import itertools
import queue
import re
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

import stored_files as stored
from common import ROOT, Report, mpirun, run
from tiny import log_of, make, write

PAGE = ROOT / "docs/matrix.md"
TRAINS = {"`full`": {"finetuning_type": "full"},
          "`freeze`": {"finetuning_type": "freeze", "freeze_trainable_layers": 1, "freeze_extra_modules": "embed_tokens", "neftune_noise_alpha": 5},
          "`lora`": {"lora_target": "all", "lora_rank": 64},  # with factors large enough for moments of 8 bits
          "`lora`, DoRA": {"lora_target": "q_proj,k_proj,v_proj,o_proj", "use_dora": True, "lora_rank": 64},
          "`lora`, PiSSA": {"lora_target": "q_proj,k_proj,v_proj,o_proj", "pissa_init": True, "pissa_convert": True, "lora_rank": 16},
          "`oft`": {"finetuning_type": "oft", "oft_target": "q_proj,k_proj,v_proj,o_proj", "oft_block_size": 12},
          "`oft`, shared blocks, Cayley's transform": {"finetuning_type": "oft", "oft_target": "q_proj,k_proj,v_proj,o_proj", "oft_rank": 6, "oft_block_size": 0,
                                                      "block_share": True, "use_cayley_neumann": False},
          "`lora`, LoRA+ and modules in full": {"lora_target": "all", "additional_target": "embed_tokens,norm", "loraplus_lr_ratio": 4}}
# A base quantised as it is read, or by its files.
QUANTISED = {"nf4": {"quantization_bit": 4}, "fp4, fp32 scales": {"quantization_bit": 4, "quantization_type": "fp4", "double_quantization": False},
             "int8": {"quantization_bit": 8}, "fp8": {"quantization_bit": 8, "quantization_method": "fp8"}}
STORED = {"bitsandbytes' files": (stored.bitsandbytes_tensors, stored.bitsandbytes_config()),
          "fp8 files, tiles": (lambda w: stored.fp8_tensors(w, 16), stored.fp8_config(16)),
          "GPTQ's files, 4 bits in act order": (lambda w: stored.gptq_tensors(w, group=24, act_order=True), stored.gptq_config(group=24, act_order=True)),
          "GPTQ's files, 8 bits": (lambda w: stored.gptq_tensors(w, bits=8, group=24), stored.gptq_config(bits=8, group=24)),
          "AWQ's files": (lambda w: stored.awq_tensors(w, group=24), stored.awq_config(group=24))}
BASES = {"16 bits or more": {}, **QUANTISED, **dict.fromkeys(STORED, {})}
OPTIMIZERS = {"adamw_torch": {}, "adamw_8bit": {}, "adafactor": {}, "muon": {}, "galore_adamw": {"galore_rank": 5, "galore_update_interval": 2},
              "apollo_adamw": {"apollo_rank": 5, "apollo_update_interval": 2},
              "lion_32bit": {"learning_rate": 1e-4}, "sgd": {"optim_args": "momentum=0.9", "learning_rate": 1e-2}}
STRATEGIES = ("ddp", "zero2", "zero3")
MODELS = {"dense": "qwen3", "experts": "qwen3_5_moe"}
PAIRS = list(itertools.product(MODELS, STRATEGIES))
SETTINGS = {"learning_rate": 1e-3, "weight_decay": 0.1, "lr_scheduler_type": "constant", "warmup_ratio": 0, "max_grad_norm": 0.5, "max_steps": 3, "global_batch_size": 3,
            "save_strategy": "no", "overwrite_output_dir": True, "moe_aux_loss_coef": 0.01, "lora_dropout": 0.1}
EQUAL = {"loss": 1e-10, "grad_norm": 1e-9}  # relative
WEIGHTS = 1e-6  # files have fp32

NO_REFUSAL = ""


class Runs:
    """Models in `directory`, and what runs of them left."""

    def __init__(self, build, directory):
        self.qft, self.directory, self.made = build / "bin/qft", directory, {}

    def settings(self, base, model):
        """Of a model whose files are so."""
        name = f"{model}-{list(BASES).index(base) if base in STORED else 0}"
        if name not in self.made:
            # Rows and columns that neither ranks nor blocks divide.
            settings = {**make(self.directory / name, MODELS[model], samples=9, hidden=72, intermediate=104), **SETTINGS}
            if base in STORED:
                stored.convert(self.directory / name / "model", *STORED[base], fits=stored.fills_words)
            run([self.qft.parent / "qft-pack", write(self.directory / "run.yaml", settings), "--output", self.directory / f"{name}.h5"])
            self.made[name] = {**{k: v for k, v in settings.items() if k != "dataset"}, "pack": str(self.directory / f"{name}.h5")}
        return self.made[name]

    def train(self, cell, model, ranks, strategy="ddp"):
        """The output directory, and why it was refused."""
        trains, base, optimizer = cell
        settings = {**self.settings(base, model), **TRAINS[trains], **BASES[base], "optim": optimizer, **OPTIMIZERS[optimizer], "strategy": strategy}
        out = self.directory / f"{ranks}"
        shutil.rmtree(out, ignore_errors=True)
        result = mpirun(ranks, [self.qft, "train", write(self.directory / "run.yaml", {**settings, "output_dir": str(out)})], check=False)
        if result.returncode == 0:
            return out, NO_REFUSAL
        error = re.search(r"^error: (.*)", result.stdout + result.stderr, re.M)
        text = error[1] if error and result.returncode == 2 else f"exit code {result.returncode}: {(result.stdout + result.stderr)[-1500:]}"
        return None, re.sub(r"'\S*/model'", "the model", re.sub(r"\S*run\.yaml:\d+: ", "", text))


def differences(ours, one):
    """The quantity that differs most in units of what it may, and how much that is."""
    a, b = log_of(ours), log_of(one)
    found = {key: max(abs(x[key] - y[key]) / abs(y[key]) for x, y in zip(a, b) if key in y) / limit for key, limit in EQUAL.items()}
    theirs, mine = (load_file(min(out.glob("*.safetensors"))) for out in (one, ours))
    assert theirs.keys() == mine.keys() and [len(a), len(b)] == [len(b), len(a)], f"{len(a)} lines, {len(b)} lines, {theirs.keys() ^ mine.keys()}"
    found["weights"] = max(np.abs(mine[k].astype(np.float64) - theirs[k]).max() for k in theirs) / WEIGHTS
    return max(found.items(), key=lambda item: item[1])


def all_cells():
    """A base in few bits does not train in full, and PiSSA takes nothing out of files in few bits: one cell says why."""
    for trains, base in itertools.product(TRAINS, BASES):
        refused = not re.search("lora|oft", trains) and list(BASES).index(base) > 0 or "PiSSA" in trains and base in STORED
        for optimizer in list(OPTIMIZERS)[:1] if refused else OPTIMIZERS:
            yield trains, base, optimizer


def page(results, pairs):
    """results: by cell what each pair said: whether it was equal, or why it was refused."""
    notes = list(dict.fromkeys(a for said in results.values() for a in said if isinstance(a, str)))

    def told(said):
        equal = sum(a is True for a in said)
        return " ".join(([str(equal)] if equal else []) + [f"[{notes.index(r) + 1}]" for r in dict.fromkeys(a for a in said if isinstance(a, str))])

    rows = [f"| {trains} | {base} | " + " | ".join(told(results.get((trains, base, o), [])) for o in OPTIMIZERS) + " |" for trains in TRAINS for base in BASES]
    return "\n".join([
        "# What goes with what", "",
        "Each cell is a combination of what trains, how the base weights are kept, and `optim`. Its number says for how many pairs of a",
        "strategy (ddp, zero2, zero3) and a model (dense; a hybrid one with experts) three steps in fp64 on two ranks gave the losses and gradient",
        "norms (relative differences of at most 1e-10 and 1e-9) and the written weights of one rank. Models are tiny, with sizes that ranks and",
        "blocks do not divide; a global batch is three samples, so that ranks have unequal parts of it. `freeze` trains the last layer and the",
        "embeddings, with NEFTune.", "",
        "`scripts/nightly_matrix.sh` runs all six pairs of each cell, " +
        ("as this page did, and `system.matrix` a few cells." if pairs == len(PAIRS) else
         f"`system.matrix` a few cells; this page took {pairs} a cell, so that a row has all of them."),
        "`scripts/nightly_matrix.sh build --write` makes it anew." if pairs == len(PAIRS) else f"`scripts/nightly_matrix.sh build --pairs {pairs} --write` makes it anew.", "",
        f"| trains | base | {' | '.join(f'`{o}`' for o in OPTIMIZERS)} |", "|---" * (2 + len(OPTIMIZERS)) + "|", *rows, "",
        *[f"[{i + 1}] {note}\n" for i, note in enumerate(notes)]]).rstrip() + "\n"


def compare(runs, report, cell, pairs):
    """What each pair of model and strategy said."""
    said = []
    for model, of_model in itertools.groupby(pairs, key=lambda pair: pair[0]):
        name = ", ".join((*cell, model))
        one, reason = runs.train(cell, model, 1)
        if one is None:
            report.holds(f"{name}: refused, and says why", "quantised" in reason, reason)
            return [*said, reason]
        for _, strategy in of_model:
            two, reason = runs.train(cell, model, 2, strategy)
            if two is None:
                report.equal(f"{name}, {strategy}: refused", reason, NO_REFUSAL)
                said.append(False)
                continue
            key, of_limit = differences(two, one)
            report.check(f"{name}, {strategy}: {key} over what it may differ", of_limit, 1)
            said.append(of_limit <= 1)
    return said


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--part", type=int, default=1, help="take every N-th cell")
    parser.add_argument("--pairs", type=int, default=len(PAIRS), help="of a cell, in turn")
    parser.add_argument("--only", default="", help="cells whose words match")
    parser.add_argument("--jobs", type=int, default=1, help="cells at a time: two cores each")
    parser.add_argument("--write", action="store_true", help=f"make {PAGE.name} anew")
    args = parser.parse_args()
    report, turn = Report(), itertools.cycle(PAIRS)
    cells = [cell for cell in all_cells() if re.search(args.only, ", ".join(cell))][::args.part]
    pairs = [sorted(itertools.islice(turn, args.pairs)) for _ in cells]
    with tempfile.TemporaryDirectory() as tmp, ThreadPoolExecutor(args.jobs) as pool:
        free = queue.SimpleQueue()  # folders of their own
        for job in range(args.jobs):
            (Path(tmp) / str(job)).mkdir()
            free.put(Runs(args.build, Path(tmp) / str(job)))

        def work(cell, of_cell):
            runs = free.get()
            try:
                return compare(runs, report, cell, of_cell)
            finally:
                free.put(runs)

        try:
            results = dict(zip(cells, pool.map(work, cells, pairs)))
        finally:
            pool.shutdown(cancel_futures=True)
    made = page(results, args.pairs)
    if args.write:
        PAGE.write_text(made)
    elif args.part == 1 and not args.only:
        reasons = [[line for line in text.splitlines() if line.startswith("[")] for text in (made, PAGE.read_text())]
        report.equal(f"{PAGE.name} has the same reasons", *reasons)
    report.finish()


if __name__ == "__main__":
    main()
