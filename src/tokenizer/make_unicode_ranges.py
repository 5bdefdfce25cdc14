#!/usr/bin/env python3
"""Writes unicode_ranges.inc: the code points that HF tokenizers treats as letter, digit, space, ...

The library mixes Unicode versions (16 in its regex engine, 17 in Rust's standard library, 9 in its NFC), so its
answers are taken from it, code point by code point, rather than from one version of the Unicode database.
Run: .venv/bin/python src/tokenizer/make_unicode_ranges.py > src/tokenizer/unicode_ranges.inc
"""

import sys
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
BATCH = 4096
LETTER, NUMBER, MARK = 1, 2, 3  # the class, in the low bits; spaces are set in unicode.cpp
WORD, NFC_ACTIVE, NUMERIC = 8, 16, 32


def matching(pattern):
    """The code points that a one-character pattern of the library's regex engine matches."""
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    result = set(CODE_POINTS)
    for i in range(0, len(CODE_POINTS), BATCH):
        text = "".join(map(chr, CODE_POINTS[i : i + BATCH]))
        for piece, _ in split.pre_tokenize_str(text):
            result -= set(map(ord, piece))
    return result


def numeric():
    """The code points that the Digits pre-tokenizer splits off."""
    split = pre_tokenizers.Digits(True)
    result = set()
    for i in range(0, len(CODE_POINTS), BATCH):
        text = "a".join(map(chr, CODE_POINTS[i : i + BATCH]))
        result |= {ord(piece) for piece, _ in split.pre_tokenize_str(text) if len(piece) == 1}
    return result - {ord("a")}


def word():
    """The code points beside which an added token with single_word does not count."""
    tokenizer = Tokenizer(models.BPE(vocab={"?": 0}, merges=[], unk_token="?"))
    tokenizer.add_tokens([AddedToken("!", single_word=True, normalized=False)])
    result = set(CODE_POINTS)
    for i in range(0, len(CODE_POINTS), BATCH):
        encoding = tokenizer.encode("".join(f"{chr(c)}! " for c in CODE_POINTS[i : i + BATCH]))
        found = {begin // 3 for token, (begin, _) in zip(encoding.ids, encoding.offsets) if token == 1}
        result -= {CODE_POINTS[i + k] for k in found}
    return result


def nfc_active():
    """Code points that NFC may change, move, or join to the character before them."""
    nfc = normalizers.NFC().normalize_str
    result = {c for c in CODE_POINTS if nfc(chr(c)) != chr(c) or nfc("a\u0345" + chr(c)) != "a\u0345" + chr(c)}
    result.add(0x345)  # the highest combining class, against which the others were tried
    for c in CODE_POINTS:
        parts = unicodedata.normalize("NFD", chr(c))
        result |= {ord(p) for k, p in enumerate(parts) if k > 0 and len(nfc(parts[: k + 1])) <= k}
    return result


def main():
    flags = dict.fromkeys(CODE_POINTS, 0)
    letter, number, mark = matching(r"\p{L}"), matching(r"\p{N}"), matching(r"\p{M}")
    for members, flag in (
        (letter, LETTER),
        (number, NUMBER),
        (mark, MARK),
        (word(), WORD),
        (nfc_active(), NFC_ACTIVE),
        (numeric(), NUMERIC),
    ):
        for c in members:
            flags[c] |= flag
    ranges = []
    for c in CODE_POINTS:
        if flags[c] == 0:
            continue
        if ranges and ranges[-1][1] == c - 1 and ranges[-1][2] == flags[c]:
            ranges[-1][1] = c
        else:
            ranges.append([c, c, flags[c]])
    out = [f"// Made by make_unicode_ranges.py from HF tokenizers {tokenizers.__version__}: {{first, last, properties}}."]
    line = ""
    for first, last, value in ranges:
        item = f"{{0x{first:X}, 0x{last:X}, {value}}},"
        if line and len(line) + 1 + len(item) > 110:
            out.append(line)
            line = ""
        line = f"{line} {item}" if line else item
    out.append(line)
    sys.stdout.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
