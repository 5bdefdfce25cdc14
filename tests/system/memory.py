"""Memory: what full fine-tuning is predicted to need is what it takes; max_memory decides whether activations are kept; a model larger than the limit of a process trains under zero3,
chosen by auto too, where ddp is refused with the numbers; and where memory runs out all ranks end with one explanation."""
import json
import re
import resource
import tempfile
from pathlib import Path

from common import Report, arguments, mpirun
from tiny import make, write, write_model, write_tokenizer

MB = 10**6


def larger(directory):
    """66 M parameters: 1.05 GB of weights, gradients, masters and moments in bf16."""
    write_model(directory, hidden=384, intermediate=1536, layers=20, heads=6, kv_heads=6, head_dim=64, positions=1024, vocab=49152)
    write_tokenizer(directory, 49152)


def limited(megabytes):
    return lambda: resource.setrlimit(resource.RLIMIT_DATA, (megabytes * MB, megabytes * MB))


def main():
    args = arguments(complete="no")  # yes: all products of strategy, ranks and recomputation (nightly)
    qft = args.build / "bin/qft"
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = make(tmp, samples=2400)
        larger(tmp / "model")
        # Rows are full, so that each micro-batch is as large as the plan says.
        settings |= {"finetuning_type": "full", "compute_dtype": "auto", "bf16": True, "max_steps": 2, "save_strategy": "no",
                     "packing": True, "cutoff_len": 256, "max_samples": 400, "global_batch_size": 4, "learning_rate": 1e-4}

        def train(name, ranks, changes, limit=None, check=True):
            out = tmp / name
            run_file = write(tmp / f"{name}.yaml", {**settings, **changes, "output_dir": str(out)})
            result = mpirun(ranks, [qft, "train", run_file], check=check, preexec_fn=limited(limit) if limit else None)
            return result, out

        few = {"max_samples": 40}
        lora = {"finetuning_type": "lora", "lora_rank": 8, "per_device_train_batch_size": 4, "global_batch_size": 8}
        nf4 = lora | {"quantization_bit": 4}
        ways = [("ddp", 1, True), ("ddp", 1, False), ("zero3", 2, True)]
        if args.complete == "yes":
            ways = [(name, ranks, recompute) for name, ranks in (("ddp", 1), ("ddp", 2), ("zero3", 2)) for recompute in (True, False)]
        cases = [("ddp", 1, {"global_batch_size": 2}), ("zero3", 2, {})]
        cases += [(name, ranks, lora | {"gradient_checkpointing": recompute}) for name, ranks, recompute in ways]
        cases += [("ddp", 1, nf4), ("zero3", 2, nf4)]
        cases += [("ddp", 2, {"tensor_parallel": 2}), ("ddp", 2, lora | {"tensor_parallel": 2, "gradient_checkpointing": False})]
        predicted = {}
        for i, (name, ranks, changes) in enumerate(cases):
            _, out = train(f"predicted-{i}", ranks, changes | {"strategy": name})
            results = json.loads((out / "train_results.json").read_text())
            predicted[name, ranks, changes.get("gradient_checkpointing")] = results["memory_predicted"]
            what = f"{changes.get('finetuning_type', 'full')}{' on nf4' if 'quantization_bit' in changes else ''}{', nothing recomputed' if changes.get('gradient_checkpointing') is False else ''}{', matrices shared' if 'tensor_parallel' in changes else ''}"
            report.check(f"{name} {what} on {ranks} ranks: peak {results['memory_peak'] / MB:.0f} MB, predicted off by",
                         abs(results["memory_predicted"] / results["memory_peak"] - 1), 0.1)
            for part in ("weights", "gathered", "optimizer", "activations", "buffers"):
                held, planned = (results.get(f"memory_{part}{word}", 0) for word in ("", "_predicted"))
                report.check(f"    ... {part}: held {held / MB:.0f} MB, predicted off by", abs(planned - held) / max(held, 1), 0.1)
            # How many reductions are under way at once is a matter of time.
            report.check(f"    ... gradients: held {results['memory_gradients'] / MB:.0f} MB", results["memory_gradients"], results["memory_gradients_predicted"])

        # Between what it takes with and without recomputation, and above both.
        kept, computed_again = (predicted["ddp", 1, word] for word in (False, True))
        for name, bytes_allowed, word in (("less", (kept + computed_again) / 2 / 0.9, "on"), ("more", kept * 1.3, "off")):
            result, out = train(f"max_memory-{name}", 1, lora | {"strategy": "ddp", "max_memory": bytes_allowed / 1e9})
            peak = json.loads((out / "train_results.json").read_text())["memory_peak"]
            report.holds(f"max_memory {bytes_allowed / MB:.0f} MB: recomputation is {word}", f"recomputation {word}" in result.stderr, result.stderr)
            report.check(f"    ... and the peak {peak / MB:.0f} MB", peak, bytes_allowed)
        result, _ = train("max_memory-refused", 1, few | {"strategy": "ddp", "max_memory": 0.6}, check=False)
        words = re.search(r"strategy ddp needs [\d.]+ [MG]B on each rank .* a rank has [\d.]+ MB", result.stderr)
        tiny, _ = train("max_memory-tiny", 2, few | {"strategy": "ddp", "max_memory": 0.01}, check=False)
        told = "max_memory 10.00 MB is less than the" in tiny.stderr
        report.holds("max_memory below what a process takes ends all ranks", told and tiny.returncode == 2, tiny.stderr)
        report.holds("max_memory 600 MB: full fine-tuning is refused with the numbers", words and result.returncode == 2, result.stderr)

        limit = 1700  # the libraries take 600 of it, and an eighth of the rest is left to holes
        result, _ = train("refused", 4, few | {"strategy": "ddp"}, limit, check=False)
        words = re.search(r"strategy ddp needs ([\d.]+) ([MG]B) on each rank .* a rank has ([\d.]+) MB: .*zero3 takes ([\d.]+) MB", result.stderr)
        report.holds("ddp is refused with the numbers", words and result.returncode == 2, result.stderr)
        for strategy in ("zero3", "auto"):
            result, out = train(f"fits-{strategy}", 4, few | {"strategy": strategy}, limit)
            peak = json.loads((out / "train_results.json").read_text())["memory_peak"]
            report.check(f"{strategy} trains below the limit: peak {peak / MB:.0f} MB", peak, limit * MB)
            if strategy == "auto":
                report.holds("auto says why it is not ddp", re.search(r"strategy auto: .* available to the model, too little for ddp", result.stderr), result.stderr)

        # The state fits, a micro-batch of a hundred times the tokens does not.
        result, _ = train("burst", 2, {"strategy": "zero3", "per_device_train_batch_size": 100, "global_batch_size": 200, "cutoff_len": 1024, "max_samples": 2400,
                                       "gradient_checkpointing": False}, limit, check=False)
        told = re.search(r"out of memory: rank \d on \S+, in (forward|backward)\(.*Any of these helps: [^;]+; [^;]+; [^;]+", result.stderr)
        report.holds("running out ends all ranks with who, where and what helps", told and result.returncode == 1, result.stderr)
    report.finish()


main()
