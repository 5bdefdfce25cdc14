"""A run that diverged says so in its last line, counts its skipped updates, and fails if it kept none; a healthy run has at least 20
log lines, with the time that is left."""
import json
import re
import tempfile
from pathlib import Path

from common import Report, arguments, mpirun
from tiny import log_of, make, write


def main():
    args = arguments()
    qft, report = args.build / "bin/qft", Report()
    with tempfile.TemporaryDirectory() as name:
        tmp = Path(name)
        settings = {**make(tmp), "save_strategy": "no"}
        settings.pop("logging_steps", None)

        def train(what, **changes):
            out = tmp / what
            result = mpirun(2, [qft, "train", write(tmp / f"{what}.yaml", {**settings, **changes, "output_dir": str(out)})], check=False, timeout=120)
            lines = [line for line in result.stderr.splitlines() if re.search(r"^\d\d:\d\d:\d\d", line)]
            return result, lines[-1] if lines else "", out

        healthy, last, out = train("healthy", compute_dtype="float32", max_steps=43)
        report.equal("a healthy run ends with 0", healthy.returncode, 0)
        report.holds("its last line says what was done", "done: 43 steps in" in last, last)
        entries = [e for e in log_of(out) if "loss" in e]
        report.equal("43 steps have a log line every 2 steps, and one at the end", [e["current_steps"] for e in entries], [*range(2, 43, 2), 43])
        report.equal("each has the time and what is left", len(re.findall(r"step \d+/43 .* tok/s  \d\d:\d\d done, \d\d:\d\d left", healthy.stderr)), len(entries))

        lost, last, out = train("lost", compute_dtype="float32", max_steps=8, learning_rate=1e30, lr_scheduler_type="constant", warmup_ratio=0, max_grad_norm=0)
        report.equal("a run that kept some updates ends with 0", lost.returncode, 0)
        results = json.loads((out / "train_results.json").read_text())
        skipped = int(results["skipped_updates"])
        report.holds("some updates were skipped, not all", 0 < skipped < 8, results)
        report.holds("its last line says that it diverged", f"diverged: {skipped} of 8 updates were skipped" in last, last)

        never, last, out = train("never", compute_dtype="auto", fp16=True, fp16_loss_scale=1e38, max_steps=4, save_strategy="steps", save_steps=4)
        report.equal("a run that kept no update fails", never.returncode, 1)
        report.holds("its last line says so", "diverged: all 4 updates were skipped" in last and "error" in last, last)
        report.equal("so does its description", json.loads((out / "run.json").read_text())["status"], "failed")
        again = mpirun(2, [qft, "train", tmp / "never.yaml"], check=False, timeout=120)
        report.equal("started again it fails again", again.returncode, 1)
    report.finish()


main()
