"""Stages dpo and kto: with pref_loss simpo pairs of a ranking dataset, packed and trained in fp64 under zero3 on three ranks, beside a plain
torch loop over transformers' model with LLaMA-Factory's formula; evaluated by the same; and what is no pair is refused."""
import json
import tempfile
from pathlib import Path

from common import Report, arguments, mpirun, run, worst
from tiny import log_of, make, write, write_model

SAMPLES, BATCH, EPOCHS, LR = 24, 6, 2, 1e-3
BETA, GAMMA, FTX = 2.0, 1.2, 0.1
METRICS = ["rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected"]
EXPERTS_LOSS = 0.5


def add_pairs(directory):
    records = [{"instruction": f"Say the number {i} {'again ' * (i % 5)}", "input": "", "chosen": " ".join(str(i + k) for k in range(2 + i % 7)),
                "rejected": "no " * (1 + i % 4)} for i in range(SAMPLES)]
    (directory / "pairs.json").write_text(json.dumps(records))
    (directory / "equal.json").write_text(json.dumps([{**r, "rejected": r["chosen"]} for r in records]))
    (directory / "some.json").write_text(json.dumps([{**r, "rejected": r["chosen"] if i < 2 else r["rejected"]} for i, r in enumerate(records)]))
    info = json.loads((directory / "dataset_info.json").read_text())
    info["pairs"] = {"file_name": "pairs.json", "ranking": True,
                     "columns": {"prompt": "instruction", "query": "input", "chosen": "chosen", "rejected": "rejected"}}
    for name in ("equal", "some"):
        info[name] = {**info["pairs"], "file_name": f"{name}.json"}
    for name, good in (("answers", lambda i: i % 3 > 0), ("liked", lambda i: True)):
        (directory / f"{name}.json").write_text(json.dumps([{"instruction": r["instruction"], "output": r["chosen"], "good": good(i)}
                                                            for i, r in enumerate(records[:12])]))
        info[name] = {"file_name": f"{name}.json", "columns": {"prompt": "instruction", "response": "output", "kto_tag": "good"}}
    (directory / "dataset_info.json").write_text(json.dumps(info))


