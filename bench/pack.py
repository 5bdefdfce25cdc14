#!/usr/bin/env python3
"""Preprocessing speed, qft-pack and LLaMA-Factory side by side on the same file, one process each.

    .venv/bin/python bench/pack.py --program build/bin/qft-pack --tokenizer DIR --file alpaca.json[l] [--samples 20000]

FILE holds alpaca records. The other side is LLaMA-Factory itself where it is installed (python -m pip install
llamafactory, or its src folder on PYTHONPATH: reading, converting and tokenising by its get_dataset), else its
per-sample loop written again over transformers' tokenizer. Start-up (imports, loading the tokenizer) is left out there;
qft-pack is timed whole, with writing the pack. --scaling sets one rank against two, and against two programs that run at
once and share nothing: what the machine gives for a second core. Medians of alternating rounds.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "--allow-run-as-root", "-np"]


def records_of(path):
    text = path.read_text()
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def write_data(folder, records):
    (folder / "d.json").write_text(json.dumps(records, ensure_ascii=False))
    (folder / "dataset_info.json").write_text(json.dumps({"d": {"file_name": "d.json"}}))


def pack_command(program, folder, tokenizer, ranks, output):
    return (MPIRUN + [str(ranks)] if ranks > 1 else []) + [
        program, f"tokenizer_name_or_path={tokenizer}", f"dataset_dir={folder}", "dataset=d", "template=qwen", "stage=sft",
        "cutoff_len=2048", "--workers", "1", "--output", str(output), "--json"]


def run_qft(program, folder, tokenizer, ranks=1, copies=1):
    """Seconds until `copies` independent runs, all at once, are done; and the tokens of one."""
    outputs = [folder / f"p{i}.h5" for i in range(copies)]
    for output in outputs:
        output.unlink(missing_ok=True)
    start = time.perf_counter()
    runs = [subprocess.Popen(pack_command(program, folder, tokenizer, ranks, output), stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL) for output in outputs]
    texts = [run.communicate()[0] for run in runs]
    if any(run.returncode for run in runs):
        raise SystemExit("qft-pack failed")
    return time.perf_counter() - start, json.loads(texts[0])["tokens"]


def measure_scaling(args, folder):
    times = {(1, 1): [], (2, 1): [], (1, 2): []}  # (ranks, copies)
    for _ in range(args.rounds):
        for (ranks, copies), seconds in times.items():
            seconds.append(run_qft(args.program, folder, args.tokenizer, ranks, copies)[0])
    one, two, both = (statistics.median(seconds) for seconds in times.values())
    print(f"one rank {one:.2f} s, two ranks {two:.2f} s, two programs of one rank at once {both:.2f} s\n"
          f"two ranks reach {one / two / 2:.0%} of twice the speed of one, {both / two / 2:.0%} of what two programs do")


def start_llama_factory(folder, tokenizer):
    from datasets import disable_caching
    from llamafactory.data import get_dataset, get_template_and_fix_tokenizer
    from llamafactory.hparams import get_train_args
    from llamafactory.model import load_tokenizer

    disable_caching()
    arguments = get_train_args({
        "model_name_or_path": str(tokenizer), "stage": "sft", "do_train": True, "finetuning_type": "lora", "dataset": "d",
        "dataset_dir": str(folder), "template": "qwen", "cutoff_len": 2048, "overwrite_cache": True,
        "output_dir": str(folder / "out"), "report_to": "none"})
    model_args, data_args, training_args = arguments[:3]
    module = load_tokenizer(model_args)
    template = get_template_and_fix_tokenizer(module["tokenizer"], data_args)

    def run():
        with contextlib.redirect_stdout(sys.stderr):  # it prints a sample
            return get_dataset(template, model_args, data_args, training_args, stage="sft", **module)["train_dataset"]["input_ids"]

    return "LLaMA-Factory", run


def start_loop(folder, tokenizer):
    from transformers import AutoTokenizer

    hf = AutoTokenizer.from_pretrained(tokenizer)
    system = "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"

    def run():
        all_ids = []
        for record in json.loads((folder / "d.json").read_text()):
            question = "\n".join(part for part in (record["instruction"], record.get("input")) if part)
            source = hf.encode(f"{system}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n",
                               add_special_tokens=False)
            target = hf.encode(f"{record['output']}<|im_end|>\n", add_special_tokens=False)
            all_ids.append((source + target)[:2048])
            labels = ([-100] * len(source) + target)[:2048]  # noqa: F841
        return all_ids

    return "LLaMA-Factory's loop, written again", run


def start_other(folder, tokenizer):
    try:
        import llamafactory.data  # noqa: F401
    except ImportError:
        return start_loop(folder, tokenizer)
    return start_llama_factory(folder, tokenizer)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--tokenizer", required=True, type=pathlib.Path)
    parser.add_argument("--file", required=True, type=pathlib.Path)
    parser.add_argument("--samples", type=int, default=20000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scaling", action="store_true", help="one rank against two, on all records of the file")
    args = parser.parse_args()
    records = records_of(args.file)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        os.environ["HF_DATASETS_CACHE"] = str(folder / "cache")
        if args.scaling:
            write_data(folder, records)
            measure_scaling(args, folder)
            return
        write_data(folder, records[: args.samples])
        name, run_other = start_other(folder, args.tokenizer)
        ours, theirs = [], []
        for _ in range(args.rounds):
            seconds, tokens = run_qft(args.program, folder, args.tokenizer)
            ours.append(seconds)
            start = time.perf_counter()
            all_ids = run_other()
            theirs.append(time.perf_counter() - start)
            other_tokens = sum(len(ids) for ids in all_ids)
            if tokens != other_tokens:
                raise SystemExit(f"qft-pack gives {tokens} tokens, {name} {other_tokens}")
        count = min(args.samples, len(records))
        ours, theirs = statistics.median(ours), statistics.median(theirs)
        print(f"{count} samples, {tokens} tokens\nqft-pack  {count / ours:10.0f} samples/s  (whole program)\n"
              f"{name}  {count / theirs:10.0f} samples/s  (without start-up)\nratio {theirs / ours:.1f}")


if __name__ == "__main__":
    main()
