"""What qft export writes for others: bitsandbytes' 4 bits, which bitsandbytes makes alike and transformers loads; GGUF, which the gguf
package reads and transformers computes with. The judge of the numbers is qft's own export in fp32, which merge_parity.py holds to PEFT's."""
import json
import sys
import tempfile
from pathlib import Path

import bitsandbytes.functional as bnb
import gguf
import numpy as np
import torch
from safetensors.torch import load_file

from common import ROOT, Report, arguments, run
from models import make_model, relative_error, tiny_configs

sys.path.append(str(ROOT / "tests/system"))
from tiny import write_tokenizer  # noqa: E402

torch.set_num_threads(1)
IDS = torch.randint(0, 211, (1, 40), generator=torch.Generator().manual_seed(5))


def wider(config):
    """With sizes that bitsandbytes' blocks divide: elsewhere its kernel for CPUs takes wrong scales."""
    config.hidden_size, config.intermediate_size, config.head_dim, config.num_attention_heads, config.num_key_value_heads = 64, 128, 16, 4, 2
    return config


def make_adapter(model, directory):
    from peft import LoraConfig, get_peft_model

    peft_model = get_peft_model(model, LoraConfig(r=4, lora_alpha=12, task_type="CAUSAL_LM", target_modules="all-linear"))
    torch.manual_seed(3)
    with torch.no_grad():
        for name, p in peft_model.named_parameters():
            if "lora_" in name:
                p.copy_(torch.randn_like(p) * 0.05)
    peft_model.save_pretrained(directory)


def make(config, directory):
    config.vocab_size = 400  # some merges are among them
    make_adapter(make_model(config, directory / "model"), directory / "adapter")
    write_tokenizer(directory / "model", config.vocab_size)


def export(build, directory, name, check=True, **keys):
    run_file = {"model_name_or_path": str(directory / "model"), "adapter_name_or_path": str(directory / "adapter"), "export_dir": str(directory / name),
                "finetuning_type": "lora", "template": "default", **keys}
    (directory / f"{name}.yaml").write_text(json.dumps(run_file))
    return run([build / "bin/qft", "export", directory / f"{name}.yaml"], check=check)


def logits(model):
    with torch.no_grad():
        return model.eval()(input_ids=IDS).logits


def four_bits(report, build, tmp):
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    for name in ("qwen3", "llama_biases"):
        directory = tmp / f"bits-{name}"
        make(wider(tiny_configs()[name]), directory)
        export(build, directory, "plain", infer_dtype="float32")
        said = export(build, directory, "small", export_quantization_bit=4)
        merged, ours = load_file(directory / "plain/model.safetensors"), load_file(directory / "small/model.safetensors")
        decoded, different, squares = {}, [], np.zeros(2)
        for key, values in merged.items():
            if f"{key}.absmax" not in ours:
                decoded[key] = values
                if not torch.equal(ours[key], values):
                    different.append(key)
                continue
            codes, state = bnb.quantize_4bit(values, quant_type="nf4", compress_statistics=True)
            theirs = {key: codes, **{f"{key}.{part}": value for part, value in state.as_dict(packed=True).items()}}
            words = [key + ".quant_state.bitsandbytes__nf4"]
            different += [part for part in theirs.keys() - words if not torch.equal(ours[part], theirs[part])]
            if [json.loads(bytes(tensors[words[0]].tolist())) for tensors in (ours, theirs)].count(state_of(state)) != 2:
                different.append(words[0])
            decoded[key] = bnb.dequantize_4bit(codes, state)
            squares += [(decoded[key] - values).square().sum().item(), values.square().sum().item()]
        report.equal(f"{name}: tensors that bitsandbytes makes otherwise", different, [])
        report.equal(f"{name}: tensors in 4 bits", sum(key.endswith(".absmax") for key in ours if "nested" not in key), 21)
        lost = 100 * (squares[0] / squares[1]) ** 0.5
        report.holds(f"{name}: qft says what rounding changed", f"changed the linears by {lost:.2f}%" in said.stdout + said.stderr, f"{lost} {said.stderr}")
        # Beside what transformers quantises itself: Linear4bit on a CPU rounds more than its weights.
        settings = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.float32)
        own = AutoModelForCausalLM.from_pretrained(directory / "plain", device_map="cpu", dtype=torch.float32, quantization_config=settings)
        loaded = AutoModelForCausalLM.from_pretrained(directory / "small", device_map="cpu", dtype=torch.float32)
        report.equal(f"{name}: linears of 4 bits in transformers", sum(type(m).__name__ == "Linear4bit" for m in loaded.modules()), 21)
        report.equal(f"{name}: logits of transformers with bitsandbytes differ by", (logits(loaded) - logits(own)).abs().max().item(), 0)
        (directory / "again").mkdir()
        run_file = {"model_name_or_path": str(directory / "small"), "export_dir": str(directory / "again/back"), "infer_dtype": "float32", "template": "default"}
        (directory / "again/run.yaml").write_text(json.dumps(run_file))
        run([build / "bin/qft", "export", directory / "again/run.yaml"])
        back = load_file(directory / "again/back/model.safetensors")
        report.equal(f"{name}: tensors that qft decodes otherwise", [key for key in decoded if not torch.equal(back[key], decoded[key])], [])


def state_of(state):
    return {key: list(value) if isinstance(value, tuple) else value for key, value in state.as_dict().items() if not isinstance(value, torch.Tensor)}


