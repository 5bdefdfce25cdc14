#!/usr/bin/env python3
"""Greedy decoding, qft and transformers side by side: tokens/s after the prompt, bf16, one sequence.

    .venv/bin/python bench/decode.py [--tokens 256] [--rounds 3]
    .venv/bin/python bench/decode.py --batch 8 [--tokens 128] [--rounds 3]

With --batch: `qft eval` with predict_with_generate over 16 prompts (or as many as the batch), so many at a time and one by one;
tokens/s of the whole, prompts and scores included. With --device cuda instead of one by one: transformers with the same batch, prompts
included, padded on the left.

Rounds alternate; medians. The share of the memory bandwidth is the bytes of all weights times tokens/s, over what
`bench_ops` reads from memory in the same run where that program is built.
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

from train import ROOT, run_measured, write_run_file

PROMPT = "Write a long story about a scientist who builds a computer out of stars."


def qft(build, model, tokens):
    with tempfile.TemporaryDirectory() as folder:
        run_file = write_run_file(pathlib.Path(folder), {"model_name_or_path": model, "template": "smollm2", "bf16": True,
                                                         "do_sample": False, "max_new_tokens": tokens, "prompt": PROMPT})
        out, memory, _ = run_measured([build / "bin/qft", "generate", run_file, "--json"])
    result = json.loads(out)
    return result["ids"], (len(result["ids"]) - 1) / result["decode_seconds"], memory


def prompts_for(batch):
    subjects = ["stars", "water", "sand", "light", "ice", "glass", "wood", "clouds"]
    prompts = [f"{kind} about a scientist who builds a computer out of {s}." for s in subjects for kind in ("Write a long story", "Write a report")]
    return (prompts * -(-batch // len(prompts)))[: max(batch, len(prompts))]


def qft_eval(build, model, tokens, batch):
    """Answers to the prompts, and tokens/s."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        prompts = prompts_for(batch)
        (folder / "prompts.json").write_text(json.dumps([{"instruction": p, "input": "", "output": "Once."} for p in prompts]))
        (folder / "dataset_info.json").write_text(json.dumps({"prompts": {"file_name": "prompts.json"}}))
        run_file = write_run_file(folder, {"model_name_or_path": model, "template": "smollm2", "bf16": True, "stage": "sft", "finetuning_type": "full",
                                           "do_sample": False, "max_new_tokens": tokens, "eval_dataset": "prompts", "dataset_dir": folder,
                                           "predict_with_generate": True, "output_dir": folder / "out", "per_device_eval_batch_size": batch})
        out, memory, _ = run_measured([build / "bin/qft", "eval", run_file, "--json"])
        return (folder / "out/generated_predictions.jsonl").read_text(), json.loads(out)["predict_tokens_per_second"], memory


def compare_batches(build, model, tokens, batch, rounds):
    runs = {1: [], batch: []}
    for _ in range(rounds):
        for size, results in runs.items():
            results.append(qft_eval(build, model, tokens, size))
    one, many = (statistics.median(r[1] for r in results) for results in runs.values())
    same = "the same answers" if len({r[0] for results in runs.values() for r in results}) == 1 else "answers differ"
    print(f"{batch} at a time {many:.1f} tokens/s, {max(r[2] for r in runs[batch]) / 1e9:.2f} GB; one by one {one:.1f} tokens/s, "
          f"{max(r[2] for r in runs[1]) / 1e9:.2f} GB; ratio {many / one:.2f}; {same}")


def compare_batch_with_peer(build, model, tokens, batch, rounds, device="cuda"):
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(qft_eval(build, model, tokens, batch)[1])
        theirs.append(run_peer(model, tokens, device, batch)[0]["tokens_per_second"])
    fast, slow = statistics.median(ours), statistics.median(theirs)
    print(f"{batch} at a time: qft {fast:.1f} tokens/s; transformers {slow:.1f} tokens/s; ratio {fast / slow:.2f}")


def run_peer(model, tokens, device, batch=0):
    out, memory, _ = run_measured([sys.executable, __file__, "--as-peer", "--model", model, "--tokens", str(tokens), "--device", device,
                                   *(["--batch", str(batch)] if batch else [])])
    return json.loads(out), memory


def peer(model, tokens, device):
    result, memory = run_peer(model, tokens, device)
    return result["ids"], (len(result["ids"]) - 1) / result["seconds"], memory


def generate_batch_as_peer(model, tokens, device, batch):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16, attn_implementation="sdpa").eval().to(device)
    asked = [[{"role": "user", "content": prompt}] for prompt in prompts_for(batch)]
    inputs = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt", return_dict=True, padding=True).to(device)
    with torch.inference_mode():
        network.generate(**inputs, do_sample=False, max_new_tokens=4)
        start = time.perf_counter()
        out = network.generate(**inputs, do_sample=False, max_new_tokens=tokens).tolist()
        seconds = time.perf_counter() - start
    width, end = inputs["input_ids"].shape[1], tokenizer.eos_token_id
    count = sum(next((i + 1 for i, token in enumerate(row[width:]) if token == end), len(row) - width) for row in out)
    print(json.dumps({"tokens_per_second": count / seconds}))


def generate_as_peer(model, tokens, device):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.generation.streamers import BaseStreamer

    class Times(BaseStreamer):
        def __init__(self):
            self.at = []

        def put(self, value):
            self.at.append(time.perf_counter())

        def end(self):
            pass

    tokenizer = AutoTokenizer.from_pretrained(model)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16, attn_implementation="sdpa").eval().to(device)
    ids = tokenizer.apply_chat_template([{"role": "user", "content": PROMPT}], add_generation_prompt=True, return_tensors="pt",
                                        return_dict=True)["input_ids"].to(device)
    times = Times()
    with torch.inference_mode():
        network.generate(ids, do_sample=False, max_new_tokens=4)
        out = network.generate(ids, do_sample=False, max_new_tokens=tokens, streamer=times)
    answer = out[0, ids.shape[1] :].tolist()
    print(json.dumps({"ids": answer, "seconds": times.at[len(answer)] - times.at[1]}))  # put() gets the prompt first


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "models/smollm2")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, help="compare so many sequences at a time with one by one, without transformers; on a GPU with transformers")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="transformers'; qft takes a GPU that it finds")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    if args.as_peer:
        if args.batch:
            generate_batch_as_peer(args.model, args.tokens, args.device, args.batch)
        else:
            generate_as_peer(args.model, args.tokens, args.device)
        return
    if args.batch and args.device == "cuda":
        compare_batch_with_peer(args.build, args.model, args.tokens, args.batch, args.rounds)
        return
    if args.batch:
        compare_batches(args.build, args.model, args.tokens, args.batch, args.rounds)
        return
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours.append(qft(args.build, args.model, args.tokens))
        theirs.append(peer(args.model, args.tokens, args.device))
    same = sum(1 for a, b in zip(ours[0][0], theirs[0][0]) if a == b)
    fast, slow = (statistics.median(run[1] for run in runs) for runs in (ours, theirs))
    print(f"qft {fast:.1f} tokens/s, {max(r[2] for r in ours) / 1e9:.2f} GB; transformers {slow:.1f} tokens/s, "
          f"{max(r[2] for r in theirs) / 1e9:.2f} GB; ratio {fast / slow:.2f}; {same} of {len(ours[0][0])} tokens alike")


if __name__ == "__main__":
    main()
