"""qft generate --input: every form of data gives the prompts of training, the file is the same for any ranks and batch size, a killed run
goes on, and a record that cannot be answered says why."""
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from common import Report, arguments, mpirun, run
from tiny import make, write

ENV = {**os.environ, "OMP_NUM_THREADS": "1"}
SYSTEM = "Count on."
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}}]
CUSTOM = ("{% if tools %}<tools>{{ tools | tojson }}</tools>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}"
          "{% if m.tool_calls %}{% for c in m.tool_calls %}<call>{{ c.function | tojson }}</call>{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant: {% endif %}")


class Case:
    def __init__(self, build, directory, report):
        self.qft, self.pack, self.dir, self.report = build / "bin/qft", build / "bin/qft-pack", directory, report
        settings = make(directory)
        self.settings = {"model_name_or_path": settings["model_name_or_path"], "template": "smollm2", "compute_dtype": "float32",
                         "do_sample": False, "max_new_tokens": 12, "dataset_dir": str(directory / "data")}
        self.run_file = write(directory / "run.yaml", self.settings)

    def generate(self, source, *words, ranks=1, output="answers.jsonl", code=0, fresh=True, **kwargs):
        """The process that ended; the file that it wrote is replaced."""
        target = self.dir / output
        if fresh:
            target.unlink(missing_ok=True)
        command = [self.qft, "generate", self.run_file, "--input", source, "--output", target, *words]
        ended = mpirun(ranks, command, check=False, **kwargs) if ranks > 1 else run(command, check=False, env=ENV, **kwargs)
        if ended.returncode != code:
            self.report.holds(f"{source}: exit code {code}", False, f"{ended.returncode}\n{ended.stderr}")
        return ended

    def lines(self, output="answers.jsonl"):
        return [json.loads(line) for line in (self.dir / output).read_text().splitlines()]

    def file(self, name, text):
        (self.dir / name).write_text(text)
        return self.dir / name


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def check_forms(case):
    """The same questions in each form have the same lines, but for what names them."""
    questions = [f"Say the number {i}{' again' * (i % 5)}" for i in range(7)]
    asked = [[{"role": "system", "content": SYSTEM}, {"role": "user", "content": q}] for q in questions]
    sharegpt = [[{"from": "human", "value": q}] for q in questions]
    forms = {
        "alpaca.jsonl": jsonl({"instruction": q, "system": SYSTEM} for q in questions),
        "alpaca.json": json.dumps([{"instruction": q, "input": "", "system": SYSTEM} for q in questions]),
        "prompt.jsonl": jsonl({"prompt": q, "system": SYSTEM} for q in questions),
        "query.csv": "query,system\n" + "".join(f'"{q}","{SYSTEM}"\n' for q in questions),
        "messages.jsonl": jsonl({"messages": m} for m in asked),
        "answered.jsonl": jsonl({"messages": [*m, {"role": "assistant", "content": "12"}]} for m in asked),
        "mixed.jsonl": jsonl({"messages": m + [{"role": "assistant", "content": "12"}] * (i % 2)} for i, m in enumerate(asked)),
        "sharegpt.json": json.dumps([{"conversations": m, "system": SYSTEM} for m in sharegpt]),
        "turns.jsonl": jsonl({"conversation": [{"human": q, **({"assistant": "12"} if i < 3 else {})}], "system": SYSTEM} for i, q in enumerate(questions)),
        "lines.txt": "".join(q + "\n" for q in questions),
    }
    system = [f"default_system={SYSTEM}"]
    reference = None
    for name, text in forms.items():
        case.generate(case.file(name, text), *system)
        lines = case.lines()
        labels = [line.pop("label", None) for line in lines]
        reference = reference or lines
        case.report.equal(f"{name}: lines that differ", [a for a, b in zip(lines, reference) if a != b], [])
        expected = {"answered.jsonl": ["12"] * 7, "mixed.jsonl": [None, "12"] * 3 + [None], "turns.jsonl": ["12"] * 3 + [None] * 4}
        case.report.equal(f"{name}: labels", labels, expected.get(name, [None] * 7))
    case.report.holds("keys of a line", list(reference[0]) == ["index", "prompt", "predict", "finish", "prompt_tokens", "new_tokens"], reference[0])
    case.report.holds("numbers of tokens", all(0 < line["new_tokens"] <= 12 and (line["new_tokens"] == 12 or line["finish"] == "stop") for line in reference), reference)

    import pyarrow
    import pyarrow.parquet
    pyarrow.parquet.write_table(pyarrow.table({"instruction": questions, "system": [SYSTEM] * 7}), case.dir / "table.parquet")
    case.generate(case.dir / "table.parquet")
    case.report.equal("table.parquet: lines that differ", [a for a, b in zip(case.lines(), reference) if a != b], [])
    case.file("data/dataset_info.json", json.dumps({"asked": {"file_name": str(case.dir / "query.csv"), "columns": {"prompt": "query", "system": "system"}}}))
    case.generate("asked")
    case.report.equal("a name of dataset_info.json: lines that differ", [a for a, b in zip(case.lines(), reference) if a != b], [])

    piped = run([case.qft, "generate", case.run_file, "--input", "-", "--output", "-", *system], input=forms["lines.txt"], env=ENV)
    case.report.equal("piped in and out: lines that differ", [a for a, b in zip(map(json.loads, piped.stdout.splitlines()), reference) if a != b], [])
    case.generate(case.file("gaps.txt", "\n" + "\n \t\n".join(questions[:3]) + "\n\n"), "--json", *system)
    case.report.equal("blank lines of a text file are no prompts, and count in the index",
                      [{**line, "index": (line["index"] - 1) // 2} for line in case.lines() if line["index"] in (1, 3, 5)], reference[:3])
    case.report.equal("and have no lines", len(case.lines()), 3)
    late = "[" + ",\n".join(['{"prompt": "x"}'] * 100) + '\n{"prompt": "y"}]'
    broken = run([case.qft, "generate", case.run_file, "--input", "-", "--output", "-"], input=late, check=False, env=ENV)
    case.report.holds("a piped file that is broken is called standard input", broken.returncode == 1 and "dataset standard input: reads prompt" in broken.stderr
                      and "standard input:101: record 101" in broken.stderr and "/qft-" not in broken.stderr, broken.stderr)
    one = run([case.qft, "generate", case.run_file, *system, f"prompt={questions[3]}"], input="")
    case.report.equal("qft generate prompt= says the same", one.stdout, reference[3]["predict"] + "\n")
    ids = ['"a/1"', '{"n": 2}', "18446744073709551615", "18446744073709551616", "[NaN, 9223372036854775807]"]
    case.generate(case.file("ids.jsonl", "".join(f'{{"id": {i}, "prompt": "x"}}\n' for i in ids)))
    case.report.equal("ids of records are kept, numbers that JSON does not hold as texts", [line["id"] for line in case.lines()],
                      ["a/1", {"n": 2}, 18446744073709551615, "18446744073709551616", ["NaN", 9223372036854775807]])


def conversations():
    call = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}]}
    first, then = {"role": "user", "content": "Say 1"}, {"role": "user", "content": "And then?"}
    answer = {"role": "assistant", "content": "1, 2"}
    return [{"messages": [first, answer]},
            {"messages": [{"role": "system", "content": SYSTEM}, first, answer, then, {"role": "assistant", "content": "3"}]},
            {"messages": [first, call, {"role": "tool", "content": "2"}, answer], "tools": TOOLS},
            {"messages": [{"role": "system", "content": SYSTEM}, first, call], "tools": TOOLS}]


