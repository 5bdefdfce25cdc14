"""What a person sees at the terminal: the bar under mpirun, the log's first lines and numbers, generate and chat with input that they cannot
take, and that qft plan reckons with the memory that a run does."""
import fcntl
import json
import os
import pty
import re
import socket
import subprocess
import tempfile
import termios
from pathlib import Path

from common import ROOT, Report, arguments, mpirun, run
from tiny import make, write

ENV = {**os.environ, "OMP_NUM_THREADS": "1"}


def on_terminal(command):
    """What the command, run in the foreground of a terminal of its own, writes there."""
    master, slave = pty.openpty()

    def own_terminal():
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    process = subprocess.Popen([str(word) for word in command], stdin=slave, stdout=slave, stderr=slave, env=ENV, preexec_fn=own_terminal)
    os.close(slave)
    text = b""
    try:
        while piece := os.read(master, 65536):
            text += piece
    except OSError:  # the last process has closed it
        pass
    os.close(master)
    return process.wait(), text.decode()


def training(report, qft, tmp, settings):
    run_file = write(tmp / "run.yaml", settings)
    code, text = on_terminal(["mpirun", "--oversubscribe", "--bind-to", "none", "-np", 2, qft, "train", run_file])
    report.holds("under mpirun on a terminal the bar is drawn there", code == 0 and re.search(r"\r\x1b\[Ktrain \[[#.]{24}\] \d+/\d+ ", text), text)
    lines = [line for line in text.replace("\r", "\n").split("\n") if re.search(r" step \d+/\d+ ", line)]
    report.holds("    ... and no line of the log is appended to it", lines and not any("[#" in line or "[." in line for line in lines), text)

    told = mpirun(2, [qft, "train", run_file, "overwrite_output_dir=true", "resume_from_checkpoint=false", "log_level=debug"]).stderr
    report.equal("without a terminal nothing is drawn", told.count("\x1b"), 0)
    report.holds("the log names the host", f"2 ranks on 1 node: {socket.gethostname()}, " in told, told)
    report.holds("it says what trains what", "method     sft, LoRA of rank 4, alpha 8, " in told, told)
    first = [line for line in told.splitlines() if "to learn: " in line]
    report.holds("it shows the first sample, what is learned in brackets", len(first) == 1 and re.search(r"[^\[]+\[\[.+\]\]", first[0]), told)
    report.equal("memory is predicted once and measured once", (told.count("of a rank, predicted: "), told.count("memory of a rank, peak: ")), (1, 1))
    facts = ("run", "model", "method", "data", "precision", "strategy", "memory", "steps")
    report.equal("a line for each fact", [what for what in facts if len(re.findall(rf"info    \[0/2\] {what} {{2,}}\S", told)) != 1], [])
    parts = json.loads((tmp / "out/train_results.json").read_text())
    for part in ("activations", "buffers"):
        report.check(f"{part}: held {parts[f'memory_{part}'] / 1e6:.2f} MB, predicted off by",
                     abs(parts[f"memory_{part}_predicted"] / parts[f"memory_{part}"] - 1), 0.25)

    told = json.loads(run([qft, "plan", run_file, "--ranks", 2, "--json"]).stdout)
    ddp = next(row["memory"]["total"] for row in told["rows"] if row["strategy"] == "ddp")
    report.check(f"qft plan: {ddp / 1e6:.0f} MB; the run predicted {parts['memory_predicted'] / 1e6:.0f}, off by", abs(ddp / parts["memory_predicted"] - 1), 0.1)

    model = Path(settings["model_name_or_path"]) / "config.json"
    model.write_text(json.dumps(json.loads(model.read_text()) | {"attention_dropout": 0.1}))
    broken = mpirun(2, [qft, "train", run_file, "output_dir=" + str(tmp / "broken"), "learning_rate=1e30", "lr_scheduler_type=constant", "max_grad_norm=0"], check=False)
    log = (tmp / "broken/trainer_log.jsonl").read_text() + broken.stderr
    report.holds("dropout that config.json asks for, and that is not applied, is named", "attention_dropout" in broken.stderr, broken.stderr)
    report.holds("a loss that is no number is nan, not -nan", "nan" in log and "-nan" not in log, log)

    wrong = mpirun(2, [qft, "train", run_file, "output_dir=" + str(tmp / "wrong"), "lora_target=q_prj"], check=False)
    report.holds("a target that is not there is refused before anything is packed",
                 wrong.returncode == 2 and "'q_prj'" in wrong.stderr and "packed" not in wrong.stderr and not (tmp / "wrong").exists(), wrong.stderr)


