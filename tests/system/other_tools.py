"""What qft answers to the example commands of ms-swift and the run files of LLaMA-Factory: it runs, or refuses by name and reason.

Their arguments are in other_tools/*.json (collect.py made them). Models and data are replaced by tiny ones that lie where the
examples name them, and a run ends after two steps; everything else is as it is typed. The answers are docs/other_tools.md:
--write makes it, without it each answer is held against the page. --part N takes every N-th example, --only REGEX those of such a name.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "interop"))
import stored_files  # noqa: E402
from common import ROOT, with_sessions  # noqa: E402
from tiny import ARCHITECTURES, make, write_model  # noqa: E402

HERE = Path(__file__).parent / "other_tools"
PAGE = ROOT / "docs/other_tools.md"
# As Qwen2.5's, with calls in its format.
JINJA = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content }}"
         "{% for c in m.tool_calls or [] %}{{ '\\n<tool_call>\\n' + {'name': c.function.name, 'arguments': c.function.arguments}|tojson + '\\n</tool_call>' }}{% endfor %}"
         "{{ '<|im_end|>\\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
QUANTIZED = re.compile(r"awq|gptq|int4|bnb|aqlm|-2bit", re.IGNORECASE)
# The model_type of what the tiny models stand for, by name.
KINDS = [(re.compile(pattern, re.IGNORECASE), kind) for pattern, kind in (
    ("bert", "modernbert"), ("internlm", "internlm2"), ("prm", "qwen2_prm"), ("moss", "moss_vl"), ("qwen3-vl", "qwen3_vl"), ("vl-", "qwen2_5_vl"),
    ("glm-4.5", "glm4_moe"), ("glm-4", "glm4"), ("nemotron", "nemotron_h"), ("gpt-oss", "gpt_oss"), ("qwen3-next", "qwen3_next"),
    (r"qwen3[._][58].*a\d+b", "qwen3_5_moe"), (r"qwen3[._][58]", "qwen3_5"), (r"qwen3.*a\d+b", "qwen3_moe"), (r"qwen2.*a\d+b", "qwen2_moe"),
    ("deepseek-v", "deepseek_v3"))]
SHORT = ["max_steps=2"]
LEAST_RUNNING = 40
MOST_RANKS = 8
TENSOR, CONTEXT = ("tensor_model_parallel_size",), ("context_parallel_size", "sequence_parallel_size", "cp_size")  # as the examples name them
INTRO = """# Commands and run files of other tools

Made by `tests/system/other_tools.py --build build --write`: every example of ms-swift for text models (commit {swift}) and every run
file of LLaMA-Factory's examples (commit {llama}), with models and data replaced by tiny ones; a model of a kind that qft does not
have stays of that kind (`model_type`). What runs trains two steps, answers, or exports, and ends with 0. `swift sft ARGUMENTS` is typed as
`qft train ARGUMENTS`, as is `swift rlhf`, `swift pt` as `qft train --stage pt`, `swift infer` as `qft chat`, or as `qft eval` where it names data or loads them,
`swift export` as `qft export`; `megatron sft`, `megatron rlhf`, `megatron pt` and `megatron export` as the commands of `swift`, with `--train_iters` 2;
what trains runs on as many ranks as its tensor and context degrees multiply to (at most {most}: larger degrees are set to what is left of it).
`llamafactory-cli train FILE` as `qft train FILE`, `llamafactory-cli dpo FILE` of version 1 as
`qft train FILE stage=dpo`, and so on. Launchers and environment variables (`torchrun`, `NPROC_PER_NODE`,
`CUDA_VISIBLE_DEVICES`) give way to `mpirun -np N`; `accelerate launch --config_file FILE` is `accelerate_config=FILE`. Where the template
of LLaMA-Factory's file is another model family's, the tiny model is given its own (`template=qwen`).