def check_training_prompts(case):
    """A record's prompt is what a pack has before its last label, for templates of each kind; transformers' too for those in Jinja."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(case.dir / "model")
    rows = conversations()
    plain = [{k: v for k, v in row.items() if k != "tools"} for row in rows if "tools" not in row]
    custom = case.file("custom.jinja", CUSTOM)
    for name, keys, records in (("alpaca", {"template": "alpaca"}, plain), ("qwen", {"template": "qwen"}, rows), ("own", {"template": "own"}, plain),
                                ("custom", {"template": None, "chat_template": str(custom)}, rows)):
        data = case.file(f"{name}.data.jsonl", jsonl(records))
        changed = {k: v for k, v in {**case.settings, **keys, "dataset": str(data), "cutoff_len": 512}.items() if v is not None}
        run_file = write(case.dir / f"{name}.yaml", changed)
        run([case.pack, run_file, "-o", case.dir / f"{name}.h5"])
        items = [json.loads(line) for line in run([case.pack, "export", case.dir / f"{name}.h5"]).stdout.splitlines()]
        packed = []
        for item in items:
            ids = item["ids"][:item["label_spans"][-1][0]]
            packed.append((tokenizer.decode(ids), len(ids)))
        run([case.qft, "generate", run_file, "--input", data, "--output", case.dir / f"{name}.answers"], env=ENV)
        lines = case.lines(f"{name}.answers")
        case.report.equal(f"{name}: prompts of training", [(line["prompt"], line["prompt_tokens"]) for line in lines], packed)
        case.report.holds(f"{name}: labels", all(line["label"] for line in lines), lines)
        if name not in ("own", "custom"):
            continue
        template = CUSTOM if name == "custom" else tokenizer.chat_template
        for row, line in zip(records, lines):
            ids = tokenizer.apply_chat_template(row["messages"][:-1], tools=row.get("tools"), chat_template=template, add_generation_prompt=True,
                                                return_dict=True)["input_ids"]
            case.report.equal(f"{name}: transformers' prompt", (line["prompt"], line["prompt_tokens"]), (tokenizer.decode(ids), len(ids)))


def check_company(case):
    """The bytes do not depend on ranks or batch size; more ranks than prompts work."""
    many = case.file("many.jsonl", jsonl({"instruction": f"Say the number {i} {'again ' * (i % 9)}", "output": str(i)} for i in range(11)))
    two = case.file("two.jsonl", jsonl({"prompt": p} for p in ("one", "two")))
    for what, words in (("greedy", ["do_sample=false"]), ("sampled", ["do_sample=true", "temperature=1.3", "top_p=0.95", "top_k=0"])):
        case.generate(many, *words, "per_device_eval_batch_size=1")
        reference = (case.dir / "answers.jsonl").read_bytes()
        for ranks, batch in ((1, 4), (2, 3), (3, 8)):
            case.generate(many, *words, f"per_device_eval_batch_size={batch}", ranks=ranks)
            case.report.holds(f"{what}, {ranks} ranks, {batch} at a time: the same bytes", (case.dir / "answers.jsonl").read_bytes() == reference)
        case.generate(two, *words)
        reference = (case.dir / "answers.jsonl").read_bytes()
        ended = case.generate(two, *words, "--json", ranks=3)
        case.report.holds(f"{what}, more ranks than prompts", (case.dir / "answers.jsonl").read_bytes() == reference)
        printed = json.loads(ended.stdout)
        case.report.holds("--json has the summary", (printed["records"], printed["errors"]) == (2, 0) and printed["new_tokens"] > 0, printed)
    sharded = write(case.dir / "sharded.yaml", {**case.settings, "strategy": "zero3"})
    mpirun(2, [case.qft, "generate", sharded, "--input", two, "--output", case.dir / "sharded.jsonl"])
    case.generate(two)
    case.report.holds("sharded weights: the same bytes", (case.dir / "sharded.jsonl").read_bytes() == (case.dir / "answers.jsonl").read_bytes())


def written(folder):
    return sum(file.read_bytes().count(b"\n") for file in folder.glob("*.jsonl"))


def stopped(command, folder, lines):
    """The process, stopped once it has written so many lines. It runs without mpirun, which would clean up behind it."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENV)
    deadline = time.monotonic() + 120
    while written(folder) < lines and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGSTOP)
    return process


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


