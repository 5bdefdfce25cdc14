"""The texts that `PROGRAM help` makes: the page of keys has all of them, bash completes with the scripts, groff formats the man pages."""
import functools
import os
import pty
import re
import select
import shutil
import subprocess
import tempfile
from pathlib import Path

from common import Report, arguments, run

PROGRAMS = ("qft", "qft-pack", "qft-ckpt")
PROMPT = b"ready> "


@functools.cache
def text_of(*command):
    """What the command prints. Each is run once."""
    return run(command).stdout


def check_keys_page(report, qft):
    page = text_of(qft, "help", "keys")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    report.equal("rows of the page of keys without five filled cells",
                 [row for row in rows if not re.fullmatch(r"\|" + r" (?:[^|\\]|\\.)*[^\s|](?:[^|\\]|\\.)* \|" * 5, row)], [])
    shown = re.findall(r"^  (\w+) +\S", text_of(qft, "train", "--help").partition("its keys")[2], re.M)
    missing = [key for key in shown if f"\n| `{key}` | " not in page]
    report.holds(f"the page has the {len(shown)} keys of qft train --help", len(shown) > 200 and not missing, missing)


def check_files(report, build):
    """The build writes the files that are installed."""
    for program in PROGRAMS:
        keys = [("keys", "share/doc/qft/keys.md")] if program == "qft" else []
        for topic, file in (("man", f"share/man/man1/{program}.1"), ("bash", f"share/bash-completion/completions/{program}"), *keys):
            path, text = build / file, text_of(build / "bin" / program, "help", topic)
            report.holds(f"{file} is what `{program} help {topic}` prints", path.exists() and path.read_text() == text, "it differs, or is not there")


def check_topics(report, build):
    for program in PROGRAMS:
        for topic in ("man", "bash"):
            report.holds(f"{program} help names {topic}", re.search(rf"^  {topic} +\w", text_of(build / "bin" / program, "help"), re.M))
        wrong = run([build / "bin" / program, "help", "mna"], check=False)
        report.holds(f"{program} help refuses an unknown topic", wrong.returncode == 2 and "'mna'" in wrong.stderr and not wrong.stdout, wrong)
    report.holds("qft help names keys", "\n  keys " in text_of(build / "bin/qft", "help"))
    explained = [text_of(build / "bin" / program, "help", "lora_rank") for program in ("qft", "qft-pack")]
    report.holds("qft and qft-pack explain a key", explained[0].startswith("lora_rank: ") and explained[0] == explained[1], explained)
    report.holds("help of a command is its --help", text_of(build / "bin/qft-ckpt", "help", "gc") == text_of(build / "bin/qft-ckpt", "gc", "--help"))


class Completion:
    """Calls the completion functions as bash does."""

    def __init__(self, build, folder):
        self.scripts, self.folder = {}, folder
        for program in PROGRAMS:
            self.scripts[program] = folder / f"{program}.bash"
            self.scripts[program].write_text(text_of(build / "bin" / program, "help", "bash"))

    def __call__(self, *words):
        """The candidates for the last word. As in bash, key=value is three words, or two if the value is empty."""
        code = 'source "$1" && COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2)) && "_${2//-/_}"; printf "%s\\n" "${COMPREPLY[@]}"'
        result = run(["bash", "--norc", "-c", code, "bash", self.scripts[words[0]], *words], cwd=self.folder)
        if result.stderr:
            raise SystemExit(f"FAILED: {words}: {result.stderr}")
        return result.stdout.split()


def check_candidates(report, complete, qft):
    (complete.folder / "my.yaml").touch()
    (complete.folder / "lora_data.json").touch()
    stages = re.split(r",\s+", re.search(r"^  value +one of (.+?)\n  default", text_of(qft, "help", "stage"), re.M | re.S)[1])
    for words, expected in {
        ("qft", "tr"): ["train", "track"],
        ("qft", "t", "learning_ra"): [],  # not a subcommand
        ("qft", "--v"): ["--version"],
        ("qft", "train", "my.yaml", "learning_ra"): ["learning_rate="],
        ("qft", "train", "--learning_ra"): ["--learning_rate"],
        ("qft", "train", "--learning-ra"): ["--learning_rate"],
        ("qft", "train", "stage", "="): stages,
        ("qft", "train", "stage", "=", "s"): [stage for stage in stages if stage[0] == "s"],
        ("qft", "train", "--stage", ""): stages,
        ("qft", "train", "--stage", "=", "kt"): ["kto"],
        ("qft", "train", "--pref-loss", "k"): [],  # kto_pair is not implemented
        ("qft", "train", "--bf16", ""): ["true", "false"],
        ("qft", "train", "bf16", "=", "f"): ["false"],
        ("qft", "train", "--bf16", "learning_ra"): ["learning_rate="],
        ("qft", "train", "--output_dir", "lora_r"): [],  # a file
        ("qft", "train", "output_dir", "=", "lora_r"): [],
        ("qft", "train", ""): [],
        ("qft", "train", "my"): [],
        ("qft", "train", "--log-level", ""): ["trace", "debug", "info", "warning", "error"],
        ("qft", "train", "--log-l"): ["--log-level"],
        ("qft", "train", "lora_da"): [],
        ("qft", "train", "lora_d"): ["lora_dropout=", "lora_data.json"],  # a key beside a file
        ("qft", "plan", "--machine", "h"): ["h100", "h200"],
        ("qft", "plan", "--machine", "=", "li"): ["list"],
        ("qft", "plan", "--json", "learning_ra"): ["learning_rate="],
        ("qft", "check", "--machine", "li"): [],
        ("qft", "bench", "gem"): ["gemm"],
        ("qft", "chat", "learning_ra"): [],  # chat does not read it
        ("qft", "chat", "temperat"): ["temperature="],
        ("qft", "help", "lora_rank"): ["lora_rank"],
        ("qft-pack", "ins"): ["inspect"],
        ("qft-pack", "my.yaml", "cutoff"): ["cutoff_len="],
        ("qft-pack", "cutoff"): ["cutoff_len="],
        ("qft-pack", "-o", "cutoff"): [],
        ("qft-pack", "head", "--it"): ["--items"],
        ("qft-pack", "head", "cutoff"): [],
        ("qft-ckpt", "ver"): ["verify"],
        ("qft-ckpt", "gc", "--dry"): ["--dry-run"],
        ("qft-ckpt", "gc", "-n", ""): [],
        ("qft-ckpt", "help", "b"): ["bash"],
    }.items():
        report.equal(" ".join(words) + "<TAB>", complete(*words), expected)
    shown = text_of(qft, "train", "--help")
    options = set(re.findall(r"^  .*?--([a-z][\w-]+)", shown.partition("Keys of RUN.yaml")[0], re.M)) | set(re.findall(r"^  (\w+) +\S", shown.partition("its keys")[2], re.M))
    report.equal("qft train --<TAB> lists all of --help", options ^ {word[2:] for word in complete("qft", "train", "--")}, set())


