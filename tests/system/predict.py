"""qft eval with predict_with_generate: answers are transformers' own, the file is the same for any batch size and number of
ranks, its scores are those of the texts in it, do_predict writes after training what qft eval writes of its result, and --compare what it writes of base and tuned model."""
import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from common import Report, arguments, mpirun, run
from tiny import make, write

SYSTEM = "Count on."
MAX_NEW_TOKENS = 12
METRICS = ["predict_bleu-4", "predict_rouge-1", "predict_rouge-2", "predict_rouge-l"]


def records(directory, samples):
    """Conversations of one and two turns, long and short."""
    rows = []
    for i in range(samples):
        turns = [{"from": "human", "value": f"Say the number {i} {'again ' * (i % 7)}"}, {"from": "gpt", "value": f"{i}, {i + 1}. 好"}]
        if i % 3 == 0:
            turns += [{"from": "human", "value": "And then?"}, {"from": "gpt", "value": " ".join(str(i + k) for k in range(1 + i % 11))}]
        rows.append({"conversations": turns})
    (directory / "data/turns.json").write_text(json.dumps(rows))
    (directory / "data/dataset_info.json").write_text(json.dumps({"turns": {"file_name": "turns.json", "formatting": "sharegpt"}}))
    return rows


def settings_of(directory, **changes):
    settings = make(directory)
    for key in ("dataset", "do_train", "finetuning_type", "lora_rank", "lora_dropout"):
        settings.pop(key)
    return {**settings, "finetuning_type": "full", "eval_dataset": "turns", "predict_with_generate": True, "max_new_tokens": MAX_NEW_TOKENS,
            "do_sample": False, "compute_dtype": "float32", "default_system": SYSTEM, "cutoff_len": 512, **changes}


def expected(directory, rows):
    """(prompt, prediction, label) of each conversation by transformers in fp64, one at a time, and whether all of the prediction
    is clear; where two logits tie it is what comes before them."""
    import torch
    from models import ends_clearly, greedy
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(2)
    model = AutoModelForCausalLM.from_pretrained(directory / "model", dtype=torch.float64)
    tokenizer = AutoTokenizer.from_pretrained(directory / "model")
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
    for row in rows:
        messages = [{"role": "system", "content": SYSTEM}]
        messages += [{"role": {"human": "user", "gpt": "assistant"}[t["from"]], "content": t["value"]} for t in row["conversations"]]
        text = tokenizer.apply_chat_template(messages[:-1], add_generation_prompt=True, tokenize=False)
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        answer, clear = greedy(model, ids, stop, MAX_NEW_TOKENS)
        prediction = tokenizer.decode(answer[:clear], skip_special_tokens=True)
        whole = ends_clearly(answer, clear, MAX_NEW_TOKENS)
        yield text, prediction if whole else prediction.rstrip("\ufffd"), messages[-1]["content"] + "\n", whole


class Runs:
    def __init__(self, build, directory, report):
        self.qft, self.directory, self.report = build / "bin/qft", directory, report

    def eval(self, settings, ranks=1, **changes):
        """The bytes of generated_predictions.jsonl, and what --json printed."""
        out = self.directory / "out"
        run_file = write(self.directory / "eval.yaml", {**settings, "output_dir": str(out), **changes})
        printed = mpirun(ranks, [self.qft, "eval", run_file, "--json"]).stdout
        return (out / "generated_predictions.jsonl").read_bytes(), json.loads(printed)

    def same(self, what, ours, theirs):
        differ = sum(a != b for a, b in zip(ours.splitlines(), theirs.splitlines())) + abs(ours.count(b"\n") - theirs.count(b"\n"))
        self.report.equal(what, differ, 0)


