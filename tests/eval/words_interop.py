"""Words against those of jieba.cut(), one by one: of sentences of ../shared where that is there, and of mixtures of words of
its dictionary, random Han characters, letters, digits, marks and emoji. words_interop.py --build DIR [--sentences N] [--seed S]"""
import argparse
import json
import logging
import random
import re
import subprocess
import sys
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")  # old escapes in jieba's sources
try:
    import jieba
except ImportError as missing:
    print(f"skipped: {missing}: scripts/setup.sh installs it")
    sys.exit(77)

SHARED = Path(__file__).resolve().parents[3] / "shared/data"
MARKS = list("+#&._%- ，。！？、；：“”‘’（）《》…—·~@$^*=/\\|<>[]{}\t\n\r\"'") + ["\r\n", "\u3000", "\u00a0", "\u2028", "……", "3.14", "12.5%", "C++", "AT&T", "c#", "1.2.3"]
OTHERS = list("αβγàéüñЖдあいうカナ한글ΑΩ①②㎡〇々") + ["🙂", "👩‍👩‍👧", "🇨🇳", "𠀀", "𪚥", "\u9fa6", "\u9fd5", "\u9fd6", "\u3400", "\uf900"]


def strings_in(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for member in value.values() if isinstance(value, dict) else value:
            yield from strings_in(member)


def sentences_of_data():
    """Each once: sentences and, of every tenth text, the whole."""
    texts = [t for file in sorted(SHARED.glob("*.json")) for t in strings_in(json.loads(file.read_text()))]
    parts = [part for text in texts for part in re.split(r"(?<=[。！？.!?\n])", text) if part.strip()]
    return sorted(set(parts) | set(texts[::10]))


def is_han(text):
    return any("\u4e00" <= c <= "\u9fd5" for c in text)


class Mixtures:
    """Sentences of pieces of several kinds, in shares of their own."""

    def __init__(self, generator):
        self.generator = generator
        self.words = [line.split(" ")[0] for line in (Path(jieba.__file__).parent / "dict.txt").read_text(encoding="utf-8").splitlines()]
        self.common = [w for w in self.words if len(w) > 1]
        pick = generator.choice
        self.kinds = [lambda: pick(self.words), lambda: self.halves(), lambda: self.characters(), lambda: self.latin(), lambda: pick(MARKS),
                      lambda: pick(OTHERS)]

    def halves(self):
        """Two words, overlapping or cut: what the dictionary alone does not settle."""
        a, b = self.generator.choice(self.common), self.generator.choice(self.common)
        return a[: self.generator.randint(1, len(a))] + b[self.generator.randint(0, len(b) - 1):]

    def characters(self):
        return "".join(chr(self.generator.randint(0x4E00, 0x9FD5)) for _ in range(self.generator.randint(1, 6)))

    def latin(self):
        alphabet = "abcXYZ0123456789.%+#&_-"
        return "".join(self.generator.choices(alphabet, k=self.generator.randint(1, 8)))

    def next(self):
        shares = [self.generator.choice([0, 1, 3, 8]) for _ in self.kinds]
        kinds = self.generator.choices(self.kinds, weights=shares if sum(shares) else None, k=self.generator.randint(1, 25))
        return "".join(kind() for kind in kinds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=800)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    jieba.setLogLevel(logging.ERROR)
    generator = random.Random(args.seed)
    data = sentences_of_data() if SHARED.is_dir() else []
    han = [s for s in data if is_han(s)]
    chosen = generator.sample(han, min(len(han), args.sentences // 2))
    chosen += generator.sample(data, min(len(data), args.sentences // 10))
    mixtures = Mixtures(generator)
    sentences = chosen + [mixtures.next() for _ in range(args.sentences - len(chosen))]
    lines = "".join(json.dumps(s) + "\n" for s in sentences)
    start = time.monotonic()
    result = subprocess.run([args.build / "tests/score_probe"], input=lines, capture_output=True, text=True, check=True)
    seconds = time.monotonic() - start
    ours = [json.loads(line) for line in result.stdout.split("\n")[:-1]]
    differing = longer = 0
    for sentence, mine in zip(sentences, ours, strict=True):
        theirs = list(jieba.cut(sentence))
        longer += any(len(w) > 1 and is_han(w) for w in theirs)
        if mine != theirs:
            differing += 1
            if differing <= 5:
                print(f"FAILED  {sentence!r}\n  ours   {mine}\n  theirs {theirs}")
    good = differing == 0 and longer > len(sentences) / 2
    print(f"{'ok' if good else 'FAILED':6}  {len(sentences)} sentences ({len(chosen)} of data, {longer} with Chinese words of several characters), "
          f"{differing} cut otherwise; ours took {seconds:.2f} s with the dictionary")
    sys.exit(0 if good else 1)


main()
