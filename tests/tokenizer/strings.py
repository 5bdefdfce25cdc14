"""Strings that are hard on a tokenizer."""

import json
import unicodedata

SPACES = [" ", "  ", "\t", "\n", "\r", "\r\n", "\u00a0", "\u0085", "\u2003", "\u2028", "\u3000", "\u180e", "\u200b", "\ufeff"]
CONTRACTIONS = ["'s", "'S", "'\u017f", "'ll", "'LL", "'lL", "'re", "'Ve", "'m", "'d", "'t", "''s", "\u2019s", "'l", "'"]
EMOJI = ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "1\ufe0f\u20e3",
         "\U0001f44d\U0001f3fd", "\U0001f9d1\U0001f3ff\u200d\u2764\ufe0f\u200d\U0001f48b\u200d\U0001f9d1\U0001f3fb", "\U0001f3f4\U000e0067\U000e0062\U000e007f",
         "\U0001f1e9\U0001f1ea\U0001f1eb"]
RIGHT_TO_LEFT = ["\u200f", "\u202b", "\u202c", "\u2067\u05d0\u05d1\u2069", "\u05e9\u05c1\u05b8\u05dc", "\u0644\u0627", "\u0627\u0644\u0652\u0639", "\u06f1\u06f2", "\u0660"]
WORDS = ["the", "Hello", "qwen", "Straße", "naïve", "nai\u0308ve", "Ünï", "мир", "שלום", "العربية", "हिन्दी", "ไทย", "中文分词", "日本語テキスト",
         "한국어", "\u1112\u1161\u11ab", "e\u0301\u0323", "ǅ", "ﬁ", "x_y", "3.14", "0123456789", "²³", "Ⅷ", "१२३", "__init__", "<", "<|", "|>", "</", ">"]


def blocks():
    """Code points of every assigned or unassigned stretch, 128 at a time."""
    for first in range(0, 0x110000, 128):
        if not 0xD800 <= first < 0xE000 and not 0x40000 <= first < 0xE0000 and not 0xE0200 <= first < 0x10FF00:
            yield first


def random_text(rng, added):
    pools = [SPACES, CONTRACTIONS, EMOJI, RIGHT_TO_LEFT, WORDS, [token["content"] for token in added] or ["x"]]
    pieces = []
    block = rng.choice(BLOCKS)
    for _ in range(rng.randint(1, 24)):
        kind = rng.random()
        if kind < 0.35:
            pieces.append(rng.choice(WORDS))
        elif kind < 0.6:
            pieces.append(rng.choice(SPACES) * rng.choice([1, 1, 1, 2, 3, 17]))
        elif kind < 0.75:
            pieces.append(rng.choice(rng.choice(pools)))
        elif kind < 0.85:
            pieces.append("".join(chr(block + rng.randrange(128)) for _ in range(rng.randint(1, 6))))
        elif kind < 0.9:
            pieces.append("".join(chr(rng.choice(MARKS)) for _ in range(rng.randint(1, 4))))
        elif kind < 0.95:
            pieces.append("".join(chr(rng.randrange(0x21, 0x7F)) for _ in range(rng.randint(1, 12))))
        else:
            pieces.append(chr(rng.randrange(0x20)) * rng.choice([1, 1, 300]))
    return "".join(pieces)


BLOCKS = list(blocks())
# From one Unicode version, so that every Python makes the same strings.
MARKS = [c for c in range(0x110000) if unicodedata.ucd_3_2_0.combining(chr(c))]


def generate(rng, added, count, share=1):
    """Every code point in context (or one block in `share`), then random mixtures, `count` strings at least."""
    texts = ["", " ", "\n", "a"]
    for first in BLOCKS[rng.randrange(share) :: share]:
        characters = [chr(c) for c in range(first, first + 128)]
        texts.append("".join(characters))
        texts.append(" ".join(characters))
        texts.append("a".join(characters))
        texts.append("1" + "\n1".join(characters) + "\n")
        texts.append("".join(f"e{c}\u0301{c}'" for c in characters))
    for token in added:
        content = token["content"]
        texts += [content, f" {content} ", f"a{content}b", content * 3, f"{content[:-1]}{content}", f"\n {content}\n\n x"]
    while len(texts) < count:
        texts.append(random_text(rng, added))
    return texts


def only_old_characters(text):
    """Removes code points assigned after Unicode 3.2."""
    return "".join(c for c in text if unicodedata.ucd_3_2_0.category(c) != "Cn")


def long_words():
    """Single words and runs of about a megabyte: nothing may be quadratic."""
    size = 1_000_000
    return ["a" * size, "ab" * (size // 2), "中" * (size // 3), " " * size, "\n" * size, "=" * size, "1" * size,
            " \n" * (size // 2), "e\u0345\u0316" * (size // 8), "a" + "\u0345\u0316" * 4000, "<|im_start" * (size // 10),
            "\u1100\u1161\u11a8" * (size // 9), " " * size + "x", "\t" * size + "\n" + " " * size]


def data_texts(folder):
    """The texts of the demo datasets: each field, and whole files."""
    texts = []

    def collect(value):
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, dict):
            for member in value.values():
                collect(member)
        elif isinstance(value, list):
            for member in value:
                collect(member)

    for file in sorted(folder.glob("*.json*")):
        text = file.read_text()
        collect([json.loads(line) for line in text.splitlines()] if file.suffix == ".jsonl" else json.loads(text))
        texts.append(text)
    return texts


def broken_utf8():
    return [b"\x80", b"abc\xff", b"\xc0\xaf", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"ok \xe4\xb8", b"\xf0\x9f\x98 x",
            b"a" * 4096 + b"\xc3"]
