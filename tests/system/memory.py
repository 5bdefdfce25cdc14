"""Memory: what full fine-tuning is predicted to need is what it takes; max_memory decides whether activations are kept; a model larger than the limit of a process trains under zero3,
chosen by auto too, where ddp is refused with the numbers; and where memory runs out all ranks end with one explanation."""
import json
import re
import resource
import tempfile
from pathlib import Path

from common import Report, arguments, make_model, mpirun
from tiny import copy_tokenizer, make, write

MB = 10**6


def larger(directory):
    """66 M parameters: 1.05 GB of weights, gradients, masters and moments in bf16."""
    from transformers import LlamaConfig

    make_model(LlamaConfig(hidden_size=384, intermediate_size=1536, num_hidden_layers=20, num_attention_heads=6, num_key_value_heads=6,
                           vocab_size=49152, tie_word_embeddings=True, max_position_embeddings=1024), directory)
    copy_tokenizer(directory)


def limited(megabytes):
    return lambda: resource.setrlimit(resource.RLIMIT_DATA, (megabytes * MB, megabytes * MB))


def main():
    args = arguments()
    qft = args.build / "bin/qft"
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = make(tmp, samples=2400)
        larger(tmp / "model")
        settings |= {"finetuning_type": "full", "compute_dtype": "auto", "bf16": True, "max_steps": 2, "save_strategy": "no",
                     "packing": True, "cutoff_len": 512, "global_batch_size": 4, "max_samples": 40, "learning_rate": 1e-4}

        def train(name, ranks, changes, limit=None, check=True):
            out = tmp / name
            run_file = write(tmp / f"{name}.yaml", {**settings, **changes, "output_dir": str(out)})
            result = mpirun(ranks, [qft, "train", run_file], check=check, preexec_fn=limited(limit) if limit else None)
            return result, out

        lora = {"finetuning_type": "lora", "lora_rank": 8, "max_samples": 2400, "max_steps": 3}
        cases = [("ddp", 1, {}), ("zero3", 2, {})]
        cases += [(name, ranks, lora | {"gradient_checkpointing": recompute})
                  for name, ranks in (("ddp", 1), ("ddp", 2), ("zero3", 2)) for recompute in (True, False)]
        predicted = {}
        for i, (name, ranks, changes) in enumerate(cases):
            _, out = train(f"predicted-{i}", ranks, changes | {"strategy": name})
            results = json.loads((out / "train_results.json").read_text())
            predicted[name, ranks, changes.get("gradient_checkpointing")] = results["memory_predicted"]
            what = f"{changes.get('finetuning_type', 'full')}{', nothing recomputed' if changes.get('gradient_checkpointing') is False else ''}"
            report.check(f"{name} {what} on {ranks} ranks: peak {results['memory_peak'] / MB:.0f} MB, predicted off by",
                         abs(results["memory_predicted"] / results["memory_peak"] - 1), 0.1)

        # Between what it takes with and without recomputation, and above both.
        kept, computed_again = (predicted["ddp", 1, word] for word in (False, True))
        for name, bytes_allowed, word in (("less", (kept + computed_again) / 2 / 0.9, "on"), ("more", kept * 1.3, "off")):
            result, out = train(f"max_memory-{name}", 1, lora | {"strategy": "ddp", "max_memory": bytes_allowed / 1e9})
            peak = json.loads((out / "train_results.json").read_text())["memory_peak"]
            report.check(f"max_memory {bytes_allowed / MB:.0f} MB: recomputation is {word}", 0 if f"recomputation {word}" in result.stderr else 1, 0)
            report.check(f"    ... and the peak {peak / MB:.0f} MB", peak, bytes_allowed)
        result, _ = train("max_memory-refused", 1, {"strategy": "ddp", "max_memory": 0.6}, check=False)
        words = re.search(r"strategy ddp needs [\d.]+ [MG]B on each rank .* a rank has [\d.]+ MB", result.stderr)
        tiny, _ = train("max_memory-tiny", 2, {"strategy": "ddp", "max_memory": 0.01}, check=False)
        told = "max_memory 10.00 MB is less than the" in tiny.stderr
        report.check("max_memory below what a process takes ends all ranks", 0 if told and tiny.returncode == 2 else 1, 0)
        report.check("max_memory 600 MB: full fine-tuning is refused with the numbers", 0 if words and result.returncode == 2 else 1, 0)

        limit = 1500  # the libraries take 700 of it
        result, _ = train("refused", 4, {"strategy": "ddp"}, limit, check=False)
        words = re.search(r"strategy ddp needs ([\d.]+) ([MG]B) on each rank .* a rank has ([\d.]+) MB: .*zero3 takes ([\d.]+) MB", result.stderr)
        report.check("ddp is refused with the numbers", 0 if words and result.returncode == 2 else 1, 0)
        if not words:
            print(result.stderr)
        for strategy in ("zero3", "auto"):
            result, out = train(f"fits-{strategy}", 4, {"strategy": strategy}, limit)
            peak = json.loads((out / "train_results.json").read_text())["memory_peak"]
            report.check(f"{strategy} trains below the limit: peak {peak / MB:.0f} MB", peak, limit * MB)
            if strategy == "auto":
                report.check("auto says why it is not ddp", 0 if re.search(r"strategy auto: of the .* too much would be ddp", result.stderr) else 1, 0)

        # The state fits, a micro-batch of a hundred times the tokens does not.
        result, _ = train("burst", 2, {"strategy": "zero3", "per_device_train_batch_size": 100, "global_batch_size": 200, "cutoff_len": 1024,
                                       "gradient_checkpointing": False, "max_samples": 2400}, limit, check=False)
        told = re.search(r"out of memory: rank \d on \S+, in (forward|backward)\(.*Any of these helps: [^;]+; [^;]+; [^;]+", result.stderr)
        report.check("running out ends all ranks with who, where and what helps", 0 if told and result.returncode == 1 else 1, 0)
        if not told:
            print(result.returncode, result.stderr[-3000:])
    report.finish()


main()