def expected_type(shape, wanted):
    if len(shape) == 1:
        return gguf.GGMLQuantizationType.F32
    return gguf.GGMLQuantizationType.F16 if wanted == gguf.GGMLQuantizationType.Q8_0 and shape[-1] % 32 else wanted


def gguf_names(architecture, layers):
    names = gguf.get_tensor_name_map({v: k for k, v in gguf.MODEL_ARCH_NAMES.items()}[architecture], layers)
    return lambda name: names.get_name(name, try_suffixes=(".weight", ".bias"))


def rope_factors(config):
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    plain = 1.0 / config.rope_parameters["rope_theta"] ** (torch.arange(0, 2 * len(scaled), 2) / (2 * len(scaled)))
    return plain / scaled


def permuted(values, heads):
    return values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def gguf_files(report, build, tmp):
    from transformers import AutoModelForCausalLM

    cases = [("llama_one_kv_head", "gguf", "float16"), ("qwen2_tied", "gguf", "bfloat16"), ("qwen3", "gguf_q8_0", "float32"), ("llama_biases", "gguf_q8_0", "float32"),
             ("llama3_rope", "gguf", "bfloat16")]
    for name, kind, dtype in cases:
        directory, config = tmp / f"gguf-{name}", tiny_configs()[name]
        if kind == "gguf_q8_0":
            config = wider(config)
        if config.model_type == "qwen3":
            config.head_dim = 128  # transformers takes that from no GGUF
        make(config, directory)
        export(build, directory, "plain", infer_dtype="float32")
        export(build, directory, "file", export_format=kind, infer_dtype=dtype)
        merged = {k: v.numpy() for k, v in load_file(directory / "plain/model.safetensors").items()}
        path = next((directory / "file").glob("*.gguf"))
        reader = gguf.GGUFReader(path)
        wanted = gguf.GGMLQuantizationType.Q8_0 if kind == "gguf_q8_0" else {"float16": gguf.GGMLQuantizationType.F16, "bfloat16": gguf.GGMLQuantizationType.BF16}[dtype]
        name_of = gguf_names(config.model_type, config.num_hidden_layers)
        found, different, decoded = {t.name: t for t in reader.tensors}, [], {}
        for key, values in merged.items():
            tensor = found.pop(name_of(key))
            kept = values
            if config.model_type == "llama" and ("q_proj" in key or "k_proj" in key):
                kept = permuted(values, config.num_attention_heads if "q_proj" in key else config.num_key_value_heads)
            kind_of = expected_type(values.shape, wanted)
            data = np.ascontiguousarray(tensor.data).view(np.uint8).reshape(-1)
            theirs = np.ascontiguousarray(gguf.quants.quantize(np.ascontiguousarray(kept), kind_of)).view(np.uint8).reshape(-1)
            if tensor.tensor_type != kind_of or not np.array_equal(data, theirs):
                different.append(key)
            decoded[key] = torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(np.ascontiguousarray(values), kind_of), kind_of).reshape(values.shape).copy())
        report.equal(f"{name} in {kind}, {dtype}: tensors with other bytes than the gguf package's", different, [])
        if name == "llama3_rope":
            report.check(f"{name}: factors of llama 3's rotation", relative_error(torch.from_numpy(found.pop("rope_freqs.weight").data.copy()), rope_factors(config)), 1e-6)
        report.equal(f"{name}: tensors that it does not know", sorted(found), [])
        field = lambda key: reader.get_field(key).contents()
        tokenizer = json.loads((directory / "model/tokenizer.json").read_text())
        vocabulary = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
        report.equal(f"{name}: tokens", field("tokenizer.ggml.tokens") == vocabulary, True)
        report.equal(f"{name}: merges", field("tokenizer.ggml.merges"), [" ".join(m) for m in tokenizer["model"]["merges"]])
        report.equal(f"{name}: how texts are cut, and the end", (field("tokenizer.ggml.pre"), vocabulary[field("tokenizer.ggml.eos_token_id")]), ("gpt-2", "<|im_end|>"))
        report.equal(f"{name}: heads", (field(f"{config.model_type}.attention.head_count"), field(f"{config.model_type}.attention.head_count_kv")),
                     (config.num_attention_heads, config.num_key_value_heads))
        if name in ("llama_biases", "llama3_rope"):
            continue  # transformers reads neither biases nor this scaling from GGUF
        plain = AutoModelForCausalLM.from_pretrained(directory / "plain", dtype=torch.float32)
        plain.load_state_dict(decoded, strict=False)
        theirs = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
        report.check(f"{name}: logits of transformers", relative_error(logits(theirs), logits(plain)), 1e-5)


def refusals(report, build, tmp):
    directory = tmp / "moe"
    make(tiny_configs()["qwen2_moe"], directory)
    for keys, words in (({"export_format": "gguf"}, ["GGUF", "qwen2_moe"]), ({"export_quantization_bit": 4}, ["export_quantization_bit", "experts"]),
                        ({"export_quantization_bit": 8}, ["export_quantization_bit", "8"]), ({"export_quantization_bit": 4, "export_format": "gguf"}, ["export_format is gguf"])):
        result = export(build, directory, "refused", check=False, **keys)
        report.holds(f"refused: {keys}", result.returncode == 2 and all(word in result.stderr for word in words), f"{result.returncode} {result.stderr}")


def main():
    args = arguments()
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        for write in (four_bits, gguf_files, refusals):
            write(report, args.build, Path(tmp))
    report.finish()


main()
