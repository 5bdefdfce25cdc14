"""Models that are quantised already: what transformers and bitsandbytes save, and what GPTQ, AWQ and fp8 files hold by plain
reimplementations of their formats, gives transformers' logits on the decoded weights; damaged files are refused by name."""
import copy
import shutil
import tempfile
from pathlib import Path

import bitsandbytes.functional as bnb
import torch
from safetensors.torch import load_file, save_file

import stored_files as stored
from common import Report, arguments, run
from models import in_double, job_of, make_model, make_sequences, probe, tiny_configs

torch.set_num_threads(1)
SEQUENCES = make_sequences(211, [17, 1, 40, 9])
RUN = {"lora_rank": 3, "lora_dropout": 0, "lora_target": "all", "seed": 1, "compute_dtype": "float64", "moe_aux_loss_coef": 0}


def files_of(directory):
    return load_file(directory / "model.safetensors")


def logits_of(model):
    with in_double(), torch.no_grad():
        return torch.cat([model.double()(torch.tensor([s["ids"]])).logits[0] for s in SEQUENCES])


def with_weights(model, numbers):
    """The model with `numbers` of its linears, named as files have them; experts lie in one tensor, gate above up."""
    model = copy.deepcopy(model).double()
    state = model.state_dict()
    for name, values in numbers.items():
        target = state.get(name)
        if target is None:  # one expert's
            block, _, rest = name.partition(".experts.")
            expert, linear = rest.split(".")[:2]
            target = state[f"{block}.experts.{'down_proj' if linear == 'down_proj' else 'gate_up_proj'}"][int(expert)]
            half = len(target) // 2
            target = {"gate_proj": target[:half], "up_proj": target[half:], "down_proj": target}[linear]
        target.copy_(torch.as_tensor(values))
    return model


def compare(report, build, directory, what, theirs):
    ours = probe(build, directory, {**RUN, "model_name_or_path": str(directory / "model"), "output_dir": str(directory / "out")}, SEQUENCES)["logits"]
    report.check(f"{what}: logits", ((ours - theirs).norm() / theirs.norm()).item(), 1e-10)


def numbers_of_bitsandbytes(tensors):
    """fp32, by bitsandbytes' own state; its kernel for CPUs is not asked, which takes wrong scales for some shapes."""
    numbers = {}
    for name in tensors:
        if name.endswith(".SCB"):
            weight = name.removesuffix(".SCB") + ".weight"
            numbers[weight] = bnb.int8_vectorwise_dequant(tensors[weight], tensors[name])
        if ".quant_state.bitsandbytes__" not in name:
            continue
        weight = name.partition(".quant_state")[0]
        state = bnb.QuantState.from_dict({k.removeprefix(weight + "."): v for k, v in tensors.items() if k.startswith(weight + ".")}, torch.device("cpu"))
        scales = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset if state.nested else state.absmax
        codes = tensors[weight].view(-1)
        each = torch.stack([codes >> 4, codes & 15], 1).view(-1).long()
        numbers[weight] = (state.code[each] * scales.repeat_interleave(64)[:each.numel()]).reshape(state.shape)
    return numbers


def bitsandbytes_files(report, build, tmp):
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    for name in ("qwen3", "llama_biases"):
        plain = make_model(tiny_configs()[name], tmp / name)
        for kind, keys in (("nf4, nested", dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True)),
                           ("nf4", dict(load_in_4bit=True, bnb_4bit_quant_type="nf4")), ("fp4", dict(load_in_4bit=True, bnb_4bit_quant_type="fp4")),
                           ("int8", dict(load_in_8bit=True))):
            directory = tmp / f"{name}-{kind.replace(', ', '-')}"
            AutoModelForCausalLM.from_pretrained(tmp / name, quantization_config=BitsAndBytesConfig(**keys), device_map="cpu",
                                                 dtype=torch.float32).save_pretrained(directory / "model")
            numbers = numbers_of_bitsandbytes(files_of(directory / "model"))
            report.equal(f"{name} in {kind}: linears that transformers saved quantised", len(numbers), 21)
            compare(report, build, directory, f"{name} in {kind} of bitsandbytes", logits_of(with_weights(plain, numbers)))


