#!/usr/bin/env python3
"""Compares qft's tokenizer with HF tokenizers: same ids, same decoded text, for a large set of strings.

Made-up tokenizers (pipelines.py) run everywhere; real ones are the ones beside the checkout and in models/. golden/interop.json
holds the judge's answers, a checksum for every 64 texts.

    interop.py --program build/tests/tokenizer_pipe --shared ../shared              against the recorded answers
    ... --judge      asks HF tokenizers, and writes golden/interop.json anew where all agree
    ... --complete   asks HF tokenizers about more strings, 100,000 and every Unicode block for each real tokenizer
"""

import argparse
import hashlib
import itertools
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

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = pathlib.Path(__file__).with_name("golden") / "interop.json"
BATCH = 64  # texts of one checksum
REFUSED = struct.pack("<I", 0xFFFFFFFF)


def exchange(program, folder, texts):
    """Sends the texts to tokenizer_pipe; yields its answer to each, bytes like answer()'s."""
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

    def take_sized(unit):
        size = take(4)
        return size + take(unit * struct.unpack("<I", size)[0])

    for _ in texts:
        count = take(4)
        if count == REFUSED:
            yield REFUSED
        else:
            yield count + take(4 * struct.unpack("<I", count)[0]) + b"".join(take_sized(1) for _ in range(3))
    sender.join()
    if process.wait() != 0:
        raise SystemExit(f"tokenizer_pipe {folder} failed with exit code {process.returncode}")


def answer(ids, decoded, without_specials):
    """Ids, decoded text, decoded without special tokens, and streamed as tokenizer_pipe writes them."""
    texts = (text.encode() for text in (decoded, without_specials, decoded))
    return struct.pack(f"<I{len(ids)}i", len(ids), *ids) + b"".join(struct.pack("<I", len(text)) + text for text in texts)


def readable(data):
    """The parts of an answer, by name."""
    if data == REFUSED:
        return {"ids": "refused"}
    end = 4 + 4 * struct.unpack_from("<I", data)[0]
    said = {"ids": list(struct.unpack(f"<{end // 4 - 1}i", data[4:end]))}
    for name in ("decode", "skip_special", "stream"):
        size = struct.unpack_from("<I", data, end)[0]
        said[name] = data[end + 4:end + 4 + size].decode(errors="replace")
        end += 4 + size
    return said


def judged(folder, texts):
    """The answers of HF tokenizers."""
    from tokenizers import Tokenizer

    judge = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for encoding in judge.encode_batch(texts, add_special_tokens=False):
        yield answer(encoding.ids, *(judge.decode(encoding.ids, skip_special_tokens=skip) for skip in (False, True)))


def asked(program, folder, texts):
    return exchange(program, str(folder), [text.encode() for text in texts])


def compare(program, folder, texts):
    """Returns the number of texts with answers other than the judge's; prints the first few."""
    wrong = 0
    for text, result, expected in zip(texts, asked(program, folder, texts), judged(folder, texts), strict=True):
        if result == expected:
            continue
        wrong += 1
        if wrong <= 5:
            ours, theirs = readable(result), readable(expected)
            name = next(name for name in theirs if ours.get(name) != theirs[name])
            print(f"{folder.name}: {name} differ for {text[:80]!r} ({len(text)} characters)")
            print(f"  qft {str(ours.get(name))[:400]}\n  HF  {str(theirs[name])[:400]}")
    return wrong


def checksums(answers):
    answers = list(answers)
    return [hashlib.sha256(b"".join(answers[i:i + BATCH])).hexdigest()[:16] for i in range(0, len(answers), BATCH)]


def fingerprints(folder, texts):
    """Checksums of the tokenizer and the texts, on which the recorded answers depend."""
    of_texts = hashlib.sha256("\0".join(texts).encode("utf-8")).hexdigest()
    return {"tokenizer": hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest(), "texts": of_texts}


class Recorded:
    """Compares with the answers in the repository."""

    def __init__(self):
        self.suites = json.loads(GOLDEN.read_text())["suites"]

    def __call__(self, program, name, folder, texts):
        golden = self.suites.get(name)
        if golden is None:
            print(f"FAILED  {name}: no recorded answers (--judge makes them)")
            return 1
        for what, value in fingerprints(folder, texts).items():
            if golden[what] != value:
                print(f"FAILED  {name}: the recorded answers are of another {what} (--judge makes them anew)")
                return 1
        wrong = [i for i, pair in enumerate(zip(checksums(asked(program, folder, texts)), golden["answers"], strict=True)) if pair[0] != pair[1]]
        for i in wrong[:5]:
            print(f"FAILED  {name}: texts {i * BATCH} to {i * BATCH + BATCH - 1} have other answers than recorded")
        if wrong and compare(program, folder, texts[wrong[0] * BATCH:(wrong[0] + 1) * BATCH]) == 0:
            print(f"{name}: HF tokenizers as installed agrees with qft, not with what was recorded of it")
        return len(wrong)


