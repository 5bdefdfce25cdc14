"""Models as GPTQ, AWQ and fp8 tools write them, and what their numbers are: plain reimplementations of the published formats, by numpy."""
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # AutoAWQ's gemm: the output that each place of a word holds
NF4 = np.float32([-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0,
                  0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
                  0.7229568362236023, 1])
E4M3 = np.float32([(m / 8 if e == 0 else 1 + m / 8) * 2.0 ** (max(e, 1) - 7) for e in range(16) for m in range(8)][:127])  # those that are not negative
SKIPPED = ("lm_head", "embed_tokens", "norm", "mlp.gate.", "shared_expert_gate", "conv1d", "visual")


def is_linear(name, values):
    return values.ndim == 2 and name.endswith(".weight") and not any(word in name for word in SKIPPED)


def words(numbers, bits, axis):
    """Numbers that follow each other along an axis in one int32, the first in the lowest bits."""
    numbers = np.moveaxis(numbers.astype(np.uint32), axis, -1)
    numbers = numbers.reshape(*numbers.shape[:-1], -1, 32 // bits)
    packed = np.bitwise_or.reduce(numbers << (bits * np.arange(32 // bits, dtype=np.uint32)), axis=-1)
    return np.ascontiguousarray(np.moveaxis(packed, -1, axis)).view(np.int32)


def numbers_of(packed, bits, axis):
    packed = np.moveaxis(packed.view(np.uint32), axis, -1)[..., None]
    numbers = packed >> (bits * np.arange(32 // bits, dtype=np.uint32)) & np.uint32(2**bits - 1)
    return np.moveaxis(numbers.reshape(*packed.shape[:-2], -1), -1, axis).astype(np.int64)


def quantise(weight, bits, group, group_of):
    """Codes [in, out], zero points and fp16 scales [groups, out]: asymmetric, by rounding to nearest."""
    most, by_input = 2**bits - 1, weight.T.astype(np.float64)
    groups = int(group_of.max()) + 1
    low = np.stack([np.minimum(by_input[group_of == g].min(0), 0) for g in range(groups)])
    high = np.stack([np.maximum(by_input[group_of == g].max(0), 0) for g in range(groups)])
    scales = np.maximum((high - low) / most, 1e-4).astype(np.float16)
    zeros = np.clip(np.rint(-low / scales), 0, most).astype(np.int64)
    codes = np.clip(np.rint(by_input / scales[group_of]) + zeros[group_of], 0, most).astype(np.int64)
    return codes, zeros, scales


def gptq_tensors(weight, bits=4, group=16, act_order=False, v2=False, seed=0):
    columns = weight.shape[1]
    group = columns if group == -1 else group
    group_of = np.arange(columns) // group
    if act_order:
        group_of = np.random.default_rng(seed).permutation(group_of)
    codes, zeros, scales = quantise(weight, bits, group, group_of)
    if not v2:
        zeros = np.maximum(zeros, 1) - 1
    return {"qweight": words(codes, bits, 0), "qzeros": words(zeros, bits, 1), "scales": scales, "g_idx": group_of.astype(np.int32)}


def gptq_numbers(tensors, bits=4, v2=False):
    """[out, in] in fp64, as AutoGPTQ's plain kernel has it."""
    codes, zeros = numbers_of(tensors["qweight"], bits, 0), numbers_of(tensors["qzeros"], bits, 1)
    zeros = zeros if v2 else zeros + 1
    group_of = tensors["g_idx"]
    return ((codes - zeros[group_of]) * tensors["scales"].astype(np.float64)[group_of]).T


def awq_tensors(weight, group=16):
    codes, zeros, scales = quantise(weight, 4, group, np.arange(weight.shape[1]) // group)
    places = lambda numbers: words(numbers.reshape(len(numbers), -1, 8)[:, :, AWQ_ORDER].reshape(numbers.shape), 4, 1)
    return {"qweight": places(codes), "qzeros": places(zeros), "scales": scales}


def awq_numbers(tensors, group=16):
    def in_order(packed):
        numbers = numbers_of(packed, 4, 1)
        return numbers.reshape(len(numbers), -1, 8)[:, :, np.argsort(AWQ_ORDER)].reshape(numbers.shape)
    codes, zeros = in_order(tensors["qweight"]), in_order(tensors["qzeros"])
    group_of = np.arange(len(codes)) // group
    return ((codes - zeros[group_of]) * tensors["scales"].astype(np.float64)[group_of]).T


def set_config(directory, quantization_config):
    path = Path(directory) / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": quantization_config}))


def fills_words(name, values):
    """A linear whose rows and columns fill words, of 4 or of 8 bits."""
    return is_linear(name, values) and values.shape[0] % 8 == 0 and values.shape[1] % 8 == 0


def convert(directory, make, quantization_config, fits=is_linear):
    """Puts what `make` gives of each linear's weight in place of it; returns that by the weight's name."""
    path, made, tensors = Path(directory) / "model.safetensors", {}, {}
    for name, values in load_file(path).items():
        if not fits(name, values):
            tensors[name] = values
            continue
        made[name] = make(values)
        tensors |= {f"{name.removesuffix('.weight')}.{suffix}": part for suffix, part in made[name].items()}
    save_file(tensors, path, metadata={"format": "pt"})
    set_config(directory, quantization_config)
    return made


def nearest(values, numbers):
    """The place among ascending `numbers` of the one that is nearest to each value."""
    return np.searchsorted((numbers[1:] + numbers[:-1]) / 2, values).astype(np.uint8)


def bitsandbytes_tensors(weight, block=64):
    """nf4 with fp32 scales."""
    flat = np.pad(weight.reshape(-1), (0, -weight.size % block)).reshape(-1, block)
    scales = np.maximum(np.abs(flat).max(1), 1e-9).astype(np.float32)
    codes = nearest(flat / scales[:, None], NF4).reshape(-1)[: weight.size + weight.size % 2]
    state = json.dumps({"quant_type": "nf4", "blocksize": block, "dtype": "float32", "shape": weight.shape})
    return {"weight": (codes[::2] << 4 | codes[1::2])[:, None], "weight.absmax": scales, "weight.quant_map": NF4,
            "weight.quant_state.bitsandbytes__nf4": np.frombuffer(state.encode(), np.uint8)}


def fp8_tensors(weight, tile):
    """e4m3 in square tiles."""
    most = np.pad(np.abs(weight), [(0, -n % tile) for n in weight.shape])
    scales = np.maximum(most.reshape(most.shape[0] // tile, tile, -1, tile).max((1, 3)), 1e-6).astype(np.float32) / 448
    each = scales.repeat(tile, 0).repeat(tile, 1)[: weight.shape[0], : weight.shape[1]]
    return {"weight": nearest(np.abs(weight) / each, E4M3) | np.where(weight < 0, 128, 0).astype(np.uint8), "weight_scale_inv": scales}


def gptq_config(bits=4, group=16, act_order=False, v2=False):
    return {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act_order, "sym": False,
            "checkpoint_format": "gptq_v2" if v2 else "gptq"}


def awq_config(group=16):
    return {"quant_method": "awq", "bits": 4, "group_size": group, "version": "GEMM", "zero_point": True}


def bitsandbytes_config():
    return {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}


def fp8_config(tile):
    return {"quant_method": "fp8", "weight_block_size": [tile, tile]}
