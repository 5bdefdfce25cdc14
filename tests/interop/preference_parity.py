"""Each loss of pairs, and KTO's, over a few steps, packed without padding, beside a plain loop with padded batches: over PEFT's model
with the adapter switched off as the reference, in full training over a second model. The judge has TRL's dpo_loss and kto_loss (0.24)
and, of LLaMA-Factory's CustomDPOTrainer and CustomKTOTrainer, losses, log-probabilities and metrics, in words of its own."""
import json
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file

from common import Report, arguments, mpirun
from models import in_double, labels_of
from preferences import SAMPLES, items_of, log_of, make_adapter, settings_of, write

BATCH, EPOCHS, LR = 4, 2, 2e-3
EPSILON = 1e-3  # of AdamW: a small one would make steps of the rounding errors of gradients that are almost 0
TOLERANCE = 1e-9  # two programs in fp64 differ by 1e-14 in a step; the steps add up
REFERENCE = {"sigmoid", "hinge", "ipo"}
MEAN = {"ipo", "orpo", "simpo"}


def another_model(directory, model_dir):
    """The same model with other weights."""
    from safetensors.torch import load_file

    shutil.copytree(model_dir, directory)
    generator = torch.Generator().manual_seed(8)
    tensors = load_file(directory / "model.safetensors")
    save_file({n: t * (1 + 0.1 * torch.randn(t.shape, generator=generator)).to(t.dtype) for n, t in tensors.items()}, directory / "model.safetensors",
              metadata={"format": "pt"})
    return directory


def logps(model, sequences, alpha=None):
    """Sums over the labels, their numbers, and the sums of their rows' mean logits, of chosen answers and then as many rejected ones,
    padded to the longest."""
    longest = max(len(s["ids"]) for s in sequences)
    ids, mask = torch.zeros(len(sequences), longest, dtype=torch.long), torch.zeros(len(sequences), longest, dtype=torch.long)
    labels = torch.full((len(sequences), longest), -100)
    for i, s in enumerate(sequences):
        ids[i, :len(s["ids"])], mask[i, :len(s["ids"])], labels[i, :len(s["ids"])] = torch.tensor(s["ids"]), 1, labels_of(s)
    logits, labels = model(input_ids=ids, attention_mask=mask).logits[:, :-1], labels[:, 1:]
    counted = labels >= 0
    each = torch.log_softmax(logits, -1).gather(2, labels.clamp(min=0)[:, :, None])[:, :, 0] * counted
    lengths = counted.sum(1)
    if alpha is not None:  # labels beyond the other answer's length
        shorter = torch.minimum(*lengths.chunk(2)).repeat(2)
        place = counted.cumsum(1)
        each = torch.where(place <= shorter[:, None], each, alpha * each)
    return each.sum(1), lengths, (logits.mean(-1) * counted).sum(1)


def kto_of(model, reference, answers, o):
    """The loss of the batch, and its metrics by name."""
    beta, good = o["pref_beta"], torch.tensor([a["kto_tag"] for a in answers])
    sums, lengths, _ = logps(model, answers)
    with torch.no_grad():
        other, *_ = logps(model, [a["kl"] for a in answers])
    own, others = reference(answers), reference([a["kl"] for a in answers])
    kl = (other - others[0]).mean().clamp(min=0)
    ratio = sums - own[0]
    weights = torch.tensor([o.get("kto_chosen_weight", 1.0) if g else o.get("kto_rejected_weight", 1.0) for g in good], dtype=torch.float64)
    loss = (weights * torch.where(good, 1 - torch.sigmoid(beta * (ratio - kl)), 1 - torch.sigmoid(beta * (kl - ratio)))).mean()
    loss = loss + o.get("pref_ftx", 0.0) * -(sums / lengths)[good].mean() / good.sum() * len(answers)
    metrics = {"kl": kl, "rewards/chosen": beta * ratio[good], "rewards/rejected": beta * ratio[~good],
               "rewards/margins": beta * (ratio[good].mean() - ratio[~good].mean()), "logps/chosen": sums[good], "logps/rejected": sums[~good]}
    return loss, metrics


