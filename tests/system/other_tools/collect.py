"""Writes swift.json and llama_factory.json: the arguments of both tools' examples, from checkouts of them.

    collect.py MS_SWIFT LLAMA_FACTORY
"""
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import yaml

HERE = Path(__file__).parent
# Examples of models that see or hear are counted, not listed: \bgme is a model, expandable_segments is not.
MEDIA = re.compile(r"freeze_vit|VL|Omni|OCR|multimodal|mllm|vlm|ovis|keye|minicpmv|internvl|glm-4.6v|moss|deepseek_vl2|gemma|omni|"
                   r"audio|all_to_all|qwen3_tts|llama4|phi4_mm|\bgme", re.IGNORECASE)
OURS = re.compile(r"\bswift (sft|pt|rlhf|infer|export)\b|swift/cli/(sft|pt|rlhf|infer|export)\.py|\bmegatron (sft|pt|rlhf|export)\b")
ANY = re.compile(r"\b(swift|megatron) (\w[\w-]*)\b(?= )|swift/cli/(\w+)\.py")


def show(repository, path):
    return subprocess.run(["git", "-C", repository, "show", f"HEAD:{path}"], capture_output=True, text=True).stdout


def files(repository, under):
    out = subprocess.run(["git", "-C", repository, "ls-tree", "-r", "HEAD", "--name-only", under], capture_output=True, text=True)
    return out.stdout.split()


def commands(repository):
    for path in files(repository, "examples"):
        if not path.endswith(".sh"):
            continue
        for line in re.sub(r"\\\n", " ", show(repository, path)).splitlines():
            line = line.strip()
            if line and not line.startswith("#") and ANY.search(line):
                yield path, line


def parse(path, line):
    """What runs, and its arguments; the launcher goes."""
    line = line.replace("$SCRIPT_DIR", str(Path(path).parent))
    line = re.sub(r"\$\(.*?\)", "2", line)
    line = re.sub(r"\s[12]?>.*$", "", line)
    words = shlex.split(line)
    launcher = re.search(r"accelerate launch.*?--config_file\s+\"?([^\s\"]+)", line)
    at = next(i for i, w in enumerate(words) if re.search(r"swift/cli/\w+\.py$", w) or (w in ("swift", "megatron") and words[i + 1] in
              ("sft", "pt", "rlhf", "infer", "export")))
    cli = re.search(r"cli/(\w+)\.py$", words[at])
    program = cli.group(1) if cli else ("megatron " if words[at] == "megatron" else "") + words[at + 1]
    row = {"program": program, "args": words[at + (1 if cli else 2):]}
    if launcher:
        row["accelerate"] = launcher.group(1)
    return row


def swift(repository):
    rows, others = [], {}
    for path, line in commands(repository):
        name = path.removeprefix("examples/")
        if OURS.search(line) and not MEDIA.search(path + line):
            rows.append({"example": name, **parse(path, line)})
        else:
            found = ANY.search(line)
            kind = f"{found.group(1)} {found.group(2)}" if found.group(1) else f"swift {found.group(3)}"
            if OURS.search(line):
                kind += " (images, video, sound)"
            others[kind] = others.get(kind, 0) + 1
    for row in rows:  # a run file that lies beside its script
        beside = Path("examples", row["example"]).parent
        row["args"] = [str(beside / a) if a.endswith(".yaml") and not show(repository, a) and show(repository, beside / a) else a for a in row["args"]]
    wanted = {a for r in rows for a in r["args"] + [r.get("accelerate", "")] if re.search(r"\.(json|ya?ml)$", a)}
    held = {}
    for name in sorted(wanted):
        text = show(repository, name.removeprefix("./"))
        if text:
            content = yaml.safe_load(text) if not name.endswith(".json") else json.loads(text)
            held[name] = {k: v for k, v in content.items() if not k.startswith("_")}
    return {"commit": head(repository), "commands": rows, "files": held, "others": others}


def head(repository):
    return subprocess.run(["git", "-C", repository, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()[:12]


def llama_factory(repository):
    runs, held = {}, {}
    for path in files(repository, "examples"):
        if path.startswith(("examples/deepspeed/", "examples/accelerate/")):
            text = show(repository, path)
            held[path] = json.loads(text) if path.endswith(".json") else yaml.safe_load(text)
        elif path.endswith(".yaml"):
            content = yaml.safe_load(show(repository, path))
            if {"model_name_or_path", "model"} & set(content):
                runs[path.removeprefix("examples/")] = content
                if "train_dataset" in content:  # of version 1: a file that describes the data
                    held[content["train_dataset"]] = yaml.safe_load(show(repository, content["train_dataset"]))
    return {"commit": head(repository), "runs": runs, "files": held}


def main():
    for name, facts in (("swift", swift(sys.argv[1])), ("llama_factory", llama_factory(sys.argv[2]))):
        text = json.dumps(facts, ensure_ascii=False, indent=1)
        text = re.sub(r"\[\n\s+([^\[\]{}]*?)\n\s+\]", lambda m: "[" + re.sub(r"\n\s+", " ", m.group(1)) + "]", text)
        (HERE / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
