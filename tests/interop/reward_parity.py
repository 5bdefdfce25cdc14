"""Stage rm over 30 steps, packed without padding, beside a plain loop with padded batches over transformers' and PEFT's models with a
linear on the last hidden state: the formulas of LLaMA-Factory's PairwiseTrainer and TRL's ValueHead. Files both ways: heads that the
judge saved, as safetensors and by torch.save(), and what qft leaves for those libraries; then the scores of qft score."""
import json
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from common import Report, arguments, mpirun, run, worst
from models import in_double, train_on
from preferences import BIAS, SAMPLES, WEIGHT, items_of, log_of, make_adapter, make_head, settings_of, write

BATCH, EPOCHS, LR = 4, 10, 2e-3
TOLERANCE = 1e-8


def untie(directory):
    """Gives the model an lm_head of its own, which a reward model does not use."""
    tensors = load_file(directory / "model.safetensors")
    tensors["lm_head.weight"] = torch.randn(tensors["model.embed_tokens.weight"].shape, generator=torch.Generator().manual_seed(5))
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))
    return tensors["lm_head.weight"]


class Judge(torch.nn.Module):
    def __init__(self, model_dir, adapter, head):
        from peft import PeftModel
        from transformers import AutoModelForCausalLM

        super().__init__()
        base = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float64)
        self.model = PeftModel.from_pretrained(base, adapter, is_trainable=True).to(torch.float64) if adapter else base
        self.decoder = base.model  # LoRA replaces linears in place
        if not adapter:
            base.lm_head.weight.requires_grad_(base.config.tie_word_embeddings)
        self.head = torch.nn.Linear(base.config.hidden_size, 1, dtype=torch.float64)
        with torch.no_grad():
            self.head.weight.copy_(head[WEIGHT])
            self.head.bias.copy_(head[BIAS])

    def forward(self, sequences):
        """The score of each at its last token."""
        longest = max(len(s["ids"]) for s in sequences)
        ids, mask = torch.zeros(len(sequences), longest, dtype=torch.long), torch.zeros(len(sequences), longest, dtype=torch.long)
        for i, s in enumerate(sequences):
            ids[i, :len(s["ids"])], mask[i, :len(s["ids"])] = torch.tensor(s["ids"]), 1
        with in_double():
            values = self.head(self.decoder(input_ids=ids, attention_mask=mask).last_hidden_state).squeeze(-1)
        return values.gather(1, (mask.sum(1) - 1)[:, None])[:, 0]

    def loss(self, pairs):
        chosen, rejected = self([p["chosen"] for p in pairs] + [p["rejected"] for p in pairs]).chunk(2)
        loss = -torch.nn.functional.logsigmoid(chosen - rejected).mean()
        return loss, {"loss": loss.item(), "accuracy": (chosen > rejected).double().mean().item(), "rewards/chosen": chosen.mean().item(),
                      "rewards/rejected": rejected.mean().item(), "rewards/margins": (chosen - rejected).mean().item()}


def train(judge, pairs):
    """What each step logs, and an evaluation after the last."""
    parameters = [p for p in judge.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=LR, weight_decay=0.0)
    return train_on(pairs, judge.loss, parameters, optimizer, BATCH, EPOCHS)


# Whether the base is tied, and how the head that training starts from is saved.
CASES = [("lora", "ddp", 1, 2, True, True), ("lora", "zero3", 2, 1, False, False), ("full", "ddp", 1, 1, True, False),
         ("full", "zero3", 2, 1, False, True)]


def main():
    args = arguments()
    qft = args.build / "bin/qft"
    report = Report()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = settings_of(tmp, stage="rm", dataset="pairs", eval_dataset="pairs", learning_rate=LR, num_train_epochs=EPOCHS,
                               global_batch_size=BATCH, do_eval=True, do_predict=True)
        tied = Path(settings["model_name_or_path"])
        shutil.copytree(tied, tmp / "untied")
        lm_head = untie(tmp / "untied")
        pairs = items_of(args.build, tmp, settings, "rm", "pairs")
        report.equal("pairs", len(pairs), SAMPLES)
        for number, (method, strategy, ranks, each, is_tied, by_torch) in enumerate(CASES):
            what = f"{method} {strategy} on {ranks}"
            base, adapter, out = tmp / f"base{number}", None, tmp / f"out{number}"
            shutil.copytree(tied if is_tied else tmp / "untied", base)
            more = {"finetuning_type": method, "model_name_or_path": str(base), "output_dir": str(out), "strategy": strategy,
                    "per_device_train_batch_size": each}
            if method == "lora":
                adapter = make_adapter(tmp / f"adapter{number}", base)
                more["adapter_name_or_path"] = str(adapter)
            head = make_head(adapter or base, 32, by_torch=by_torch)
            run_file = write(tmp / f"run{number}.yaml", {**settings, **more})
            mpirun(ranks, [qft, "train", run_file])
            judge = Judge(base, adapter, head)
            steps, evaluated = train(judge, pairs)
            log = [entry for entry in log_of(out) if "loss" in entry]
            report.equal(f"{what}: steps", len(log), len(steps))
            for name in steps[0]:
                report.check(f"{what}: {name}", worst([e[name] for e in log], [s[name] for s in steps]), TOLERANCE)
            report.holds(f"{what}: pairs are learned", evaluated["loss"] < steps[0]["loss"] / 2, evaluated)
            results = json.loads((out / "all_results.json").read_text())
            for name, value in evaluated.items():
                report.check(f"{what}: eval_{name}", worst([results[f"eval_{name}"]], [value]), TOLERANCE)
                report.check(f"{what}: predict_{name}", worst([results[f"predict_{name}"]], [value]), TOLERANCE)
            with torch.no_grad():
                theirs = [judge([p["chosen"], p["rejected"]]).tolist() for p in pairs]
            predicted = [json.loads(line) for line in (out / "generated_predictions.jsonl").read_text().splitlines()]
            report.equal(f"{what}: keys of predictions", [list(p) for p in predicted], [["chosen", "rejected"]] * SAMPLES)
            report.check(f"{what}: predictions", worst([v for p in predicted for v in p.values()], sum(theirs, [])), 1e-6)  # fp32 digits
            check_files(report, what, out, base, adapter, judge, None if is_tied else lm_head)
            check_scores(report, what, qft, tmp, run_file, out, method, judge, pairs, theirs)
    report.finish()