def loss_of(model, reference, pairs, o, baseline=None):
    """The loss of each pair, and its metrics by name. `baseline`: of the steps so far; in an evaluation the pairs' own mean reward."""
    if o["stage"] == "kto":
        return kto_of(model, reference, pairs, o)
    name, beta, smoothing = o["pref_loss"], o["pref_beta"], o.get("dpo_label_smoothing", 0.0)
    sequences = [p["chosen"] for p in pairs] + [p["rejected"] for p in pairs]
    sums, lengths, logits = logps(model, sequences, o.get("ld_alpha"))
    own = sums / lengths if name in MEAN else sums
    values = own
    if name in REFERENCE:
        theirs, *_ = reference(sequences)
        values = own - (theirs / lengths if name in MEAN else theirs)
    chosen, rejected = values.chunk(2)
    margin, log_sigmoid = chosen - rejected, torch.nn.functional.logsigmoid
    sft = -(sums / lengths).chunk(2)[0]
    metrics = {}
    if name in ("sigmoid", "cpo"):
        loss = -(1 - smoothing) * log_sigmoid(beta * margin) - smoothing * log_sigmoid(-beta * margin)
    elif name == "hinge":
        loss = torch.relu(1 - beta * margin)
    elif name == "ipo":
        loss = (margin - 1 / (2 * beta))**2
    elif name == "simpo":
        loss = -log_sigmoid(beta * (margin - o["simpo_gamma"] / beta))
    else:
        odds = lambda p: p - torch.log1p(-torch.exp(p))
        ratio = -log_sigmoid(odds(chosen) - odds(rejected))
        loss = sft + beta * ratio
        metrics = {"sft_loss": sft, "odds_ratio_loss": ratio}
    if weight := o.get("pref_bco_weight", 0.0):
        rewards = beta * torch.cat((chosen, rejected)).detach()
        delta = baseline.update(rewards) if baseline else rewards.mean()
        loss = (loss - weight * (log_sigmoid(beta * chosen - delta) + log_sigmoid(delta - beta * rejected))) / (1 + weight)
    metrics |= {"rewards/chosen": beta * chosen, "rewards/rejected": beta * rejected, "rewards/margins": beta * margin,
                "rewards/accuracies": (chosen > rejected).to(torch.float64), "logps/chosen": own.chunk(2)[0], "logps/rejected": own.chunk(2)[1]}
    for side, rows, labels in zip(("chosen", "rejected"), logits.chunk(2), lengths.chunk(2)):
        metrics[f"logits/{side}"] = rows.sum() / labels.sum()
    if alpha := o.get("rpo_alpha", 0.0):
        metrics["nll_loss"] = -sums.chunk(2)[0].sum() / lengths.chunk(2)[0].sum()
        loss = loss + alpha * metrics["nll_loss"]
    return loss + o.get("pref_ftx", 0.0) * sft, metrics


