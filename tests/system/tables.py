"""Records in csv, Parquet and Arrow files, written by pyarrow, make the pack that the same records in JSON lines make."""
import csv
import datetime
import decimal
import json
import os
import random
import sys
import tempfile
from pathlib import Path

import numpy as np

from common import Report, arguments, run
from tiny import make

try:
    import h5py
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    sys.exit(77)


def records(count):
    numbers = random.Random(3)
    words = ["one", "zwei\n", "\"three\"", "vier, ", "5", "\u4e94", "\\n", "a\tb", "\U0001f600", "null"]
    text = lambda: " ".join(numbers.choice(words) for _ in range(numbers.randint(1, 12)))
    return [{"instruction": text(), "input": text() if i % 3 else None, "output": text(), "kind": words[i % 3], "score": i / 8} for i in range(count)]


def conversations(count):
    out = []
    for i in range(count):
        turns = [{"role": "user", "content": f"q{i}"}, {"role": "assistant", "content": f"a{i}"}] * (1 + i % 3)
        out.append({"messages": turns, "system": f"s{i}" if i % 2 else None, "rank": i, "more": {"x": [i, None], "y": {"z": True}}})
    return out


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_csv(path, rows):
    with open(path, "w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_stream(path, table, batch=100, options=None):
    """As the cache of Hugging Face datasets."""
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=batch)


def write_file(path, table, batch=100, options=None):
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=batch)


def encoded(table):
    """The same with large and dictionary-encoded texts."""
    columns = {}
    for name in table.column_names:
        column = table[name]
        if column.type == pa.string():
            column = column.dictionary_encode() if name in ("kind", "instruction", "input") else column.cast(pa.large_string())
        columns[name] = column
    return pa.table(columns)


class Packs:
    def __init__(self, args, report, folder):
        self.args, self.report, self.folder = args, report, folder
        self.settings = make(folder, samples=2)
        self.data = folder / "tables"
        self.data.mkdir()

    def described(self, name, entry=None):
        """The file as the dataset "d", so that packs have nothing but its name in common with what they were made of."""
        entry = {"columns": {"prompt": "instruction", "query": "input", "response": "output"}} if entry is None else entry
        (self.data / "dataset_info.json").write_text(json.dumps({"d": {"file_name": name, **entry}}))
        return "d"

    def pack(self, dataset, more=(), env=None, check=True):
        out = self.folder / "pack.h5"
        out.unlink(missing_ok=True)
        result = run([self.args.build / "bin/qft-pack", f"tokenizer_name_or_path={self.settings['model_name_or_path']}", "stage=sft",
                      "template=smollm2", "cutoff_len=512", f"dataset={dataset}", f"dataset_dir={self.data}", *more, "--output", out],
                     check=check, env=env)
        return out if check else result

    def items(self, path):
        """All that a pack holds but what it was made of, and the frames, which follow from the files' sizes."""
        out = {}
        with h5py.File(path) as file:
            file.visititems(lambda name, item: out.update({name: item[()]}) if isinstance(item, h5py.Dataset) and not name.startswith(("source", "frame")) else None)
        return out

    def same(self, what, dataset, expected, more=()):
        ours = self.items(self.pack(dataset, more))
        unlike = [n for n in expected if n not in ours or not np.array_equal(ours[n], expected[n])]
        self.report.equal(f"{what}: arrays that differ", unlike, [])