def check_files(report, what, out, base, adapter, judge, lm_head):
    ours = load_file(out / "value_head.safetensors")
    report.equal(f"{what}: the head's names and shapes", {n: list(t.shape) for n, t in ours.items()}, {WEIGHT: [1, 32], BIAS: [1]})
    report.check(f"{what}: the head's weight", (ours[WEIGHT].double() - judge.head.weight.detach()).abs().max().item(), 1e-6)
    report.check(f"{what}: the head's bias", (ours[BIAS].double() - judge.head.bias.detach()).abs().max().item(), 1e-6)
    weights = load_file(out / ("adapter_model.safetensors" if adapter else "model.safetensors"))
    report.holds(f"{what}: no head among the other weights", not [n for n in weights if "v_head" in n], sorted(weights)[-3:])
    if adapter:
        return
    report.equal(f"{what}: tensors of the model", sorted(weights), sorted(load_file(base / "model.safetensors")))
    report.check(f"{what}: the final norm", (weights["model.norm.weight"].double() - judge.decoder.norm.weight.detach()).abs().max().item(), 1e-8)
    if lm_head is not None:
        report.holds(f"{what}: lm_head as it was", torch.equal(weights["lm_head.weight"], lm_head))


def check_scores(report, what, qft, tmp, run_file, out, method, judge, pairs, theirs):
    """qft eval and qft score with what training left: its files are fp32 but for full training in fp64."""
    trained = f"{'adapter' if method == 'lora' else 'model'}_name_or_path={out}"
    told = json.loads(mpirun(2, [qft, "eval", run_file, trained, "compute_dtype=float64", "--json"]).stdout)
    margins = sum(c - r for c, r in theirs) / len(theirs)
    report.check(f"{what}: qft eval, margins", worst([told["eval_rewards/margins"]], [margins]), 1e-5)
    summary = json.loads(mpirun(2, [qft, "score", run_file, trained, "per_device_eval_batch_size=2", "--output", tmp / "scores.jsonl", "--json"]).stdout)
    lines = [json.loads(line) for line in (tmp / "scores.jsonl").read_text().splitlines()]
    report.equal(f"{what}: qft score, where lines come from", [(s["dataset"], s["index"]) for s in lines], [("pairs", i) for i in range(len(pairs))])
    report.check(f"{what}: qft score", worst([v for s in lines for v in (s["chosen"], s["rejected"])], sum(theirs, [])), 1e-5)
    flat = sum(theirs, [])
    report.check(f"{what}: qft score, summary", worst([summary["mean"], summary["lowest"], summary["highest"], summary["rewards/margins"]],
                                                      [sum(flat) / len(flat), min(flat), max(flat), margins]), 1e-5)
    if method == "full":
        return
    # Single answers, by the same run file.
    mpirun(2, [qft, "score", run_file, trained, "eval_dataset=numbers", f"output_dir={tmp / 'single'}"])
    lines = [json.loads(line) for line in (tmp / "single/scores.jsonl").read_text().splitlines()]
    exported = run([qft.parent / "qft-pack", "export", tmp / "single/packs/eval.h5"]).stdout.splitlines()
    with torch.no_grad():
        expected = [judge([json.loads(line)]).item() for line in exported]
    report.equal(f"{what}: single answers", [list(s) for s in lines], [["dataset", "index", "score"]] * len(expected))
    report.check(f"{what}: scores of single answers", worst([s["score"] for s in lines], expected), 1e-5)
    shutil.rmtree(tmp / "single")


if __name__ == "__main__":
    main()
