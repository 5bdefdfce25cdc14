"""Stage seq_cls over 30 steps, packed without padding, beside a plain loop with padded batches over transformers'
AutoModelForSequenceClassification, and PEFT's SEQ_CLS beside it: one label, any number, a regression of one value and of several. Files both
ways: a model and an adapter that the judge saved, and what qft leaves for those libraries, with an export; then qft eval and the lines of
qft score. The judge's losses are transformers' own, in fp64."""
import json
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

from common import Report, arguments, mpirun, run, worst
from models import in_double, train_on
from preferences import copy_tokenizer, with_lora
from tiny import log_of, make, write

SAMPLES, BATCH, EPOCHS, LR = 12, 4, 10, 5e-3
TOLERANCE = 1e-8
PROBLEMS = {"single_label_classification": (3, [i % 3 for i in range(SAMPLES)]),
            "multi_label_classification": (4, [[k for k in range(4) if (i + 1) >> k & 1] for i in range(SAMPLES)]),
            "regression": (1, [0.1 * i - 0.3 for i in range(SAMPLES)]), "values": (2, [[0.5 - 0.1 * i, i / 7] for i in range(SAMPLES)])}


def add_data(directory, name, labels):
    """A data set of that name, as ms-swift's custom data has it: conversations that end with the question."""
    records = [{"messages": [{"role": "user", "content": f"What is {i} {'again ' * (i % 5)}?"}], "label": label} for i, label in enumerate(labels)]
    (directory / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))


class Judge:
    def __init__(self, problem, labels, tokenizer_pad=0):
        self.problem, self.labels = problem, labels

    def start(self, base, directory, method):
        """A model, or an adapter, with a head of its own, as transformers and PEFT save it; returns the folder that training starts from."""
        from peft import TaskType
        from transformers import AutoModelForSequenceClassification

        torch.manual_seed(5)
        model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=self.labels, problem_type=self.problem, dtype=torch.float32)
        torch.nn.init.normal_(model.score.weight, std=0.2)
        if method == "lora":
            model = with_lora(model, TaskType.SEQ_CLS)
        model.save_pretrained(directory)
        if method == "full":
            copy_tokenizer(base, directory)
        return directory

    def load(self, base, start, method, dtype=torch.float64):
        from peft import PeftModel
        from transformers import AutoModelForSequenceClassification

        kind = {"num_labels": self.labels, "problem_type": self.problem} if method == "lora" else {}
        self.model = AutoModelForSequenceClassification.from_pretrained(base if method == "lora" else start, dtype=dtype, **kind)
        if method == "lora":
            self.model = PeftModel.from_pretrained(self.model, start, is_trainable=True).to(dtype)
        self.model.config.pad_token_id = self.pad
        return self

    def targets(self, items):
        given = [i["label"] for i in items]
        if self.problem == "single_label_classification":
            return torch.tensor(given)
        if self.problem == "multi_label_classification":
            return torch.tensor([[float(k in label) for k in range(self.labels)] for label in given], dtype=torch.float64)
        return torch.tensor(given, dtype=torch.float64)

    def __call__(self, items):
        """The loss of the batch and the logits, padded to the longest with a token that no text has."""
        longest = max(len(i["ids"]) for i in items)
        ids, mask = torch.full((len(items), longest), self.pad), torch.zeros(len(items), longest, dtype=torch.long)
        for row, i in enumerate(items):
            ids[row, :len(i["ids"])], mask[row, :len(i["ids"])] = torch.tensor(i["ids"]), 1
        with in_double():
            out = self.model(input_ids=ids, attention_mask=mask, labels=self.targets(items))
        return out.loss, out.logits

    def acc(self, logits, items):
        if self.problem == "regression":
            return None
        if self.problem == "single_label_classification":
            return (logits.argmax(-1) == self.targets(items)).double().mean().item()
        return ((logits.sigmoid() > 0.5) == self.targets(items).bool()).all(-1).double().mean().item()

    def seen(self, items):
        loss, logits = self(items)
        acc = self.acc(logits, items)
        return loss, {"loss": loss.item(), **({} if acc is None else {"acc": acc})}

    def train(self, items):
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(parameters, lr=LR, weight_decay=0.0, eps=1e-3)
        return train_on(items, self.seen, parameters, optimizer, BATCH, EPOCHS)


# Method, strategy, ranks, micro-batch; whether samples are laid into rows; the problem.
CASES = [("lora", "ddp", 1, 2, False, "single_label_classification"), ("full", "zero3", 2, 1, False, "single_label_classification"),
         ("lora", "zero3", 2, 2, False, "multi_label_classification"), ("full", "zero2", 3, 1, False, "multi_label_classification"),
         ("lora", "zero2", 3, 1, False, "regression"), ("full", "ddp", 1, 4, False, "values")]


def items_of(build, directory, run_file, labels):
    run([build / "bin/qft-pack", run_file, "--output", directory / "items.h5"])
    items = [json.loads(line) for line in run([build / "bin/qft-pack", "export", directory / "items.h5"]).stdout.splitlines()]
    return [{**item, "label": label} for item, label in zip(items, labels)]


