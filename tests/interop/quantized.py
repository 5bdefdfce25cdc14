"""Quantised weights: codes and decoded numbers to the bit as bitsandbytes and torch have them, in odd sizes too; and models whose base
is quantised compute what transformers computes with the decoded weights."""
import tempfile
from pathlib import Path

import bitsandbytes.functional as bnb
import torch
from safetensors.torch import load_file, save_file

from common import Report, arguments, run
from models import in_double, labels_of, make_model, make_sequences, probe, tiny_configs

SHAPES = [(1, 1), (3, 5), (4, 64), (5, 77), (64, 96), (129, 130), (300, 260), (1000, 1024)]


def matrices():
    generator = torch.Generator().manual_seed(0)
    for rows, columns in SHAPES:
        for dtype in (torch.float32, torch.bfloat16):
            values = torch.randn((rows, columns), generator=generator) * 0.02
            values[rows // 2] *= 30  # an outlier row
            values[0, 0] = 0
            yield f"{rows}x{columns}.{str(dtype)[6:]}", values.to(dtype)
    yield "zeros.float32", torch.zeros(3, 200)



def numbers_of_4_bits(codes, state, shape, dtype):
    if shape[1] % 16 or shape[1] % 64 == 0:
        state.dtype = dtype
        return bnb.dequantize_4bit(codes, state).reshape(shape)
    # Other rows that vectors divide: the kernel for CPUs of 0.50.2 takes other blocks' scales from the second row on.
    scales = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset if state.nested else state.absmax
    each = torch.stack([codes.view(-1) >> 4, codes.view(-1) & 15], 1).view(-1).long()
    return (state.code[each] * scales.repeat_interleave(64)[:each.numel()]).reshape(shape).to(dtype)


def of_judge(kind, nested, values):
    """Codes, and numbers in fp32 and bf16."""
    if kind in ("nf4", "fp4"):
        codes, state = bnb.quantize_4bit(values, quant_type=kind, compress_statistics=nested)
        return codes.view(-1), *(numbers_of_4_bits(codes, state, values.shape, dtype) for dtype in (torch.float32, torch.bfloat16))
    wide = values.float()
    largest = wide.abs().amax(1, keepdim=True)
    if kind == "fp8":
        scale = torch.where(largest > 0, largest / 448, torch.ones(()))
        codes = (wide / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        numbers = codes.float() * scale
        return codes.view(torch.uint8).view(-1), numbers, numbers.bfloat16()
    codes = torch.where(largest > 0, torch.round(values * (127.0 / largest)), torch.zeros(())).to(torch.int8)  # as LLM.int8 has it
    numbers = bnb.int8_vectorwise_dequant(codes, largest.view(-1))
    return codes.view(torch.uint8).view(-1), numbers, numbers.bfloat16()


def compare_formats(report, build, tmp):
    inputs = dict(matrices())
    save_file(inputs, tmp / "in.safetensors")
    for kind, nested in (("nf4", False), ("nf4", True), ("fp4", False), ("fp4", True), ("int8", False), ("fp8", False)):
        run([build / "tests/quantize_probe", tmp / "in.safetensors", tmp / "out.safetensors", kind, "nested" if nested else "plain"])
        ours = load_file(tmp / "out.safetensors")
        wrong = {"codes": [], "f32": [], "bf16": []}
        for name, values in inputs.items():
            for what, theirs in zip(wrong, of_judge(kind, nested, values)):
                mine = ours[f"{name}.{what}"]
                if not torch.equal(mine.reshape(-1), theirs.reshape(-1)):
                    wrong[what].append(f"{name}: {(mine.reshape(-1) != theirs.reshape(-1)).sum()} of {mine.numel()}")
        for what, names in wrong.items():
            report.equal(f"{kind}{', nested' if nested else ''}: matrices with other {what}, of {len(inputs)}", names, [])


def decode_model(model, kind):
    """Replaces the weights that are quantised by the numbers that they are kept as."""
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or name.endswith(("lm_head", "shared_expert_gate")):
            continue
        with torch.no_grad():
            module.weight.copy_(of_judge(kind, True, module.weight.float())[1])
    for name, parameter in model.named_parameters():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):  # an expert's gate and up lie one after the other, as here
            with torch.no_grad():
                parameter.copy_(of_judge(kind, True, parameter.float().reshape(-1, parameter.shape[-1]))[1].view_as(parameter))


def compare_models(report, build, tmp):
    sequences = make_sequences(211, [17, 1, 40, 9])
    for name in ("qwen3", "llama_biases", "qwen2_moe", "qwen3_5"):
        for kind, keys in (("nf4", {"quantization_bit": 4}), ("fp4", {"quantization_bit": 4, "quantization_type": "fp4"}),
                           ("int8", {"quantization_bit": 8}), ("fp8", {"quantization_bit": 8, "quantization_method": "fp8"})):
            directory = tmp / f"{name}-{kind}"
            model = make_model(tiny_configs()[name], directory / "model")
            decode_model(model, kind)
            run_file = {"model_name_or_path": str(directory / "model"), "lora_rank": 3, "lora_dropout": 0, "lora_target": "all", "seed": 1,
                        "compute_dtype": "float64", "output_dir": str(directory / "out"), "moe_aux_loss_coef": 0, **keys}
            ours = probe(build, directory, run_file, sequences)
            theirs, losses = [], []
            with in_double(), torch.no_grad():
                double = model.double()
                for sequence in sequences:
                    logits = double(torch.tensor([sequence["ids"]])).logits[0]
                    theirs.append(logits)
                    labels = labels_of(sequence)[1:]
                    losses.append(torch.nn.functional.cross_entropy(logits[:-1], labels, ignore_index=-100, reduction="sum"))
            theirs = torch.cat(theirs)
            report.check(f"{name} in {kind}: logits", ((ours["logits"] - theirs).norm() / theirs.norm()).item(), 1e-10)
            loss = (sum(losses) / ours["logprobs"].numel()).item()
            report.check(f"{name} in {kind}: loss", abs(ours["loss"].item() / loss - 1), 1e-10)


def main():
    args = arguments()
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        compare_formats(report, args.build, Path(tmp))
        compare_models(report, args.build, Path(tmp))
    report.finish()


main()
