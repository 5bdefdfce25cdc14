"""Fifty steps of every optimizer beside its original, on one rank and on three that share the state: torch's AdamW, SGD and Muon,
transformers' Adafactor, GaLore's and APOLLO's formulas, and 8-bit AdamW by bitsandbytes' own codes, which are the same to the bit."""
import json
import math
import tempfile
from pathlib import Path

import torch
from bitsandbytes import functional
from transformers.optimization import Adafactor

from common import Report, arguments, mpirun

STEPS, LR, DECAY, BLOCK = 50, 3e-3, 0.1, 256
# Blocks of 256 and slices of ranks end where parameters do not; a tall, a wide and a large matrix, a stack, vectors.
PARAMS = [{"shape": [100, 50], "place": "embedding"}, {"shape": [96, 130]}, {"shape": [70], "decays": False}, {"shape": [130, 40]},
          {"shape": [3, 50, 40], "stack": True}, {"shape": [5001], "decays": False}, {"shape": [17, 23]}]
FP32 = 1e-5


def count(p):
    return int(torch.tensor(p["shape"]).prod())


def numbers(seed=5):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(sum(map(count, PARAMS)), generator=generator, dtype=torch.float64) * 0.1
    rows = torch.exp(2 * torch.randn(len(weights), generator=generator, dtype=torch.float64))  # of many sizes
    return torch.cat([weights[None], rows * torch.randn(STEPS, len(weights), generator=generator, dtype=torch.float64) * 0.01])


def split(flat):
    return [x.view(p["shape"]) for x, p in zip(flat.split([count(p) for p in PARAMS]), PARAMS)]


class Probe:
    def __init__(self, build, tmp):
        self.program, self.tmp = build / "tests/optimizer_probe", tmp

    def __call__(self, optim, given, ranks=1, args="", fp64=False):
        """Of each parameter: its value, and its states by name."""
        (self.tmp / "settings.json").write_text(json.dumps(
            {"optim": optim, "args": args, "fp64": fp64, "lr": LR, "decay": DECAY, "steps": STEPS, "params": PARAMS}))
        (self.tmp / "numbers").write_bytes(given.contiguous().numpy().tobytes())
        mpirun(ranks, [self.program, self.tmp / "settings.json", self.tmp / "numbers", self.tmp / "out"])
        parts = [json.loads((self.tmp / f"out.{rank}").read_text()) for rank in range(ranks)]
        whole = []
        for i in range(len(PARAMS)):
            states = {}
            for part in parts:
                for name, held in part[i]["states"].items():
                    for k, value in enumerate(held["values"]):
                        before = states.setdefault(name, {}).setdefault(held["begin"] + k, value)
                        assert before == value, f"{name} of parameter {i}: ranks differ in element {held['begin'] + k}"
            whole.append((torch.tensor([x for part in parts for x in part[i]["master"]], dtype=torch.float64),
                          {name: torch.tensor([values[k] for k in range(len(values))], dtype=torch.float64) for name, values in states.items()}))
        return whole


def theirs(given, make, dtype):
    """make(parameters) gives a list of optimizers."""
    parameters = [torch.nn.Parameter(x.to(dtype, copy=True)) for x in split(given[0])]
    optimizers = make(parameters)
    for row in given[1:]:
        for p, g in zip(parameters, split(row)):
            p.grad = g.to(dtype)
        for optimizer in optimizers:
            optimizer.step()
    return [p.detach().double().flatten() for p in parameters]