def judge(model_dir, pairs):
    """Loss, norm and metrics of each step, and of an evaluation after the last."""
    import torch
    from transformers import AutoModelForCausalLM

    from models import in_double, labels_of

    def mean_logprob(model, sequence):
        labels = labels_of(sequence)[1:]
        logits = model(input_ids=torch.tensor([sequence["ids"]])).logits[0][:-1]
        return torch.log_softmax(logits[labels >= 0], -1).gather(1, labels[labels >= 0][:, None]).mean()

    def batch_of(model, batch, backward):
        seen = {name: 0.0 for name in ["loss", *METRICS]}
        for pair in batch:
            chosen, rejected = mean_logprob(model, pair["chosen"]), mean_logprob(model, pair["rejected"])
            loss = -torch.nn.functional.logsigmoid(BETA * (chosen - rejected - GAMMA / BETA)) - FTX * chosen
            if backward:
                (loss / len(batch)).backward()
            chosen, rejected = chosen.item(), rejected.item()
            values = [loss.item(), BETA * chosen, BETA * rejected, float(chosen > rejected), BETA * (chosen - rejected), chosen, rejected]
            for name, value in zip(seen, values):
                seen[name] += value / len(batch)
        return seen

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
    steps = []
    with in_double():
        for step in range(EPOCHS * SAMPLES // BATCH):
            first = step * BATCH % SAMPLES
            seen = batch_of(model, pairs[first:first + BATCH], backward=True)
            seen["grad_norm"] = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item()
            optimizer.step()
            optimizer.zero_grad()
            steps.append(seen)
        with torch.no_grad():
            return steps, batch_of(model, pairs, backward=False)


def most(plan, part):
    """The bytes of a part of memory, of the strategy that has most."""
    return max(row["memory"][part] for row in plan["rows"])


def check_experts(report, qft, directory, kto):
    """The routers' loss of stage kto is the mean over the tokens that are trained, not over those too that estimate the divergence."""
    write_model(directory / "experts", "qwen2_moe")
    for file in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        (directory / "experts" / file).write_bytes((directory / "model" / file).read_bytes())
    first = {}
    for weight in (0.0, EXPERTS_LOSS):
        out = directory / f"experts{weight}"
        mpirun(2, [qft, "train", write(directory / "experts.yaml", {
            **{k: v for k, v in kto.items() if k not in ("eval_dataset", "do_eval")}, "model_name_or_path": str(directory / "experts"), "max_steps": 1,
            "moe_aux_loss_coef": weight, "output_dir": str(out)})])
        first[weight] = next(e for e in log_of(out) if "loss" in e)
    added = first[EXPERTS_LOSS]["loss"] - first[0.0]["loss"]
    report.check("kto with experts: what the routers add to the loss", abs(added / (EXPERTS_LOSS * first[0.0]["router/aux_loss"]) - 1), 1e-9)
    report.holds("kto with experts: the margins", "rewards/margins" in first[0.0], first[0.0])


def main():
    args = arguments()
    qft, pack = args.build / "bin/qft", args.build / "bin/qft-pack"
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp, "qwen3"), "stage": "dpo", "pref_loss": "simpo", "pref_beta": BETA, "simpo_gamma": GAMMA, "pref_ftx": FTX,
                    "dataset": "pairs", "eval_dataset": "pairs", "finetuning_type": "full", "disable_shuffling": True, "learning_rate": LR,
                    "num_train_epochs": EPOCHS, "lr_scheduler_type": "constant", "warmup_ratio": 0.0, "global_batch_size": BATCH,
                    "do_eval": True}
        add_pairs(tmp / "data")
        run_file = write(tmp / "run.yaml", {**settings, "strategy": "zero3"})
        mpirun(3, [qft, "train", run_file])
        pairs = [json.loads(line) for line in run([pack, "export", tmp / "out/packs/train.h5"]).stdout.splitlines()]
        report.equal("pairs in the pack", len(pairs), SAMPLES)
        steps, evaluated = judge(settings["model_name_or_path"], pairs)
        log = [entry for entry in log_of(tmp / "out") if "loss" in entry]
        report.equal("steps", len(log), len(steps))
        for name in ["loss", "grad_norm", *METRICS]:
            report.check(f"{name} of the steps", worst([e[name] for e in log], [s[name] for s in steps]), 1e-9)
        results = json.loads((tmp / "out/all_results.json").read_text())
        for name in ["loss", *METRICS]:
            report.check(f"eval_{name} at the end", worst([results[f"eval_{name}"]], [evaluated[name]]), 1e-9)
        report.holds("no perplexity is told of pairs", "perplexity" not in results, results)
        again = json.loads(mpirun(2, [qft, "eval", run_file, f"model_name_or_path={tmp / 'out'}", "--json"]).stdout)
        for name in ["loss", *METRICS]:
            report.check(f"qft eval: eval_{name}", worst([again[f"eval_{name}"]], [evaluated[name]]), 1e-5)  # from fp32 files

        one = mpirun(1, [qft, "train", write(tmp / "one.yaml", {**settings, "output_dir": str(tmp / "one"), "deterministic": True})])
        three = mpirun(3, [qft, "train", write(tmp / "three.yaml", {**settings, "output_dir": str(tmp / "three"), "deterministic": True})])
        keys = ["loss", "grad_norm", *METRICS]
        chosen = lambda name: [[entry[key] for key in keys] for entry in log_of(tmp / name) if "loss" in entry]
        report.equal("deterministic: the bits of one rank on three", chosen("three"), chosen("one"))

        kto = {**settings, "stage": "kto", "dataset": "answers", "finetuning_type": "lora", "deterministic": True, "eval_dataset": "answers"}
        for ranks in (1, 3):
            out = tmp / f"kto{ranks}"
            mpirun(ranks, [qft, "train", write(tmp / "kto.yaml", {**kto, "output_dir": str(out), "save_steps": 2})])
        entries = {ranks: [e for e in log_of(tmp / f"kto{ranks}") if "loss" in e] for ranks in (1, 3)}
        keys = ["loss", "grad_norm", "kl", "rewards/margins"]
        report.equal("kto: the bits of one rank on three", *([[e[k] for k in keys] for e in entries[ranks]] for ranks in (3, 1)))
        report.holds("kto: the policy leaves its reference", entries[1][-1]["rewards/margins"] > 0, entries[1][-1])
        again = tmp / "again"
        mpirun(2, [qft, "train", write(tmp / "kto.yaml", {**kto, "output_dir": str(again), "resume_from_checkpoint": str(tmp / "kto3/checkpoint-2")})])
        report.equal("kto: resumed on two ranks, the bits go on", [[e[k] for k in keys] for e in log_of(again) if "loss" in e and e["current_steps"] > 2],
                     [[e[k] for k in keys] for e in entries[1][2:]])
        best = {"max_steps": 2, "eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "load_best_model_at_end": True,
                "metric_for_best_model": "rewards/margins", "output_dir": str(tmp / "best")}
        told = mpirun(1, [qft, "train", write(tmp / "best.yaml", {**kto, **best})])
        report.holds("kto: the best by margins", "the best checkpoint is the result" in told.stdout + told.stderr, told.stderr)
        check_experts(report, qft, tmp, kto)
        alone = run([qft, "eval", write(tmp / "alone.yaml", {**settings, "pref_loss": "sigmoid"})], check=False)
        report.holds("qft eval: nothing to compare with", alone.returncode == 2 and "no adapter to switch off" in alone.stderr, alone.stderr)

        some = {**settings, "dataset": "some", "output_dir": str(tmp / "some"), "pref_loss": "sigmoid", "finetuning_type": "lora", "max_steps": 2}
        told = mpirun(2, [qft, "train", write(tmp / "some.yaml", some)])
        report.holds("pairs of equal answers are counted", "2 of 24 pairs (the first: item 0)" in told.stderr + told.stdout, told.stderr)

        lora = write(tmp / "lora.yaml", {**settings, "pref_loss": "sigmoid", "finetuning_type": "lora", "strategy": "zero3"})
        with_lane, without = (json.loads(run([qft, "plan", lora, "--ranks", "4", "--json", *more]).stdout) for more in ([], ["pref_loss=simpo"]))
        report.holds("qft plan counts the reference's memory", most(with_lane, "activations") > most(without, "activations"), [with_lane, without])
        plan = run([qft, "plan", run_file, "--ranks", "4"])
        report.holds("qft plan plans pairs", "zero3" in plan.stdout, plan.stdout)
        for what, changes, words in [("single samples in stage dpo", {"pack": str(tmp / "single.h5")}, "stage is dpo, sft in the pack"),
                                     ("pairs in stage sft", {"stage": "sft", "pack": str(tmp / "out/packs/train.h5")}, "stage is sft, dpo in the pack"),
                                     ("a reference of another vocabulary", {"pref_loss": "sigmoid", "ref_model": str(tmp / "other")}, "a vocabulary of 1100 tokens"),
                                     ("answers that are all liked", {"stage": "kto", "dataset": "liked", "output_dir": str(tmp / "liked")}, "all 12 answers are desirable"),
                                     ("pairs in stage kto", {"stage": "kto", "pack": str(tmp / "out/packs/train.h5")}, "stage is kto, dpo in the pack"),
                                     ("a loss that is not built", {"pref_loss": "kto_pair"}, "pref_loss is \"kto_pair\", which is not implemented"),
                                     ("answers that are all equal", {"dataset": "equal", "output_dir": str(tmp / "equal")}, "all 24 pairs have equal chosen and rejected answers"),
                                     ("pairs of a reward model that are all equal", {"stage": "rm", "dataset": "equal", "output_dir": str(tmp / "equal_rm")}, "all 24 pairs have equal"),
                                     ("a loss with two meanings", {"rpo_alpha": 0.5, "ld_alpha": 0.5}, "rpo_alpha and"),
                                     ("nothing that counts", {"stage": "kto", "dataset": "answers", "kto_chosen_weight": 0, "kto_rejected_weight": 0}, "nothing is trained"),
                                     ("two losses of ms-swift", {"stage": None, "pref_loss": None, "pref_beta": None, "rlhf_type": "cpo", "loss_type": "hinge"}, "both set pref_loss"),
                                     ("rewards without a reference", {"pref_loss": "simpo", "pref_bco_weight": 0.3}, "which has no reference model: remove it"),
                                     ("packing", {"packing": True}, "remove packing")]:
            if "vocabulary" in what:
                write_model(tmp / "other", "qwen3", vocab=1100)
            if "single" in what:
                run([pack, write(tmp / "s.yaml", {**settings, "stage": "sft", "dataset": "numbers"}), "--output", tmp / "single.h5"])
            wrong = {**settings, "output_dir": str(tmp / "bad"), "eval_dataset": None, "do_eval": None, **changes}
            bad = run([qft, "train", write(tmp / "bad.yaml", {k: v for k, v in wrong.items() if v is not None})], check=False)
            report.equal(f"{what}: exit code", bad.returncode, 2)
            report.holds(f"{what}: the reason", words in bad.stderr, bad.stderr)
    report.finish()


main()
