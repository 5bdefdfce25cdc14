"""What a run may go on from: damaged, missing and foreign checkpoints, changed settings, another number of ranks, overwrite_output_dir,
branches, a run that is done. What it leaves alone: other programs' checkpoints, and all that is there before it is refused."""
import json
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from common import Report, arguments, mpirun
from tiny import make, write


def damage(file):
    content = bytearray(file.read_bytes())
    content[-5] ^= 0x40
    file.write_bytes(content)


def stop_at_once(qft, run_file):
    """The exit code of a run that is asked to stop as soon as it listens."""
    job = subprocess.Popen([qft, "train", run_file], stderr=subprocess.DEVNULL)
    caught = 1 << (signal.SIGUSR1 - 1)
    while job.poll() is None and not int(re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{job.pid}/status").read_text())[1], 16) & caught:
        time.sleep(0.005)
    job.send_signal(signal.SIGUSR1)
    return job.wait()


def main():
    args = arguments()
    qft = args.build / "bin/qft"
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp, samples=12), "compute_dtype": "float32", "max_steps": 4, "save_steps": 2}
        steady = {"global_batch_size": 2}
        del settings["global_batch_size"]

        def train(output, ranks=2, environment={}, **changes):
            run_file = write(tmp / f"{output.name}.yaml", {**settings, "output_dir": str(output), **changes})
            set_here = [word for key, value in environment.items() for word in ("-x", f"{key}={value}")]
            result = mpirun(ranks, [*set_here, qft, "train", run_file], check=False)
            return result.returncode, result.stdout + result.stderr

        def expect(what, outcome, code, *texts):
            report.holds(f"{what}: exit code {code}", outcome[0] == code, f"{outcome[0]}: {outcome[1]}")
            missing = [t for t in texts if t not in outcome[1]]
            report.holds(f"{what}: says so", not missing, f"not: {missing} in {outcome[1][-1500:]}")

        first = tmp / "first"
        expect("first run", train(first), 0)

        def copy(name):
            return Path(shutil.copytree(first, tmp / name))

        elsewhere = tmp / "elsewhere"
        hurt = copy("hurt") / "checkpoint-2"
        damage(next(hurt.glob("qft_state-*")))
        expect("a damaged one by name", train(elsewhere, resume_from_checkpoint=str(hurt)), 1, "is damaged and is not used", "has checksum")
        expect("a missing one", train(elsewhere, resume_from_checkpoint=str(tmp / "none")), 2, "does not exist")
        expect("an output_dir", train(elsewhere, resume_from_checkpoint=str(first)), 2, "such as", "checkpoint-4'")
        expect("a dataset that does not exist", train(elsewhere, dataset="nombers"), 2, "nombers")
        report.holds("refused ones leave no output_dir", not elsewhere.exists())

        for key, value, text in (("lora_alpha", 77, 'lora_alpha is 77'), ("use_dora", True, "use_dora is true"), ("pissa_init", True, "pissa_init is true"),
                                 ("rank_pattern", {"q_proj": 2}, 'rank_pattern is {"q_proj":2}'), ("lora_target", "q_proj", "which this run does not train"),
                                 ("finetuning_type", "full", 'was trained with "lora"'), ("max_steps", 3, "is at step 4, but this run has 3 steps"),
                                 ("gradient_accumulation_steps", 2, "global_batch_size is 4 here, 2 in the checkpoint")):
            expect(f"{key} changed", train(copy(key), **{key: value}), 2, text)
        by_lion = train(copy("optim"), optim="lion_32bit")
        expect("another optimizer", by_lion, 2, "optim is lion_32bit", "was trained with adamw_torch", "set it back, or start a new run")
        expect("the same by another name", train(copy("name"), optim="adamw", max_steps=6), 0, "at step 4")
        expect("another learning rate", train(copy("rate"), learning_rate=0.5, max_steps=6), 0, "learning_rate 0.01 -> 0.5", "at step 4")
        expect("three ranks", train(copy("ranks"), ranks=3, max_steps=6), 0, "global batch 2 ", "at step 4")

        typo = copy("typo")
        expect("overwrite_output_dir and an error", train(typo, overwrite_output_dir=True, dataset="nombers"), 2, "nombers")
        report.equal("... keeps its checkpoints", len(list(typo.glob("checkpoint-*"))), 2)
        again = tmp / "again"
        expect("stopped", train(again, overwrite_output_dir=True, max_hours=1e-9), 75)
        expect("submitted again under overwrite_output_dir", train(again, overwrite_output_dir=True), 0, "belongs to an interrupted run", "at step 1")
        expect("finished, and started again", train(again, overwrite_output_dir=True), 0, "removing", "step 1/4")

        def results(output):
            return {p.name: p.read_bytes() for p in output.iterdir() if p.is_file() and p.suffix != ".yaml"}

        done = tmp / "done"
        expect("done", train(done, **steady), 0)
        before = results(done)
        expect("done, and started again", train(done, **steady), 0, "nothing left to train")
        report.holds("... changes no result", results(done) == before)
        (done / "train_results.json").unlink()
        expect("... but makes what is missing", train(done, **steady), 0)
        report.equal("... of the same epoch", abs(json.loads((done / "train_results.json").read_text())["epoch"] - json.loads(before["train_results.json"])["epoch"]), 0)
        pack = (done / "packs/train.h5").read_bytes()
        expect("cutoff_len changed", train(done, **steady, cutoff_len=64), 2, "cannot resume", "cutoff_len 128 -> 64")
        report.holds("... leaves the run's pack alone", (done / "packs/train.h5").read_bytes() == pack)

        others = copy("others")
        theirs = [others / "checkpoint-1/model.safetensors", others / "checkpoint-5/optimizer.pt"]
        for file in theirs:
            file.parent.mkdir()
            file.write_text("another program's")
        expect("beside another program's", train(others, max_steps=6, save_total_limit=1), 0, "at step 4", "neither used nor removed: checkpoint-1, checkpoint-5")
        report.equal("... which save_total_limit neither counts nor removes", abs(len(list(others.glob("checkpoint-*"))) - 3), 0)
        expect("overwrite_output_dir beside them", train(others, overwrite_output_dir=True), 0, "removing", "step 1/4")
        (others / "checkpoint-8").mkdir()
        expect("in the way of a save", train(others, max_steps=8), 2, "checkpoint-8' is not a checkpoint of qft", "is not replaced")
        report.equal("... they are untouched", sum(f.read_text() != "another program's" for f in theirs), 0)

        branch = copy("branch")
        named = {"resume_from_checkpoint": str(branch / "checkpoint-2"), "learning_rate": 0.02}
        expect("a branch", train(branch, **named, max_hours=1e-9), 75, "checkpoint-2' at step 2")
        expect("... submitted again", train(branch, **named), 0, "belongs to the branch that began at", "at step 3")
        report.equal("... what it left is set aside", abs(len(list(branch.glob("abandoned-checkpoint-4-*"))) - 1), 0)
        expect("... and once more", train(branch, **named), 0, "at step 4")
        expect("... without its name", train(branch, learning_rate=0.02, max_steps=6), 0, "at step 4")
        left = sorted(p.name for p in branch.glob("checkpoint-*"))
        report.holds(f"... leaves {left}", left == ["checkpoint-2", "checkpoint-3", "checkpoint-4", "checkpoint-6"])

        pre = copy("pre")
        report.equal("a stop before the first step, at a checkpoint that was there", stop_at_once(qft, write(
            tmp / "pre.yaml", {**settings, "output_dir": str(pre), "max_steps": 6})), 75)
        expect("... submitted again under overwrite_output_dir", train(pre, overwrite_output_dir=True, max_steps=6), 0,
               "belongs to an interrupted run", "at step 4")
        report.holds("... and done, nothing is left of the stop", not (pre / "stopped.json").exists())

        job = tmp / "job"
        expect("a job", train(job, environment={"SLURM_JOB_ID": "7"}, overwrite_output_dir=True, save_steps=4), 0)
        expect("... put back into the queue", train(job, environment={"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"}, overwrite_output_dir=True,
                                                    max_steps=6), 0, "belongs to an interrupted run", "at step 4")
        expect("... the same by hand in one allocation", train(job, environment={"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"},
                                                               overwrite_output_dir=True), 0, "removing", "step 1/4")

        small = tmp / "small"
        expect("save_only_model, stopped", train(small, save_only_model=True, max_hours=1e-9), 75)
        expect("... submitted again", train(small, save_only_model=True), 0, "at step 1")

        best = tmp / "best"
        watched = {"val_size": 4, "eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": True, "greater_is_better": True}
        expect("best", train(best, **watched), 0, "the best checkpoint is the result")
        shutil.rmtree(best / "checkpoint-2")
        expect("the best one is gone", train(best, **watched, max_steps=6), 0, "the best checkpoint so far is gone")
    report.finish()


main()