class Terminal:
    """An interactive bash that types."""

    def __init__(self, folder):
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"],
                       {"PATH": os.environ["PATH"], "TERM": "dumb", "PS1": PROMPT.decode(), "INPUTRC": "/dev/null", "HISTFILE": ""})
        self.read()

    def read(self):
        text = b""
        while text != PROMPT and not text.endswith(b"\n" + PROMPT):  # readline also draws it anew within a line
            if not select.select([self.master], [], [], 30)[0]:
                raise SystemExit(f"FAILED: no prompt after {text}")
            text += os.read(self.master, 65536)
        return text.decode()

    def enter(self, line):
        os.write(self.master, line.encode() + b"\n")
        return self.read()

    def tab(self, line):
        """The line after TAB: it is put into quotes behind echo."""
        text = self.enter(line + "\t" + "\x01" + 'echo "[' + "\x05" + ']"')
        return re.findall(r"^\[(.*)\]\r?$", text, re.M)[-1]

    def close(self):
        os.write(self.master, b"exit\n")
        os.waitpid(self.pid, 0)
        os.close(self.master)


def check_terminal(report, complete):
    """What readline makes of the candidates: blanks, equal signs, files and folders."""
    (complete.folder / "outputs").mkdir()
    terminal = Terminal(complete.folder)
    terminal.enter("bind 'set bell-style none'")
    for script in complete.scripts.values():
        terminal.enter(f"source {script.name}")
    for line, expected in {
        "qft tr": "qft tra",
        "qft trai": "qft train ",
        "qft train my": "qft train my.yaml ",
        "qft train my.yaml learning_ra": "qft train my.yaml learning_rate=",
        "qft train my.yaml --learning-ra": "qft train my.yaml --learning_rate ",
        "qft train my.yaml stage=sf": "qft train my.yaml stage=sft ",
        "qft train my.yaml --stage sf": "qft train my.yaml --stage sft ",
        "qft train my.yaml output_dir=out": "qft train my.yaml output_dir=outputs/",
        "./bin/qft plan my.yaml --machine h1": "./bin/qft plan my.yaml --machine h100 ",
        "qft-pack my.yaml --output out": "qft-pack my.yaml --output outputs/",
        "qft-ckpt verify out": "qft-ckpt verify outputs/",
    }.items():
        report.equal(f"on a terminal: {line}<TAB>", terminal.tab(line), expected)
    terminal.close()


def check_man(report, build):
    for program in PROGRAMS:
        page = text_of(build / "bin" / program, "help", "man")
        heads = re.findall(r"^\.SH (.*)", page, re.M)
        keys = [] if program == "qft-ckpt" else ["KEYS"]
        report.equal(f"{program}(1) has the usual sections", heads, ["NAME", "SYNOPSIS", "COMMANDS", "OPTIONS", *keys, "EXIT STATUS", "SEE ALSO"])
        report.equal("    ... no text is taken for a macro", set(re.findall(r"^(['.]\S*)", page, re.M)) - {".TH", ".SH", ".SS", ".TP", ".nf", ".fi", ".nh", ".ad", ".br"}, set())
        report.equal("    ... and no line is empty", [n for n, line in enumerate(page.splitlines(), 1) if not line.strip()], [])
        if shutil.which("groff"):
            shown = subprocess.run(["groff", "-man", "-ww", "-Kutf8", "-Tascii", "-P-cbou"], input=page, capture_output=True, text=True, check=True)
            report.equal("    ... groff has no warning", shown.stderr, "")
            report.holds("    ... options keep their hyphens", "--log-level arg" in shown.stdout and program in shown.stdout, shown.stdout)


def main():
    args = arguments()
    report = Report()
    check_keys_page(report, args.build / "bin/qft")
    check_files(report, args.build)
    check_topics(report, args.build)
    check_man(report, args.build)
    with tempfile.TemporaryDirectory() as folder:
        complete = Completion(args.build, Path(folder))
        check_candidates(report, complete, args.build / "bin/qft")
        check_terminal(report, complete)
    report.finish()


main()