`scripts/nightly_other_tools.sh build` types all of them again and holds the answers against this page; with `--write` it makes the page anew.
`ctest -R system.other_tools` types every twelfth. The arguments are in `tests/system/other_tools`, taken from checkouts of both tools by
`collect.py` there.
"""
WHY_NOT = {"rollout": "GRPO is not implemented",
           "deploy": "no server: `qft chat`, `qft generate`, or `qft export` for another one", "app": "no web page: `qft chat`",
           "eval": "no benchmarks: `qft eval` reports loss, BLEU-4 and ROUGE", "sample": "`qft eval` with `predict_with_generate` answers a data set"}



def value_of(arguments, key):
    """The values behind --key."""
    if key not in arguments:
        return []
    at = arguments.index(key) + 1
    end = next((i for i in range(at, len(arguments)) if arguments[i].startswith("--")), len(arguments))
    return arguments[at:end]


class Examples:
    """A working directory in which the examples find what they name."""

    def __init__(self, directory, build):
        self.directory, self.build = Path(directory), build
        (self.directory / "made").mkdir(parents=True)
        make(self.directory / "made", "qwen3")
        self.model = self.directory / "made/model"
        (self.model / "chat_template.jinja").write_text(JINJA)
        self.records = [{"instruction": f"Say {i}", "input": "", "output": f"{i} " * (1 + i % 5)} for i in range(12)]
        # As ms-swift has them: pairs, and answers that are liked or not.
        talks = [{"messages": [{"role": "user", "content": r["instruction"]}, {"role": "assistant", "content": r["output"]}]} for r in self.records]
        self.preferences = [{**talk, "rejected_response": "no " * (1 + i % 3)} for i, talk in enumerate(talks)]
        self.feedback = [{**talk, "label": i % 3 > 0} for i, talk in enumerate(talks)]
        # As the hub has them: pairs with a score, and queries with relevant and other documents.
        self.by_name = {"stsb": [{"sentence1": r["instruction"], "sentence2": r["output"], "score": i % 5 / 4} for i, r in enumerate(5 * self.records)],
                        "scidocs": [{"query": r["instruction"], "positive": [r["output"]], "negative": ["no", "not at all"]} for r in self.records]}

    def clear(self):
        for folder in ("output", "outputs", "saves", "answers", "merge_lora_model", "megatron_output", "SAVE"):
            shutil.rmtree(self.directory / folder, ignore_errors=True)

    def put_model(self, name, adapter=False, heads=4):
        """A copy of the tiny model, or of an adapter of it; of the same kind as the one that is named, as far as config.json tells."""
        path = self.directory / name
        if heads > 4:
            shutil.rmtree(path, ignore_errors=True)
        if name and not name.startswith(("/", "$", "~")) and not path.exists() and "<" not in name:
            path.parent.mkdir(parents=True, exist_ok=True)
            kind = next((kind for pattern, kind in KINDS if pattern.search(name)), None)
            shutil.copytree(self.adapter(kind) if adapter else self.model, path)
            deeper = name.endswith("-pro")  # by LLaMA-Pro's expansion
            if not adapter and (kind in ARCHITECTURES or deeper or heads > 4):
                write_model(path, kind if kind in ARCHITECTURES else "qwen3", layers=8 if deeper else 2, heads=heads)
            if adapter and kind:
                self.put_model(f"made/{kind}/{name}")
                self.change(path / "adapter_config.json", base_model_name_or_path=f"made/{kind}/{name}")
            elif not adapter:
                self.change(path / "config.json", **({"model_type": kind} if kind else {}))
                if "rerank" in name.lower():  # the tiny tokenizer has no answers
                    for file in path.glob("*token*.json"):
                        file.write_text(file.read_text().replace("<reponame>", "yes").replace("<file_sep>", "no"))
                if quantized := QUANTIZED.search(name):
                    quantise(path, quantized.group().lower())

    @staticmethod
    def change(path, **values):
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    def adapter(self, kind=None):
        """A LoRA adapter of the tiny model, or of one of a kind that qft has, trained once."""
        kind = kind if kind in ARCHITECTURES else None
        adapter = self.directory / f"made/adapter{kind or ''}"
        if not adapter.exists():
            model = self.model
            if kind:
                model = self.directory / f"made/{kind}/base"
                shutil.copytree(self.model, model)
                write_model(model, kind)
            self.put_data("made/numbers")
            self.qft(["train", "--model", str(model), "--dataset", "made/numbers", "--output_dir", str(adapter),
                      "--split_dataset_ratio", "0.25"] + SHORT, check=True)
        return adapter

    def put_data(self, name, records=None):
        folder = self.directory / re.sub(r"[:#].*", "", name)
        if name.startswith(("/", "$", "~")) or (folder.exists() and records is None):
            return
        if name.endswith((".json", ".jsonl")):
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.write_text(json.dumps(records or self.records))
            return
        folder.mkdir(parents=True, exist_ok=True)
        records = records or next((rows for word, rows in self.by_name.items() if word in name), None)
        records = records or ([{"text": r["output"] * 4000} for r in self.records] if "c4" in name else self.records)
        (folder / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))

    def put_file(self, name, content):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for key in ("num_processes", "num_machines"):
            if key in content:
                content = {**content, key: 1}
        path.write_text(json.dumps(content) if name.endswith(".json") else yaml.safe_dump(content, sort_keys=False))

    def qft(self, arguments, check=False, text="", ranks=1):
        launcher = [] if ranks == 1 else ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)]
        result = subprocess.run([*launcher, str(self.build / "bin/qft"), *arguments], cwd=self.directory, capture_output=True, text=True, input=text,
                                timeout=300, env=with_sessions(os.environ))
        if check and result.returncode:
            raise RuntimeError(result.stdout + result.stderr)
        return result


def quantise(path, method):
    """A model as its name says that a tool left it; bitsandbytes' and the rest only in words."""
    if method == "gptq":
        stored_files.convert(path, stored_files.gptq_tensors, stored_files.gptq_config())
    elif method == "awq":
        stored_files.convert(path, stored_files.awq_tensors, stored_files.awq_config())
    else:
        stored_files.set_config(path, {"quant_method": method, "bits": 4})


