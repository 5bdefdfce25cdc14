#!/usr/bin/env python3
"""A model directory of a known shape with random bf16 weights, and a tokenizer that fits: for timing only.

    .venv/bin/python bench/random_model.py 7b OUTPUT_DIR [--tokenizer models/smollm2] [--device cuda]
"""

import argparse
import pathlib
import shutil

QWEN3 = {
    "8b": dict(hidden_size=4096, intermediate_size=12288, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8, head_dim=128,
               tie_word_embeddings=False, vocab_size=151936),
}
SHAPES = {  # Qwen2.5's
    "0.5b": dict(hidden_size=896, intermediate_size=4864, num_hidden_layers=24, num_attention_heads=14, num_key_value_heads=2,
                 tie_word_embeddings=True, vocab_size=151936),
    "1.5b": dict(hidden_size=1536, intermediate_size=8960, num_hidden_layers=28, num_attention_heads=12, num_key_value_heads=2,
                 tie_word_embeddings=True, vocab_size=151936),
    "7b": dict(hidden_size=3584, intermediate_size=18944, num_hidden_layers=28, num_attention_heads=28, num_key_value_heads=4,
               tie_word_embeddings=False, vocab_size=152064),
}
EXPERTS = {  # Qwen3-MoE's, smaller
    "moe": dict(hidden_size=768, intermediate_size=2048, moe_intermediate_size=384, num_experts=32, num_experts_per_tok=4,
                num_hidden_layers=8, num_attention_heads=12, num_key_value_heads=4, head_dim=64, norm_topk_prob=True,
                tie_word_embeddings=True, vocab_size=49152),
}
HYBRIDS = {  # Qwen3.5-0.8B's, half as deep and with a smaller vocabulary
    "hybrid": dict(hidden_size=1024, intermediate_size=3584, num_hidden_layers=12, num_attention_heads=8, num_key_value_heads=2, head_dim=256,
                   linear_num_key_heads=16, linear_num_value_heads=16, tie_word_embeddings=True, vocab_size=49152),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=[*SHAPES, *QWEN3, *EXPERTS, *HYBRIDS])
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[1] / "models/smollm2")
    parser.add_argument("--device", default="cpu", help="where the weights are drawn")
    parser.add_argument("--layers", type=int, help="so many instead of the shape's")
    args = parser.parse_args()
    import torch
    from transformers import AutoModelForCausalLM, Qwen2Config, Qwen3_5TextConfig, Qwen3Config, Qwen3MoeConfig

    kind, shape = next((kind, shapes[args.shape]) for kind, shapes in ((Qwen2Config, SHAPES), (Qwen3Config, QWEN3), (Qwen3MoeConfig, EXPERTS), (Qwen3_5TextConfig, HYBRIDS))
                       if args.shape in shapes)
    if args.layers:
        shape = shape | {"num_hidden_layers": args.layers}
    config = kind(**shape, max_position_embeddings=32768, rms_norm_eps=1e-6, rope_theta=1e6)
    with torch.device(args.device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(args.output)
    for file in args.tokenizer.glob("*token*"):
        shutil.copy(file, args.output)


if __name__ == "__main__":
    main()
