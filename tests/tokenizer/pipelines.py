"""Small synthetic tokenizers, one for each feature that the available real ones do not use."""

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{Lu}\p{Ll}\p{P}\p{So}]?[A-Za-z]+| ?[!-/]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"]


def alphabet():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    mapping = {b: chr(b) for b in printable}
    for b in range(256):
        if b not in mapping:
            mapping[b] = chr(256 + len(mapping) - len(printable))
    return [mapping[b] for b in range(256)]


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def byte_level(prefix=False, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def added(index, content, **flags):
    token = {"id": index, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": False}
    return {**token, **flags}


MERGES = ["t h", "th e", "Ġ the", "Ġ t", "h e", "e r", "Ġ Ġ", "ĠĠ ĠĠ", "Ċ Ċ", "1 2", "12 3", "a a", "aa aa", "a aa", "' s", "Ġ a",
          "Ã ¼", "ä ¸", "ä¸ Ń", "Ì ģ", "l l", "' ll", "A a"]


def spec(steps, *, normalizer=None, gaps=(), tokens=(), extra=(), pairs=False, **model):
    vocab = [c for c in alphabet() if c not in gaps] + list(extra)
    merges = [m.split(" ") for m in MERGES if not set(m) & set(gaps)]
    vocab += [a + b for a, b in merges]
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, **model,
             "vocab": {token: i for i, token in enumerate(vocab)}, "merges": merges if pairs else [" ".join(m) for m in merges]}
    fresh = [content for content, _ in tokens if content not in vocab]
    ids = {content: i for i, content in enumerate(vocab + fresh)}
    return {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [added(ids[content], content, **flags) for content, flags in tokens],
            "normalizer": normalizer, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
            "post_processor": None, "decoder": byte_level(), "model": model}


def is_scanned(spec):
    """True if qft uses its own scanners and no regex engine."""
    patterns = [step["pattern"].get("Regex") for step in spec["pre_tokenizer"]["pretokenizers"] if "pattern" in step]
    return all(pattern in (None, LLAMA3, QWEN35) for pattern in patterns)


def variants():
    nfc = {"type": "NFC"}
    yield "gpt2", spec([byte_level(regex=True)])
    yield "gpt2_prefix", spec([byte_level(prefix=True, regex=True)], pairs=True)
    yield "llama3", spec([split(LLAMA3), byte_level()], ignore_merges=True, extra=["Hello", "ĠHello"])
    yield "qwen35", spec([split(QWEN35, "Removed", True), byte_level()], normalizer=nfc)
    yield "starcoder", spec([{"type": "Digits", "individual_digits": True}, byte_level(regex=True)])
    yield "digit_runs", spec([{"type": "Digits", "individual_digits": False}, byte_level(prefix=True)])
    yield "deepseek", spec([*map(split, DEEPSEEK), byte_level()], pairs=True)
    for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            name = f"{behavior.lower()}_{invert}"
            yield f"regex_{name}", spec([split(r"\s|[a-e]+", behavior, invert), byte_level()])
            yield f"empty_{name}", spec([split(r"(?=\p{Lu})|\d*", behavior, invert), byte_level(regex=True)])
            yield f"literal_{name}", spec([split("a", behavior, invert, "String"), byte_level()])
    yield "lookbehind", spec([split(r"(?<=\s)(?=\S)|^x|\n$|\u4e2d|\x{e9}"), byte_level()])
    missing = [alphabet()[b] for b in (0, 9, ord("a"), ord("x"), 0xE4, 0xF0)]
    yield "unknown", spec([byte_level(regex=True)], gaps=missing, unk_token="<unk>", extra=["<unk>"])
    yield "unknown_fused", spec([byte_level(regex=True)], gaps=missing, unk_token="<unk>", fuse_unk=True, extra=["<unk>"])
    yield "dropped", spec([byte_level(regex=True)], gaps=missing)
    fallback = ["<unk>", "<0xC4>", "<0x80>", "<0x89>", "<0xC3>", "<0xA4>", "<0x61>"]
    yield "byte_fallback", spec([byte_level(regex=True)], gaps=missing, unk_token="<unk>", fuse_unk=True,
                                byte_fallback=True, extra=fallback)
    yield "flags", spec(
        [split(LLAMA3), byte_level()], normalizer={"type": "Sequence", "normalizers": [nfc]},
        tokens=[("<left>", {"lstrip": True}), ("<right>", {"rstrip": True, "special": True}),
                ("word", {"single_word": True}), ("e\u0301e", {"normalized": True}), ("é", {}), ("nor mal", {"normalized": True}),
                ("<both>", {"lstrip": True, "rstrip": True, "single_word": True}), ("<", {}), ("<l", {}), ("  ", {"special": True}),
                ("the", {"normalized": True}), ("한", {"normalized": True})])
