"""use_dft_loss, use_eaft_loss and, in full, use_asft_loss beside a plain torch loop with LLaMA-Factory's formulas, over transformers' model
in fp64 (ASFT's reference is a second one, as it was at first); and what
evaluations report and choose by: each dataset by its name, compute_accuracy, any metric as metric_for_best_model, with
predict_with_generate the scores of answers too."""
import json
import tempfile
from pathlib import Path

from common import Report, arguments, mpirun, run
from tiny import log_of, make, write

SAMPLES, BATCH, LR, ALPHA, ASFT_ALPHA = 24, 6, 3e-3, 0.5, 0.3
LOSSES = {"dft": {"use_dft_loss": True}, "eaft": {"use_eaft_loss": True, "eaft_alpha": ALPHA}, "asft": {"use_asft_loss": True, "asft_alpha": ASFT_ALPHA}}
SETS = {"short": 5, "long": 7}


def add_sets(directory):
    """Two sets to evaluate on; the second has longer answers."""
    info = json.loads((directory / "dataset_info.json").read_text())
    for name, count in SETS.items():
        records = [{"instruction": f"Count from {i}", "input": "", "output": " ".join(str(i + k) for k in range(count + i % 3))}
                   for i in range(count)]
        (directory / f"{name}.json").write_text(json.dumps(records))
        info[name] = {"file_name": f"{name}.json"}
    (directory / "dataset_info.json").write_text(json.dumps(info))


def judge(model_dir, loss_name, train, sets):
    """Loss and norm of each step, and of each set (loss, accuracy) after the last."""
    import torch
    from transformers import AutoModelForCausalLM

    from models import in_double, labels_of

    def rows_of(model, item):
        labels = labels_of(item)[1:]
        logits = model(input_ids=torch.tensor([item["ids"]])).logits[0][:-1]
        with torch.no_grad():
            other = initial(input_ids=torch.tensor([item["ids"]])).logits[0][:-1]
        return logits[labels >= 0], labels[labels >= 0], other[labels >= 0]

    def terms(logits, labels, other):
        nll = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
        with torch.no_grad():
            if loss_name in ("dft", "asft"):
                weight = torch.exp(-nll)
            else:
                logp = torch.log_softmax(torch.topk(logits, 20, dim=-1)[0], -1)
                weight = (-(logp.exp() * logp).sum(-1) / 3.0) ** ALPHA
        loss = nll * weight
        if loss_name == "asft":
            kl = torch.nn.functional.kl_div(torch.log_softmax(logits, -1), torch.softmax(other, -1), reduction="none").sum(-1)
            loss = loss + ASFT_ALPHA * kl
        return loss, nll

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float64)
    initial = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    steps, evaluated = [], {}
    with in_double():
        for first in range(0, SAMPLES, BATCH):
            batch = [rows_of(model, item) for item in train[first:first + BATCH]]
            loss = sum(terms(*rows)[0].sum() for rows in batch) / sum(len(labels) for _, labels, _ in batch)
            loss.backward()
            steps.append((loss.item(), torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()))
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            for name, items in sets.items():
                rows = [rows_of(model, item) for item in items]
                weighted, plain = (torch.cat(x) for x in zip(*(terms(*r) for r in rows)))
                accuracy = [(logits.argmax(-1) == labels).double().mean().item() for logits, labels, _ in rows]
                evaluated[name] = {"loss": weighted.mean().item(), "accuracy": sum(accuracy) / len(accuracy), "nll": plain.mean().item(),
                                   "labels": len(plain), "items": len(rows)}
    return steps, evaluated


def check_losses(report, tmp, qft, pack, settings):
    for loss, keys in LOSSES.items():
        out = tmp / loss
        file = write(tmp / f"{loss}.yaml", {**settings, **keys, "finetuning_type": "full", "output_dir": str(out), "strategy": "zero3",
                                            "do_eval": True, "eval_on_each_dataset": True, "compute_accuracy": True})
        mpirun(2, [qft, "train", file])
        export = lambda part: [json.loads(x) for x in run([pack, "export", out / f"packs/{part}.h5"]).stdout.splitlines()]
        evaluation, first = export("eval"), list(SETS.values())[0]
        report.equal("items to evaluate on", len(evaluation), sum(SETS.values()))
        steps, wanted = judge(settings["model_name_or_path"], loss, export("train"), dict(zip(SETS, (evaluation[:first], evaluation[first:]))))
        log = [entry for entry in log_of(out) if "loss" in entry]
        report.equal(f"{loss}: steps", len(log), len(steps))
        for i, name in enumerate(("loss", "grad_norm")):
            report.check(f"{loss}: {name} of the steps", max(abs(e[name] - s[i]) / s[i] for e, s in zip(log, steps)), 1e-9)
        results = json.loads((out / "eval_results.json").read_text())
        labels, items = (sum(w[key] for w in wanted.values()) for key in ("labels", "items"))
        whole = {"loss": sum(w["loss"] * w["labels"] for w in wanted.values()) / labels,
                 "accuracy": sum(w["accuracy"] * w["items"] for w in wanted.values()) / items}
        import math
        for name, want in wanted.items():
            report.check(f"{loss}: eval_{name}_loss", abs(results[f"eval_{name}_loss"] - want["loss"]), 1e-9)
            report.check(f"{loss}: eval_{name}_accuracy", abs(results[f"eval_{name}_accuracy"] - want["accuracy"]), 1e-12)
            report.check(f"{loss}: eval_{name}_perplexity", abs(results[f"eval_{name}_perplexity"] / math.exp(want["nll"]) - 1), 1e-9)
            report.holds(f"{loss}: eval_{name}_runtime", results[f"eval_{name}_runtime"] > 0, results)
        for name, want in whole.items():
            report.check(f"{loss}: eval_{name} of both sets", abs(results[f"eval_{name}"] - want), 1e-9)
        again = json.loads(mpirun(1, [qft, "eval", file, f"model_name_or_path={out}", f"ref_model={settings['model_name_or_path']}", "--json"]).stdout)
        for name in ("eval_loss", "eval_short_loss", "eval_long_loss"):
            report.check(f"{loss}: qft eval: {name}", abs(again[name] - results[name]), 1e-5)  # from fp32 files