def check_kill(case):
    """A killed run loses what is in flight alone; the next start, of other ranks, answers the rest."""
    source = case.file("long.jsonl", jsonl({"instruction": f"Say the number {i}"} for i in range(60)))
    words = ["max_new_tokens=200", "per_device_eval_batch_size=2", "do_sample=true"]
    case.generate(source, *words, output="whole.jsonl")
    whole = (case.dir / "whole.jsonl").read_bytes()
    target, folder = case.dir / "killed.jsonl", case.dir / "killed.jsonl.part"
    command = [case.qft, "generate", case.run_file, "--input", source, "--output", target, *words]
    process = stopped(command, folder, 5)
    second = case.generate(source, *words, output="killed.jsonl", code=1, fresh=False)
    case.report.holds("two at once are refused", "qft generate" in second.stderr and "killed.jsonl.part" in second.stderr, second.stderr)
    kill(process)
    kept = written(folder)
    case.report.holds("killed in the middle", 5 <= kept < 60 and not target.exists(), f"{kept} lines")
    with open(max(folder.glob("*.jsonl"), key=lambda file: file.stat().st_size), "a") as torn:
        torn.write('{"index":59,"predict":"torn","finish":"stop"}')
    other = case.generate(source, *words, "temperature=0.5", output="killed.jsonl", code=2, fresh=False)
    case.report.holds("other settings are refused, with the difference", "temperature 0.95 -> 0.5" in other.stderr and "killed.jsonl.part" in other.stderr, other.stderr)
    ended = case.generate(source, *words, "--json", output="killed.jsonl", ranks=2, fresh=False)
    case.report.equal("answers that are kept", json.loads(ended.stdout)["earlier"], kept)
    case.report.holds("two ranks go on to the same bytes", target.read_bytes() == whole)
    case.report.holds("nothing else is left", not folder.exists() and not list(case.dir.glob("tmp-*")))

    kill(stopped([*command, "overwrite_output_dir=true"], folder, 3))
    case.report.holds("the old file stays until the new one is whole", target.read_bytes() == whole and folder.exists())
    ended = case.generate(source, *words, "temperature=0.5", "overwrite_output_dir=true", "--json", output="killed.jsonl", fresh=False)
    case.report.equal("overwrite_output_dir drops answers of other settings", json.loads(ended.stdout)["earlier"], 0)
    case.report.holds("and the old file is replaced", target.read_bytes() != whole and not folder.exists())