def by_decay(parameters):
    return [{"params": [p], "weight_decay": DECAY if x.get("decays", True) else 0.0} for p, x in zip(parameters, PARAMS)]


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, program 1."""

    def __init__(self, groups, lr):
        super().__init__(groups, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                p -= group["lr"] * (torch.sign(0.9 * m + 0.1 * p.grad) + group["weight_decay"] * p)
                m.copy_(0.999 * m + 0.001 * p.grad)


def is_muons(p):
    return len(p["shape"]) > 1 and p.get("place") != "embedding"


def muon(parameters, **options):
    """torch.optim.Muon takes one matrix a parameter: those of a stack are views of it."""
    chosen, rest = [], []
    for p, x in zip(parameters, PARAMS):
        (chosen if is_muons(x) else rest).append((p, x))
    views = [(p, list(p.detach().unbind(0)) if p.dim() == 3 else [p]) for p, _ in chosen]
    matrices = [m if isinstance(m, torch.nn.Parameter) else torch.nn.Parameter(m) for _, ms in views for m in ms]

    class OfStacks(torch.optim.Muon):
        def step(self):
            flat = iter(matrices)
            for p, ms in views:
                for grad in p.grad.unbind(0) if p.dim() == 3 else [p.grad]:
                    next(flat).grad = grad
            super().step()

    return [OfStacks(matrices, lr=LR, weight_decay=DECAY, **options),
            torch.optim.AdamW([{"params": [p], "weight_decay": DECAY if x.get("decays", True) else 0.0} for p, x in rest], lr=LR)]


class GaLore(torch.optim.Optimizer):
    """Zhao et al. 2024, algorithm 2, with the projections of galore_torch; weight decay first, as in torch.optim.AdamW."""

    def __init__(self, groups, rank, gap, scale, kind):
        super().__init__(groups, {})
        self.rank, self.gap, self.scale, self.kind, self.steps = rank, gap, scale, kind, 0

    def matrix(self, p, grad, state):
        rows, columns = grad.shape
        right = {"std": rows >= columns, "reverse_std": rows < columns, "left": False, "right": True}[self.kind]
        if self.steps % self.gap == 0:
            u, _, v = torch.linalg.svd(grad, full_matrices=False)
            state["vectors"] = v[:self.rank].T if right else u[:, :self.rank]
        q = state["vectors"]
        low = grad @ q if right else q.T @ grad
        m, v = (state.setdefault(n, torch.zeros_like(low)) for n in ("m", "v"))
        m.mul_(0.9).add_(low, alpha=0.1)
        v.mul_(0.999).addcmul_(low, low, value=0.001)
        step = m / (v.sqrt() + 1e-8) * math.sqrt(1 - 0.999**(self.steps + 1)) / (1 - 0.9**(self.steps + 1))
        p.sub_(self.scale * LR * (step @ q.T if right else q @ step))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.mul_(1 - LR * DECAY)
                for i, (w, g) in enumerate(zip(p, p.grad) if p.dim() == 3 else [(p, p.grad)]):
                    self.matrix(w, g, self.state[p].setdefault(i, {}))
        self.steps += 1


def of_layers(parameters, make):
    """What make gives for matrices of layers, AdamW for all else."""
    chosen, rest = ([(p, x) for p, x in zip(parameters, PARAMS) if is_muons(x) == of_layer] for of_layer in (True, False))
    return [make([p for p, _ in chosen]),
            torch.optim.AdamW([{"params": [p], "weight_decay": DECAY if x.get("decays", True) else 0.0} for p, x in rest], lr=LR)]


class Apollo(torch.optim.Optimizer):
    """Zhu et al. 2024, algorithm 1, with apollo_torch's limit on the growth of a step; `projectors` are those that ours ended with."""

    def __init__(self, groups, projectors, scale, kind, front):
        super().__init__(groups, {})
        self.projectors, self.scale, self.kind, self.front, self.steps = projectors, math.sqrt(scale), kind, front, 0

    def matrix(self, p, grad, q, state):
        rows, columns = grad.shape
        right = rows >= columns
        low = grad @ q.T if right else q.T @ grad
        m, v = (state.setdefault(n, torch.zeros_like(low)) for n in ("m", "v"))
        m.mul_(0.9).add_(low, alpha=0.1)
        v.mul_(0.999).addcmul_(low, low, value=0.001)
        dim = (1 if right else 0) if self.kind == "channel" else None
        norm = lambda t: torch.linalg.norm(t, dim=dim, keepdim=dim is not None)
        step = grad * norm(m / (v.sqrt() + 1e-8)) / (norm(low) + 1e-8) * (self.scale if self.front else 1)
        if "norm" in state:
            step /= max(step.norm() / (state["norm"] + 1e-8), 1.01) / 1.01
        state["norm"] = step.norm()
        step *= math.sqrt(1 - 0.999**(self.steps + 1)) / (1 - 0.9**(self.steps + 1)) * (1 if self.front else self.scale)
        p.sub_(LR * step)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p, projectors in zip(group["params"], self.projectors):
                p.mul_(1 - LR * DECAY)
                for i, (w, g, q) in enumerate(zip(p, p.grad, projectors) if p.dim() == 3 else [(p, p.grad, projectors[0])]):
                    self.matrix(w, g, q, self.state[p].setdefault(i, {}))
        self.steps += 1


