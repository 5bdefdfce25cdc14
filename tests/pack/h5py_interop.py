"""Reads a pack with h5py alone and compares it with the items that went in: pack_h5py_interop.py PACK EXPECTED PAGE."""
import contextlib
import io
import json
import sys

import h5py


def items(pack):
    names = json.loads(pack.attrs["category_names"])
    tokens, spans = pack["tokens"][:], pack["label_spans"][:]
    item_at, sequence_at, span_at, tag_at = (
        pack[name][:] for name in ("item_offsets", "sequence_offsets", "label_span_offsets", "tag_offsets"))
    for i in range(len(item_at) - 1):
        sequences = [
            {"ids": tokens[sequence_at[s]:sequence_at[s + 1]].tolist(),
             "label_spans": spans[span_at[s]:span_at[s + 1]].tolist()}
            for s in range(item_at[i], item_at[i + 1])
        ]
        text = bytes(pack["tags"][tag_at[i]:tag_at[i + 1]])
        yield {
            "sequences": sequences,
            "tags": json.loads(text) if text else {},
            "category": names[pack["category"][i]],
            "dataset": int(pack["dataset"][i]),
            "source_index": int(pack["source_index"][i]),
        }


def page_lines(page, path):
    """Returns the output of the example in docs/data.md for the pack."""
    with open(page, encoding="utf-8") as text:
        code = next(block.split("```")[0] for block in text.read().split("```python\n")[1:] if "h5py" in block)
    assert len(code.splitlines()) == 5 and "train.h5" in code
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code.replace("train.h5", path), {})
    return out.getvalue().splitlines()


def main():
    pack = h5py.File(sys.argv[1])
    with open(sys.argv[2], encoding="utf-8") as lines:
        expected = [json.loads(line) for line in lines]
    assert list(items(pack)) == expected
    assert page_lines(sys.argv[3], sys.argv[1]) == [
        f"{sequence['ids']} {sequence['label_spans']}" for item in expected for sequence in item["sequences"]]
    assert all(pack[name].chunks is None and pack[name].compression is None for name in pack)
    assert pack.attrs["format_version"] == 1 and pack.attrs["tokenizer_hash"] == b"tok"
    assert json.loads(pack.attrs["options"]) == {"train_on_prompt": False, "mask_history": True}
    assert sum(source["items"] for source in json.loads(pack.attrs["sources"])) == len(expected)


main()
