"""Cases made after reports of people who fine-tune models, as folders beside the checkout: input, run file and the right answer. Those
about texts are packed and their samples compared; those about models, adapters and exports are run by their own script with --all."""
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from common import ROOT, Report, arguments

CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call><|im_end|>\n'
THOUGHT = "<think>\n{}\n</think>\n\n"
TOOL = ('{"type": "function", "function": {"name": "weather", "description": "Weather of a city", "parameters": {"type": "object", '
        '"properties": {"city": {"type": "string"}}, "required": ["city"]}}}')


class Case:
    """What a run printed: its exit code, the log, and each sequence with what is learned in [[ ]]."""

    def __init__(self, text):
        lines = text.splitlines()
        self.code = int(lines[0].rsplit(" ", 1)[1])
        self.log, self.texts = "\n".join(lines), []
        for line in lines[1:]:
            if m := re.fullmatch(r'(TEXT|chosen|rejected) (".*")', line):
                self.texts.append((m[1], json.loads(m[2])))

    def learned(self):
        return [re.findall(r"\[\[(.*?)\]\]", text, re.DOTALL) for _, text in self.texts]

    def plain(self):
        return [text.replace("[[", "").replace("]]", "") for _, text in self.texts]


def quoted(folder):
    """The texts in quotes of expected.txt that hold whole turns."""
    found = re.findall(r'^(?:\w+: )?("(?:[^"\\]|\\.)*")', (folder / "expected.txt").read_text(), re.MULTILINE)
    return [json.loads(text) for text in found]


def refused(case, *words):
    return case.code != 0 and all(word in case.log for word in words)


# By folder: whether what was printed is right.
CHECKS = {
    "A1-reasoning-content": lambda c, f: c.learned() == [[THOUGHT.format("17*3 is 51") + "51<|im_end|>\n"]] * 3,
    "A1-reasoning-content-dpo": lambda c, f: c.learned() == [[THOUGHT.format("R1") + "a<|im_end|>\n"], [THOUGHT.format("R2") + "b<|im_end|>\n"]],
    "A11-empty-tools": lambda c, f: c.plain() == ["<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\na<|im_end|>\n"] * 2,
    "A12-tools-list-of-texts": lambda c, f: f"\n<tools>\n{TOOL}\n</tools>\n" in c.plain()[0],
    "A14-parquet-map": lambda c, f: '"arguments": {"a": "1"}}' in c.plain()[0],
    "A15-duplicate-key": lambda c, f: refused(c, "d.jsonl:1", "output", "old", "new"),
    "A16-function_call": lambda c, f: c.learned() == [[CALL]],
    "A17-content-blocks": lambda c, f: c.learned() == [["a1a2<|im_end|>\n"]],
    "A18-call-without-arguments": lambda c, f: [turn[0] for turn in c.learned()] == ['<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call><|im_end|>\n'] * 3,
    "A19-dpo-null-thinking": lambda c, f: len(c.texts) == 4 and all(text.count("<think>") == 1 for text in c.plain())
    and len({text.split("[[")[0] for _, text in c.texts}) == 1,
    "A2-arguments-json-text": lambda c, f: c.learned() == [[CALL, "Rain.<|im_end|>\n"]],
    "A2-arguments-not-json": lambda c, f: refused(c, "d.jsonl:1", "message 2", "arguments", "JSON"),
    "A22-kto-csv-true-false": lambda c, f: c.code == 0 and "into 2 items" in c.log,
    "A23-messages-as-text": lambda c, f: c.learned() == [["a<|im_end|>\n"]],
    "A26-empty-answer-is-learned": lambda c, f: c.learned() == [["x<|im_end|>\n"]] and "1 of 2 records dropped: 1 empty answer" in c.log,
    "A27-csv-semicolon": lambda c, f: refused(c, "';'"),
    "A3-dpo-tool_calls-in-chosen": lambda c, f: c.learned() == [[CALL], ["no<|im_end|>\n"]],
    "A3-text-beside-tool_calls": lambda c, f: c.learned() == [["Let me look.\n" + CALL, "Rain.<|im_end|>\n"]],
    "A4-swift-agent-format": lambda c, f: len(c.texts) == 3
    and CALL.replace("<|im_end|>\n", "") + "\n" + CALL.replace("Oslo", "Rome") in c.learned()[0][0]
    and "<tool_response>\nrain\n</tool_response>\n<tool_response>\nsun\n</tool_response><|im_end|>\n" in c.plain()[0]
    and c.learned()[1][0] == THOUGHT.format("look") + CALL,
    "A4-two-tool_call-blocks-reordered": lambda c, f: c.learned()[0][0] == THOUGHT.format("T")
    + '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n<tool_call>\n{"name": "g", "arguments": {}}\n</tool_call><|im_end|>\n',
    "A5-parquet-bytes": lambda c, f: c.learned() == [["hi<|im_end|>\n"], ["ho<|im_end|>\n"]],
    "A6-system-from-record-65": lambda c, f: c.plain()[-1].startswith("<|im_start|>system\nAnswer in French.<|im_end|>\n") and c.code == 0,
    "A7-qwen3_5-tools": lambda c, f: "differs from the model's own chat template" in c.log and "\n<tools>\n{" in c.plain()[0],
    "A8-chain-thoughts-dpo": lambda c, f: c.plain()[0] == quoted(f)[0] and all("T0" not in text and "\nT1\n" in text for text in c.plain())
    and c.learned()[1] == [THOUGHT.format("T3") + "bad<|im_end|>\n"],
}
# What their scripts must print, by folder.
SCRIPTS = {
    "B1-tied-other-head": [r"m has lm_head.weight: True", r"x has lm_head.weight: True", r"full has lm_head.weight: True"],
    "B11-rope_scaling-beside-rope_parameters": [],
    "B2-alora": [r"alora_invocation_tokens"],
    "D1-end-token-of-the-base": [r"transformers generate\(\) on full: 1 new", r"transformers generate\(\) on x: 1 new",
                                 r"'tokenizer.ggml.eos_token_id': 2", r'full:\s+"eos_token": "<\|im_end\|>"', r'x:\s+"eos_token": "<\|im_end\|>"'],
    "D3-end-tokens-of-the-model": [r'"predict": ""', r"perplexity"],
    "D5-gguf-kinds-of-added-tokens": [r"'<\|fim_prefix\|>', 3", r"'<tool_call>', 4", r"'<\|im_new\|>', 3", r"'<pad>', 3", r"'<unused0>', 3", r"'<mask>', 3"],
}