def projectors_of(ours, rank):
    """Of each matrix of layers, those of its stack."""
    result = []
    for (_, states), x in zip(ours, PARAMS):
        if is_muons(x):
            *stack, rows, columns = x["shape"]
            shape = (rank, columns) if rows >= columns else (rows, rank)
            result.append(states["projector"].view(*(stack or [1]), *shape))
    return result


def compare_apollo(report, probe, given):
    for rank, kind, scale, front in ((8, "channel", 2.0, False), (1, "tensor", 128.0, True)):
        words = f"rank={rank},scale={scale},scale_type={kind},scale_front={str(front).lower()},update_proj_gap=100"
        runs = [probe("apollo_adamw", given, ranks, words, fp64=True) for ranks in (1, 3)]
        projectors = projectors_of(runs[0], rank)
        make = lambda ps: of_layers(ps, lambda chosen: Apollo(chosen, projectors, scale, kind, front))
        expected = theirs(given, make, torch.float64)
        for ranks, ours in zip((1, 3), runs):
            report.check(f"apollo_adamw {words}: {ranks} ranks, fp64", error(ours, expected, given), 1e-9)
        drawn = torch.cat([q.flatten() for q in projectors]) * math.sqrt(rank)
        report.check(f"    ... {len(drawn)} random numbers: their variance, from 1", abs(float(drawn.var()) - 1), 0.2)
        report.equal("    ... matrices of a stack with the same ones", bool(torch.equal(projectors[2][0], projectors[2][1])), False)
    anew = probe("apollo_adamw", given, 1, "rank=8,update_proj_gap=7", fp64=True)
    report.equal("apollo_adamw: vectors that are drawn anew are others", any(torch.equal(a, b) for a, b in zip(projectors_of(anew, 8), projectors_of(runs[0], 1))), False)


class InDouble:
    """torch's Newton-Schulz iterations are in bf16; within this they are in fp64."""

    def __enter__(self):
        self.kept = torch.Tensor.bfloat16
        torch.Tensor.bfloat16 = lambda t: t.to(torch.float64, copy=True)

    def __exit__(self, *_):
        torch.Tensor.bfloat16 = self.kept


def error(ours, expected, given):
    """Of the movement, relative to it."""
    moved = [e - w.flatten() for e, w in zip(expected, split(given[0]))]
    return max(float((o - e).norm() / m.norm()) for (o, _), e, m in zip(ours, expected, moved))


def quantised(values, signed):
    """bitsandbytes' codes and magnitudes, by its portable operator: the nearest codes, as its kernels for GPUs have. That for CPUs has
    other ones for numbers near 0."""
    return torch.ops.bitsandbytes.quantize_blockwise.default.redispatch(
        torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd), values, functional.create_dynamic_map(signed), BLOCK)


def adamw_8bit(given):
    """bitsandbytes' rule in fp32: AdamW on decoded moments, which are encoded again."""
    result = []
    for p, weights, grads in zip(PARAMS, split(given[0]), zip(*(split(row) for row in given[1:]))):
        w, decay = weights.float().flatten(), DECAY if p.get("decays", True) else 0.0
        small = w.numel() < 4096 or p.get("place") == "embedding"
        m, v = torch.zeros_like(w), torch.zeros_like(w)
        for step, grad in enumerate(grads, 1):
            torch._fused_adamw_([w], [grad.float().flatten()], [m], [v], [], [torch.tensor(float(step))], lr=LR, beta1=0.9, beta2=0.999,
                                weight_decay=decay, eps=1e-8, amsgrad=False, maximize=False)
            if not small:
                coded = [quantised(m, True), quantised(v, False)]
                m, v = (functional.dequantize_blockwise(codes, absmax=absmax, code=functional.create_dynamic_map(signed), blocksize=BLOCK)
                        for (codes, absmax), signed in zip(coded, (True, False)))
        states = {"exp_avg": m, "exp_avg_sq": v} if small else {
            "exp_avg": coded[0][0], "exp_avg_sq": coded[1][0], "exp_avg_absmax": coded[0][1], "exp_avg_sq_absmax": coded[1][1]}
        result.append((w.double(), {name: t.double() for name, t in states.items()}))
    return result


