#!/usr/bin/env python3
"""What LibTorch's kernels give a layer of Qwen3-8B's shape on this GPU: ceilings, products, LoRA's narrow products in several
forms, attention, fp8. Times are medians with a cold cache; kernels are those that ran.

    python3 bench/gpu_parts.py [ceilings products narrow attention fp8] [--tokens 2048] [--rank 8] [--json FILE]
"""

import argparse
import json
import statistics

import torch
import torch.nn.functional as F

DEVICE = "cuda"
HIDDEN, INNER, HEADS, KV_HEADS, DIM = 4096, 12288, 32, 8, 128
GROUPS = {"qkv": (HIDDEN, [HEADS * DIM, KV_HEADS * DIM, KV_HEADS * DIM]), "o": (HEADS * DIM, [HIDDEN]), "gate_up": (HIDDEN, [INNER, INNER]), "down": (INNER, [HIDDEN])}
results = []


def times_of(work, seconds=0.03):
    """Seconds of each of some calls, each after the cache was overwritten."""
    cache = torch.empty(int(128e6), dtype=torch.int8, device=DEVICE)
    work()
    torch.cuda.synchronize()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    count = max(5, min(50, int(seconds / (start.elapsed_time(end) * 1e-3 + 1e-5))))
    events = []
    for _ in range(count):
        cache.zero_()
        events.append((torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)))
        events[-1][0].record()
        work()
        events[-1][1].record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) * 1e-3 for begin, end in events]


