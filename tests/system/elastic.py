"""One run that goes from 1 to 2, 3, 4, 8 ranks and back to 1, under another strategy each time, and some by other optimizers: at each
hand-over weights and optimizer state keep their bits, and all takes the steps of the run that stayed where it was: the same samples in
each global batch, every sample once an epoch."""
import json
import re
import tempfile
from pathlib import Path

from common import Report, arguments, mpirun, run
from tiny import cut, log_of, make, write

FIRST = 10  # steps on one rank: fewer are too few to leave updates out by loss_spike_factor
STAGES = [(1, "ddp", {}), (2, "zero1", {}), (3, "zero2", {}), (4, "zero3", {}), (8, "hsdp", {"hsdp_group_size": 4}), (1, "shard_grad_op", {})]
BY_LION = [(2, "zero3", {}), (3, "zero3", {}), (1, "ddp", {})]
BY_OTHERS = [(3, "zero3", {}), (2, "zero1", {})]
STATES = {"adamw_torch": ["master", "exp_avg", "exp_avg_sq"], "lion_32bit": ["master", "exp_avg"], "sgd": ["master", "momentum_buffer"],
          "adamw_8bit": ["master", "exp_avg", "exp_avg_sq", "exp_avg_absmax", "exp_avg_sq_absmax"],
          "muon": ["master", "momentum_buffer", "exp_avg", "exp_avg_sq"],
          "adafactor": ["master", "exp_avg_sq", "exp_avg_sq_row", "exp_avg_sq_col"],
          "galore_adamw": ["master", "projector", "exp_avg", "exp_avg_sq"],
          "apollo_adamw": ["master", "projector", "exp_avg", "exp_avg_sq", "step_norm"]}
# Of a model some of whose tensors are large enough for moments of 8 bits, with blocks that the slices of ranks cut.
OTHERS = [{"optim": "adamw_8bit", "learning_rate": 1e-3}, {"optim": "muon", "learning_rate": 1e-3}, {"optim": "adafactor", "learning_rate": 1e-3},
          {"optim": "galore_adamw", "galore_rank": 8, "galore_update_interval": 11, "learning_rate": 1e-3},
          {"optim": "apollo_adamw", "apollo_rank": 8, "apollo_update_interval": 11, "learning_rate": 1e-3}, {"optim": "sgd", "optim_args": "momentum=0.9", "learning_rate": 1e-2}]
SAMPLES, BATCH, EPOCH = 8, 3, 3  # steps an epoch


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
        states = sorted({t["name"].split(".")[0] for t in told["tensors"]} - {"model", "lm_head"})
        report.equal("    ... masters and the optimizer's state are among them", states, sorted(STATES[settings["optim"]]))

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
    runs = [(STAGES, {"optim": "adamw_torch", "learning_rate": 1e-3}), (BY_LION, {"optim": "lion_32bit", "learning_rate": 1e-4}),
            *((BY_OTHERS, settings) for settings in OTHERS)]
    for stages, settings in runs:
        if not re.search(args.only, settings["optim"]):
            continue
        with tempfile.TemporaryDirectory() as tmp:
            go_from_place_to_place(report, args.build, Path(tmp), stages, **settings)
    report.finish()


if __name__ == "__main__":
    main()
