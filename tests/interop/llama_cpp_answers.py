"""llama_cpp_answers.py DIR: what answers.py left there, asked by llama.cpp's chat completion (llama-cpp-python)."""
import json
import sys
from pathlib import Path

from llama_cpp import Llama

from common import Report

report, told = Report(), json.loads((Path(sys.argv[1]) / "cases.json").read_text())
for name, folder in told["cases"].items():
    model = Llama(str(next(Path(folder).glob("*.gguf"))), n_ctx=512, n_threads=1, verbose=False)
    answer = model.create_chat_completion([{"role": "user", "content": told["question"]}], max_tokens=told["limit"], temperature=0.0)["choices"][0]
    report.equal(f"{name}: what llama.cpp answers", answer["message"]["content"].strip(), told["answer"])
    report.equal(f"{name}: why it ended", answer["finish_reason"], "stop")
report.finish()
