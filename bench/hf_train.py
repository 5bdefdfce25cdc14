#!/usr/bin/env python3
"""The other side of bench/train.py: plain training steps with transformers (and PEFT) on tokens given as JSON lines.

Prints one JSON line: {"seconds": [of each step], "cpu_seconds": [the processor's, of all threads], "tokens": [of each step,
without padding], "first_step": seconds from the start of the process to the end of the first step, "memory": peak of the CUDA
allocator in bytes, or null}. `sdpa` attention, AdamW, gradients clipped to 1.
"""

import argparse
import json
import os
import time

START = time.time() - float(open("/proc/uptime").read().split()[0]) + int(
    open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")

import torch  # noqa: E402

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "pure_bf16": torch.bfloat16}


def load(args):
    from transformers import AutoModelForCausalLM

    # Masters in fp32 for full fine-tuning in bf16: fp32 weights under autocast.
    masters = args.finetuning == "full" and args.precision == "bf16"
    dtype = torch.float32 if masters else DTYPES[args.precision]
    quantization = {}
    if args.nf4:
        from transformers import BitsAndBytesConfig

        quantization["quantization_config"] = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                                                                 bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=dtype)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=dtype, attn_implementation="sdpa", **quantization)
    model.config.use_cache = False
    if args.experts:
        model.set_experts_implementation(args.experts)
    if args.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    if args.finetuning == "lora":
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, lora_dropout=args.dropout, use_dora=args.dora, target_modules="all-linear",
                                                 task_type="CAUSAL_LM"))
    model.train().to(args.device)
    return model, torch.autocast(args.device, torch.bfloat16, enabled=masters)


def labels_of(item):
    labels = [-100] * len(item["ids"])
    for begin, end in item["label_spans"]:
        labels[begin:end] = item["ids"][begin:end]
    return labels


def collate(items, how):
    """padded: to the longest, a multiple of 8, as LLaMA-Factory's collator does; flat: end to end, with position ids."""
    ids, labels = [item["ids"] for item in items], [labels_of(item) for item in items]
    if how == "flat":
        return {"input_ids": torch.tensor([sum(ids, [])]), "labels": torch.tensor([sum(([-100, *row[1:]] for row in labels), [])]),
                "position_ids": torch.tensor([sum((list(range(len(row))) for row in ids), [])])}
    width = -(-max(map(len, ids)) // 8) * 8
    pad = lambda rows, value: torch.tensor([row + [value] * (width - len(row)) for row in rows])  # noqa: E731
    return {"input_ids": pad(ids, 0), "labels": pad(labels, -100), "attention_mask": pad([[1] * len(row) for row in ids], 0)}


def dpo_loss(model, pairs, device):
    """Of a micro-batch as TRL's DPOTrainer computes it: chosen and rejected answers in one padded batch, the reference without adapter."""
    inputs = {name: value.to(device) for name, value in collate([pair[side] for side in ("chosen", "rejected") for pair in pairs], "padded").items()}
    labels = inputs.pop("labels")[:, 1:]

    def sums():
        logits = model(**inputs).logits[:, :-1]
        each = torch.log_softmax(logits.float(), -1).gather(2, labels.clamp(min=0)[:, :, None])[:, :, 0]
        return (each * (labels >= 0)).sum(1)

    with torch.no_grad(), model.disable_adapter():
        reference = sums()
    chosen, rejected = (sums() - reference).chunk(2)
    return -torch.nn.functional.logsigmoid(0.1 * (chosen - rejected)).mean()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--items", required=True)
    parser.add_argument("--finetuning", choices=["lora", "full"], default="lora")
    parser.add_argument("--precision", choices=list(DTYPES), default="bf16")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--dora", action="store_true")
    parser.add_argument("--nf4", action="store_true", help="the base in nf4 by bitsandbytes, double quantisation")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--collate", choices=["padded", "flat"], default="padded")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--pairs", action="store_true", help="items are preference pairs: a step of DPO with LoRA")
    parser.add_argument("--experts", help="transformers' experts_implementation: eager, batched_mm, grouped_mm")
    parser.add_argument("--tuned", action="store_true", help="matmul precision medium; malloc thresholds are the caller's")
    args = parser.parse_args()
    if args.tuned:
        torch.set_float32_matmul_precision("medium")
    torch.manual_seed(1)
    with open(args.items) as file:
        items = [json.loads(line) for line in file]
    model, autocast = load(args)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.0)
    seconds, cpu_seconds, tokens, first = [], [], [], None
    for begin in range(0, len(items), args.batch):
        batch = items[begin : begin + args.batch]
        start, cpu_start = time.perf_counter(), time.process_time()
        inputs = {} if args.pairs else {name: value.to(args.device) for name, value in collate(batch, args.collate).items()}
        with autocast:
            loss = dpo_loss(model, batch, args.device) if args.pairs else model(**inputs).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
        tokens.append(sum(len(part["ids"]) for item in batch for part in (item.values() if args.pairs else [item])))
        first = first or time.time() - START
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "tokens": tokens, "first_step": first,
                      "memory": torch.cuda.max_memory_allocated() if args.device == "cuda" else None}))


if __name__ == "__main__":
    main()