def answer(result):
    """'runs', 'refused: reason', or what went wrong."""
    if result.returncode == 0:
        return "runs"
    lines = [line for line in result.stderr.splitlines() if "error" in line.lower() or "refused" in line] or result.stderr.splitlines()[-1:]
    text = lines[0] if lines else ""
    text = re.sub(r"^.*?\berror\b[\]:]*\s*", "", text)
    text = re.sub(r"^qft:?\s*", "", text).replace("command line: ", "").replace("configuration: ", "").replace("|", "\\|")
    text = re.sub(r"/\S*/((made|run)/|(?=data/))", "", text)
    unfit = re.search(r"quantization_config|model_type|architecture|text only", text)
    if result.returncode == 2 or (result.returncode == 1 and unfit):
        return "refused: " + (text if len(text) <= 200 else text[:200].rsplit(" ", 1)[0] + " ...")
    return f"FAILED with {result.returncode}: {text}"


def take_degrees(arguments, named):
    """The ranks that the tensor and context degrees multiply to; a degree beyond MOST_RANKS is set to what is left of it."""
    ranks = 1
    for name in (*TENSOR, *CONTEXT):
        degree = value_of(arguments, f"--{name}") or [named.get(name, 1)]
        degree = min(int(degree[0]), MOST_RANKS // ranks)
        if f"--{name}" in arguments:
            arguments[arguments.index(f"--{name}") + 1] = str(degree)
        elif name in named:
            named[name] = degree
        ranks *= degree
    return ranks


def run_swift(examples, row, files):
    examples.clear()
    # A model that the script's environment names is one more tiny model.
    arguments = [re.sub(r"^\$\{?MODEL\}?$", f"models/{row['example'].split('/')[-2]}", a) for a in row["args"]]
    program = row["program"].removeprefix("megatron ")
    named = dict(files.get(arguments[0], {})) if arguments else {}
    ranks = take_degrees(arguments, named) if program in ("sft", "rlhf", "pt") else 1
    for name, content in files.items():
        if name in arguments or name == row.get("accelerate"):
            examples.put_file(name, named if name == arguments[0] else content)
    for key in ("model", "adapters", "ckpt_dir", "resume_from_checkpoint"):
        for name in value_of(arguments, f"--{key}") + ([named[key]] if key in named and isinstance(named[key], str) else []):
            examples.put_model(name, key == "adapters", heads=max(4, ranks))
    records = None
    if program == "rlhf":
        records = examples.feedback if value_of(arguments, "--rlhf_type") == ["kto"] else examples.preferences
    for key in ("dataset", "val_dataset"):
        listed = named.get(key, [])
        for name in value_of(arguments, f"--{key}") + (listed if isinstance(listed, list) else [listed]):
            examples.put_data(name, records)
    if "accelerate" in row:
        arguments.append(f"accelerate_config={row['accelerate']}")
    short = SHORT
    if "--train_iters" in arguments:  # Megatron's name of max_steps
        arguments[arguments.index("--train_iters") + 1], short = "2", []
    if program in ("sft", "rlhf"):
        command = ["train", *arguments, *short]
    elif program == "pt":
        command = ["train", "--stage", "pt", *arguments, *short]
    elif program == "export":
        command = ["export", *arguments]
    elif "--val_dataset" in arguments or "--load_data_args" in arguments:
        command = ["eval", *arguments, "predict_with_generate=true", "max_new_tokens=4", "output_dir=answers"]
    else:
        command = ["chat", *arguments, "max_new_tokens=4"]
    return answer(examples.qft(command, text="Hello\n", ranks=ranks))


def llama_program(path, run):
    if "export_dir" in (run.get("peft_config") or run):
        return ["export"]
    if run.get("do_predict") and not run.get("do_train"):
        return ["eval", "max_new_tokens=4", "output_dir=answers"]
    if path.startswith("inference/"):
        return ["chat", "max_new_tokens=4"]
    if "dpo" in path and "stage" not in run:  # of version 1: llamafactory-cli dpo
        return ["train", "stage=dpo", *SHORT]
    return ["train", *SHORT]


def put_described(examples, datasets):
    """The data of a file that train_dataset names."""
    said = [{"messages": [{"role": role, "content": [{"type": "image_url", "value": "a.jpg"}]}]} for role in ("user", "assistant")]
    pairs = [{side: [{"role": "user", "content": r["instruction"]}, {"role": "assistant", "content": text}]
              for side, text in (("chosen", r["output"]), ("rejected", "no"))} for r in examples.records]
    for dataset in datasets.values():
        records = pairs if dataset.get("converter") == "pair" else said if "multimodal" in dataset["path"] else examples.records
        path = dataset["path"] if dataset.get("source") == "local" else f"{dataset['path']}/{dataset.get('split', 'train')}.json"
        examples.put_data(path, records)


def run_llama(examples, path, run, files):
    examples.clear()
    for name, content in files.items():
        examples.put_file(name, content)
    run = dict(run)
    ranks = take_degrees([], run)
    examples.put_model(run.get("model_name_or_path", run.get("model")), heads=max(4, ranks))
    adapter = (run.get("peft_config") or run).get("adapter_name_or_path")
    if "train_dataset" in run:
        put_described(examples, files[run["train_dataset"]])
    if isinstance(adapter, str) and not (examples.directory / adapter).exists():
        shutil.copytree(examples.adapter(), examples.directory / adapter)
    info = {name.strip(): {"file_name": "numbers.json"} for key in ("dataset", "eval_dataset") for name in str(run.get(key, "")).split(",")}
    data = examples.directory / run.get("dataset_dir", "data").replace("REMOTE:", "")
    data.mkdir(parents=True, exist_ok=True)
    (data / "numbers.json").write_text(json.dumps([{**r, "text": r["output"] * 40, "good": i % 2 == 0} for i, r in enumerate(examples.records)]))
    if run.get("stage") == "pt":
        info = {name: {"file_name": "numbers.json", "columns": {"prompt": "text"}} for name in info}
    if run.get("stage") in ("dpo", "rm"):
        columns = {"prompt": "instruction", "query": "input", "chosen": "output", "rejected": "text"}
        info = {name: {"file_name": "numbers.json", "ranking": True, "columns": columns} for name in info}
    if run.get("stage") == "kto":
        info = {name: {"file_name": "numbers.json", "columns": {"prompt": "instruction", "response": "output", "kto_tag": "good"}} for name in info}
    (data / "dataset_info.json").write_text(json.dumps(info))
    file = examples.directory / "run" / Path(path).name
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(run, sort_keys=False, allow_unicode=True))
    program, *more = llama_program(path, run)
    # The tiny model's tokenizer has the tokens of Qwen's templates, whatever the example's model is.
    template = ["template=qwen"] if not str(run.get("template", "qwen")).startswith("qwen") else []
    return answer(examples.qft([program, str(file), *more, *template], text="Hello\n", ranks=ranks))


