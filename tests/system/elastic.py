"""One run that goes from 1 to 2, 3, 4, 8 ranks and back to 1, under another strategy each time, and some by other optimizers: at each
hand-over weights and optimizer state keep their bits, and all takes the steps of the run that stayed where it was: the same samples in
each global batch, every sample once an epoch."""
import json
import re
import tempfile
from pathlib import Path

from common import ROOT, Report, arguments, mpirun, run
from tiny import cut, log_of, make, write

FIRST = 10  # steps on one rank: fewer are too few to leave updates out by loss_spike_factor
STAGES = [(1, "ddp", {}), (2, "zero1", {}), (3, "zero2", {}), (4, "zero3", {}), (8, "hsdp", {"hsdp_group_size": 4}), (1, "shard_grad_op", {})]
BY_LION = [(2, "zero3", {}), (3, "zero3", {}), (1, "ddp", {})]
BY_OTHERS = [(3, "zero3", {}), (2, "zero1", {})]
PLACES = {"adamw_torch": STAGES, "lion_32bit": BY_LION}  # of all other optimizers: BY_OTHERS
# The model has tensors large enough for moments of 8 bits, with blocks that the slices of ranks cut.
SETTINGS = {"lion_32bit": {"learning_rate": 1e-4}, "sgd": {"optim_args": "momentum=0.9", "learning_rate": 1e-2},
            "galore_adamw": {"galore_rank": 8, "galore_update_interval": 11}, "apollo_adamw": {"apollo_rank": 8, "apollo_update_interval": 11}}
SAMPLES, BATCH, EPOCH = 8, 3, 3  # steps an epoch


def optimizers(report, qft):
    """The first value of `optim` of each optimizer: docs/methods.md has a row for each, with the values of the same meaning."""
    value = re.search(r"^  value +one of (.+?)\n  default", run([qft, "help", "optim"]).stdout, re.M | re.S)[1]
    table = (ROOT / "docs/methods.md").read_text().partition("| `optim` |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`(\w+)`", cells) for cells in re.findall(r"^\| ([^|]+) \|", table, re.M)]
    rows = [names for names in rows if names]
    report.equal("docs/methods.md has the values of qft help optim", [name for names in rows for name in names], re.split(r",\s+", value))
    return [names[0] for names in rows]


def states_in(told):
    """The names of the states, masters included, in the output of qft-ckpt diff."""
    return sorted({t["name"].split(".")[0] for t in told["tensors"]} - {"model", "lm_head"})


def numbered_samples(directory):
    """The answer of sample i has 2^i digits, which are as many tokens, and two tokens at its end: label counts name the samples."""
    records = [{"instruction": "Say it", "input": "", "output": "7" * 2**i} for i in range(SAMPLES)]
    (directory / "data/numbers.json").write_text(json.dumps(records))


def samples_of(log):
    """Of each step, from its label tokens."""
    counts = [b["label_tokens"] - a["label_tokens"] for a, b in zip([{"label_tokens": 0}, *log], log)]
    last = SAMPLES - (EPOCH - 1) * BATCH
    return [count - 2 * (last if step % EPOCH == EPOCH - 1 else BATCH) for step, count in enumerate(counts)]


def relative(ours, theirs, key):
    assert len(ours) == len(theirs), f"{len(ours)} steps, not {len(theirs)}"
    return max(abs(a[key] - b[key]) / abs(b[key]) for a, b in zip(ours, theirs))


def go_from_place_to_place(report, build, tmp, stages, **settings):
    """The first of `stages` is where the whole run is that the others are held against."""
    qft, ckpt = build / "bin/qft", build / "bin/qft-ckpt"
    steps = FIRST + 2 * (len(stages) - 1)
    settings = {**make(tmp, "qwen3", hidden=72, intermediate=100), "finetuning_type": "full", "cutoff_len": 256, "save_steps": 1, "global_batch_size": BATCH,
                "max_steps": steps, **settings}
    numbered_samples(tmp)

    def train(ranks, out, **changes):
        mpirun(ranks, [qft, "train", write(tmp / "run.yaml", {**settings, **changes, "output_dir": str(out)})])

    before = tmp / "whole"
    ranks, strategy, more = stages[0]
    train(ranks, before, strategy=strategy, **more)
    reference = log_of(before)
    first = before / f"checkpoint-{FIRST}"
    kept = states_in(json.loads(run([ckpt, "diff", "--json", first, first]).stdout))
    report.holds(f"{settings['optim']} keeps masters, and a state of its own", "master" in kept and len(kept) > 1, kept)
    for epoch in range(steps // EPOCH):
        taken = samples_of(reference)[epoch * EPOCH:(epoch + 1) * EPOCH]
        once = sum(taken) == 2**SAMPLES - 1 and all(a & b == 0 for i, a in enumerate(taken) for b in taken[:i])
        report.holds(f"epoch {epoch}: every sample once", once)
    for stage, (ranks, strategy, more) in enumerate(stages[1:]):
        step = FIRST + 2 * stage
        name = f"{settings['optim']}, step {step}: to {strategy} on {ranks} ranks"
        # Updates that are skipped: what this layout read is what it writes.
        held = tmp / f"held{stage}"
        cut(before, held, step)
        train(ranks, held, strategy=strategy, loss_spike_factor=1e-9, max_skipped_updates=1000, save_total_limit=step + 1, **more)
        told = json.loads(run([ckpt, "diff", "--json", held / f"checkpoint-{step}", held / f"checkpoint-{steps}"], check=False).stdout)
        report.equal(f"{name}: tensors that changed", [t["name"] for t in told["tensors"] if not t["equal"]], [])
        report.equal("    ... masters and the optimizer's state are among them", states_in(told), kept)

        after = tmp / f"stage{stage}"
        cut(before, after, step)
        train(ranks, after, strategy=strategy, **more)
        ours = log_of(after)
        report.equal("    ... and on from there: global batches that differ",
                     sum(a != b for a, b in zip(samples_of(ours), samples_of(reference))), 0)
        for key in ("loss", "grad_norm"):
            report.check(f"    ... {key} to the end", relative(ours, reference, key), 1e-10)
        before = after


def main():
    args = arguments(only="")
    report = Report()
    for optim in optimizers(report, args.build / "bin/qft"):
        if not re.search(args.only, optim):
            continue
        with tempfile.TemporaryDirectory() as tmp:
            go_from_place_to_place(report, args.build, Path(tmp), PLACES.get(optim, BY_OTHERS), optim=optim,
                                   **{"learning_rate": 1e-3, **SETTINGS.get(optim, {})})
    report.finish()


if __name__ == "__main__":
    main()