def check_choice(report, tmp, qft, settings):
    """The best checkpoint by a metric of one set, and what the results say of it."""
    chooses = {**settings, "num_train_epochs": 2, "eval_on_each_dataset": True, "compute_accuracy": True, "eval_strategy": "steps", "eval_steps": 2,
               "save_steps": 2, "load_best_model_at_end": True, "metric_for_best_model": "long_accuracy", "learning_rate": 3e-2}
    out = tmp / "best"
    told = mpirun(2, [qft, "train", write(tmp / "best.yaml", {**chooses, "output_dir": str(out)})])
    log = [entry for entry in log_of(out) if "eval_loss" in entry]
    report.equal("evaluations", [e["current_steps"] for e in log], [2, 4, 6, 8])
    for key in ("eval_accuracy", "eval_short_accuracy", "eval_short_loss", "eval_long_loss"):
        report.holds(f"{key} in the log", all(key in entry for entry in log), log[0])
    best = max(log, key=lambda entry: (entry["eval_long_accuracy"], -entry["current_steps"]))
    state, results = (json.loads((out / name).read_text()) for name in ("trainer_state.json", "all_results.json"))
    report.equal("the best one's metric", state["best_metric"], best["eval_long_accuracy"])
    report.equal("the best one's step", state["best_global_step"], best["current_steps"])
    report.holds("metrics in log_history", any("eval_long_accuracy" in entry for entry in state["log_history"]), state)
    for key in ("eval_loss", "eval_long_accuracy", "eval_short_loss"):
        report.check(f"{key} of the result is the best one's", abs(results[key] - best[key]), 1e-12)
    report.holds("the choice is told", "eval_long_accuracy" in told.stdout + told.stderr, told.stderr)
    more = {**chooses, "output_dir": str(out), "num_train_epochs": 3, "metric_for_best_model": "eval_short_loss"}
    told = mpirun(1, [qft, "train", write(tmp / "more.yaml", more)])
    report.holds("another metric forgets the best so far", "was by eval_long_accuracy" in told.stdout + told.stderr, told.stderr)
    state = json.loads((out / "trainer_state.json").read_text())
    late = [entry for entry in log_of(out) if "eval_loss" in entry and entry["current_steps"] > 8]
    report.equal("... and is the least of the new ones", state["best_metric"], min(entry["eval_short_loss"] for entry in late))


def check_answers(report, tmp, qft, settings):
    """Evaluations generate answers, and ROUGE chooses."""
    out = tmp / "answers"
    answers = {**settings, "eval_dataset": "short", "predict_with_generate": True, "max_new_tokens": 6, "do_sample": False, "eval_strategy": "steps",
               "eval_steps": 2, "save_steps": 2, "load_best_model_at_end": True, "metric_for_best_model": "rouge-l", "learning_rate": 3e-2,
               "compute_dtype": "float32", "output_dir": str(out)}
    mpirun(2, [qft, "train", write(tmp / "answers.yaml", answers)])
    log = [entry for entry in log_of(out) if "eval_loss" in entry]
    report.holds("scores of answers in the log", all(f"eval_{m}" in e for e in log for m in ("bleu-4", "rouge-1", "rouge-2", "rouge-l")), log[0])
    state = json.loads((out / "trainer_state.json").read_text())
    report.equal("the best one's ROUGE-L", state["best_metric"], max(entry["eval_rouge-l"] for entry in log))
    printed = json.loads(mpirun(1, [qft, "eval", out.parent / "answers.yaml", f"adapter_name_or_path={out}", f"output_dir={tmp / 'again'}", "--json"]).stdout)
    report.check("qft eval scores the result alike", abs(printed["predict_rouge-l"] - state["best_metric"]), 1e-9)


def main():
    args = arguments()
    qft, pack = args.build / "bin/qft", args.build / "bin/qft-pack"
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp, "qwen3", samples=SAMPLES), "disable_shuffling": True, "learning_rate": LR, "num_train_epochs": 1, "lora_dropout": 0.0,
                    "lr_scheduler_type": "constant", "warmup_ratio": 0.0, "global_batch_size": BATCH, "eval_dataset": list(SETS)}
        add_sets(tmp / "data")
        check_losses(report, tmp, qft, pack, settings)
        check_choice(report, tmp, qft, settings)
        check_answers(report, tmp, qft, settings)
        bad = run([qft, "train", write(tmp / "bad.yaml", {**settings, "eval_strategy": "steps", "save_steps": 100, "load_best_model_at_end": True,
                                                          "eval_on_each_dataset": True, "metric_for_best_model": "rouge-l"})], check=False)
        report.equal("a metric that is not reported: exit code", bad.returncode, 2)
        report.holds("... and those that are", all(w in bad.stderr for w in ("rouge-l", "eval_loss", "eval_short_loss", "perplexity")), bad.stderr)
    report.finish()


main()