def check_answers(runs, settings, rows):
    reference, printed = runs.eval(settings)
    lines = [json.loads(line) for line in reference.decode().splitlines()]
    wanted = list(expected(runs.directory, rows))
    for line, (prompt, prediction, label, whole) in zip(lines, wanted, strict=True):
        same = line["predict"] == prediction if whole else line["predict"].startswith(prediction)
        theirs = same and (line["prompt"], line["label"]) == (prompt, label)
        runs.report.holds(f"transformers' answer{'' if whole else ' up to a tie'}", theirs, f"{line}\nexpected {prediction!r}")
    runs.report.holds("most answers are without a tie", sum(whole for *_, whole in wanted) >= 0.8 * len(wanted))
    as_python = "".join(json.dumps({k: line[k] for k in ("prompt", "predict", "label")}, ensure_ascii=False) + "\n" for line in lines)
    runs.same("lines that json.dumps would write otherwise", reference, as_python.encode())

    pairs = "".join(json.dumps({"predict": line["predict"], "label": line["label"]}) + "\n" for line in lines)
    scores = subprocess.run([runs.qft.parents[1] / "tests/score_probe"], input=pairs, capture_output=True, text=True, check=True)
    scores = [json.loads(line) for line in scores.stdout.splitlines()]
    saved = json.loads((runs.directory / "out/predict_results.json").read_text())
    for i, name in enumerate(METRICS):
        mean = sum(s[i] for s in scores) / len(scores)
        runs.report.check(f"{name} is {saved[name]:.4f}, the mean", abs(saved[name] - mean) + abs(printed[name] - mean), 1e-9)
    every = json.loads((runs.directory / "out/all_results.json").read_text())
    missing = [k for k in (*METRICS, "predict_runtime", "predict_samples_per_second") if k not in every]
    runs.report.equal("figures that all_results.json lacks", missing, [])
    runs.report.holds("no loss beside them", printed["eval_loss"] > 0)

    one = run([runs.qft, "generate", runs.directory / "eval.yaml", f"system={SYSTEM}",
               f"prompt={rows[4]['conversations'][0]['value']}", "--json"])
    runs.report.holds("qft generate answers the same", json.loads(one.stdout)["text"] == lines[4]["predict"])
    return reference


def check_company(runs, settings, reference):
    for ranks, batch in [(1, 1), (1, 5), (1, 20), (2, 3), (3, 8)]:
        ours, _ = runs.eval(settings, ranks, per_device_eval_batch_size=batch)
        runs.same(f"{ranks} ranks, {batch} at a time: lines that differ", ours, reference)
    sampled = {**settings, "do_sample": True, "temperature": 1.3, "top_p": 0.95, "top_k": 0}
    one, _ = runs.eval(sampled, 1, per_device_eval_batch_size=1)
    runs.report.holds("sampling gives other answers", one != reference)
    for ranks, batch in [(1, 5), (3, 2)]:
        runs.same(f"sampled, {ranks} ranks, {batch} at a time", runs.eval(sampled, ranks, per_device_eval_batch_size=batch)[0], one)
    half = {**settings, "compute_dtype": "bfloat16"}
    one, _ = runs.eval(half, 1, per_device_eval_batch_size=1)
    runs.same("bf16, 5 at a time", runs.eval(half, 1, per_device_eval_batch_size=5)[0], one)


def check_training(runs, settings):
    """do_predict, with whole weights and with sharded ones."""
    for strategy in ("ddp", "zero3"):
        trained = runs.directory / strategy
        lora = {"finetuning_type": "lora", "lora_rank": 4, "dataset": "turns", "do_train": True, "max_steps": 3, "strategy": strategy}
        settings_train = {**settings, **lora, "do_predict": True, "output_dir": str(trained)}
        mpirun(2, [runs.qft, "train", write(runs.directory / "train.yaml", settings_train)])
        after, _ = runs.eval(settings, 1, finetuning_type="lora", adapter_name_or_path=str(trained))
        runs.same(f"do_predict after {strategy}", (trained / "generated_predictions.jsonl").read_bytes(), after)
        results = json.loads((trained / "all_results.json").read_text())
        runs.report.holds("figures of both in all_results.json", "train_loss" in results and METRICS[0] in results)


def check_words(runs, settings):
    """Chinese answers are scored by jieba's words, and without its dictionary by characters, said once."""
    saved = json.loads((runs.directory / "out/predict_results.json").read_text())
    runs.report.equal("words of", saved["predict_words"], "jieba")
    runs.report.holds("figures of time and memory", saved["predict_memory_peak"] > 1e6 and saved["predict_model_preparation_time"] > 0
                      and abs(saved["predict_seconds_per_sample"] * 17 - saved["predict_runtime"]) < 1e-3 * 17, saved)
    (runs.directory / "bare").mkdir()
    bare = shutil.copy(runs.qft, runs.directory / "bare/qft")
    file = write(runs.directory / "bare.yaml", {**settings, "output_dir": str(runs.directory / "bare/out")})
    result = mpirun(2, [bare, "eval", file, "--json"])
    runs.report.equal("words without a dictionary", json.loads(result.stdout)["predict_words"], "characters")
    runs.report.equal("warnings of it", result.stderr.count("JIEBA_DICT"), 1)


