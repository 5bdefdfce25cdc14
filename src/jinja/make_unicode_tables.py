#!/usr/bin/env python3
"""Writes unicode_tables.inc: the character properties that Python's str methods use. make_unicode_tables.py > unicode_tables.inc"""
import sys
import unicodedata

LAST = 0x110000
FLAGS = (str.isalpha, str.isdecimal, str.isdigit, str.isnumeric, str.isspace, str.isprintable, str.islower, str.isupper,
         lambda c: c.istitle() and not c.isupper(),
         str.isidentifier, lambda c: ("a" + c).isidentifier())


def cased(c):
    return c.islower() or c.isupper() or c.istitle()


def ignorable(c):
    """Whether a character is Case_Ignorable: lower() skips such characters when it looks for a final sigma."""
    probe = "A" + c + "\u03a3"
    return not cased(c) and probe.lower()[-1] == "\u03c2" and ("A" + c)[0] == "A" and (c + "\u03a3").lower()[-1] == "\u03c3"


def mask(code):
    if 0xD800 <= code < 0xE000:
        return 0
    c = chr(code)
    flags = sum(bool(test(c)) << bit for bit, test in enumerate(FLAGS))
    return flags | ignorable(c) << len(FLAGS)


def runs():
    before = None
    for code in range(LAST):
        now = mask(code)
        if now != before:
            yield code, now
        before = now


def rows(items, per_line):
    items = list(items)
    for i in range(0, len(items), per_line):
        print("    " + ", ".join(items[i:i + per_line]) + ",")


def single(change):
    """Runs of characters that map to another one: first, last, step, difference."""
    pairs = [(c, ord(change(chr(c))) - c) for c in range(LAST) if not 0xD800 <= c < 0xE000 and len(change(chr(c))) == 1 and change(chr(c)) != chr(c)]
    out = []
    for code, delta in pairs:
        if out:
            first, last, step, of = out[-1]
            if of == delta and (code - last == step or (first == last and code - last <= 2)):
                out[-1] = (first, code, code - last, of)
                continue
        out.append((code, code, 1, delta))
    return out


def several(change):
    return [(c, change(chr(c))) for c in range(LAST) if not 0xD800 <= c < 0xE000 and len(change(chr(c))) > 1]


def main():
    print(f"// Written by make_unicode_tables.py with Python {sys.version.split()[0]}, Unicode {unicodedata.unidata_version}.")
    print("constexpr std::uint64_t kRuns[] = {")
    rows((f"0x{code << 16 | flags:x}" for code, flags in runs()), 10)
    print("};")
    for name, change in (("Upper", str.upper), ("Lower", str.lower), ("Title", str.title)):
        print(f"constexpr CaseRun k{name}Runs[] = {{")
        rows((f"{{{a}, {b}, {s}, {d}}}" for a, b, s, d in single(change)), 6)
        print("};")
        print(f"constexpr CaseText k{name}Texts[] = {{")
        rows((f'{{{c}, "' + "".join(f"\\x{b:02x}" for b in t.encode()) + '"}' for c, t in several(change)), 5)
        print("};")
    print("// Digits: the code point of a decimal zero; nine follow.")
    print("constexpr char32_t kZeros[] = {")
    rows((f"0x{c:x}" for c in range(LAST) if unicodedata.decimal(chr(c), None) == 0), 14)
    print("};")


main()
