"""A rank with more to do is no straggler; a rank whose processor is taken away is, and ends the run where that is asked for."""
import json
import os
import re
import signal
import tempfile
import time
from pathlib import Path

from common import Report, arguments
from jobs import output_of, ranks, start, wait_for
from kills import committed
from tiny import make, write, write_model

STEPS = 36  # the first looks are over after 22
NAMED = r"rank (\d) on \S+ is [\d.]+ times as slow as the others"


def main():
    args = arguments()
    qft, report = args.build / "bin/qft", Report()
    with tempfile.TemporaryDirectory(prefix="qft-stragglers-") as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp, vocabulary=49152), "compute_dtype": "float32", "cutoff_len": 512, "max_steps": STEPS, "lora_dropout": 0.0}
        write_model(tmp / "model", hidden=128, intermediate=256, kv_heads=4, head_dim=32, vocab=49152)
        records = [{"instruction": "Say it", "input": "", "output": "7" * (420 if i % 2 else 40)} for i in range(40)]
        (tmp / "data/numbers.json").write_text(json.dumps(records))

        # One sample a step: one of two ranks has all of it.
        job = start(qft, write(tmp / "uneven.yaml", {**settings, "global_batch_size": 1, "straggler_action": "stop", "output_dir": str(tmp / "uneven")}))
        text = job.communicate()[1]
        report.holds("ranks that take turns: a good end", job.returncode == 0, f"exit code {job.returncode}\n{text}")
        report.holds("    ... nobody is named", not re.search(NAMED, text), text)

        run_file = write(tmp / "slow.yaml", {**settings, "global_batch_size": 4, "straggler_action": "stop", "output_dir": str(tmp / "slow")})
        job = start(qft, run_file)
        wait_for(lambda: (tmp / "slow/trainer_log.jsonl").exists(), job)
        victim = next(pid for pid in ranks(run_file) if b"OMPI_COMM_WORLD_RANK=1\0" in Path(f"/proc/{pid}/environ").read_bytes())
        while job.poll() is None:
            for what, seconds in ((signal.SIGSTOP, 0.27), (signal.SIGCONT, 0.03)):
                try:
                    os.kill(victim, what)
                except ProcessLookupError:
                    break
                time.sleep(seconds)
        text = output_of(job, run_file)
        named = re.search("error: " + NAMED, text)
        report.holds("a rank without its processor is named", named and named[1] == "1", text)
        report.equal("    ... and ends the run", job.returncode, 1)
        report.holds("    ... after a checkpoint", committed(tmp / "slow") and committed(tmp / "slow")[-1] < STEPS, committed(tmp / "slow"))
    report.finish()


main()