def models_of(model_dir, adapter, options):
    """The model that trains, and what gives the reference's sums and lengths of sequences."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    load = lambda directory: AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float64)
    tuned = lambda directory, trains: PeftModel.from_pretrained(load(directory), adapter, is_trainable=trains).to(torch.float64)
    full = options.get("finetuning_type") == "full"
    model = load(model_dir) if full else tuned(model_dir, True)
    other = None if not full and "ref_model" not in options and "ref_model_adapters" not in options else load(options.get("ref_model", model_dir))
    if "ref_model_adapters" in options:
        other = tuned(options.get("ref_model", model_dir), False)

    def reference(sequences):
        with torch.no_grad():
            if other is not None:
                return logps(other, sequences)
            with model.disable_adapter():
                return logps(model, sequences)

    return model, reference


class Baseline:
    """BCO's: the mean of the steps' mean rewards, each step's counted before its loss, as TRL's RunningMoments of a scalar."""

    def __init__(self):
        self.mean = self.steps = 0

    def update(self, rewards):
        self.steps += 1
        self.mean += (rewards.mean().item() - self.mean) / self.steps
        return self.mean


def judge(model_dir, adapter, pairs, options):
    """Loss, norm and metrics of each step, and of all pairs after the last."""
    model, reference = models_of(model_dir, adapter, options)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=LR, weight_decay=0.0, eps=EPSILON)
    means = lambda loss, metrics: {"loss": loss.mean().item(), **{n: v.mean().item() for n, v in metrics.items()}}
    steps, baseline = [], Baseline()
    with in_double():
        for step in range(EPOCHS * SAMPLES // BATCH):
            first = step * BATCH % SAMPLES
            loss, metrics = loss_of(model, reference, pairs[first:first + BATCH], options, baseline)
            loss.mean().backward()
            seen = means(loss, metrics)
            seen["grad_norm"] = torch.nn.utils.clip_grad_norm_(parameters, 1.0).item()
            optimizer.step()
            optimizer.zero_grad()
            steps.append(seen)
        with torch.no_grad():
            return steps, means(*loss_of(model, reference, pairs, options))


CASES = [({"pref_loss": "sigmoid", "pref_beta": 0.1}, "ddp", 1, 1),
         ({"pref_loss": "sigmoid", "pref_beta": 0.5, "dpo_label_smoothing": 0.1, "pref_ftx": 0.2, "ld_alpha": 0.3}, "zero3", 2, 1),
         ({"pref_loss": "sigmoid", "pref_beta": 0.5, "ld_alpha": 0.0, "use_dora": True}, "zero2", 2, 2),
         ({"pref_loss": "hinge", "pref_beta": 0.3, "pref_ftx": 0.1}, "ddp", 2, 2),
         ({"pref_loss": "ipo", "pref_beta": 0.2}, "zero3", 1, 4),
         ({"pref_loss": "orpo", "pref_beta": 0.4}, "zero2", 2, 1),
         ({"pref_loss": "cpo", "pref_beta": 0.3, "rpo_alpha": 0.8, "dpo_label_smoothing": 0.1}, "zero3", 2, 1),
         ({"pref_loss": "sigmoid", "pref_beta": 0.2, "rpo_alpha": 0.5, "pref_ftx": 0.1, "finetuning_type": "full"}, "zero2", 2, 2),
         ({"stage": "kto", "dataset": "answers", "pref_beta": 0.3}, "ddp", 1, 4),
         ({"stage": "kto", "dataset": "answers", "pref_beta": 0.5, "pref_ftx": 0.2, "kto_chosen_weight": 1.3, "kto_rejected_weight": 0.8}, "zero3", 2, 1),
         ({"stage": "kto", "dataset": "answers", "pref_beta": 0.5, "finetuning_type": "full"}, "zero3", 2, 1),
         ({"pref_loss": "sigmoid", "pref_beta": 0.3, "finetuning_type": "full"}, "zero3", 2, 1),
         ({"pref_loss": "ipo", "pref_beta": 0.3, "ref_model": "other"}, "zero2", 2, 1),
         ({"pref_loss": "sigmoid", "pref_beta": 0.3, "ref_model_adapters": "adapter", "finetuning_type": "full"}, "ddp", 1, 2),
         ({"pref_loss": "sigmoid", "pref_beta": 0.3, "ld_alpha": 0.4, "precompute_ref_log_probs": True}, "zero3", 2, 1),
         ({"stage": "kto", "dataset": "answers", "pref_beta": 0.5, "finetuning_type": "full", "precompute_ref_log_probs": True}, "zero2", 2, 2),
         ({"pref_loss": "sigmoid", "pref_beta": 0.5, "pref_bco_weight": 0.7}, "ddp", 1, 4),
         ({"pref_loss": "hinge", "pref_beta": 0.3, "pref_bco_weight": 0.5, "pref_ftx": 0.2, "ld_alpha": 0.3, "finetuning_type": "full"}, "zero3", 2, 1),
         ({"pref_loss": "ipo", "pref_beta": 0.2, "pref_bco_weight": 1.5, "rpo_alpha": 0.4, "precompute_ref_log_probs": True}, "zero2", 3, 1),
         ({"pref_loss": "simpo", "pref_beta": 2.0, "simpo_gamma": 0.9, "ld_alpha": 0.5}, "ddp", 1, 2)]


def main():
    args = arguments()
    qft = args.build / "bin/qft"
    report = Report()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = settings_of(tmp, stage="dpo", dataset="pairs", eval_dataset="pairs", learning_rate=LR, adam_epsilon=EPSILON,
                               num_train_epochs=EPOCHS, global_batch_size=BATCH, do_eval=True)
        model_dir = settings["model_name_or_path"]
        adapters = {dora: make_adapter(tmp / f"adapter-{dora}", model_dir, dora) for dora in (False, True)}
        paths = {"ref_model": str(another_model(tmp / "other", model_dir)), "ref_model_adapters": str(adapters[False])}
        packs = {stage: items_of(args.build, tmp, settings, stage, dataset) for stage, dataset in [("dpo", "pairs"), ("kto", "answers")]}
        for stage, items in packs.items():
            report.equal(f"items of stage {stage}", len(items), SAMPLES)
        for number, (options, strategy, ranks, each) in enumerate(CASES):
            what = ", ".join(f"{k} {v}" for k, v in options.items() if k != "dataset")
            out = tmp / f"out{number}"
            options = {"stage": "dpo", "dataset": "pairs", **options, **{k: paths[k] for k in options if k in paths}}
            adapter = adapters[options.get("use_dora", False)]
            trained = {} if options.get("finetuning_type") == "full" else {"adapter_name_or_path": str(adapter)}
            run_file = write(tmp / f"run{number}.yaml", {**settings, **trained, **options, "eval_dataset": options["dataset"], "strategy": strategy,
                                                         "per_device_train_batch_size": each, "output_dir": str(out)})
            mpirun(ranks, [qft, "train", run_file])
            steps, evaluated = judge(model_dir, adapter, packs[options["stage"]], options)
            log = [entry for entry in log_of(out) if "loss" in entry]
            report.equal(f"{what}: steps", len(log), len(steps))
            for name in steps[0]:
                report.check(f"{what}: {name}", max(abs(e[name] - s[name]) / max(1.0, abs(s[name])) for e, s in zip(log, steps)), TOLERANCE)
            results = json.loads((out / "all_results.json").read_text())
            for name, value in evaluated.items():
                report.check(f"{what}: eval_{name}", abs(results[f"eval_{name}"] - value) / max(1.0, abs(value)), TOLERANCE)
    report.finish()


if __name__ == "__main__":
    main()