def check_formats(packs):
    data, rows, turns = packs.data, records(1500), conversations(700)
    write_jsonl(data / "plain.jsonl", rows)
    write_jsonl(data / "turns.jsonl", turns)
    table, talk = pa.Table.from_pylist(rows), pa.Table.from_pylist(turns)
    lz4 = pa.ipc.IpcWriteOptions(compression="lz4")
    pq.write_table(table, data / "plain.parquet", row_group_size=170)
    pq.write_table(encoded(table), data / "large.parquet", row_group_size=5000, compression="zstd")
    write_stream(data / "stream.arrow", table)
    write_stream(data / "dictionary.arrow", encoded(table))
    write_file(data / "file.arrow", table, options=lz4)
    write_csv(data / "plain.csv", rows)
    pq.write_table(talk, data / "turns.parquet", row_group_size=64)
    write_stream(data / "turns.arrow", talk.slice(3).combine_chunks())
    write_jsonl(data / "sliced.jsonl", turns[3:])

    plain = packs.items(packs.pack(packs.described("plain.jsonl")))
    packs.report.holds("the packs hold tokens", sum(v.size for v in plain.values()) > 10000)
    for name in ("plain.parquet", "large.parquet", "stream.arrow", "dictionary.arrow", "file.arrow", "plain.csv"):
        packs.same(name, packs.described(name), plain)
    packs.same("plain.parquet, 3 threads", packs.described("plain.parquet"), plain, ["--workers", "3"])
    talk = {"formatting": "sharegpt", "columns": {"messages": "messages", "system": "system", "tags": ["more", "rank"]},
            "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}}
    packs.same("turns.parquet", packs.described("turns.parquet", talk), packs.items(packs.pack(packs.described("turns.jsonl", talk))))
    packs.same("turns.arrow", packs.described("turns.arrow", talk), packs.items(packs.pack(packs.described("sliced.jsonl", talk))))

    drawn = {"num_samples": 400, "columns": {"prompt": "instruction", "query": "input", "response": "output", "category": "kind",
                                             "tags": ["score"]}}
    expected = packs.items(packs.pack(packs.described("plain.jsonl", drawn)))
    for name in ("plain.parquet", "stream.arrow"):
        packs.same(f"{name}: records drawn, categories and tags", packs.described(name, drawn), expected)
    ours = packs.items(packs.pack(data / "turns.parquet"))
    packs.report.holds("the format is told from the first rows", np.array_equal(ours["tokens"], packs.items(packs.pack(data / "turns.jsonl"))["tokens"]))


def check_repository(packs):
    """As most datasets lie on the hub: shards by split in data/, of a folder."""
    rows, repository = records(300), packs.data / "repository"
    (repository / "data").mkdir(parents=True)
    for i in range(2):
        pq.write_table(pa.Table.from_pylist(rows[i * 150:(i + 1) * 150]), repository / f"data/train-0000{i}-of-00002.parquet")
    pq.write_table(pa.Table.from_pylist(records(20)), repository / "data/test-00000-of-00001.parquet")
    (repository / "README.md").write_text("---\nlicense: mit\n---\n")
    write_jsonl(packs.data / "shards.jsonl", rows)
    ours, theirs = packs.items(packs.pack(repository)), packs.items(packs.pack(packs.data / "shards.jsonl"))
    packs.report.holds("shards of a split", np.array_equal(ours["tokens"], theirs["tokens"]) and ours["tokens"].size > 1000)


def check_values(packs):
    """Values of other types stand in tags as Python writes them."""
    when = datetime.datetime(2024, 5, 6, 7, 8, 9)
    row = {"instruction": "q", "output": "a", "i": 2**60, "u": 1, "f": 0.1, "whole": 3.0, "none": None, "yes": True, "list": [1, None], "time": when,
           "day": when.date(), "money": decimal.Decimal("1.50"), "empty": [], "nested": {"a": {"b": ["x"]}}}
    table = pa.Table.from_pylist([row])
    pq.write_table(table, packs.data / "values.parquet")
    tags = [n for n in row if n not in ("instruction", "output")]
    (packs.data / "dataset_info.json").write_text(json.dumps({"values": {"file_name": "values.parquet", "columns": {
        "prompt": "instruction", "response": "output", "tags": tags}}}))
    out = packs.pack("values")
    told = json.loads(packs.items(out)["tags"].tobytes())
    want = {"i": str(2**60), "u": "1", "f": "0.1", "whole": "3.0", "yes": "true", "list": "[1, null]", "time": "2024-05-06 07:08:09.000000",
            "day": "2024-05-06", "money": "1.50", "empty": "[]", "nested": '{"a": {"b": ["x"]}}'}
    packs.report.equal("tags of other types", told, want)


def exported(packs, dataset, more=()):
    """The items of a pack as JSON lines."""
    out = packs.pack(dataset, more)
    return run([packs.args.build / "bin/qft-pack", "export", out]).stdout


def check_bytes(packs):
    """Bytes that are UTF-8 are texts in every type of bytes; others are refused where they are read, and only there."""
    data, report = packs.data, packs.report
    words = ["h\u00e9", "ho"]
    write_jsonl(data / "words.jsonl", [{"instruction": w, "output": w} for w in words])
    expected = packs.items(packs.pack(packs.described("words.jsonl")))
    raw = [w.encode() for w in words]
    kinds = {"binary": pa.binary(), "large": pa.large_binary(), "view": pa.binary_view(), "fixed": pa.binary(3)}
    for name, kind in kinds.items():
        values = [w.ljust(3) for w in raw] if name == "fixed" else raw
        table = pa.table({"instruction": pa.array(values, kind), "output": pa.array(values, kind), "picture": pa.array([b"\xff\xd8", None])})
        write_stream(data / f"{name}.arrow", table)
        if name == "fixed":
            write_jsonl(data / "fixed.jsonl", [{"instruction": v.decode(), "output": v.decode()} for v in values])
            expected = packs.items(packs.pack(packs.described("fixed.jsonl")))
        packs.same(f"bytes that are texts, {name}", packs.described(f"{name}.arrow"), expected)
    pq.write_table(pa.table({"instruction": ["q", "q"], "output": [b"fine", b"\xff\xd8 no text"]}), data / "bytes.parquet")
    result = packs.pack(data / "bytes.parquet", check=False)
    report.holds("bytes that are no text are refused with column and type",
                 result.returncode != 0 and all(word in result.stderr for word in ("bytes.parquet: row 2", "'output'", "not UTF-8", "(type binary)")), result.stderr)
    parts = pa.array([{"role": "user", "content": b"q"}, {"role": "assistant", "content": b"\xff"}],
                     pa.struct([("role", pa.string()), ("content", pa.binary())]))
    pq.write_table(pa.table({"messages": pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), parts)}), data / "inner.parquet")
    result = packs.pack(data / "inner.parquet", check=False)
    report.holds("the same inside messages", result.returncode != 0 and "'messages.content'" in result.stderr and "(type binary)" in result.stderr, result.stderr)
    union = pa.UnionArray.from_dense(pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array(["a"]), pa.array([1])])
    write_stream(data / "union.arrow", pa.table({"instruction": ["q", "q"], "output": union}))
    result = packs.pack(data / "union.arrow", check=False)
    report.holds("a type without a form in JSON is refused with column and type",
                 result.returncode != 0 and "'output'" in result.stderr and "no form in JSON" in result.stderr and "dense_union" in result.stderr, result.stderr)
    write_stream(data / "beside.arrow", pa.table({"instruction": ["q", "q"], "output": ["a", "b"], "other": union}))
    report.holds("beside texts it does not matter", packs.pack(data / "beside.arrow").exists())
    pq.write_table(pa.table({"instruction": ["q"], "output": ["a"], "weight": pa.array([np.float16(0.5)])}), data / "half.parquet")
    report.holds("half floats are numbers", '"span_weights":[0.5]' in exported(packs, data / "half.parquet"))


