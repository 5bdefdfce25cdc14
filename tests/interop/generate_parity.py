"""Greedy answers, token for token, against transformers' generate: SmolLM2 and tiny models of each kind."""
import json
import tempfile
from pathlib import Path

import torch

from common import ROOT, Report, arguments, run
from models import make_model

SYSTEM = "You are a terse assistant."
PROMPTS = ["What is the capital of France?", "Write a haiku about the sea.\nUse no commas."]


def main():
    args = arguments()
    report = Report()
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, Qwen2Config, Qwen3Config

    torch.set_num_threads(2)
    tokenizer = AutoTokenizer.from_pretrained(ROOT / "models/smollm2")
    shape = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2, vocab_size=49152, tie_word_embeddings=True)
    tiny = {"llama": LlamaConfig(**shape, num_attention_heads=6, num_key_value_heads=2),
            "qwen2": Qwen2Config(**shape, num_attention_heads=4, num_key_value_heads=1),
            "qwen3": Qwen3Config(**shape, num_attention_heads=4, num_key_value_heads=2, head_dim=16)}
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        for name, config in {"smollm2": None, **tiny}.items():
            directory = ROOT / "models/smollm2"
            if config is not None:
                directory = tmp / name
                make_model(config, directory)
            model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
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
                    theirs = model.generate(ids, max_new_tokens=24, do_sample=False, repetition_penalty=penalty,
                                            eos_token_id=eos, pad_token_id=eos)[0, ids.shape[1]:].tolist()
                    theirs = theirs[:theirs.index(eos)] if eos in theirs else theirs
                    report.equal(f"{name}, penalty {penalty}: prompt tokens", ours["prompt_tokens"], ids.shape[1])
                    differ = sum(a != b for a, b in zip(ours["ids"], theirs)) + abs(len(ours["ids"]) - len(theirs))
                    report.equal(f"{name}, penalty {penalty}: {len(theirs)} tokens that differ", differ, 0)
            if config is None:
                print(f"        '{ours['text'][:60]}'")
    report.finish()


main()