def table(title, rows):
    return f"\n## {title}\n\n| example | answer |\n|---|---|\n" + "".join(f"| {name} | {text} |\n" for name, text in rows)


def numbered(commands):
    """One name each: examples with several commands get a number."""
    seen = {}
    for row in commands:
        name = f"`{row['example']}` {'' if row['program'].startswith('megatron') else 'swift '}{row['program']}"
        seen[name] = seen.get(name, 0) + 1
        yield (name if seen[name] == 1 else f"{name} ({seen[name]})"), row


def why_not(kind):
    if "images" in kind:
        return "not typed: models are text only"
    tool, program = kind.split()
    return "no such program: " + WHY_NOT[program if program in WHY_NOT else tool]


def page(swift, llama, swift_rows, llama_rows):
    runs = [sum(text == "runs" for _, text in rows) for rows in (swift_rows, llama_rows)]
    others = "".join(f"| {count} x {kind} | {why_not(kind)} |\n" for kind, count in sorted(swift["others"].items()))
    return (INTRO.format(swift=swift["commit"], llama=llama["commit"], most=MOST_RANKS)
            + table(f"ms-swift: {runs[0]} of {len(swift_rows)} run", swift_rows) + others
            + table(f"LLaMA-Factory: {runs[1]} of {len(llama_rows)} run", llama_rows))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--write", action="store_true", help="write docs/other_tools.md")
    parser.add_argument("--part", type=int, default=1, help="take every N-th example")
    parser.add_argument("--only", default="", help="of these take those whose names match")
    parser.add_argument("--jobs", type=int, default=2, help="examples that run at a time")
    args = parser.parse_args()
    swift, llama = (json.loads((HERE / f"{name}.json").read_text()) for name in ("swift", "llama_factory"))
    os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    work = [("swift", name, lambda e, row=row: run_swift(e, row, swift["files"])) for name, row in list(numbered(swift["commands"]))[:: args.part]]
    work += [("llama", f"`{path}`", lambda e, path=path, run=run: run_llama(e, path, run, llama["files"]))
             for path, run in list(llama["runs"].items())[:: args.part]]
    work = [row for row in work if re.search(args.only, row[1])]
    answers = [None] * len(work)
    with tempfile.TemporaryDirectory() as tmp:
        places = [Examples(Path(tmp) / str(job), args.build.resolve()) for job in range(args.jobs)]

        def go(job):
            for i in range(job, len(work), args.jobs):
                answers[i] = work[i][2](places[job])
                print(f"{work[i][1]}: {answers[i]}", flush=True)

        with ThreadPoolExecutor(args.jobs) as pool:
            list(pool.map(go, range(args.jobs)))
    swift_rows, llama_rows = ([(name, text) for (of, name, _), text in zip(work, answers) if of == tool] for tool in ("swift", "llama"))
    rows = swift_rows + llama_rows
    wrong = [f"{name}: {text}" for name, text in rows if text.startswith("FAILED")]
    if args.write:
        PAGE.write_text(page(swift, llama, swift_rows, llama_rows))
    else:
        held = dict(re.findall(r"^\| (.+?) \| (.+) \|$", PAGE.read_text(), re.MULTILINE))
        wrong += [f"{name}: {text}\n    but {PAGE.name} has: {held.get(name)}" for name, text in rows if held.get(name) != text]
    running = sum(text == "runs" for _, text in swift_rows)
    if args.part == 1 and not args.only and running < LEAST_RUNNING:
        wrong.append(f"{running} commands of ms-swift run, and {LEAST_RUNNING} must")
    print(*wrong, f"{len(rows)} examples, {sum(t == 'runs' for _, t in rows)} run, {len(wrong)} wrong", sep="\n")
    sys.exit(1 if wrong or not rows else 0)


main()