def fp8_tensors(weight, rows, columns, dtype):
    """Codes, and scales [tiles]; their product in fp32 is what the weight is."""
    height, width = weight.shape
    tiles = torch.nn.functional.pad(weight, (0, -width % columns, 0, -height % rows))
    tiles = tiles.view(-(-height // rows), rows, -(-width // columns), columns)
    scales = (tiles.abs().amax((1, 3)).clamp(min=1e-6) / 448).to(dtype)
    each = scales.float().repeat_interleave(rows, 0)[:height].repeat_interleave(columns, 1)[:, :width]
    codes = (weight / each).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes, scales, codes.float() * each


def fp8_files(report, build, tmp):
    from transformers import AutoModelForCausalLM, FineGrainedFP8Config

    of_rows = {"quant_method": "compressed-tensors", "format": "float-quantized",
               "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}}}}
    cases = [("qwen3", (16, 16), torch.bfloat16, "weight_scale_inv", {"quant_method": "fp8", "weight_block_size": [16, 16]}),
             ("qwen3", (128, 128), torch.float32, "weight_scale_inv", {"quant_method": "fp8", "weight_block_size": [128, 128]}),
             ("qwen3_moe", (32, 32), torch.float32, "weight_scale_inv", {"quant_method": "fp8", "weight_block_size": [32, 32]}),
             # as in Qwen's releases, which leave out the narrow linears of delta nets
             ("qwen3_5", (16, 16), torch.bfloat16, "weight_scale_inv", {"quant_method": "fp8", "weight_block_size": [16, 16]}),
             ("qwen3_next", (16, 16), torch.float32, "weight_scale_inv", {"quant_method": "fp8", "weight_block_size": [16, 16]}),
             ("llama_biases", (1, None), torch.bfloat16, "weight_scale", of_rows), ("qwen3", (None, None), torch.float32, "weight_scale_inv", {"quant_method": "fp8"})]
    for number, (name, tile, dtype, suffix, config) in enumerate(cases):
        directory = tmp / f"fp8-{number}"
        plain = make_model(tiny_configs()[name], directory / "model")
        tensors, numbers = {}, {}
        for key, values in files_of(directory / "model").items():
            tensors[key] = values
            if stored.is_linear(key, values) and not key.endswith(("in_proj_a.weight", "in_proj_b.weight", "in_proj_ba.weight")):
                rows, columns = tile[0] or values.shape[0], tile[1] or values.shape[1]
                tensors[key], scales, numbers[key] = fp8_tensors(values, rows, columns, dtype)
                tensors[key.removesuffix("weight") + suffix] = scales[0, 0] if tile == (None, None) else scales
        save_file(tensors, directory / "model/model.safetensors", metadata={"format": "pt"})
        stored.set_config(directory / "model", config)
        compare(report, build, directory, f"{name} in fp8, {suffix} of {tile[0]} x {tile[1]}", logits_of(with_weights(plain, numbers)))
        if number == 0:
            theirs = AutoModelForCausalLM.from_pretrained(directory / "model", dtype=torch.float32, device_map="cpu",
                                                          quantization_config=FineGrainedFP8Config(weight_block_size=(16, 16), dequantize=True))
            compare(report, build, directory, f"{name} in fp8, as transformers decodes it", logits_of(theirs))


def group_files(report, build, tmp):
    gptq = [("llama3_rope", dict(bits=4, group=16)), ("llama3_rope", dict(bits=8, group=-1)), ("llama_biases", dict(bits=4, group=16, act_order=True, v2=True)),
            ("qwen2_tied", dict(bits=8, group=16, act_order=True)), ("qwen2_tied", dict(bits=4, group=32))]
    for number, (name, keys) in enumerate(gptq):
        directory = tmp / f"gptq-{number}"
        plain = make_model(tiny_configs()[name], directory / "model")
        made = stored.convert(directory / "model", lambda weight: stored.gptq_tensors(weight, **keys), stored.gptq_config(**keys))
        numbers = {key: stored.gptq_numbers(tensors, keys["bits"], keys.get("v2", False)) for key, tensors in made.items()}
        compare(report, build, directory, f"{name} in GPTQ, {keys}", logits_of(with_weights(plain, numbers)))
    for name in ("qwen3", "qwen3_moe"):
        directory, config = tmp / f"awq-{name}", tiny_configs()[name]
        config.moe_intermediate_size = 32  # of which words have eight
        plain = make_model(config, directory / "model")
        made = stored.convert(directory / "model", stored.awq_tensors, stored.awq_config())
        numbers = {key: stored.awq_numbers(tensors) for key, tensors in made.items()}
        compare(report, build, directory, f"{name} in AWQ", logits_of(with_weights(plain, numbers)))


def damaged_files(report, build, tmp):
    """Each change is refused in words that name file, tensor and both values."""
    source = tmp / "gptq-0/model"
    name = "model.layers.1.self_attn.k_proj"

    def of_group_index(change):
        def apply(tensors):
            change(tensors[name + ".g_idx"])
        return apply

    def shorter(tensors):
        tensors[name + ".scales"] = tensors[name + ".scales"][:2].clone()

    def not_finite(tensors):
        tensors[name + ".scales"][1, 2] = float("nan")

    def other_type(tensors):
        tensors[name + ".qweight"] = tensors[name + ".qweight"].to(torch.int64)

    def missing(tensors):
        del tensors[name + ".qzeros"]

    cases = [("a group that is not there", of_group_index(lambda g: g.__setitem__(5, 9)), {}, ["g_idx", "column 5 is in group 9, but there are 3"]),
             ("a negative group", of_group_index(lambda g: g.__setitem__(5, -1)), {}, ["g_idx", "column 5 is in group -1"]),
             ("act order that config.json does not have", of_group_index(lambda g: g.copy_(g.flip(0))), {}, ["g_idx", "column 0 is in group 2", "desc_act"]),
             ("groups of other sizes", of_group_index(lambda g: g.__setitem__(5, 2)), {"desc_act": True}, ["g_idx", "group 0 has 15 columns, expected 16"]),
             ("too few scales", shorter, {}, ["k_proj.scales", "[2, 24]", "[3, 24]"]), ("a scale that is NaN", not_finite, {}, ["k_proj.scales", "nan"]),
             ("words of 64 bits", other_type, {}, ["k_proj.qweight", "I64", "I32"]), ("no zero points", missing, {}, ["k_proj.qzeros"]),
             ("other groups", lambda tensors: None, {"group_size": 8}, ["qzeros", "[3, 6]", "[6, 6]"]), ("3 bits", lambda tensors: None, {"bits": 3}, ["3 bits", "4, 8"]),
             ("an unknown method", lambda tensors: None, {"quant_method": "hqq"}, ["quant_method 'hqq'", "gptq"]),
             ("8 bits where there are 4", lambda tensors: None, {"bits": 8}, ["qweight", "[6, 48]", "[12, 48]"])]
    for number, (what, change, config, words) in enumerate(cases):
        directory = tmp / f"damaged-{number}"
        shutil.copytree(source, directory / "model")
        tensors = files_of(directory / "model")
        change(tensors)
        save_file(tensors, directory / "model/model.safetensors", metadata={"format": "pt"})
        stored.set_config(directory / "model", {**stored.gptq_config(), **config})
        refused(report, build, directory, what, {}, words)
    refused(report, build, tmp / "gptq-0", "quantization_bit beside it", {"quantization_bit": 4}, ["quantization_bit is 4", "GPTQ: int4 in groups of 16"])
    refused(report, build, tmp / "gptq-0", "full fine-tuning", {"finetuning_type": "full"}, ["cannot be trained", "lora"])


def refused(report, build, directory, what, keys, words):
    run_file = {**RUN, "model_name_or_path": str(directory / "model"), "output_dir": str(directory / "out"), **keys}
    result = run([build / "tests/model_probe"], check=False, input=job_of(directory, run_file, SEQUENCES))
    report.holds(f"refused: {what}", result.returncode in (1, 2) and all(word in result.stderr for word in words), f"{result.returncode} {result.stderr}")


def main():
    args = arguments()
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        for compare_files in (bitsandbytes_files, fp8_files, group_files, damaged_files):
            compare_files(report, args.build, Path(tmp))
    report.finish()


main()
