#!/usr/bin/env python3
"""Holds comments, and strings of four words and more, to plain English: in each module the words below together may come up at most
CEILING times in 1,000 words. They are right now and then; a text full of them names nothing. CONTRIBUTING.md says how to write."""
import re
import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OLD = re.compile(r"\b(what|where|whose|those|so many|is no|has not)\b", re.IGNORECASE)
TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"|//[/!<]*(.*)')
CEILING = {"comments": 6, "strings": 8}
ENOUGH = 300  # words: fewer say nothing of a rate


def main():
    files = subprocess.run(["git", "ls-files", "*.h", "*.cpp", "*.cu", "*.cuh"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    words, old, places = Counter(), Counter(), {}
    for name in files:
        module = re.sub(r"^(include/qft|src|tests)/", "", name).split("/")[0]
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            for string, comment in TEXT.findall(line):
                if not comment and string.count(" ") < 3:
                    continue
                key = module, "comments" if comment else "strings"
                words[key] += len((comment or string).split())
                found = OLD.findall(comment or string)
                old[key] += len(found)
                places.setdefault(key, []).extend(f"{name}:{number}: {word}" for word in found)
    above = [key for key in words if words[key] >= ENOUGH and old[key] * 1000 > CEILING[key[1]] * words[key]]
    for key in above:
        print(f"{key[1]} of {key[0]}: {old[key] * 1000 / words[key]:.1f} in 1,000 words, at most {CEILING[key[1]]}:", *places[key], sep="\n  ")
    for kind in CEILING:
        total = sum(n for key, n in words.items() if key[1] == kind)
        print(f"{kind}: {sum(n for key, n in old.items() if key[1] == kind) * 1000 / total:.1f} in 1,000 of {total} words")
    raise SystemExit(bool(above))


main()
