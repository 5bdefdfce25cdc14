"""Greedy answers in fp32, token for token, against transformers' generate in fp64, as far as it is clear which token is first:
SmolLM2 and tiny models of each kind."""
import json
import tempfile
from pathlib import Path

import torch

from common import ROOT, Report, arguments, run
from models import by_expert, chosen, greedy, make_model

SYSTEM = "You are a terse assistant."
PROMPTS = ["What is the capital of France?", "Write a haiku about the sea.\nUse no commas."]


def across_positions(report, build, tokenizer, tmp):
    """64 tokens of models with dynamic scaling, whose prompt and answer end before, around and after their positions."""
    from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config

    compared = whole = 0
    ids = tokenizer.apply_chat_template([{"role": "system", "content": SYSTEM}, {"role": "user", "content": PROMPTS[0]}],
                                        add_generation_prompt=True, return_tensors="pt", return_dict=True)["input_ids"]
    shape = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2, vocab_size=49152, tie_word_embeddings=True,
                 num_attention_heads=4, num_key_value_heads=2)
    for where, positions in (("below", ids.shape[1] + 80), ("across", ids.shape[1] + 20), ("beyond", ids.shape[1] - 10)):
        for kind in (LlamaConfig, Qwen2Config, MistralConfig):
            name = f"{kind.model_type}, dynamic, {where} {positions} positions"
            directory = tmp / f"dynamic-{kind.model_type}-{where}"
            make_model(kind(**shape, max_position_embeddings=positions, rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=8.0)),
                       directory)
            model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float64)
            run_file = tmp / "run.yaml"
            run_file.write_text(f"model_name_or_path: {directory}\ntokenizer_name_or_path: {ROOT / 'models/smollm2'}\n"
                                f"template: smollm2\ndo_sample: false\nmax_new_tokens: 64\nsystem: {SYSTEM}\ncompute_dtype: float32\n")
            ours = json.loads(run([build / "bin/qft", "generate", run_file, f"prompt={PROMPTS[0]}", "repetition_penalty=1.3", "--json"]).stdout)
            theirs, clear = greedy(model, ids, tokenizer.eos_token_id, 64, 1.3)
            report.equal(f"{name}: prompt tokens", ours["prompt_tokens"], ids.shape[1])
            report.equal(f"{name}: {min(clear, len(theirs))} of {len(theirs)} tokens", ours["ids"][:clear], theirs[:clear])
            compared += min(clear, len(theirs))
            whole += len(theirs)
    report.holds(f"dynamic: {compared} of {whole} tokens are clear", compared >= 0.8 * whole)


def main():
    args = arguments(only=None)
    report = Report()
    from transformers import (ArceeConfig, AutoModelForCausalLM, AutoTokenizer, LlamaConfig, MistralConfig, Olmo2Config, Qwen2Config,
                              Qwen3_5TextConfig, Qwen3Config, Qwen3MoeConfig, Qwen3NextConfig)

    torch.set_num_threads(2)
    compared = whole = 0
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "models/smollm2")
    shape = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2, vocab_size=49152, tie_word_embeddings=True)
    hybrid = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=16, layer_types=["linear_attention", "full_attention"],
                  linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12, linear_value_head_dim=8)
    tiny = {"llama": LlamaConfig(**shape, num_attention_heads=6, num_key_value_heads=2),
            "qwen2": Qwen2Config(**shape, num_attention_heads=4, num_key_value_heads=1, use_sliding_window=True, sliding_window=12,
                                 max_window_layers=1),
            "qwen3": Qwen3Config(**shape, num_attention_heads=4, num_key_value_heads=2, head_dim=16, use_sliding_window=True,
                                 sliding_window=30, layer_types=["sliding_attention", "full_attention"]),
            "qwen3_moe": Qwen3MoeConfig(**shape, num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_experts=6,
                                        num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=True),
            "qwen3_5": Qwen3_5TextConfig(**shape, **hybrid),
            "qwen3_next": Qwen3NextConfig(**shape, **hybrid, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
                                          shared_expert_intermediate_size=40),
            "mistral": MistralConfig(**shape, num_attention_heads=6, num_key_value_heads=2, sliding_window=9),
            "olmo2": Olmo2Config(**shape, num_attention_heads=6, num_key_value_heads=2),
            "arcee": ArceeConfig(**shape, num_attention_heads=6, num_key_value_heads=2, mlp_bias=True)}
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        for name, config in chosen({"smollm2": None, **tiny}, args.only).items():
            directory = ROOT / "models/smollm2"
            if config is not None:
                directory = tmp / name
                make_model(config, directory)
            model = by_expert(AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float64))
            run_file = tmp / "run.yaml"
            run_file.write_text(f"model_name_or_path: {directory}\ntokenizer_name_or_path: {ROOT / 'models/smollm2'}\n"
                                f"template: smollm2\ndo_sample: false\nmax_new_tokens: 24\nsystem: {SYSTEM}\ncompute_dtype: float32\n")
            for prompt in PROMPTS:
                for penalty in (1.0, 1.3):
                    ours = json.loads(run([args.build / "bin/qft", "generate", run_file, f"prompt={prompt}",
                                           f"repetition_penalty={penalty}", "--json"]).stdout)
                    ids = tokenizer.apply_chat_template([{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}],
                                                        add_generation_prompt=True,
                                                        return_tensors="pt", return_dict=True)["input_ids"]
                    eos = tokenizer.eos_token_id
                    theirs, clear = greedy(model, ids, eos, 24, penalty)
                    report.equal(f"{name}, penalty {penalty}: prompt tokens", ours["prompt_tokens"], ids.shape[1])
                    report.equal(f"{name}, penalty {penalty}: {min(clear, len(theirs))} of {len(theirs)} tokens", ours["ids"][:clear], theirs[:clear])
                    if clear > len(theirs):
                        report.equal(f"{name}, penalty {penalty}: the end", len(ours["ids"]), len(theirs))
                    compared += min(clear, len(theirs))
                    whole += len(theirs)
            if config is None:
                print(f"        '{ours['text'][:60]}'")
        if not args.only or "dynamic".startswith(args.only):
            across_positions(report, args.build, tokenizer, tmp)
    report.holds(f"{compared} of {whole} tokens are clear", compared >= 0.8 * whole)
    report.finish()


main()