class Judge:
    """Asks HF tokenizers and keeps its answers."""

    def __init__(self):
        self.suites = {}

    def __call__(self, program, name, folder, texts):
        self.suites[name] = {**fingerprints(folder, texts), "answers": checksums(judged(folder, texts))}
        return compare(program, folder, texts)

    def write(self, wrong):
        """Returns the number of suites with different recorded answers. Writes a suite that has none, if qft is `wrong`
        nowhere; to accept other answers, remove the suite first."""
        import tokenizers

        old = json.loads(GOLDEN.read_text())["suites"] if GOLDEN.exists() else self.suites
        changed = [name for name, suite in self.suites.items() if old.get(name, suite) != suite]
        for name in changed:
            print(f"FAILED  {name}: recorded otherwise so far")
        if changed or wrong:
            print(f"{GOLDEN} stays as it was; to take the judge's new answers, remove those suites and ask again")
            return len(changed)
        golden = {"made by": "tests/tokenizer/interop.py --judge", "versions": {"tokenizers": tokenizers.__version__},
                  "suites": {**old, **self.suites}}
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(json.dumps(golden, indent=0) + "\n")
        return 0


def live(program, name, folder, texts):
    return compare(program, folder, texts)


def refuses_broken_utf8(program, folder):
    cases = strings.broken_utf8()
    accepted = [case for case, result in zip(cases, exchange(program, str(folder), cases), strict=True) if result != REFUSED]
    for case in accepted:
        print(f"{folder.name}: broken UTF-8 {case!r} was encoded")
    return len(accepted)


def made_up(scratch, seed):
    """(name, folder, texts) of each made-up tokenizer."""
    for name, spec in pipelines.variants():
        folder = pathlib.Path(scratch) / name
        folder.mkdir()
        (folder / "tokenizer.json").write_text(json.dumps(spec))
        texts = strings.generate(random.Random(seed), spec["added_tokens"], count=2000, share=32)
        if not pipelines.is_scanned(spec):  # PCRE2 may have an older Unicode than the judge's regex engine
            texts = [strings.only_old_characters(text) for text in texts]
        yield name, folder, texts


def name_of(file):
    """tokenizers/qwen3, models/smollm2"""
    return "/".join(file.parent.parts[-2:])


def real_ones(files, shared, seed, complete):
    """(name, folder, texts) of each real tokenizer: made strings, and the data sets of each folder that there is."""
    for file in files:
        name, added = name_of(file), json.loads(file.read_text())["added_tokens"]
        count, share = (100_000, 1) if complete else (12_000, 8)
        yield name, file.parent, strings.generate(random.Random(seed), added, count, share)
        yield f"{name}, long words", file.parent, strings.long_words()
        folders = {"shared": shared / "data", "goldens": ROOT / "tests/encode/golden"}
        if complete:  # those change more often
            folders["examples"] = ROOT / "examples/data"
        for what, folder in folders.items():
            if folder.exists():
                yield f"{name}, data of {what}", file.parent, strings.data_texts(folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--shared", required=True, type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--complete", action="store_true")
    args = parser.parse_args()
    check = live if args.complete else Judge() if args.judge else Recorded()
    # Beside the checkout, and the one that examples/make_smollm2.py makes.
    real = sorted([*(args.shared / "tokenizers").glob("*/tokenizer.json"), *ROOT.glob("models/smollm2/tokenizer.json")])
    wrong = total = 0
    with tempfile.TemporaryDirectory() as scratch:
        suites = itertools.chain(made_up(scratch, args.seed), real_ones(real, args.shared, args.seed, args.complete))
        for name, folder, texts in suites:
            wrong += check(args.program, name, folder, texts)
            total += len(texts)
    wrong += sum(refuses_broken_utf8(args.program, file.parent) for file in real)
    if args.judge:
        wrong += check.write(wrong)
    print(f"{total} texts, {wrong} differ; real tokenizers: {', '.join(map(name_of, real)) or 'none found'}")
    if not real:
        print("skipped: no real tokenizer, neither beside the checkout nor in models/ (examples/make_smollm2.py)")
    return 1 if wrong else 0 if real else 77


if __name__ == "__main__":
    sys.exit(main())
