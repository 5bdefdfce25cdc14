#!/usr/bin/env python3
"""The other side of bench/wire.sh: one rank of LoRA with transformers, PEFT and torch.distributed over gloo.

Started by mpirun, which only says who is who. Rank 0 writes the steps as qft's trainer_log.jsonl has them. All strategies
reduce gradients once a step, with a step's last micro-batch, in fp32; micro-batches go one after another. The first step,
which warms up, has one micro-batch.
"""

import argparse
import contextlib
import ctypes
import itertools
import json
import os
import random
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import hf_train

# What FSDP2 keeps gathered. zero2: from a step's first forward pass to its last backward pass.
RESHARD = {"full_shard": {"forward": True, "backward": True}, "shard_grad_op": {"forward": False, "backward": True},
           "zero2": {"forward": False, "backward": False}}


def shard(model, forward):
    """Each decoder layer, then what is left: one gather each. The root's weights stay from forward to backward by default."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    layers = model.get_base_model().model.layers
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=forward)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    # The CPU has no streams: without these two each gather would be waited for, which on a GPU it is not.
    model._set_unshard_async_op(True)
    for layer, following in zip(layers, layers[1:]):
        layer.set_modules_to_forward_prefetch([following])
    return model


class Peer:
    def __init__(self, strategy, model_dir):
        model, _ = hf_train.load(argparse.Namespace(model=model_dir, finetuning="lora", precision="bf16", checkpointing=True,
                                                    dropout=0.0, device="cpu"))
        for parameter in model.parameters():  # out of the mapped file, which would not count as memory
            parameter.data = parameter.data.clone()
        self.reshard = RESHARD.get(strategy)
        self.model = shard(model, self.reshard["forward"]) if self.reshard else DistributedDataParallel(model)
        self.trainable = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.trainable, lr=1e-4, weight_decay=0.0)

    def accumulating(self, last):
        """The context of a micro-batch: nothing is reduced before the last one."""
        if self.reshard is None:
            return contextlib.nullcontext() if last else self.model.no_sync()
        self.model.set_requires_gradient_sync(last)
        self.model.set_reshard_after_backward(last or self.reshard["backward"])
        return contextlib.nullcontext()

    def step(self, rows):
        """One update on these micro-batches; returns the mean loss."""
        total = 0.0
        for row in rows:
            with self.accumulating(last=row is rows[-1]):
                loss = self.model(**hf_train.collate(row, "flat")).loss / len(rows)
                loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(self.trainable, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total


def rows_of(path, cutoff):
    """Whole samples, best fit into rows of `cutoff` tokens, in the same random order on every rank."""
    with open(path) as file:
        items = [json.loads(line) for line in file]
    rows, room = [], []
    for item in sorted(items, key=lambda item: -len(item["ids"])):
        size = len(item["ids"])
        fits = [i for i, left in enumerate(room) if left >= size]
        if fits:
            best = min(fits, key=lambda i: room[i])
        else:
            best = len(rows)
            rows.append([])
            room.append(cutoff)
        rows[best].append(item)
        room[best] -= size
    random.Random(1).shuffle(rows)
    return rows


def padded(row, cutoff):
    """Filled to `cutoff`, as LLaMA-Factory's collator does: of every other shape PyTorch would keep compiled kernels."""
    room = cutoff - tokens_of(row)
    return row + [{"ids": [0] * room, "label_spans": []}] * (room > 0)


def tokens_of(row):
    return sum(len(item["ids"]) for item in row)


def reset_peak():
    """Loading does not count: the whole model is on every rank then."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def peak_memory():
    """As qft reckons it: the peak without mapped files, in bytes."""
    with open("/proc/self/status") as file:
        kib = {key: int(value.split()[0]) for key, value in (line.split(":", 1) for line in file) if value.endswith(" kB\n")}
    return 1024 * max(kib["VmHWM"] - kib["RssFile"], kib["RssAnon"] + kib["RssShmem"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("strategy", choices=["ddp", *RESHARD])
    parser.add_argument("--model", required=True)
    parser.add_argument("--items", required=True, help="what qft-pack export prints")
    parser.add_argument("--output", required=True)
    parser.add_argument("--cutoff", type=int, default=512)
    parser.add_argument("--accumulation", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    rank, ranks = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    torch.set_float32_matmul_precision("medium")
    torch.manual_seed(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    rows = rows_of(args.items, args.cutoff)
    peer = Peer(args.strategy, args.model)
    reset_peak()
    entries, tokens = [], 0
    deal = itertools.cycle(rows)
    for step in range(args.steps):
        batch = list(itertools.islice(deal, ranks * (args.accumulation if step > 0 else 1)))
        dist.barrier()
        start = time.perf_counter()
        loss = peer.step([padded(row, args.cutoff) for row in batch[rank::ranks]])
        seconds = time.perf_counter() - start
        size = sum(map(tokens_of, batch))
        tokens += size
        entries.append({"current_steps": step + 1, "loss": loss, "total_tokens": tokens, "throughput": size / seconds})
    memory = [None] * ranks
    dist.all_gather_object(memory, peak_memory())
    if rank == 0:
        with open(args.output, "a") as file:
            file.writelines(json.dumps({**entry, "memory": memory, "seconds": {}}) + "\n" for entry in entries)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
