#!/usr/bin/env python3
"""Holds qft's tokenizer against HF tokenizers: same ids, same decoded text, for every string it can think of.

Made-up tokenizers (pipelines.py) run everywhere; real ones are those beside the checkout, or in models/.
"""

import argparse
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import threading

import pipelines
import strings
from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parents[2]


def exchange(program, folder, texts):
    """Sends the texts to tokenizer_pipe; yields (ids, decoded, decoded without specials, streamed), or None."""
    process = subprocess.Popen([program, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def send():
        for text in texts:
            process.stdin.write(struct.pack("<I", len(text)) + text)
        process.stdin.close()

    sender = threading.Thread(target=send)
    sender.start()

    def take(size):
        data = process.stdout.read(size)
        if len(data) != size:
            raise SystemExit(f"tokenizer_pipe {folder} stopped early, exit code {process.wait()}")
        return data

    def take_text():
        return take(struct.unpack("<I", take(4))[0]).decode()

    for _ in texts:
        (count,) = struct.unpack("<I", take(4))
        if count == 0xFFFFFFFF:
            yield None
            continue
        ids = list(struct.unpack(f"<{count}i", take(4 * count)))
        yield ids, take_text(), take_text(), take_text()
    sender.join()
    if process.wait() != 0:
        raise SystemExit(f"tokenizer_pipe {folder} failed with exit code {process.returncode}")


def compare(program, folder, texts):
    """Number of texts that differ; prints the first few."""
    judge = Tokenizer.from_file(str(folder / "tokenizer.json"))
    wrong = 0
    results = exchange(program, str(folder), [text.encode() for text in texts])
    encodings = judge.encode_batch(texts, add_special_tokens=False)
    for text, encoding, result in zip(texts, encodings, results, strict=True):
        want = encoding.ids
        decoded = judge.decode(want, skip_special_tokens=False)
        expected = (want, decoded, judge.decode(want, skip_special_tokens=True), decoded)
        if result == expected:
            continue
        wrong += 1
        if wrong <= 5:
            for name, ours, theirs in zip(("ids", "decode", "skip_special", "stream"), result or [None] * 4, expected):
                if ours != theirs:
                    print(f"{folder.name}: {name} differ for {text[:80]!r} ({len(text)} characters)")
                    print(f"  qft {str(ours)[:400]}\n  HF  {str(theirs)[:400]}")
                    break
    return wrong


def refuses_broken_utf8(program, folder):
    cases = strings.broken_utf8()
    accepted = [case for case, result in zip(cases, exchange(program, str(folder), cases), strict=True) if result]
    for case in accepted:
        print(f"{folder.name}: broken UTF-8 {case!r} was encoded")
    return len(accepted)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--shared", required=True, type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--complete", action="store_true", help="100,000 strings and every Unicode block, for each real tokenizer")
    args = parser.parse_args()
    wrong = total = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name, spec in pipelines.variants():
            folder = pathlib.Path(scratch) / name
            folder.mkdir()
            (folder / "tokenizer.json").write_text(json.dumps(spec))
            texts = strings.generate(random.Random(args.seed), spec["added_tokens"], count=2000, share=32)
            if not pipelines.is_scanned(spec):  # PCRE2 may have an older Unicode than the judge's regex engine
                texts = [strings.only_old_characters(text) for text in texts]
            wrong += compare(args.program, folder, texts)
            total += len(texts)
    # Beside the checkout, and the one that examples/make_smollm2.py makes.
    real = sorted((args.shared / "tokenizers").glob("*/tokenizer.json")) or sorted(ROOT.glob("models/*/tokenizer.json"))
    for file in real:
        added = json.loads(file.read_text())["added_tokens"]
        count, share = (100_000, 1) if args.complete else (12_000, 8)
        texts = strings.generate(random.Random(args.seed), added, count, share)
        texts += strings.long_words()
        for folder in (args.shared / "data", ROOT / "examples/data", ROOT / "tests/data/golden"):
            texts += strings.data_texts(folder)
        wrong += compare(args.program, file.parent, texts)
        wrong += refuses_broken_utf8(args.program, file.parent)
        total += len(texts)
    print(f"{total} texts, {wrong} differ; real tokenizers: {', '.join(f.parent.name for f in real) or 'none found'}")
    if not real:
        print("skipped: no real tokenizer, neither beside the checkout nor in models/ (examples/make_smollm2.py)")
    return 1 if wrong else 0 if real else 77


if __name__ == "__main__":
    sys.exit(main())
