"""A tiny random model with the first tokens of SmolLM2's tokenizer and a small dataset: a whole run takes seconds."""
import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from common import ROOT, run, write

VOCABULARY = 1024
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM",
                 "qwen3_next": "Qwen3NextForCausalLM", "qwen3_5": "Qwen3_5ForConditionalGeneration", "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration"}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24, "norm_topk_prob": True}
DELTA_NET = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 4, "linear_conv_kernel_dim": 4}


def write_tokenizer(directory, vocabulary=VOCABULARY):
    """SmolLM2's tokenizer, cut to its first tokens: special ones, bytes and the first merges. The whole vocabulary would be most of
    the work of a tiny run."""
    source, directory = ROOT / "models/smollm2", Path(directory)
    tokenizer = json.loads((source / "tokenizer.json").read_text())
    model = tokenizer["model"]
    model["vocab"] = {token: i for token, i in model["vocab"].items() if i < vocabulary}
    pairs = [merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"]]
    model["merges"] = [pair for pair in pairs if {*pair, "".join(pair)} <= model["vocab"].keys()]
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    for name in ["tokenizer_config.json", "special_tokens_map.json"]:
        shutil.copy(source / name, directory)


def feed_forward(prefix, hidden, inner):
    return {f"{prefix}{x}_proj.weight": shape for x, shape in (("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner)))}


def expert_shapes(prefix, kind, hidden):
    """Of a layer with experts, one tensor for each expert and linear."""
    count = EXPERTS["num_experts"]
    shapes = {prefix + "gate.weight": (count, hidden)}
    for e in range(count):
        shapes |= feed_forward(f"{prefix}experts.{e}.", hidden, EXPERTS["moe_intermediate_size"])
    if kind != "qwen3_moe":
        shapes |= feed_forward(prefix + "shared_expert.", hidden, EXPERTS["shared_expert_intermediate_size"])
        shapes[prefix + "shared_expert_gate.weight"] = (1, hidden)
    return shapes


def delta_net_shapes(prefix, kind, hidden):
    keys, values = (DELTA_NET[f"linear_num_{x}_heads"] * DELTA_NET[f"linear_{x}_head_dim"] for x in ("key", "value"))
    heads, channels = DELTA_NET["linear_num_value_heads"], 2 * keys + values
    rows = {"qkvz": channels + values, "ba": 2 * heads} if kind == "qwen3_next" else {"qkv": channels, "z": values, "b": heads, "a": heads}
    return {**{f"{prefix}in_proj_{x}.weight": (n, hidden) for x, n in rows.items()}, prefix + "conv1d.weight": (channels, 1, 4),
            prefix + "dt_bias": (heads,), prefix + "A_log": (heads,), prefix + "norm.weight": (DELTA_NET["linear_value_head_dim"],),
            prefix + "out_proj.weight": (hidden, values)}


def write_model(directory, kind="llama", hidden=32, intermediate=48, layers=2, heads=4, kv_heads=2, head_dim=8, vocab=VOCABULARY,
                positions=512, seed=0):
    """A random model in fp32 with tied embeddings. Without transformers, whose import takes longer than most runs."""
    hybrid, sparse, sees = kind in ("qwen3_5", "qwen3_5_moe", "qwen3_next"), kind.endswith("_moe") or kind == "qwen3_next", "qwen3_5" in kind
    model = "model.language_model." if sees else "model."
    shapes = {model + "embed_tokens.weight": (vocab, hidden), model + "norm.weight": (hidden,)}
    if sees:
        shapes["model.visual.pos_embed.weight"] = (4, 8)
    for i in range(layers):
        layer = f"{model}layers.{i}."
        if sparse:
            shapes |= expert_shapes(layer + "mlp.", kind, hidden)
        shapes |= {layer + "input_layernorm.weight": (hidden,), layer + "post_attention_layernorm.weight": (hidden,)}
        recurrent = hybrid and i % 2 == 0
        if recurrent:
            shapes |= delta_net_shapes(layer + "linear_attn.", kind, hidden)
        else:
            shapes |= {layer + "self_attn.q_proj.weight": ((2 if hybrid else 1) * heads * head_dim, hidden),
                       layer + "self_attn.k_proj.weight": (kv_heads * head_dim, hidden),
                       layer + "self_attn.v_proj.weight": (kv_heads * head_dim, hidden),
                       layer + "self_attn.o_proj.weight": (hidden, heads * head_dim)}
        if not sparse:  # in this order: old_checkpoint.py's fixture was trained from these very numbers
            shapes |= feed_forward(layer + "mlp.", hidden, intermediate)
        if recurrent:
            continue
        if kind == "qwen2_moe":
            shapes |= {layer + f"self_attn.{x}_proj.bias": (n * head_dim,) for x, n in (("q", heads), ("k", kv_heads), ("v", kv_heads))}
        if kind.startswith("qwen3"):
            shapes |= {layer + "self_attn.q_norm.weight": (head_dim,), layer + "self_attn.k_norm.weight": (head_dim,)}
    numbers = np.random.default_rng(seed)
    noise = {name: numbers.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    save_file({name: 1 + np.float32(0.2) * n if "norm" in name else np.float32(0.15) * n for name, n in noise.items()},
              directory / "model.safetensors", metadata={"format": "pt"})
    whole = {"architectures": [ARCHITECTURES[kind]], "model_type": kind, "tie_word_embeddings": True}
    text = {
        **(EXPERTS if sparse else {}), **({**DELTA_NET, "full_attention_interval": 2, "partial_rotary_factor": 0.5} if hybrid else {}),
        "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": head_dim, "vocab_size": vocab, "max_position_embeddings": positions,
        "hidden_act": "silu", "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "dtype": "float32"}
    (directory / "config.json").write_text(json.dumps({**whole, "text_config": {**text, "model_type": f"{kind}_text"}} if sees else {**whole, **text}))


def make(directory, kind="llama", samples=40, vocabulary=VOCABULARY, **model):
    """DIRECTORY/model (`model`: as write_model's arguments) and DIRECTORY/data; returns the run file's settings as a dict."""
    directory = Path(directory)
    write_model(directory / "model", kind, vocab=vocabulary, **model)
    write_tokenizer(directory / "model", vocabulary)
    data = directory / "data"
    data.mkdir(exist_ok=True)
    records = [{"instruction": f"Say the number {i} {'again ' * (i % 7)}", "input": "", "output": " ".join(str(i + k) for k in range(3 + i % 11))}
               for i in range(samples)]
    (data / "numbers.json").write_text(json.dumps(records))
    (data / "dataset_info.json").write_text(json.dumps({"numbers": {"file_name": "numbers.json"}}))
    return {
        "model_name_or_path": str(directory / "model"), "stage": "sft", "do_train": True, "finetuning_type": "lora",
        "lora_rank": 4, "lora_dropout": 0.1, "dataset": "numbers", "dataset_dir": str(data), "template": "smollm2",
        "cutoff_len": 128, "output_dir": str(directory / "out"), "global_batch_size": 6, "per_device_train_batch_size": 1,
        "learning_rate": 1e-2, "num_train_epochs": 2, "lr_scheduler_type": "cosine", "warmup_ratio": 0.1, "logging_steps": 1,
        "save_steps": 100, "compute_dtype": "float64", "seed": 7,
    }


def check_refused(report, qft, file, settings, cases):
    """cases: what, the program, what its settings differ in (None: without that key), words of the error, the exit code."""
    for what, command, changes, words, code in cases:
        told = run([qft, command, write(file, {k: v for k, v in {**settings, **changes}.items() if v is not None})], check=False)
        report.equal(f"{what}: exit code", told.returncode, code)
        report.holds(f"{what}: the reason", words in told.stderr, told.stderr)


def cut(source, target, step):
    """TARGET: a copy of the output directory SOURCE without what came after the checkpoint of STEP."""
    shutil.copytree(source, target)
    for checkpoint in target.glob("checkpoint-*"):
        if int(checkpoint.name.split("-")[1]) > step:
            shutil.rmtree(checkpoint)
    for file in target.glob("*.safetensors"):
        file.unlink()


def log_of(directory):
    return [json.loads(line) for line in (Path(directory) / "trainer_log.jsonl").read_text().splitlines()]
