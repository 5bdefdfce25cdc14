"""A sweep on two ranks: stopped and killed in its middle it goes on there, with the weights of runs that were alone; a run that
diverges, an index of a job array, and qft compare over them. And qft watch from the first step on."""
import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
from pathlib import Path

from common import Report, arguments, mpirun, run, with_sessions
from jobs import done, ranks, wait_for
from kills import committed, weights
from tiny import make, write

SWEEP = ["--sweep", "learning_rate=1e-2,1e-3", "--sweep", "lora_rank=2,4"]
NAMES = [f"learning_rate={rate}+lora_rank={rank}" for rate in ("1e-2", "1e-3") for rank in (2, 4)]


def start(qft, *words):
    """In a process group of its own; the ranks too."""
    env = with_sessions({**os.environ, "OMP_NUM_THREADS": "1"})
    return subprocess.Popen(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2", str(qft), "train", *map(str, words)],
                            env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def interrupted(report, qft, run_file, out):
    """Stopped by SIGUSR1 in the second run, killed in the third, then let alone."""
    job = start(qft, run_file, "overwrite_output_dir=true", *SWEEP)
    report.holds("the second run trains", wait_for(lambda: done(out / NAMES[1]) > 2, job))
    job.send_signal(signal.SIGUSR1)
    text = job.communicate(timeout=120)[1]
    report.equal("a request to stop ends the sweep with 75", job.returncode, 75)
    report.holds("    ... and says in which run", "stopped in run 2 of 4" in text and not (out / NAMES[2]).exists(), text)
    report.equal("    ... with a checkpoint there", len(committed(out / NAMES[1])), 1)

    first = out / NAMES[0] / "checkpoint-40/manifest.json"
    saved = first.stat().st_mtime_ns
    job = start(qft, run_file, "overwrite_output_dir=true", *SWEEP)
    report.holds("submitted again the third run trains", wait_for(lambda: committed(out / NAMES[2]), job))
    for rank in ranks(run_file):  # mpirun alone would leave them the time to end the run
        os.kill(rank, signal.SIGKILL)
    job.communicate(timeout=60)
    report.equal("    ... overwrite_output_dir left the first alone", first.exists() and first.stat().st_mtime_ns, saved)
    time.sleep(0.5)
    result = mpirun(2, [qft, "train", run_file, *SWEEP], check=False)
    report.equal("after a kill it ends", result.returncode, 0)
    report.equal("    ... finished runs are left alone", result.stderr.count("nothing left to train"), 2)
    report.holds("    ... the third goes on", re.search(rf"resumed from '[^']*{re.escape(NAMES[2])}/checkpoint", result.stderr), result.stderr)
    report.equal("    ... the pack is made once", len({(out / name / "packs/train.h5").stat().st_ino for name in NAMES}), 1)
    report.holds("    ... and shows all runs, the best first", re.search(r"keys that differ\n +a +b +c +d\n", result.stdout)
                 and all(name in result.stdout for name in NAMES) and (out / "compare.html").exists(), result.stdout)


def compared(report, qft, out):
    told = json.loads(run([qft, "compare", out, "--json"]).stdout)
    losses = [r["best_eval_loss"] for r in told["runs"]]
    report.equal("qft compare has all runs of the sweep", sorted(r["name"] for r in told["runs"]), sorted(NAMES))
    report.equal("    ... by their best eval_loss", losses, sorted(losses))
    for r in told["runs"]:
        log = [json.loads(line) for line in (out / r["name"] / "trainer_log.jsonl").read_text().splitlines()]
        report.equal(f"    ... {r['name']}: as its log has it", r["best_eval_loss"], min(e["eval_loss"] for e in log if "eval_loss" in e))
        results = json.loads((out / r["name"] / "train_results.json").read_text())
        report.equal("    ... its memory", r["memory_peak"] >= results["memory_peak"] > 0, True)
    report.equal("    ... what differs", {k: sorted(map(str, v)) for k, v in told["differing"].items()},
                 {"learning_rate": ["0.001", "0.001", "0.01", "0.01"], "lora_alpha": ["4", "4", "8", "8"], "lora_rank": ["2", "2", "4", "4"]})
    page = out.parent / "page.html"
    run([qft, "compare", out / NAMES[0], out / NAMES[1], "--report", page])
    report.holds("a page of two runs", NAMES[1] in page.read_text() and NAMES[2] not in page.read_text())
    part = run([qft, "compare", out / NAMES[0], out / "none"], check=False)
    report.holds("a folder that is not there is named, and the code is 1", part.returncode == 1 and f"'{out / 'none'}' is not a directory" in part.stdout
                 and NAMES[0] in part.stdout, part.stdout)
    if chromium := shutil.which("chromium-headless-shell"):
        with tempfile.TemporaryDirectory() as profile:
            seen = subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--enable-logging=stderr",
                                   "--virtual-time-budget=3000", "--dump-dom", (out / "compare.html").as_uri()], capture_output=True, text=True, timeout=120)
        body = seen.stdout.split("<main", 1)[-1].split("</main>", 1)[0]
        report.holds("the script of the page meets no error", "Uncaught" not in seen.stderr and "CONSOLE" not in seen.stderr, seen.stderr)
        report.holds("    ... and draws loss, eval_loss and four more", len(re.findall("<canvas", body)) == 6 and all(name in body for name in NAMES), body[:500])