def check_comparison(runs, settings):
    """Base and tuned model side by side are what qft eval says of each: of an adapter that is named, of one and of a whole model
    in output_dir."""
    base, _ = runs.eval(settings, adapter_name_or_path=None)
    for kind, ranks, named in (("lora", 1, True), ("lora", 2, False), ("full", 2, False)):
        out = runs.directory / f"compared-{kind}"
        training = {**settings, "finetuning_type": kind, "lora_rank": 4, "dataset": "turns", "do_train": True, "max_steps": 3,
                    "learning_rate": 0.01, "output_dir": str(out), "predict_with_generate": False}
        if not out.exists():
            mpirun(2, [runs.qft, "train", write(runs.directory / "train.yaml", training)])
        adapter = {"adapter_name_or_path": str(out)} if named else {}
        file = write(runs.directory / "compare.yaml", {**training, **adapter, "do_train": False})
        printed = json.loads(mpirun(ranks, [runs.qft, "eval", "--compare", file, "--json"]).stdout)
        lines = [json.loads(line) for line in (out / "compared_predictions.jsonl").read_text().splitlines()]
        answers = (out / "generated_predictions.jsonl").read_bytes()
        as_answers = lambda key: [{"prompt": x["prompt"], "predict": x[key], "label": x["label"]} for x in lines]
        name = f"{kind} by its {'name' if named else 'output_dir'}, {ranks} ranks: "
        runs.report.holds(name + "the base's answers", as_answers("base") == [json.loads(x) for x in base.splitlines()])
        runs.report.holds(name + "the tuned model's", as_answers("predict") == [json.loads(x) for x in answers.splitlines()])
        tuned = {"adapter_name_or_path": str(out)} if kind == "lora" else {"model_name_or_path": str(out)}
        alone, alone_printed = runs.eval(settings, finetuning_type=kind, **tuned)
        runs.same(name + "answers that qft eval gives otherwise", answers, alone)
        runs.report.holds(name + "which are others", base != alone)
        runs.report.check(name + "loss of the tuned model", abs(printed["tuned"]["eval_loss"] - alone_printed["eval_loss"]), 1e-6)
        for metric in (*METRICS, "eval_loss"):
            difference = printed["tuned"][metric] - printed["base"][metric]
            runs.report.check(name + f"difference of {metric}", abs(printed["difference"][metric] - difference), 1e-9)
        for metric in METRICS:
            for side, key in (("base", "base_scores"), ("tuned", "predict_scores")):
                mean = sum(x[key][metric.removeprefix("predict_")] for x in lines) / len(lines)
                runs.report.check(name + f"mean {metric} of {side}", abs(mean - printed[side][metric]), 1e-9)
        runs.report.equal(name + "compare_results.json", json.loads((out / "compare_results.json").read_text()), printed)
    nothing = write(runs.directory / "nothing.yaml", {**settings, "output_dir": str(runs.directory / "nothing")})
    result = mpirun(2, [runs.qft, "eval", "--compare", nothing], check=False)
    runs.report.holds("nothing tuned is refused", result.returncode == 2 and "adapter_name_or_path" in result.stderr, result.stderr)
    table = run([runs.qft, "eval", runs.directory / "compare.yaml", "--compare"]).stdout
    runs.report.holds("a table", all(word in table for word in ("base", "tuned", "difference", "eval_loss", *METRICS)), table)


def check_refusals(runs, settings):
    config = runs.directory / "model/config.json"
    cases = [("a prompt longer than the model's positions", {}, ["item", "turns", "max_position_embeddings", "cutoff_len"], 2),
             ("no output_dir", {"output_dir": ""}, ["predict_with_generate", "output_dir"], 2),
             ("labels of prompts", {"train_on_prompt": True}, ["train_on_prompt", "predict_with_generate"], 2)]
    whole = config.read_text()
    for name, changes, words, code in cases:
        if not changes:
            config.write_text(json.dumps({**json.loads(whole), "max_position_embeddings": 30}))
        result = mpirun(2, [runs.qft, "eval", write(runs.directory / "bad.yaml", {**settings, **changes})], check=False, timeout=60)
        config.write_text(whole)
        text = result.stdout + result.stderr
        bad = [w for w in words if w not in text] + ([] if result.returncode == code else [f"exit code {result.returncode}"])
        runs.report.holds(f"refused: {name}", not bad, f"missing: {bad}\n{text}")
    # An answer that would pass the positions ends there, and it is said.
    config.write_text(json.dumps({**json.loads(whole), "max_position_embeddings": 128}))
    result = mpirun(2, [runs.qft, "eval", write(runs.directory / "long.yaml", {**settings, "max_new_tokens": 120})])
    config.write_text(whole)
    runs.report.holds("a warning of short answers", "128 positions" in result.stderr, result.stderr)


def main():
    args = arguments()
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        directory = Path(tmp)
        settings = settings_of(directory)
        rows = records(directory, 17)
        runs = Runs(args.build, directory, report)
        reference = check_answers(runs, settings, rows)
        check_company(runs, settings, reference)
        check_words(runs, settings)
        check_training(runs, settings)
        check_comparison(runs, settings)
        check_refusals(runs, settings)
    report.finish()


main()