def losses(output):
    """The losses that qft and transformers print, in turn."""
    ours = [float(x) for x in re.findall(r"eval_loss\s+([\d.]+)", output)]
    theirs = [float(x) for x in re.findall(r"transformers[^:]*: loss of [^:]*: ([\d.]+)", output)]
    return ours, theirs


def run_script(folder, build, programs):
    scratch = tempfile.mkdtemp()
    path = f"{programs}:{ROOT}/.venv/bin:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "ROOT": str(ROOT), "BIN": str(programs), "PYTHONPATH": f"{ROOT}/tests/system:{ROOT}/tests/interop"}
    return subprocess.run(["bash", folder / "run.sh", scratch], capture_output=True, text=True, env=env).stdout


def judge_script(report, folder, output):
    name = folder.name
    for pattern in SCRIPTS[name]:
        report.holds(f"{name}: {pattern}"[:80], re.search(pattern, output), output)
    ours, theirs = losses(output)
    if name == "B1-tied-other-head":
        report.holds(f"{name}: transformers' loss", len(ours) == 2 and max(abs(a - b) for a, b in zip(ours, theirs)) < 1e-5, output)
    if name == "B2-alora":
        report.holds(f"{name}: only the plain adapter is evaluated", ours and abs(ours[0] - theirs[0]) < 1e-5 and len(ours) <= 2, output)
    if name.startswith("B11"):
        near = [min(abs(a - b) for b in theirs) < 1e-5 for a in ours]
        report.holds(f"{name}: transformers' losses, or an error", len(ours) >= 1 and all(near) and len(ours) + output.count("error:") >= 4, output)


def main():
    args = arguments(shared=str(ROOT.parent / "shared"), all="no")
    cases = Path(args.shared) / "cases"
    if not cases.is_dir():
        print(f"SKIPPED: no cases in {cases}")
        sys.exit(77)
    programs = (args.build / "bin").resolve()
    os.environ["BIN"] = str(programs)
    spec = importlib.util.spec_from_file_location("show", cases / "show.py")
    show = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(show)
    report = Report()
    folders = sorted(folder for folder in cases.iterdir() if folder.is_dir())
    texts = [folder for folder in folders if (folder / "run.yaml").exists() and not (folder / "run.sh").exists()]
    scripts = [folder for folder in folders if (folder / "run.sh").exists()]
    with ThreadPoolExecutor(2) as pool:
        for folder, text in zip(texts, pool.map(lambda f: show.run_case(f), texts)):
            case = Case(text)
            try:
                good = folder.name in CHECKS and CHECKS[folder.name](case, folder)
            except IndexError:
                good = False
            report.holds(folder.name, good, text)
    if args.all == "yes":
        for folder in scripts:
            judge_script(report, folder, run_script(folder, args.build, programs))
    report.finish()


main()