def binding(report, qft, tmp, settings):
    """mpirun binds one rank to one core: worth a word where the job has more of them."""
    cpus = sorted(os.sched_getaffinity(0))
    run_file = write(tmp / "bound.yaml", {**settings, "output_dir": str(tmp / "bound")})
    command = ["mpirun", "--bind-to", "core", "-np", "1", str(qft), "train", str(run_file), "overwrite_output_dir=true", "resume_from_checkpoint=false"]
    for name, mine, advice in [("one CPU", cpus[:1], False)] + ([("more CPUs", cpus, True)] if len(cpus) > 1 else []):
        result = subprocess.run(command, capture_output=True, text=True, preexec_fn=lambda: os.sched_setaffinity(0, mine))
        report.equal(f"a job that has {name} is {'' if advice else 'not '}told of idle ones", (result.returncode, "idle" in result.stderr), (0, advice))


def answers(report, qft, tmp, settings):
    run_file = write(tmp / "talk.yaml", {key: settings[key] for key in ("model_name_or_path", "template")} | {"max_new_tokens": 8, "compute_dtype": "float32"})

    def generate(*words, text=None, name="generate"):
        source = {"input": text} if text is not None else {"stdin": subprocess.DEVNULL}
        return subprocess.run([qft, name, run_file, *words], capture_output=True, timeout=120, **source)

    none = generate()
    report.holds("generate without a prompt says how to give one", none.returncode == 2 and b'prompt="..."' in none.stderr and b"pipe" in none.stderr, none.stderr)
    greedy = generate("prompt=hi", "do_sample=false").stdout
    report.equal("a prompt may be piped in", generate("do_sample=false", text=b"hi\n").stdout, greedy)
    report.equal("temperature 0 is the most probable token", generate("prompt=hi", "temperature=0").stdout, greedy)
    long = generate("prompt=" + "number " * 600)
    report.holds("a prompt beyond the model's positions is refused with both lengths",
                 long.returncode == 2 and re.search(rb"has \d{3,} tokens, but the model has 512 positions", long.stderr), long.stderr)
    cut = generate("prompt=" + "number " * 470, "max_new_tokens=400", "do_sample=false")
    report.holds("an answer ends at the model's positions, and that is said", cut.returncode == 0 and b"512 positions" in cut.stderr, cut.stderr)
    talk = generate("max_new_tokens=4", text=b"hi \xff\nhello\n" + b"number " * 600 + b"\nonce more\n", name="chat")
    report.holds("a line that is not UTF-8, or too long, does not end a chat",
                 talk.returncode == 0 and talk.stdout.count(b"> ") == 5 and b"not UTF-8" in talk.stderr and b"512 positions" in talk.stderr, talk.stderr)


def implemented(report, qft):
    """The table of qft --help agrees with qft help KEY, and docs/models.md has all architectures."""
    table = run([qft, "--help"]).stdout.partition("What is implemented:\n\n")[2]
    values = {key: words.split(", ") for key, words in re.findall(r"^  (\w+) +(\S.*)$", table, re.M)}
    rows = (ROOT / "docs/models.md").read_text().partition("| `model_type` |")[2].partition("\n\n")[0]
    described = [name for cell in re.findall(r"^\| ([^|]+) \|", rows, re.M) for name in re.findall(r"`(\w+)`", cell)]
    report.equal("docs/models.md describes the architectures", sorted(described), sorted(values.pop("model_type")))
    report.holds("qft --help lists values of stage and optim", {"stage", "optim"} <= set(values), table)
    for key, words in values.items():
        told = " ".join(run([qft, "help", key]).stdout.split())
        known, missing = re.search(r" value one of (.+?)(?:; not implemented: (.+?))? default ", told).groups("")
        report.equal(f"... and of {key} those of qft help", words, [word for word in known.split(", ") if word not in missing.split(", ")])


def main():
    args = arguments()
    qft = args.build / "bin/qft"
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = make(tmp, vocabulary=49152) | {"compute_dtype": "float32", "max_steps": 4, "save_strategy": "no"}
        implemented(report, qft)
        answers(report, qft, tmp, settings)
        training(report, qft, tmp, settings)
        binding(report, qft, tmp, settings)
    report.finish()


main()