def check_calls(packs):
    """Maps are objects; keys that only another row has are not in a row's tools and calls."""
    data, report = packs.data, packs.report
    tags = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant", "observation_tag": "tool", "function_tag": "f"}
    entry = {"formatting": "openai", "columns": {"messages": "messages", "tools": "tools"}, "tags": tags}

    def talk(arguments, properties):
        return {"messages": [{"role": "user", "content": "q"},
                             {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}]},
                             {"role": "tool", "content": "r"}, {"role": "assistant", "content": "a"}],
                "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object", "properties": properties}}}]}
    rows = [talk({"city": "Oslo"}, {"city": {"type": "string"}}), talk({"day": 3, "deep": {"x": [{"a": 1}, {"b": 2}]}}, {"day": {"type": "integer", "enum": [1, 2]}})]
    write_jsonl(data / "calls.jsonl", rows)
    expected = packs.items(packs.pack(packs.described("calls.jsonl", entry), ["tool_format=qwen"]))
    pq.write_table(pa.Table.from_pylist(rows), data / "calls.parquet")
    write_stream(data / "calls.arrow", pa.Table.from_pylist(rows))
    for name in ("calls.parquet", "calls.arrow"):
        packs.same(f"{name}: no keys of other rows", packs.described(name, entry), expected, ["tool_format=qwen"])
    log = packs.pack(packs.described("calls.parquet", entry), ["tool_format=qwen"], check=False).stderr
    report.equal("said once", log.count("null members of objects"), 1)
    function = pa.struct([("name", pa.string()), ("arguments", pa.map_(pa.string(), pa.map_(pa.int32(), pa.string())))])
    message = pa.struct([("role", pa.string()), ("content", pa.string()), ("tool_calls", pa.list_(pa.struct([("function", function)])))])
    maps = [{"messages": [{"role": "user", "content": "q"},
                          {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [("a", [(1, "x"), (2, None)]), ("b", [])]}}]}]}]
    pq.write_table(pa.Table.from_pylist(maps, pa.schema([("messages", pa.list_(message))])), data / "maps.parquet")
    maps[0]["messages"][1]["tool_calls"][0]["function"]["arguments"] = {"a": {"1": "x", "2": None}, "b": {}}
    write_jsonl(data / "maps.jsonl", maps)
    entry["columns"] = {"messages": "messages"}
    packs.same("maps are objects", packs.described("maps.parquet", entry),
               packs.items(packs.pack(packs.described("maps.jsonl", entry), ["tool_format=qwen"])), ["tool_format=qwen"])