def main():
    args = arguments()
    qft = args.build / "bin/qft"
    report = Report()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp, "qwen3"), "lora_dropout": 0.0, "disable_shuffling": True, "lr_scheduler_type": "constant", "warmup_ratio": 0.0,
                    "stage": "seq_cls", "learning_rate": LR, "adam_epsilon": 1e-3, "num_train_epochs": EPOCHS, "global_batch_size": BATCH,
                    "do_eval": True, "do_predict": True}
        for key in ("lora_rank", "lora_alpha"):
            settings.pop(key, None)
        base = Path(settings["model_name_or_path"])
        for name, (_, labels) in PROBLEMS.items():
            add_data(tmp, name, labels)
        for number, (method, strategy, ranks, each, rows, name) in enumerate(CASES):
            what = f"{name} {method} {strategy} on {ranks}"
            labels, given = PROBLEMS[name]
            problem = "regression" if name == "values" else name
            data, out = str(tmp / f"{name}.jsonl"), tmp / f"out{number}"
            judge = Judge(problem, labels)
            judge.pad = 1023
            start = judge.start(base, tmp / f"start{number}", method)
            more = {"finetuning_type": method, "output_dir": str(out), "strategy": strategy, "per_device_train_batch_size": each, "dataset": data,
                    "eval_dataset": data, "num_labels": labels, "problem_type": problem,
                    f"{'adapter' if method == 'lora' else 'model'}_name_or_path": str(start)}
            run_file = write(tmp / f"run{number}.yaml", {**settings, **more})
            plain = {k: v for k, v in {**settings, **more}.items() if not k.startswith(("eval_", "do_"))}
            items = items_of(args.build, tmp, write(tmp / "pack.yaml", plain), given)
            report.equal(f"{what}: texts", len(items), SAMPLES)
            report.holds(f"{what}: padding is no token of a text", all(judge.pad not in i["ids"] for i in items))
            mpirun(ranks, [qft, "train", run_file])
            judge.load(base, start, method)
            with torch.no_grad():
                before = judge.seen(items)[1]
            steps, evaluated = judge.train(items)
            log = [entry for entry in log_of(out) if "loss" in entry]
            report.equal(f"{what}: steps", len(log), len(steps))
            for key in steps[0]:
                report.check(f"{what}: {key}", worst([e[key] for e in log], [s[key] for s in steps]), TOLERANCE)
            report.holds(f"{what}: it learns", evaluated["loss"] < before["loss"] * 0.8, (before, evaluated))
            results = json.loads((out / "all_results.json").read_text())
            for key, value in evaluated.items():
                report.check(f"{what}: eval_{key}", worst([results[f"eval_{key}"]], [value]), TOLERANCE)
                report.check(f"{what}: predict_{key}", worst([results[f"predict_{key}"]], [value]), TOLERANCE)
            check_files(report, what, qft, tmp / f"merged{number}", run_file, base, out, method, judge, items)
            check_scores(report, what, qft, tmp, run_file, data, out, method, judge, items)
    report.finish()


def check_files(report, what, qft, merged, run_file, base, out, method, judge, items):
    """What transformers and PEFT make of the files, in fp32."""
    with torch.no_grad():
        expected = judge(items)[1]
    other = Judge(judge.problem, judge.labels)
    other.pad = judge.pad
    with torch.no_grad():
        report.check(f"{what}: logits by transformers of what was left", (other.load(base, out, method)(items)[1] - expected).abs().max().item(), 1e-5)
    if method == "lora":
        config = json.loads((out / "adapter_config.json").read_text())
        report.equal(f"{what}: the adapter's kind", (config["task_type"], config["modules_to_save"]), ("SEQ_CLS", ["score"]))
        run([qft, "export", run_file, f"adapter_name_or_path={out}", f"export_dir={merged}"])
        with torch.no_grad():
            logits = other.load(base, merged, "full")(items)[1]
        report.check(f"{what}: logits by transformers of the export", (logits - expected).abs().max().item(), 1e-5)
        out = merged
    config = json.loads((out / "config.json").read_text())
    report.equal(f"{what}: config.json", (config["architectures"], len(config["id2label"]), config["problem_type"]),
                 (["Qwen3ForSequenceClassification"], judge.labels, judge.problem))
    weights = load_file(out / "model.safetensors")
    report.holds(f"{what}: tensors of the model", "score.weight" in weights and "lm_head.weight" not in weights, sorted(weights)[-3:])


def check_scores(report, what, qft, tmp, run_file, data, out, method, judge, items):
    trained = f"{'adapter' if method == 'lora' else 'model'}_name_or_path={out}"
    with torch.no_grad():
        loss, logits = judge(items)
    acc = judge.acc(logits, items)
    told = json.loads(mpirun(2, [qft, "eval", run_file, trained, "compute_dtype=float64", "--json"]).stdout)
    report.check(f"{what}: qft eval, loss", abs(told["eval_loss"] - loss.item()), 1e-5)
    if acc is not None:
        report.equal(f"{what}: qft eval, acc", told["eval_acc"], acc)
    mpirun(2, [qft, "score", run_file, trained, "per_device_eval_batch_size=2", "--output", tmp / "scores.jsonl"])
    lines = [json.loads(line) for line in (tmp / "scores.jsonl").read_text().splitlines()]
    report.equal(f"{what}: qft score, where lines come from", [(s["dataset"], s["index"]) for s in lines], [(data, i) for i in range(SAMPLES)])
    report.check(f"{what}: qft score, logits", (torch.tensor([s["logits"] for s in lines]) - logits).abs().max().item(), 1e-5)
    if judge.problem == "regression":
        said = [s["label"] if isinstance(s["label"], list) else [s["label"]] for s in lines]
        return report.check(f"{what}: qft score, values", (torch.tensor(said) - logits).abs().max().item(), 1e-5)
    single = judge.problem == "single_label_classification"
    shares = logits.softmax(-1) if single else logits.sigmoid()
    report.check(f"{what}: qft score, probabilities", (torch.tensor([s["probabilities"] for s in lines]) - shares).abs().max().item(), 1e-5)
    report.equal(f"{what}: qft score, labels", [s["label"] for s in lines],
                 logits.argmax(-1).tolist() if single else [[k for k, p in enumerate(row) if p >= 0.5] for row in shares.tolist()])


if __name__ == "__main__":
    main()
