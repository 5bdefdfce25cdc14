"""Two runs in one output_dir, as after a job that was submitted twice: one trains as if it were alone, the other is refused by
name, whatever lies between their starts. qft-ckpt gc keeps away from a run that lives."""
import json
import signal
import tempfile
import time
from pathlib import Path

from common import Report, arguments, mpirun, run
from jobs import output_of, ranks, start, wait_for
from kills import committed
from tiny import log_of, make, write


def main():
    args = arguments()
    qft, ckpt = args.build / "bin/qft", args.build / "bin/qft-ckpt"
    report = Report()
    with tempfile.TemporaryDirectory(prefix="qft-two-") as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp, vocabulary=49152), "compute_dtype": "float32", "max_steps": 100000, "num_train_epochs": 1, "save_steps": 20, "save_total_limit": 3,
                    "lr_scheduler_type": "constant", "warmup_ratio": 0.0}
        for delay, changes in ((0, {}), (0.5, {"overwrite_output_dir": True}), (3, {})):
            name = f"{delay} s apart{', overwrite_output_dir' if changes else ''}"
            out = tmp / f"out{delay}"
            files = [write(tmp / f"{kind}{delay}.yaml", {**settings, **changes, "output_dir": str(out)}) for kind in ("first", "second")]
            jobs = [start(qft, files[0], np=1)]
            time.sleep(delay)
            jobs.append(start(qft, files[1], np=1))
            wait_for(lambda: any(job.poll() is not None for job in jobs), jobs[0])
            loser = 0 if jobs[0].poll() is not None else 1
            winner, text = 1 - loser, output_of(jobs[loser], files[loser])
            report.equal(f"{name}: the refused one's exit code", jobs[loser].returncode - 1, 0)
            pids = ranks(files[winner])
            report.holds("    ... it names the other", (pids and "is in use by qft train on" in text and f"(pid {pids[0]}," in text))
            if delay == 0:
                gc = run([ckpt, "gc", "--keep", "1", out], check=False)
                report.holds("qft-ckpt gc is refused, too", gc.returncode == 1 and "is in use by" in gc.stderr)
            before = max(committed(out), default=0)
            wait_for(lambda: max(committed(out), default=0) >= before + 60, jobs[winner])
            jobs[winner].send_signal(signal.SIGUSR1)
            text = output_of(jobs[winner], files[winner])
            report.equal("    ... the other one's exit code", jobs[winner].returncode - 75, 0)
            steps = [e["current_steps"] for e in log_of(out)]
            report.holds("    ... its steps, each once and in order", steps == list(range(1, len(steps) + 1)))
            left = sorted(p.name for p in out.iterdir())
            report.holds(f"    ... {len(committed(out))} checkpoints of 3, nothing unfinished, no lock",
                         len(committed(out)) == 3 and not any(n.startswith(("tmp-", ".qft", "abandoned")) for n in left))
            checkpoints = [out / f"checkpoint-{step}" for step in committed(out)]
            report.equal("    ... that verify", sum(run([ckpt, "verify", c], check=False).returncode for c in checkpoints), 0)
            report.equal("    ... of one run", len({json.loads((c / "manifest.json").read_text())["run"]["id"] for c in checkpoints}) - 1, 0)
            if delay == 0:
                alone = tmp / "alone"
                mpirun(1, [qft, "train", write(tmp / "alone.yaml", {**settings, "output_dir": str(alone), "max_steps": len(steps)})])
                same = run([ckpt, "diff", "--json", alone / f"checkpoint-{len(steps)}", checkpoints[-1]], check=False).stdout
                report.equal("    ... with the tensors of a run alone", sum(not t["equal"] for t in json.loads(same)["tensors"]), 0)
    report.finish()


main()
