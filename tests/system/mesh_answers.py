"""Answers, evaluations and labels of ranks that share matrices or sequences are those of one rank.

    mesh_answers.py --build build [--complete yes]    # yes: also on three, four and eight ranks, with experts and delta nets
"""
import json

from common import mpirun
from mesh_runs import LORA, UNEVEN, run_checks
from tiny import write

TOKENS = 200
QUESTIONS = [f"Say the number {i} again" for i in range(3)]
SEED = {"seed": 2}  # of a model that ends no answer early
ONE = (1, 1, 1)  # a layout: ranks, tensor_parallel, context_parallel


def degrees(tensor, context):
    return {"tensor_parallel": tensor, "context_parallel": context}


def name_of(ranks, tensor, context):
    return f"tp {tensor}, cp {context} on {ranks} ranks"


def check_greedy(runs, kind, sizes, layouts):
    """200 tokens for each question in fp32."""
    settings = runs.settings(kind, sizes)
    questions = runs.directory / "questions.txt"
    questions.write_text("".join(q + "\n" for q in QUESTIONS))
    keys = {"model_name_or_path": settings["model_name_or_path"], "template": "smollm2", "compute_dtype": "float32", "do_sample": False,
            "max_new_tokens": TOKENS}
    said = {}
    for ranks, tensor, context in (ONE, *layouts):
        answers = runs.directory / "answers.jsonl"
        answers.unlink(missing_ok=True)
        file = write(runs.directory / "ask.yaml", {**keys, **degrees(tensor, context)})
        printed = mpirun(ranks, [runs.qft, "generate", file, "--input", questions, "--output", answers]).stderr
        check_layout(runs, "generate", printed, (ranks, tensor, context))
        said[ranks, tensor, context] = [json.loads(line) for line in answers.read_text().splitlines()]
    one = said.pop(ONE)
    runs.report.equal(f"{kind}: questions", len(one), len(QUESTIONS))
    runs.report.holds(f"{kind}: answers of {TOKENS} tokens, and unlike each other",
                      all(a["new_tokens"] == TOKENS for a in one) and len({a["predict"] for a in one}) == len(one), one)
    for layout, lines in said.items():
        runs.report.equal(f"{kind}: {name_of(*layout)}: answers that differ", [a["predict"] for a, b in zip(lines, one) if a != b], [])
        runs.report.equal("    ... answers", len(lines), len(one))


def check_layout(runs, program, printed, layout):
    """The line with the layout, as qft train prints it."""
    ranks, tensor, context = layout
    lines = [line for line in printed.splitlines() if " strategy " in line]
    words = [f": {ranks} ranks = "] + [w for key, n in degrees(tensor, context).items() if n > 1 for w in (f"{n} parts of each ", f"({key})")]
    runs.report.equal(f"qft {program}, {name_of(*layout)}: lines with the layout", len(lines), int(ranks > 1))
    runs.report.holds("    ... name the degrees", all(word in line for line in lines for word in words), (words, lines))


def check_predictions(runs, layouts):
    """do_predict after training, and the losses and answers of qft eval on its result."""
    settings = runs.settings("qwen3", UNEVEN, **LORA)
    settings |= {"dataset": "numbers", "eval_dataset": "numbers", "max_samples": 8, "do_predict": True, "predict_with_generate": True, "max_new_tokens": 12,
                 "do_sample": False, "max_steps": 2, "learning_rate": 3e-2}
    printed, files = {}, {}
    for ranks, tensor, context in (ONE, *layouts):
        layout = (ranks, tensor, context)
        out, _ = runs.train("predict" + "-".join(map(str, layout)), ranks, settings, **degrees(tensor, context))
        files[layout] = [(out / "generated_predictions.jsonl").read_bytes()]
        ask = {**settings, "do_train": False, "do_predict": False, **degrees(tensor, context),
               "adapter_name_or_path": str(runs.directory / "predict1-1-1"), "output_dir": str(runs.directory / "evaluated")}
        result = mpirun(ranks, [runs.qft, "eval", write(runs.directory / "eval.yaml", ask), "--json"])
        check_layout(runs, "eval", result.stderr, layout)
        printed[layout] = json.loads(result.stdout)
        files[layout].append((runs.directory / "evaluated/generated_predictions.jsonl").read_bytes())
    one, told = files.pop(ONE), printed.pop(ONE)
    runs.report.holds("answers are written", one[0].count(b"\n") > 3 and one[0] == one[1], one)
    for layout, lines in files.items():
        what = name_of(*layout)
        runs.report.equal(f"{what}: do_predict's file differs", lines[0] != one[0], False)
        runs.report.equal(f"{what}: the file of qft eval differs", lines[1] != one[1], False)
        runs.report.check(f"{what}: eval_loss", abs(printed[layout]["eval_loss"] - told["eval_loss"]) / told["eval_loss"], 1e-10)
        scores = [key for key in told if key.startswith(("predict_bleu", "predict_rouge"))]
        runs.report.equal(f"{what}: scores of answers", [printed[layout][key] for key in scores], [told[key] for key in scores])
        runs.report.equal("    ... there are", len(scores), 4)


def check_labels(runs, layouts):
    """qft score of a classifier."""
    settings = runs.settings("qwen3", UNEVEN, **LORA, stage="seq_cls", num_labels=3, dataset="classes")
    trained, _ = runs.train("classifier", 1, settings)
    said = {}
    for ranks, tensor, context in (ONE, *layouts):
        ask = {**settings, "adapter_name_or_path": str(trained), "eval_dataset": "classes", **degrees(tensor, context),
               "output_dir": str(runs.directory / "scored")}
        lines = runs.directory / "labels.jsonl"
        mpirun(ranks, [runs.qft, "score", write(runs.directory / "score.yaml", ask), "--output", lines])
        said[ranks, tensor, context] = [json.loads(line) for line in lines.read_text().splitlines()]
    one = said.pop(ONE)
    runs.report.holds("labels are written", len(one) == 16 and all(len(line["logits"]) == 3 for line in one), one)
    for layout, lines in said.items():
        gap = max(abs(x - y) for a, b in zip(lines, one, strict=True) for x, y in zip(a["logits"], b["logits"], strict=True))
        runs.report.check(f"qft score, {name_of(*layout)}: logits", gap, 1e-10)
        rest = [[{k: v for k, v in line.items() if k != "logits"} for line in group] for group in (lines, one)]
        runs.report.equal("    ... and all else in the lines", sum(a != b for a, b in zip(*rest)), 0)


def checks(runs, complete):
    tensor = [(2, 2, 1), (4, 2, 1), (4, 4, 1), (8, 4, 1)] if complete else [(2, 2, 1)]
    mixed = [*tensor, (2, 1, 2), (4, 2, 2)] if complete else [*tensor, (2, 1, 2)]
    check_greedy(runs, "qwen3", SEED, mixed if complete else tensor)
    if complete:
        check_greedy(runs, "qwen3", {**SEED, "heads": 3, "kv_heads": 3}, [(3, 3, 1)])
        check_greedy(runs, "qwen3_next", SEED, [(2, 2, 1), (4, 2, 1), (2, 1, 2)])
    check_predictions(runs, mixed)
    check_labels(runs, mixed)


run_checks(checks)
