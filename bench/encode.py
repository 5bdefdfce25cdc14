#!/usr/bin/env python3
"""Tokenisation speed, qft and HF tokenizers side by side, one thread each, on text that neither has seen.

    .venv/bin/python bench/encode.py --program build/bin/bench_tokenize --tokenizer DIR... --files FILE...

FILE: plain text, or JSON / JSON lines, of which every string counts as a text; the texts are shuffled. HF encodes by encode_batch. A round is a
fresh qft process and a fresh HF tokenizer. "cold" is the first half of the texts, which meets empty caches; "new" is
the second half, after it. MB/s of CPU time (other processes do not count), the median of the rounds.
"""

import argparse
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time

BATCH = 1000  # texts that HF's encode_batch gets at once

os.environ["TOKENIZERS_PARALLELISM"] = "false"


def strings_of(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from strings_of(member)
    elif isinstance(value, list):
        for member in value:
            yield from strings_of(member)


def read_texts(path):
    text = path.read_text()
    if path.suffix == ".jsonl":
        return list(strings_of([json.loads(line) for line in text.splitlines()]))
    return list(strings_of(json.loads(text))) if path.suffix == ".json" else [text]


def time_hf(tokenizer_dir, texts):
    from tokenizers import Tokenizer

    start = time.thread_time()
    tokenizer = Tokenizer.from_file(str(tokenizer_dir / "tokenizer.json"))
    load = time.thread_time() - start
    tokens, seconds = 0, []
    for half in (texts[: len(texts) // 2], texts[len(texts) // 2 :]):
        start = time.thread_time()
        for first in range(0, len(half), BATCH):
            batch = tokenizer.encode_batch(half[first : first + BATCH], add_special_tokens=False)
            tokens += sum(len(encoding) for encoding in batch)
        seconds.append(time.thread_time() - start)
    return load, tokens, seconds


def speeds(sizes, seconds):
    return [size / second / 1e6 for size, second in zip(sizes, seconds)]


def measure(program, folder, texts, rounds):
    """Medians over the rounds of (load, cold, new) for qft and for HF."""
    ours, theirs = [], []
    with tempfile.NamedTemporaryFile() as file:
        for text in texts:
            data = text.encode()
            file.write(struct.pack("<I", len(data)) + data)
        file.flush()
        for _ in range(rounds):
            line = subprocess.run([program, folder, file.name], check=True, capture_output=True).stdout
            result = json.loads(line)
            load, tokens, seconds = time_hf(folder, texts)
            if tokens != result["tokens"]:
                raise SystemExit(f"{folder}: qft gives {result['tokens']} tokens, HF {tokens}")
            ours.append([result["load"], *speeds(result["bytes"], result["seconds"])])
            theirs.append([load, *speeds(result["bytes"], seconds)])
    return [[statistics.median(column) for column in zip(*rows)] for rows in (ours, theirs)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--tokenizer", required=True, type=pathlib.Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", required=True, type=pathlib.Path, nargs="+")
    args = parser.parse_args()
    header = ["tokenizer", "text", "MB", "qft cold", "HF cold", "ratio", "qft new", "HF new", "ratio", "load", "HF load"]
    print(("{:10} {:28}" + " {:>8}" * 9).format(*header))
    for folder in args.tokenizer:
        for path in args.files:
            texts = read_texts(path)
            random.Random(1).shuffle(texts)
            ours, theirs = measure(args.program, folder, texts, args.rounds)
            size = sum(len(text.encode()) for text in texts) / 1e6
            row = [size, ours[1], theirs[1], ours[1] / theirs[1], ours[2], theirs[2], ours[2] / theirs[2]]
            print(("{:10} {:28}" + " {:8.1f}" * 7 + " {:8.3f}" * 2).format(folder.name, path.name, *row, ours[0], theirs[0]),
                  flush=True)


if __name__ == "__main__":
    main()