def failing(report, qft, run_file, tmp):
    """A value that is wrong is found before the first run; a run that diverges does not end the others."""
    out = tmp / "failing"
    wrong = mpirun(2, [qft, "train", run_file, f"output_dir={out}", "--sweep", "lora_rank=4,0"], check=False)
    report.holds("a wrong value is found before anything runs", wrong.returncode == 2 and "run 2 of the sweep (lora_rank=0)" in wrong.stderr and not out.exists(), wrong.stderr)
    others = out / "learning_rate=2e-3"
    others.mkdir(parents=True)
    (others / "progress.json").write_text("of another program")
    result = mpirun(2, [qft, "train", run_file, f"output_dir={out}", "max_grad_norm=0", "lr_scheduler_type=constant", "max_skipped_updates=3",
                        f"log_dir={tmp / 'logs'}", "max_steps=6", "--sweep", "learning_rate=1e30,1e-3,2e-3"], check=False)
    report.equal("after a run that diverged the exit code is 1", result.returncode, 1)
    report.holds("    ... the table says so", re.search(r" failed +learning_rate=1e30", result.stdout) and re.search(r" finished +learning_rate=1e-3", result.stdout), result.stdout)
    report.equal("    ... a folder that is not its own stays as it is", [p.name for p in others.iterdir()], ["progress.json"])
    problems = json.loads(run([qft, "compare", out, "--json"]).stdout)["problems"]
    report.holds("    ... no run has the errors of another", len(problems) == 1 and "learning_rate=1e30'" in problems[0], problems)
    report.equal("    ... the next run has the weights of one alone", weights(out / "learning_rate=1e-3"), weights(alone(qft, run_file, tmp, "learning_rate=1e-3", "max_grad_norm=0",
                 "lr_scheduler_type=constant", "max_steps=6")))
    page = run([qft, "watch", out / "learning_rate=1e30", "--once"]).stdout
    report.holds("    ... and qft watch says why", "failed" in page and "not both finite" in page, page)


def alone(qft, run_file, tmp, *overrides):
    out = Path(tempfile.mkdtemp(dir=tmp)) / "out"
    mpirun(2, [qft, "train", run_file, f"output_dir={out}", *overrides])
    return out


def array(report, qft, run_file, tmp):
    out = tmp / "array"
    words = [qft, "train", run_file, f"output_dir={out}", *SWEEP]
    listed = run([*words, "--sweep_list"]).stdout.splitlines()
    report.equal("--sweep_list has a line a run", [line.split("\t")[::2] for line in listed], [[str(i + 1), str(out / name)] for i, name in enumerate(NAMES)])
    out.mkdir()
    (out / "run.json").write_text("{}")
    taken = run([*words, "--sweep_index", 2], check=False)
    report.holds("a folder that holds a run is refused", taken.returncode == 2 and "already holds a run" in taken.stderr, taken.stderr)
    (out / "run.json").unlink()
    mpirun(2, [*words, "--sweep_index", 2])
    report.equal("an index trains its run alone", [p.name for p in out.iterdir()], [NAMES[1]])
    beyond = run([*words, "--sweep_index", 5], check=False)
    report.holds("one beyond is refused", beyond.returncode == 2 and "has 4 runs" in beyond.stderr, beyond.stderr)
    return out / NAMES[1]


def watched(report, qft, tmp, settings):
    """A run that logs only at its end, on a terminal: its phases and steps."""
    out = tmp / "slow"
    run_file = write(tmp / "slow.yaml", {**settings, "output_dir": str(out), "max_steps": 100000, "logging_steps": 100000, "global_batch_size": 300,
                                         "eval_strategy": "no", "save_steps": 100000})
    job = start(qft, run_file)
    report.holds(".qft-progress.json is there early", wait_for(lambda: (out / ".qft-progress.json").exists(), job))
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(str(qft), [str(qft), "watch", str(out)])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
    text, steps, end = "", [], time.monotonic() + 60
    while time.monotonic() < end and job.poll() is None and len(set(steps)) < 2:
        if select.select([terminal], [], [], 0.5)[0]:
            text += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", os.read(terminal, 65536).decode(errors="replace"))
        steps = re.findall(r"step (\d+)/100000 .* left", text)
    os.write(terminal, b"q")
    os.close(terminal)
    os.waitpid(pid, 0)
    report.holds("qft watch shows a run before its first log line", "running" in text and "loss" in text and done(out) == 0, text)
    report.holds("    ... and its steps as they are done", len(set(steps)) > 1, text)
    job.send_signal(signal.SIGUSR1)
    job.communicate(timeout=60)
    report.equal("    ... at the end the file is gone", (job.returncode, (out / ".qft-progress.json").exists()), (75, False))


def main():
    args = arguments()
    report = Report()
    qft = args.build / "bin/qft"
    with tempfile.TemporaryDirectory(prefix="qft-sweep-") as tmp:
        tmp = Path(tmp)
        out = tmp / "sweep"
        settings = {**make(tmp), "output_dir": str(out), "compute_dtype": "float32", "val_size": 4, "eval_strategy": "steps", "eval_steps": 10,
                    "max_steps": 40, "save_steps": 10, "save_total_limit": 1}
        run_file = write(tmp / "run.yaml", settings)
        interrupted(report, qft, run_file, out)
        compared(report, qft, out)
        one = array(report, qft, run_file, tmp)
        report.equal("a run of the array has the weights of the sweep's", weights(one), weights(out / NAMES[1]))
        for name in (NAMES[2], NAMES[3]):
            report.equal(f"{name}: the weights of a run alone", weights(out / name), weights(alone(qft, run_file, tmp, *name.split("+"))))
        failing(report, qft, run_file, tmp)
        watched(report, qft, tmp, settings)
    report.finish()


main()