def kernels_of(work):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work()
        torch.cuda.synchronize()
    found = [(event.name, event.device_time_total) for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    short = lambda name: name.replace("void ", "").replace("at::native::", "").split("(")[0][:70]  # noqa: E731
    return [f"{short(name)} {micros:.1f}" for name, micros in found]


def measure(part, what, work, operations=0.0, moved=0.0):
    """moved: bytes."""
    try:
        seconds = statistics.median(times_of(work))
        kernels = kernels_of(work)
    except Exception as error:  # noqa: BLE001: one form that this LibTorch does not have must not hide the others
        results.append({"part": part, "what": what, "error": str(error).splitlines()[0][:120]})
    else:
        results.append({"part": part, "what": what, "us": round(seconds * 1e6, 1), "TFLOP/s": round(operations / seconds / 1e12, 1),
                        "TB/s": round(moved / seconds / 1e12, 2), "kernels": kernels})
    line = results[-1]
    print("| " + " | ".join(str(line.get(key, "")) for key in ("part", "what", "us", "TFLOP/s", "TB/s")) + " | "
          + line.get("error", "; ".join(line.get("kernels", []))) + " |", flush=True)


def random(*size, dtype=torch.bfloat16, scale=1.0):
    return (torch.randn(*size, device=DEVICE) * scale).to(dtype)


def ceilings(_):
    a, b = random(2**30), torch.empty(2**30, device=DEVICE, dtype=torch.bfloat16)
    measure("ceilings", "copy of 2 GB", lambda: b.copy_(a), moved=4 * 2**30)
    del a, b
    a, b = random(8192, 8192), random(8192, 8192)
    measure("ceilings", "bf16 product 8192^3", lambda: a @ b, operations=2 * 8192**3)


def products(args):
    for name, (k, rows) in GROUPS.items():
        n, t = sum(rows), args.tokens
        x, w, y, gx = random(t, k), random(n, k, scale=0.02), random(t, n), random(t, k)
        work = 2 * t * n * k
        measure("products", f"{name} y = x W^T", lambda: torch.mm(x, w.t(), out=y), work)
        measure("products", f"{name} y += x W^T", lambda: y.addmm_(x, w.t()), work)
        measure("products", f"{name} gx = gy W", lambda: torch.mm(y, w, out=gx), work)
        measure("products", f"{name} gx += gy W", lambda: gx.addmm_(y, w), work)


def narrow(args):
    t, r = args.tokens, args.rank
    for name, (k, rows) in GROUPS.items():
        n, ranks = sum(rows), r * len(rows)
        x, y = random(t, k), random(t, n)
        a, saved, gsaved = random(ranks, k, scale=0.02), random(t, ranks), random(t, ranks)
        turned = random(ranks, t)
        bs = [random(m, r, scale=0.02) for m in rows]
        starts = [sum(rows[:i]) for i in range(len(rows))]
        places = [y[:, s : s + m] for s, m in zip(starts, rows)]
        columns = [saved[:, i * r : (i + 1) * r] for i in range(len(rows))]
        gcolumns = [gsaved[:, i * r : (i + 1) * r] for i in range(len(rows))]
        gas, gbs = torch.zeros(ranks, k, device=DEVICE), [torch.zeros(m, r, device=DEVICE) for m in rows]
        gbs_turned = [torch.zeros(r, m, device=DEVICE) for m in rows]
        read_x, read_y = 2 * t * k, 2 * t * n

        def each(work, *lists):
            return lambda: [work(*items) for items in zip(*lists)]

        measure(name, "s = 2 x A^T, mm and mul", lambda: torch.mm(x, a.t(), out=saved).mul_(2.0), 2 * t * k * ranks, read_x)
        measure(name, "s = 2 x A^T, addmm", lambda: torch.addmm(saved, x, a.t(), beta=0, alpha=2.0, out=saved), 2 * t * k * ranks, read_x)
        measure(name, "s^T = A x^T", lambda: torch.mm(a, x.t(), out=turned), 2 * t * k * ranks, read_x)
        measure(name, "y += s B^T", each(lambda p, c, b: p.addmm_(c, b.t()), places, columns, bs), 2 * t * n * r, 2 * read_y)
        measure(name, "y = s B^T", each(lambda p, c, b: torch.mm(c, b.t(), out=p), places, columns, bs), 2 * t * n * r, read_y)
        diagonal = torch.block_diag(*bs)
        measure(name, "y = s B^T, one product, B block-diagonal", lambda: torch.mm(saved, diagonal.t(), out=y), 2 * t * n * r, read_y)
        measure(name, "gs = 2 gy B, addmm, rows of ranks", each(lambda p, c, b: torch.addmm(c, p, b, beta=0, alpha=2.0, out=c), places, gcolumns, bs),
                2 * t * n * r, read_y)
        measure(name, "gs^T = B^T gy^T, mm and mul, rows of tokens",
                each(lambda p, i, b: torch.mm(b.t(), p.t(), out=turned[i * r : (i + 1) * r]).mul_(2.0), places, range(len(rows)), bs), 2 * t * n * r, read_y)
        measure(name, "gs = gy B, one product, B block-diagonal", lambda: torch.mm(y, diagonal, out=gsaved), 2 * t * n * r, read_y)
        gx = random(t, k)
        measure(name, "gx += gs A", lambda: gx.addmm_(gsaved, a), 2 * t * k * ranks, 2 * read_x)
        measure(name, "gx = gs A", lambda: torch.mm(gsaved, a, out=gx), 2 * t * k * ranks, read_x)
        measure(name, "gA += gs^T x, fp32", lambda: torch.addmm(gas, gsaved.t(), x, out_dtype=torch.float32, out=gas), 2 * t * k * ranks, read_x)
        measure(name, "gA += gs^T x, fp32, gs in rows of tokens", lambda: torch.addmm(gas, turned, x, out_dtype=torch.float32, out=gas), 2 * t * k * ranks, read_x)
        measure(name, "gA = gs^T x, bf16", lambda: torch.mm(gsaved.t(), x), 2 * t * k * ranks, read_x)
        measure(name, "gB += gy^T s, fp32", each(lambda g, p, c: torch.addmm(g.t(), c.t(), p, out_dtype=torch.float32, out=g.t()), gbs, places, columns),
                2 * t * n * r, read_y)
        measure(name, "gB^T += s^T gy, fp32", each(lambda g, p, c: torch.addmm(g, c.t(), p, out_dtype=torch.float32, out=g), gbs_turned, places, columns),
                2 * t * n * r, read_y)
        measure(name, "gB = gy^T s, bf16", each(lambda p, c: torch.mm(p.t(), c), places, columns), 2 * t * n * r, read_y)
        measure(name, "gB^T = s^T gy, one product, all ranks, bf16", lambda: torch.mm(saved.t(), y), 2 * t * n * ranks, read_y)
        measure(name, "gB^T = s^T gy, one product, all ranks, fp32", lambda: torch.mm(saved.t(), y, out_dtype=torch.float32), 2 * t * n * ranks, read_y)


def attention(args):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    for rows in (1, 4):
        q = random(rows, HEADS, args.tokens, DIM).requires_grad_()
        k, v = (random(rows, KV_HEADS, args.tokens, DIM).requires_grad_() for _ in range(2))
        g = random(rows, HEADS, args.tokens, DIM)
        operations = 2 * rows * HEADS * args.tokens**2 * DIM  # causal: half of two products
        for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
            for gqa in (True, False):
                def forward(gqa=gqa, backend=backend):
                    kk, vv = (k, v) if gqa else (t.repeat_interleave(HEADS // KV_HEADS, 1) for t in (k, v))
                    with sdpa_kernel(backend):
                        return F.scaled_dot_product_attention(q, kk, vv, is_causal=True, enable_gqa=gqa)

                label = f"{rows} x {args.tokens} {backend.name} {'enable_gqa' if gqa else 'k and v repeated'}"
                measure("attention", f"{label} forward", forward, operations)
                try:
                    out = forward()
                except RuntimeError:
                    continue
                measure("attention", f"{label} backward", lambda: torch.autograd.grad(out, (q, k, v), g, retain_graph=True), 2.5 * operations)
        # As qft calls it: packed sequences.
        bounds = torch.arange(0, (rows + 1) * args.tokens, args.tokens, dtype=torch.int32, device=DEVICE)
        packed = [t.detach().transpose(1, 2).reshape(rows * args.tokens, -1, DIM).contiguous() for t in (q, k, v, g)]
        call = lambda: torch.ops.aten._flash_attention_forward(*packed[:3], bounds, bounds, args.tokens, args.tokens, 0.0, True, False)  # noqa: E731
        measure("attention", f"{rows} x {args.tokens} packed flash forward, groups", call, operations)
        if "error" in results[-1]:
            continue
        out, lse, seed, offset, _ = call()
        measure("attention", f"{rows} x {args.tokens} packed flash backward, groups",
                lambda: torch.ops.aten._flash_attention_backward(packed[3], *packed[:3], out, lse, bounds, bounds, args.tokens, args.tokens, 0.0, True, seed, offset),
                2.5 * operations)


def fp8(args):
    one = torch.ones((), device=DEVICE)
    for name, (k, rows) in GROUPS.items():
        n, t = sum(rows), args.tokens
        x = random(t, k)
        x8, w8 = x.to(torch.float8_e4m3fn), random(n, k, scale=0.02).to(torch.float8_e4m3fn)
        work = 2 * t * n * k
        measure("fp8", f"{name} one scale", lambda: torch._scaled_mm(x8, w8.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True), work)
        measure("fp8", f"{name} a scale a row", lambda: torch._scaled_mm(x8, w8.t(), torch.ones(t, 1, device=DEVICE), torch.ones(1, n, device=DEVICE),
                                                                         out_dtype=torch.bfloat16, use_fast_accum=True), work)
        measure("fp8", f"{name} x to fp8", lambda: x.to(torch.float8_e4m3fn), moved=3 * t * k)


PARTS = {"ceilings": ceilings, "products": products, "narrow": narrow, "attention": attention, "fp8": fp8}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--json")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}: take {', '.join(PARTS)}")
    torch.manual_seed(1)
    print("| part | what | us | TFLOP/s | TB/s | kernels, us |\n|---|---|---|---|---|---|")
    for part in args.parts or PARTS:
        PARTS[part](args)
        if args.json:
            with open(args.json, "w") as file:
                json.dump(results, file, indent=0)


if __name__ == "__main__":
    main()
