"""When a run ends by itself: the best checkpoint, early stopping, time limits."""
import json
import os
import tempfile
import time
from pathlib import Path

from common import Report, arguments, mpirun
from tiny import log_of, make, write


def main():
    args = arguments()
    qft = args.build / "bin/qft"
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp, vocabulary=49152), "compute_dtype": "float32", "learning_rate": 0.1, "lr_scheduler_type": "constant",
                    "warmup_ratio": 0.0, "eval_dataset": "words", "eval_strategy": "steps", "eval_steps": 1, "save_steps": 1, "save_total_limit": 2, "max_steps": 12,
                    "load_best_model_at_end": True, "lora_dropout": 0.0}
        # The answers are words, of which training on numbers makes the model ever less certain.
        words = [{"instruction": "Say a word", "input": "", "output": w} for w in ("cluster", "gradient", "tensor", "schedule")]
        (tmp / "data/words.json").write_text(json.dumps(words))
        info = json.loads((tmp / "data/dataset_info.json").read_text())
        (tmp / "data/dataset_info.json").write_text(json.dumps({**info, "words": {"file_name": "words.json"}}))
        run = tmp / "best"
        mpirun(2, [qft, "train", write(tmp / "best.yaml", {**settings, "output_dir": str(run)})])
        losses = {e["current_steps"]: e["eval_loss"] for e in log_of(run) if "eval_loss" in e}
        best = min(losses, key=losses.get)
        state = json.loads((run / "trainer_state.json").read_text())
        report.equal("evaluations", len(losses), 12)
        report.holds("the best is not the last (or this shows nothing)", best != 12)
        report.equal("best_model_checkpoint", Path(state["best_model_checkpoint"]).name, f"checkpoint-{best}")
        kept = sorted(p.name for p in run.glob("checkpoint-*"))
        report.equal("the best and the last are kept", set(kept), {f"checkpoint-{best}", "checkpoint-12"})
        same = (run / "adapter_model.safetensors").read_bytes() == (run / f"checkpoint-{best}/adapter_model.safetensors").read_bytes()
        report.holds("the result is the best checkpoint's adapter", same)
        results = json.loads((run / "all_results.json").read_text())
        report.equal("its eval_loss is reported", results["eval_loss"], losses[best])

        early = tmp / "early"
        mpirun(2, [qft, "train", write(tmp / "early.yaml", {**settings, "output_dir": str(early), "early_stopping_steps": 2})])
        last = max(e["current_steps"] for e in log_of(early))
        best = json.loads((early / "trainer_state.json").read_text())["best_global_step"]
        report.equal("early stopping: steps after the best", last - best, 2)
        report.holds("early stopping: before the end", last < 12, last)
        again = mpirun(2, [qft, "train", tmp / "early.yaml"])
        report.equal("early stopping: a second start trains no further", max(e["current_steps"] for e in log_of(early)), last)
        report.equal("    ... and ends well", again.returncode, 0)

        plain = {k: v for k, v in settings.items() if k not in ("eval_dataset", "eval_strategy", "eval_steps", "load_best_model_at_end")}
        plain = {**plain, "max_steps": 100000, "save_steps": 1000000}
        timed = tmp / "timed"
        result = mpirun(2, [qft, "train", write(tmp / "timed.yaml", {**plain, "output_dir": str(timed), "max_hours": 0.0008})], check=False)
        report.equal("max_hours: exit code", result.returncode, 75)
        report.equal("max_hours: checkpoints", len(list(timed.glob("checkpoint-*"))), 1)
        job = tmp / "job"
        os.environ["SLURM_JOB_END_TIME"] = str(int(time.time()) + 63)
        result = mpirun(2, [qft, "train", write(tmp / "job.yaml", {**plain, "output_dir": str(job)})], check=False)
        report.equal("end of the job: exit code", result.returncode, 75)
        report.holds("end of the job: stopped before it", time.time() <= float(os.environ["SLURM_JOB_END_TIME"]))
        os.environ["SLURM_JOB_END_TIME"] = "soon"
        result = mpirun(2, [qft, "train", tmp / "job.yaml"], check=False)
        report.equal("a broken SLURM_JOB_END_TIME: exit code", result.returncode, 2)
        del os.environ["SLURM_JOB_END_TIME"]
        asked = tmp / "asked"  # SLURM before 23 does not set the variable
        (tmp / "scontrol").write_text(f"""#!/bin/sh
echo "$*" >>{tmp}/questions
echo "   StartTime=2020-01-01T00:00:00 EndTime=$(date -d '+63 seconds' +%Y-%m-%dT%H:%M:%S) Deadline=N/A"
""")
        (tmp / "scontrol").chmod(0o755)
        os.environ |= {"SLURM_JOB_ID": "7", "PATH": f"{tmp}:{os.environ['PATH']}"}
        result = mpirun(2, [qft, "train", write(tmp / "asked.yaml", {**plain, "output_dir": str(asked)})], check=False)
        report.equal("the end that scontrol tells: exit code", result.returncode, 75)
        report.equal("    ... asked once, by rank 0", (tmp / "questions").read_text(), "show job 7\n")
        (tmp / "scontrol").write_text("#!/bin/sh\nexit 1\n")
        result = mpirun(2, [qft, "train", tmp / "asked.yaml", "max_hours=0.0008"], check=False)
        report.equal("no end known: exit code", result.returncode, 75)
        report.equal("    ... said once", result.stderr.count("the end of job 7 of SLURM is unknown"), 1)
    report.finish()


main()