def check_later(packs):
    """Columns that are null in the first rows have their names from the schema."""
    rows = [{"query": "q", "response": "a", "system_prompt": None if i < 500 else "s"} for i in range(600)]
    pq.write_table(pa.Table.from_pylist(rows), packs.data / "later.parquet")
    write_csv(packs.data / "later.csv", rows)
    write_jsonl(packs.data / "named.jsonl", rows)
    columns = {"columns": {"prompt": "query", "response": "response", "system": "system_prompt"}}
    expected = packs.items(packs.pack(packs.described("named.jsonl", columns)))["tokens"]
    for name in ("later.parquet", "later.csv"):
        packs.report.holds(f"{name}: a column that begins late", np.array_equal(packs.items(packs.pack(packs.data / name))["tokens"], expected))


def check_faults(packs):
    data, report = packs.data, packs.report
    refused = lambda name, **o: packs.pack(data / name, check=False, **o)
    whole = (data / "plain.parquet").read_bytes()
    (data / "short.parquet").write_bytes(whole[:-5])
    (data / "middle.parquet").write_bytes(whole[:2000] + bytes(3000) + whole[5000:])
    (data / "text.parquet").write_text("a,b\n")
    (data / "short.arrow").write_bytes((data / "stream.arrow").read_bytes()[:5000])
    (data / "text.arrow").write_text("no arrow")
    for name in ("short.parquet", "middle.parquet", "text.parquet", "short.arrow", "text.arrow"):
        result = refused(name)
        report.holds(f"{name} is refused", result.returncode in (1, 2) and name in result.stderr and "cannot read" in result.stderr,
                     f"{result.returncode}: {result.stderr}")
    pq.write_table(pa.table({"instruction": ["q", "q"], "output": pa.array(["a", None])}), data / "null.parquet")
    pq.write_table(pa.table({"instruction": ["q", "q"], "output": [{"x": 1}, {"x": 2}]}), data / "object.parquet")
    report.holds("a record is named by its row", "object.parquet: row 1" in refused("object.parquet").stderr, refused("object.parquet").stderr)
    result = refused("plain.parquet", env={**os.environ, "QFT_BACKEND_PATH": str(data)})
    report.holds("without the plug-in", result.returncode != 0 and "libqft_arrow.so is not in" in result.stderr and "to_json" in result.stderr,
                 result.stderr)
    (data / "libqft_arrow.so").write_text("no library")
    result = refused("plain.parquet", env={**os.environ, "QFT_BACKEND_PATH": str(data)})
    report.holds("a plug-in that does not load", "does not load" in result.stderr and "LD_LIBRARY_PATH" in result.stderr, result.stderr)
    report.holds("other files need none", packs.pack(data / "plain.jsonl", env={**os.environ, "QFT_BACKEND_PATH": str(data)}).exists())


def main():
    args, report = arguments(), Report()
    if not (args.build / "bin/libqft_arrow.so").exists():
        sys.exit(77)
    with tempfile.TemporaryDirectory() as tmp:
        packs = Packs(args, report, Path(tmp))
        check_formats(packs)
        check_repository(packs)
        check_values(packs)
        check_bytes(packs)
        check_calls(packs)
        check_later(packs)
        check_faults(packs)
    report.finish()


main()
