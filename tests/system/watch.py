"""`qft watch` and report.html of a real run: the page of characters, the terminal's, and the page of HTML in a real browser."""
import html
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import Report, arguments, mpirun, run
from tiny import log_of, make, write

HOSTILE = "a </script><script>document.title='HACKED'</script> \"day\" 'at' <img src=x onerror=\"document.title='HACKED'\"> work"


def browser():
    for name in ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    return None


def look(chromium, page, *options):
    """What Chromium makes of a page. It has no network but what the page may ask for, which is noted."""
    with tempfile.TemporaryDirectory() as profile:
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}",
                   "--enable-logging=stderr", "--virtual-time-budget=3000", *options, page.as_uri()]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)


def check_page(report, chromium, page, out):
    seen = look(chromium, page, "--dump-dom")
    dom = seen.stdout
    report.holds("the script of the page meets no error", "Uncaught" not in seen.stderr and "CONSOLE" not in seen.stderr, seen.stderr)
    body = dom.split("<main", 1)[1].split("</main>", 1)[0]
    report.holds("a hostile name is shown and not run", "HACKED" not in dom.split("<title>")[1].split("</title>")[0].replace(html.escape(HOSTILE, False), "")
                 and html.escape(HOSTILE, False) in body and "<img" not in body, body[:800])
    for title in ("Curves", "Where the time goes", "Memory of a rank by part, predicted", "Lengths of the data", "Answers", "Results", "Checkpoints", "Settings"):
        report.holds(f"the page has '{title}'", f">{title}<" in body, body[:300])
    report.equal("it draws the loss and at least six more curves", len(re.findall("<canvas", body)) >= 7, True)
    text = page.read_text()
    data = json.loads(text.split('id="data">', 1)[1].split("</script>", 1)[0])
    ours = [[e["current_steps"], e["loss"]] for e in log_of(out) if "loss" in e]
    report.equal("its curve is the log's", data["curves"]["loss"], ours)
    report.equal("nothing in it is loaded from elsewhere", re.findall(r"""(?:src|href)\s*=\s*["'][^"']+|@import|url\(""", text.split('id="data">')[0]), [])
    report.equal("its answers are those of the file", [s["tuned"] for s in data["samples"]],
                 [json.loads(line)["predict"] for line in (out / "generated_predictions.jsonl").read_text().splitlines()][:20])


def painted(chromium, page, folder):
    """How many different colors the first screen has: an empty page has few."""
    shot = folder / "shot.png"
    look(chromium, page, "--window-size=1200,900", f"--screenshot={shot}")
    return shot.stat().st_size if shot.exists() else 0


def on_terminal(qft, out, keys):
    """What `qft watch` paints on a terminal of 90 x 30 until the keys end it, and its exit code."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(str(qft), [str(qft), "watch", str(out)])
    import fcntl, struct, termios
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 90, 0, 0))
    text, end, keys = b"", time.monotonic() + 60, list(keys)
    while time.monotonic() < end:
        ready, _, _ = select.select([terminal], [], [], 0.5)
        try:
            chunk = os.read(terminal, 65536) if ready else b""
        except OSError:
            break
        text += chunk
        if not ready and keys and b"quits" in text:
            os.write(terminal, keys.pop(0))
    _, status = os.waitpid(pid, 0)
    return text.decode(), os.waitstatus_to_exitcode(status)


def main():
    args = arguments()
    report = Report()
    qft = args.build / "bin/qft"
    with tempfile.TemporaryDirectory() as folder:
        tmp = Path(folder)
        out = tmp / "out"
        file = write(tmp / "run.yaml", make(tmp) | {
            "run_name": HOSTILE, "max_steps": 12, "save_steps": 5, "val_size": 4, "eval_strategy": "steps", "eval_steps": 4, "do_predict": True,
            "predict_with_generate": True, "max_new_tokens": 4, "do_sample": False, "log_dir": str(tmp / "logs")})
        mpirun(2, [qft, "train", file])

        page = run([qft, "watch", out, "--once"], env={**os.environ, "COLUMNS": "90"}).stdout
        for part in ("finished", "step 12/12", "2 ranks on", "loss", "eval_loss", "last checkpoint checkpoint-12", "predicted", "host_memory"):
            report.holds(f"the page says '{part}'", part in page, page)
        report.holds("and fits", max(map(len, page.splitlines())) <= 90, page)
        text, code = on_terminal(qft, out, [b"n", b"\x1b[D", b"q"])
        report.holds("on a terminal it is drawn, shows another curve, and gives the screen back",
                     code == 0 and "\x1b[?1049h" in text and text.rstrip().endswith("\x1b[?1049l") and "epoch" in text, (code, text[-300:]))
        result = run([qft, "watch", out], check=False, stdin=subprocess.DEVNULL)
        report.holds("without a terminal it says what to do", result.returncode == 2 and "--once" in result.stderr, result.stderr)
        result = run([qft, "watch", tmp / "data"], check=False)
        report.holds("a folder without a run is refused", result.returncode == 1 and "not an output_dir of qft train" in result.stderr, result.stderr)

        kept = (out / "report.html").read_text()
        report.holds("training leaves report.html", '"status":"finished"' in kept, kept[-500:])
        run([qft, "watch", out, "--report"])
        entries = log_of(out)
        report.holds("log lines have the time", all(abs(e["time"] - time.time()) < 600 for e in entries), entries[-1])
        report.holds("and what the machine does", any(e.get("system", {}).get("host_memory", [0])[0] > 1e6 for e in entries), entries[-1])
        logs = {p.name: p.read_text() for p in (tmp / "logs").iterdir()}
        report.equal("a log file for each rank", sorted(logs), ["rank-0.log", "rank-1.log"])
        report.holds("rank 0's has what was printed, with the date", re.search(r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d.*\[0/2\] done: 12 steps", logs["rank-0.log"]), logs["rank-0.log"])
        result = mpirun(2, [qft, "train", file, "model_name_or_path=/none", f"output_dir={tmp / 'fails'}"], check=False)
        after = (tmp / "logs/rank-1.log").read_text()
        report.holds("an error is in each rank's file, behind what was there", after.startswith(logs["rank-1.log"]) and "error" in after and "/none" in after, after)

        chromium = browser()
        if chromium is None:
            print("no Chromium: the page is not looked at")
        else:
            check_page(report, chromium, out / "report.html", out)
            report.holds("the browser paints it", painted(chromium, out / "report.html", tmp) > 20000)
    report.finish()


main()