def compare_8bit(report, probe, given):
    ours, judge = probe("adamw_8bit", given), adamw_8bit(given)
    for i, ((w, states), (w2, states2)) in enumerate(zip(ours, judge)):
        shape = PARAMS[i]["shape"]
        report.equal(f"adamw_8bit: states of {shape}", sorted(states), sorted(states2))
        report.equal(f"    ... whose bits differ", [n for n in states if not torch.equal(states[n], states2[n])], [])
        report.holds("    ... weights to the bit", torch.equal(w, w2), (w - w2).abs().max())
    exact = probe("adamw_8bit", given, fp64=True)
    apart = probe("adamw_8bit", given, ranks=3, fp64=True)
    for i, ((w, states), (w2, states2)) in enumerate(zip(exact, apart)):
        report.equal(f"adamw_8bit: states of {PARAMS[i]['shape']} that three ranks have otherwise", [n for n in states if not torch.equal(states[n], states2[n])], [])
        report.check("    ... weights", float((w - w2).abs().max()) + 1e-300, 1e-14)


def main():
    args = arguments()
    torch.set_num_threads(1)
    report = Report()
    given = numbers()
    sgd = lambda **options: lambda ps: [torch.optim.SGD(by_decay(ps), lr=LR, **options)]
    cases = [("adamw_torch", "", lambda ps: [torch.optim.AdamW(by_decay(ps), lr=LR)]),
             ("lion_32bit", "", lambda ps: [Lion(by_decay(ps), LR)]),
             ("sgd", "", sgd()),
             ("sgd", "momentum=0.9", sgd(momentum=0.9)),
             ("sgd", "momentum=0.9,nesterov=true", sgd(momentum=0.9, nesterov=True)),
             ("sgd", "momentum=0.8,dampening=0.3", sgd(momentum=0.8, dampening=0.3)),
             ("adafactor", "", lambda ps: [Adafactor(by_decay(ps), lr=LR, scale_parameter=False, relative_step=False)])]
    with tempfile.TemporaryDirectory() as tmp:
        probe = Probe(args.build, Path(tmp))
        for optim, words, make in cases:
            for ranks in (1, 3):
                ours, expected = probe(optim, given, ranks, words), theirs(given, make, torch.float32)
                # Elements whose sign a last bit decides move the other way, by Lion.
                report.check(f"{optim} {words}: {ranks} ranks, fp32", error(ours, expected, given), FP32)
        for words, options in (("", {"adjust_lr_fn": "match_rms_adamw"}), ("adjust_lr_fn=original,momentum=0.9,nesterov=false,ns_steps=4",
                                                                          {"momentum": 0.9, "nesterov": False, "ns_steps": 4})):
            with InDouble():
                expected = theirs(given, lambda ps: muon(ps, **options), torch.float64)
            for ranks in (1, 3):
                report.check(f"muon {words}: {ranks} ranks, fp64", error(probe("muon", given, ranks, words, fp64=True), expected, given), 1e-9)
            rounded = theirs(given, lambda ps: muon(ps, **options), torch.float32)
            yardstick = error([(x, None) for x in rounded], expected, given)
            report.check(f"muon {words}: fp32, against torch's in bf16 ({yardstick:.1e} from fp64)", error(probe("muon", given, 1, words), rounded, given), 1.5 * yardstick)
        for words, options in (("rank=8,update_proj_gap=20,scale=2", {"rank": 8, "gap": 20, "scale": 2, "kind": "std"}),
                               ("rank=5,update_proj_gap=7,scale=0.5,proj_type=reverse_std", {"rank": 5, "gap": 7, "scale": 0.5, "kind": "reverse_std"})):
            expected = theirs(given, lambda ps: of_layers(ps, lambda chosen: GaLore(chosen, **options)), torch.float64)
            for ranks in (1, 3):
                report.check(f"galore_adamw {words}: {ranks} ranks, fp64", error(probe("galore_adamw", given, ranks, words, fp64=True), expected, given), 1e-9)
        compare_apollo(report, probe, given)
        compare_8bit(report, probe, given)
    report.finish()


main()
