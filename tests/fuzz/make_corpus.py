#!/usr/bin/env python3
"""Makes the seed corpora, small files that reach every branch of a format: make_corpus.py QFT_PACK"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tokenizer"))
import pipelines  # noqa: E402

FORMATS = ["alpaca", "alpaca pair", "sharegpt", "sharegpt pair", "openai", "openai pair"]  # in the order of fuzz_records.cpp


def records():
    turn = {"conversations": [{"from": "human", "value": "q"}, {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {}}"},
                              {"from": "observation", "value": "r"}, {"from": "gpt", "value": "<think>\nt\n</think>\n\na"}],
            "system": "s", "tools": "[{\"name\": \"f\", \"description\": \"d\", \"parameters\": {}}]"}
    call = {"messages": [{"from": "system", "value": "s"}, {"from": "human", "value": "q"},
                         {"from": "gpt", "value": None, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1.5e3}}}]},
                         {"from": "observation", "value": "r"}, {"from": "gpt", "value": "a"}],
            "tools": [{"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}]}
    samples = {
        "alpaca": {"instruction": "q\u00e9\n", "input": "i", "output": "a \\ud83d\\ude00", "history": [["h", "g"]], "system": "s",
                   "category": 3, "tag": {"x": [1, None, True]}},
        "alpaca pair": {"instruction": "q", "chosen": "good", "rejected": "bad"},
        "sharegpt": {**turn, "messages": turn["conversations"]},
        "sharegpt pair": {"messages": [{"from": "human", "value": "q"}], "chosen": {"from": "gpt", "value": "a"},
                          "rejected": {"from": "gpt", "value": "b"}},
        "openai": call,
        "openai pair": {"messages": [{"from": "human", "value": "q"}], "chosen": {"from": "gpt", "value": "a"},
                        "rejected": {"from": "gpt", "value": "b"}},
    }
    for number, name in enumerate(FORMATS):
        line = json.dumps(samples[name])
        yield f"{name}.jsonl".replace(" ", "_"), bytes([number]) + f"{line}\n\n{line}".encode()
        yield f"{name}.json".replace(" ", "_"), bytes([number + 6]) + f"[{line},\n {line}]\n".encode()
    yield "text.txt", bytes([12]) + b"one\r\n\ntwo"


def dataset_infos():
    yield "plain", b'{"a": {"file_name": "a.json"}, "b": {"file_name": ["b.json"], "num_samples": 3}}'
    yield "full", json.dumps({"a": {
        "file_name": "a.jsonl", "formatting": "sharegpt", "ranking": True, "split": "train",
        "columns": {"messages": "m", "chosen": "c", "rejected": "r", "system": "s", "tools": "t"},
        "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}}}).encode()
    yield "refused", b'{"a": {"hf_hub_url": "x/y"}, "b": {"file_name": "../../etc/passwd"}}'


def tokenizers():
    for name, spec in pipelines.variants():
        if name in ("gpt2", "llama3", "deepseek", "flags", "byte_fallback", "digit_runs", "regex_removed_True"):
            yield name, json.dumps(spec, separators=(",", ":"), ensure_ascii=False).encode()


def packs(program):
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "tokenizer.json").write_text(json.dumps(next(spec for name, spec in pipelines.variants() if name == "gpt2")))
        (folder / "d.json").write_text(json.dumps([{"instruction": f"q{i}", "input": "", "output": "a" * i, "k": str(i % 2)} for i in range(1, 6)]))
        (folder / "dataset_info.json").write_text(json.dumps({"d": {"file_name": "d.json", "columns": {
            "prompt": "instruction", "query": "input", "response": "output", "category": "k", "tags": ["k"]}}}))
        subprocess.run([program, f"tokenizer_name_or_path={folder}", f"dataset_dir={folder}", "dataset=d", "template=empty", "stage=sft",
                        "--output", folder / "p.h5"], check=True, stdout=subprocess.DEVNULL)
        yield "sft", (folder / "p.h5").read_bytes()


def main():
    for target, files in (("records", records()), ("dataset_info", dataset_infos()), ("tokenizer", tokenizers()), ("pack", packs(sys.argv[1]))):
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files:
            (folder / name).write_bytes(data)


main()