def check_errors(case):
    rows = [json.dumps({"instruction": "Say 1"}), '{"instruction": ', json.dumps({"instruction": "", "input": ""}), json.dumps({"instruction": "number " * 600}),
            json.dumps({"id": 5, "instruction": 7}), "[1]", json.dumps({"instruction": "Say 2", "output": "2, 3"})]
    source = case.file("broken.jsonl", "\n".join(rows) + "\n")
    for ranks in (1, 2):
        ended = case.generate(source, ranks=ranks, code=1)
        lines = case.lines()
        wrong = [line["index"] for line in lines if "error" in line]
        case.report.equal(f"{ranks} ranks: records that cannot be answered", wrong, [1, 2, 3, 4, 5])
        case.report.holds("each says where it stands", all(f"broken.jsonl:{i + 1}: " in lines[i]["error"] for i in wrong), lines)
        case.report.holds("and why", all(words in lines[i]["error"] for i, words in ((1, "JSON"), (2, "no prompt"), (3, "512 positions"), (4, "instruction"))), lines)
        case.report.holds("one with an id keeps it", lines[4]["id"] == 5, lines[4])
        case.report.holds("the others are answered", [lines[i]["index"] for i in (0, 6)] == [0, 6] and lines[6]["label"] == "2, 3" and "predict" in lines[0], lines)
        case.report.holds("the log and the summary count them", "5 of 7 records cannot be answered" in ended.stderr and "5 records could not" in ended.stdout, ended.stderr)
    long = case.file("close.jsonl", jsonl([{"prompt": "number " * 225}, {"prompt": "x"}]))
    ended = case.generate(long, "max_new_tokens=400")
    case.report.holds("an answer up to the last position is said to be short", "1 answers have less room" in ended.stderr and case.lines()[0]["finish"] in ("length", "stop"), ended.stderr)


def check_refusals(case):
    source = case.file("one.jsonl", jsonl([{"prompt": "x"}]))
    case.generate(source)
    mine = case.file("mine.txt", "not yours\n")
    sealed = case.dir / "sealed"
    sealed.write_text("a file")
    pictures = case.file("pictures.jsonl", jsonl([{"prompt": "x", "images": ["a.png"]}]))
    cases = [("answers that are there", source, "answers.jsonl", [], 2, "overwrite_output_dir=true"), ("another program's file", source, "mine.txt", ["overwrite_output_dir=true"], 2, "another program"),
             ("the input itself", source, "one.jsonl", ["overwrite_output_dir=true"], 2, "another program"), ("a folder", source, "data", [], 2, "is a folder"),
             ("a folder that is a file", source, "sealed/a.jsonl", [], 1, "sealed"), ("no such file", case.dir / "none.jsonl", "x.jsonl", [], 2, "none.jsonl"),
             ("an empty file", case.file("empty.jsonl", ""), "x.jsonl", [], 2, "empty.jsonl"), ("no prompt at all", case.file("blank.txt", "\n \n"), "x.jsonl", [], 2, "all its lines are blank"),
             ("a prompt too", source, "x.jsonl", ["prompt=y"], 2, "prompt and --input"), ("pictures", pictures, "x.jsonl", [], 2, "images"), ("no model", source, "x.jsonl", ["model_name_or_path=/none"], 2, "/none")]
    for what, source, output, words, code, says in cases:
        ended = case.generate(source, *words, output=output, code=code, fresh=False)
        case.report.holds(f"refused: {what}", says in ended.stderr and "loaded" not in ended.stderr and "computed in" not in ended.stderr, ended.stderr)
    case.report.equal("another program's file stays", mine.read_text(), "not yours\n")
    case.report.holds("nothing is left of what was refused", not (case.dir / "x.jsonl").exists() and not (case.dir / "x.jsonl.part").exists())
    ended = mpirun(2, [case.qft, "generate", case.run_file, "--input", "-", "--output", "-"], check=False)
    case.report.holds("standard streams on two ranks", ended.returncode == 2 and ended.stderr.count("work with one rank") == 1, ended.stderr)
    ended = run([case.qft, "generate", case.run_file, "--input", case.dir / "one.jsonl"], check=False)
    case.report.holds("--input alone", ended.returncode == 2 and "--output" in ended.stderr, ended.stderr)
    case.generate(case.dir / "one.jsonl", "overwrite_output_dir=true", fresh=False)
    case.report.equal("overwrite_output_dir replaces answers", len(case.lines()), 1)


def main():
    args = arguments()
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        case = Case(args.build, Path(tmp), report)
        for check in (check_forms, check_training_prompts, check_company, check_kill, check_errors, check_refusals):
            began = time.monotonic()
            check(case)
            print(f"        {check.__name__}: {time.monotonic() - began:.1f} s", flush=True)
        shutil.rmtree(case.dir / "model")
    report.finish()


main()
