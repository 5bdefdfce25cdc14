#!/usr/bin/env python3
"""Makes the seed corpora, small files that reach every branch of a format: make_corpus.py QFT_PACK"""
import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tokenizer"))
import pipelines  # noqa: E402

FORMATS = ["alpaca", "alpaca pair", "sharegpt", "sharegpt pair", "openai", "openai pair"]  # in the order of fuzz_records.cpp


def records():
    turn = {"conversations": [{"from": "human", "value": "q"}, {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {}}"},
                              {"from": "observation", "value": "r"}, {"from": "gpt", "value": "<think>\nt\n</think>\n\na"}],
            "system": "s", "tools": "[{\"name\": \"f\", \"description\": \"d\", \"parameters\": {}}]"}
    call = {"messages": [{"from": "system", "value": "s"}, {"from": "human", "value": "q"},
                         {"from": "gpt", "value": None, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1.5e3}}}]},
                         {"from": "observation", "value": "r"}, {"from": "gpt", "value": "a"}],
            "tools": [{"name": "f", "description": "d", "parameters": {"type": "object", "properties": {}}}]}
    samples = {
        "alpaca": {"instruction": "q\u00e9\n", "input": "i", "output": "a \\ud83d\\ude00", "history": [["h", "g"]], "system": "s",
                   "category": 3, "tag": {"x": [1, None, True]}},
        "alpaca pair": {"instruction": "q", "chosen": "good", "rejected": "bad"},
        "sharegpt": {**turn, "messages": turn["conversations"]},
        "sharegpt pair": {"messages": [{"from": "human", "value": "q"}], "chosen": {"from": "gpt", "value": "a"},
                          "rejected": {"from": "gpt", "value": "b"}},
        "openai": call,
        "openai pair": {"messages": [{"from": "human", "value": "q"}], "chosen": {"from": "gpt", "value": "a"},
                        "rejected": {"from": "gpt", "value": "b"}},
    }
    for number, name in enumerate(FORMATS):
        line = json.dumps(samples[name])
        yield f"{name}.jsonl".replace(" ", "_"), bytes([number]) + f"{line}\n\n{line}".encode()
        yield f"{name}.json".replace(" ", "_"), bytes([number + 6]) + f"[{line},\n {line}]\n".encode()
    yield "text.txt", bytes([12]) + b"one\r\n\ntwo"
    deep = "[" * 2000 + "]" * 2000
    yield "deep_text.jsonl", bytes([0]) + json.dumps({"instruction": "q", "output": "a", "tools": deep}).encode()
    yield "deep_list.jsonl", bytes([0]) + f'{{"instruction": "q", "output": "a", "tools": {deep}}}'.encode()
    yield "deep_call.json", bytes([8]) + json.dumps([{"messages": [{"from": "human", "value": "q"}, {
        "from": "function_call", "value": f'{{"name": "f", "arguments": {deep}}}'}]}]).encode()
    for name, line in (("comma", '{"instruction": "q", "output": "a",}'), ("surrogate", '{"instruction": "\\ud83d", "output": "a"}'),
                       ("number", '{"instruction": "q", "output": 42}'), ("words", '{"instruction": NaN, "output": None}')):
        yield f"{name}.jsonl", bytes([0]) + line.encode()
    talk = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]
    yield "key_twice.jsonl", bytes([0]) + b'{"instruction": "q", "output": "a", "m": [{"k": 1, "k": {"k": 2}}]}'
    wide = ", ".join(f'"k{i % 30}": {i}' for i in range(40))
    yield "keys_twice_wide.jsonl", bytes([0]) + f'{{"instruction": "q", "output": "a", {wide}}}'.encode()
    yield "history_text.jsonl", bytes([0]) + b"\n".join(json.dumps({"instruction": "q", "output": "a", "history": text}).encode() for text in (
        '[["x", "y"]]', "", "null", "[['x', 'y']]", "none", '"[]"', "[NaN]"))
    yield "messages_text.jsonl", bytes([2]) + b"\n".join(json.dumps({"messages": text}).encode() for text in (
        json.dumps(talk), json.dumps(json.dumps(talk)), " ", "{", "3", deep))
    yield "pair_text.jsonl", bytes([3]) + json.dumps({"messages": json.dumps(talk[:1]), "chosen": json.dumps(talk[1]), "rejected": json.dumps(talk[1:])}).encode()
    yield "unreadable.jsonl", bytes([0]) + json.dumps({"instruction": "\ufdd0qft: the column 'x' holds bytes", "output": "a"}).encode()
    yield "comma.json", bytes([6]) + b'[{"instruction": "q", "output": "a"},]'


def dataset_infos():
    yield "plain", b'{"a": {"file_name": "a.json"}, "b": {"file_name": ["b.json"], "num_samples": 3}}'
    yield "full", json.dumps({"a": {
        "file_name": "a.jsonl", "formatting": "sharegpt", "ranking": True, "split": "train",
        "columns": {"messages": "m", "chosen": "c", "rejected": "r", "system": "s", "tools": "t"},
        "tags": {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}}}).encode()
    yield "refused", b'{"a": {"hf_hub_url": "x/y"}, "b": {"file_name": "../../etc/passwd"}}'
    yield "deep", b'{"a": {"file_name": ' + b"[" * 2000 + b"]" * 2000 + b"}}"
    yield "twice", b'{"a": {"file_name": "a.json"},\n "a": {"file_name": "b.json", "columns": {"prompt": "p", "prompt": "q"}}}'
    yield "long_split", b'{"a": {"file_name": "a.json", "split": "train[:' + b"1" * 2000 + b']"}}'


def tokenizers():
    for name, spec in pipelines.variants():
        if name in ("gpt2", "llama3", "deepseek", "flags", "byte_fallback", "digit_runs", "regex_removed_True"):
            yield name, json.dumps(spec, separators=(",", ":"), ensure_ascii=False).encode()


def jinja_templates():
    """Of our own: each statement, and what has ended badly elsewhere."""
    sys.path.insert(0, str(HERE.parent / "interop"))
    import jinja_cases
    yield "chat", (b"{%- set ns = namespace(n=0) %}{%- for m in messages %}{%- if m.role == 'assistant' %}{% generation %}{{- m.content or '' }}"
                   b"{%- for c in m.tool_calls %}{{ c.function.arguments | tojson(indent=2) }}{% endfor %}{% endgeneration %}{%- else %}{{ '<' ~ m.role ~ '>' }}"
                   b"{%- endif %}{% set ns.n = ns.n + loop.index %}{%- endfor %}{{ ns.n }}{{ n * n }}{{ x }}{{ strftime_now('%Y') }}")
    yield "statements", "\n".join(case for case in jinja_cases.CASES[22:60] if isinstance(case, str) and "%}" in case).encode()
    yield "expressions", "".join(f"{{{{ {e} }}}}" for e in jinja_cases.EXPRESSIONS[::9]).encode()
    yield "endless", b"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"
    yield "chain", b"{% set ns = namespace(x=[]) %}{% for i in range(50000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}"
    yield "lazy_chain", b"{% set ns = namespace(x='a') %}{% for i in range(20000) %}{% set ns.x = ns.x|map('upper') %}{% endfor %}{{ ns.x|first }}"
    yield "cycle", b"{% set ns = namespace() %}{% set ns.a = [ns] %}{% set ns.b = {'k': ns} %}{% macro m() %}{{ m }}{% endmacro %}{% set ns.m = m %}{{ ns == ns.b.k }}"
    yield "doubling", b"{% set ns = namespace(t='ab') %}{% for i in range(60) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}{{ ns.t }}"
    yield "power", b"{{ 9 ** 9 ** 9 }}{{ 'a' * 99999999999 }}{{ '%999999999d' % 1 }}{{ 'a'.center(99999999999) }}"
    yield "brackets", b"{{ " + b"(" * 200 + b"1" + b")" * 200 + b" }}"
    yield "nots", b"{{ " + b"not " * 5000 + b"1 }}"


def packs(program):
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "tokenizer.json").write_text(json.dumps(next(spec for name, spec in pipelines.variants() if name == "gpt2")))
        (folder / "d.json").write_text(json.dumps([{"instruction": f"q{i}", "input": "", "output": "a" * i, "k": str(i % 2)} for i in range(1, 6)]))
        (folder / "dataset_info.json").write_text(json.dumps({"d": {"file_name": "d.json", "columns": {
            "prompt": "instruction", "query": "input", "response": "output", "category": "k", "tags": ["k"]}}}))
        subprocess.run([program, f"tokenizer_name_or_path={folder}", f"dataset_dir={folder}", "dataset=d", "template=empty", "stage=sft",
                        "--output", folder / "p.h5"], check=True, stdout=subprocess.DEVNULL)
        yield "sft", (folder / "p.h5").read_bytes()


def safetensors(tensors, metadata=None):
    """A file from {name: (dtype, shape, bytes)}."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def safetensors_files():
    yield "plain", safetensors({"a": ("F32", [2, 2], b"x" * 16), "b": ("BF16", [3], b"y" * 6)}, {"format": "pt"})
    yield "odd", safetensors({"scalar": ("I64", [], b"z" * 8), "empty": ("F16", [0, 4], b""), "flag": ("BOOL", [1], b"1")})
    yield "none", safetensors({})


def pickle_text(value):
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


def pickle_tuple(numbers):
    return b"(" + b"".join(b"\x8a\x08" + n.to_bytes(8, "little") if n >= 2**31 else b"J" + n.to_bytes(4, "little", signed=True)
                           for n in numbers) + b"t"


def pickled_tensor(kind, record, elements, offset, shape, strides):
    """As torch.save() pickles one."""
    number = lambda n: pickle_tuple([n])[1:-1]
    return (b"ctorch._utils\n_rebuild_tensor_v2\n((" + pickle_text("storage") + b"ctorch\n" + kind.encode() + b"Storage\n" + pickle_text(record)
            + pickle_text("cpu") + number(elements) + b"tQ" + number(offset) + pickle_tuple(shape) + pickle_tuple(strides)
            + b"\x89ccollections\nOrderedDict\n)RtR")


def pickled_dict(items, state=b""):
    return b"\x80\x02ccollections\nOrderedDict\n)Rq\x00(" + b"".join(pickle_text(k) + v for k, v in items.items()) + b"u" + state + b"."


def torch_files():
    w = pickled_tensor("Float", "0", 16, 2, [2, 3], [3, 1])
    plain = pickled_dict({"w": w, "parameter": b"ctorch._utils\n_rebuild_parameter\n(" + w + b"\x88}tR", "step": b"K\x03", "none": b"N"},
                         b"}" + pickle_text("_metadata") + b"}sb")
    for name, method in (("archive", zipfile.ZIP_STORED), ("compressed", zipfile.ZIP_DEFLATED)):
        with tempfile.TemporaryFile() as file:
            with zipfile.ZipFile(file, "w", method) as archive:
                for record, content in (("a/data.pkl", plain), ("a/byteorder", b"little"), ("a/data/0", b"x" * 64), ("a/version", b"3\n")):
                    archive.writestr(zipfile.ZipInfo(record), content, method)
            file.seek(0)
            yield name, file.read()
    pickles = {
        "plain": plain,
        "views": pickled_dict({"t": pickled_tensor("BFloat16", "0", 32, 1, [5, 3], [1, 5]), "s": pickled_tensor("Long", "0", 8, 7, [], []),
                               "e": pickled_tensor("Bool", "0", 64, 64, [0, 4], [4, 1])}),
        "nested": b"\x80\x02}(" + pickle_text("m") + b"](" + w + b"Ne" + pickle_text("n") + b"}" + pickle_text("k") + b"Nsu.",
        "system": b"\x80\x02cos\nsystem\n(" + pickle_text("true") + b"tR.",
        "stack_global": b"\x80\x04\x95" + b"\x10" + b"\x00" * 7 + b"\x8c\x02os\x94\x8c\x06system\x94\x93\x94\x8c\x04true\x85R.",
        "huge": pickled_dict({"w": pickled_tensor("Float", "0", 2**62, 0, [2**31, 2**31], [2**31, 1])}),
        "far": pickled_dict({"w": pickled_tensor("Float", "0", 16, 0, [2, 2], [2**62, 2**62])}),
        "expanded": pickled_dict({"w": pickled_tensor("Byte", "0", 64, 0, [2**40], [0])}),
        "cycle": b"\x80\x02}q\x00" + pickle_text("a") + b"h\x00s.",
        # Each dict holds the one before it many times.
        "shared": b"\x80\x02}q\x00" + b"".join(b"}(" + b"".join(b"K" + bytes([i]) + b"h" + bytes([n]) for i in range(20)) + b"uq" + bytes([n + 1])
                                                for n in range(7)) + b".",
        "long_name": pickled_dict({"n" * 2000: w}),
        "many_marks": b"\x80\x02" + b"(" * 5000 + b"t" * 5000 + b".",
        "not_there": b"\x80\x02h\x05.",
    }
    for name, text in pickles.items():
        yield f"pickle_{name}", b"\x01" + text


def indexes():
    yield "plain", b'{"metadata": {"total_size": 7}, "weight_map": {"w": "a.safetensors", "v": "a.safetensors", "x": "b.safetensors"}}'
    yield "outside", b'{"weight_map": {"w": "../outside.safetensors", "x": "/etc/passwd"}}'
    yield "second", b'{"weight_map": {"w": "b.safetensors", "v": "a.safetensors", "x": "b.safetensors"}}'
    yield "missing", b'{"weight_map": {"w": "c.safetensors"}}'


def manifests():
    ranges = [{"begin": 2 * r, "end": 2 * r + 2, "file": f"qft_state-0000{r}-of-00002.safetensors", "entry": f"w[{2 * r}:{2 * r + 2}]"}
              for r in range(2)]
    files = [{"name": r["file"], "bytes": 104, "checksum": "0" * 32} for r in ranges]
    manifest = {"format": "qft checkpoint", "version": 1, "step": 3, "world_size": 2, "qft_version": "0.1.0",
                "state": {"epoch": 0.5, "loss": 1.5, "data": {"epoch": 0}, "config": {"seed": 1}, "strategy": "zero3"},
                "files": files, "tensors": [{"name": "w", "dtype": "F32", "shape": [2, 2], "ranges": ranges}], "checksum": ""}
    yield "two_ranks", json.dumps(manifest).encode()
    columns = [{"start": [0, r], "extent": [2, 1], "ranges": [{**ranges[r], "begin": 0, "end": 2}]} for r in range(2)]
    yield "two_boxes", json.dumps({**manifest, "version": 2, "tensors": [{"name": "w", "dtype": "F32", "shape": [2, 2], "boxes": columns}]}).encode()
    yield "no_tensors", json.dumps({**manifest, "files": [], "tensors": []}).encode()


def model_configs():
    base = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 10}
    yield "qwen2", json.dumps({"model_type": "qwen2", **base, "tie_word_embeddings": True, "eos_token_id": [1, 2]}).encode()
    yield "qwen3", json.dumps({"model_type": "qwen3", **base, "head_dim": 8, "num_key_value_heads": 1, "attention_bias": True}).encode()
    yield "mistral", json.dumps({"model_type": "mistral", **base, "sliding_window": 4, "layer_types": ["sliding_attention"] * 2,
                                 "max_position_embeddings": 64, "rope_scaling": {"type": "dynamic", "factor": 2.0}}).encode()
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 4, "shared_expert_intermediate_size": 4}
    yield "qwen2_moe", json.dumps({"model_type": "qwen2_moe", **base, **experts, "decoder_sparse_step": 2}).encode()
    yield "qwen3_moe", json.dumps({"model_type": "qwen3_moe", **base, **experts, "mlp_only_layers": [1], "output_router_logits": True}).encode()
    delta = {"linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 4, "linear_value_head_dim": 4, "head_dim": 8}
    yield "qwen3_next", json.dumps({"model_type": "qwen3_next", **base, **experts, **delta, "layer_types": ["linear_attention", "full_attention"],
                                    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}}).encode()
    yield "qwen3_5", json.dumps({"model_type": "qwen3_5", "text_config": {**base, **delta, "full_attention_interval": 2}, "vision_config": {},
                                 "tie_word_embeddings": True}).encode()
    yield "mixtral", json.dumps({"model_type": "mixtral", **base, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}).encode()
    yield "olmo2", json.dumps({"model_type": "olmo2", **base, "num_key_value_heads": 1, "attention_bias": True, "rms_norm_eps": 1e-6}).encode()
    yield "two_places", json.dumps({"model_type": "qwen3", **base, "original_max_position_embeddings": 16, "rope_theta": 500.0,
                                    "rope_scaling": {"type": "yarn", "factor": 2.0, "rope_theta": 1e4, "beta_fast": 0, "more": 1},
                                    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "logit_scale": 0.5}).encode()
    yield "kinds_of_layers", json.dumps({"model_type": "llama", **base, "rope_parameters": {"full_attention": {"rope_theta": 1.0}}}).encode()
    yield "not_causal", json.dumps({"model_type": "llama", **base, "is_causal": None, "per_layer_config": {"0": {}}}).encode()
    yield "arcee", json.dumps({"model_type": "arcee", **base, "hidden_act": "relu2", "mlp_bias": True}).encode()
    yield "llama", json.dumps({"model_type": "llama", **base, "mlp_bias": True, "eos_token_id": 1, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64}}).encode()


def adapter_configs():
    base = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "base_model_name_or_path": "m"}
    yield "list", json.dumps({**base, "target_modules": ["q_proj", "down_proj"], "use_rslora": True, "lora_dropout": 0.1}).encode()
    yield "all", json.dumps({**base, "target_modules": "all-linear", "use_dora": False, "rank_pattern": {}}).encode()
    yield "refused", json.dumps({**base, "target_modules": ["q_proj"], "lora_bias": True}).encode()
    yield "empty_values", json.dumps({**base, "target_modules": ["q_proj", "c_attn"], "bias": "", "use_dora": None, "init_lora_weights": "",
                                      "alora_invocation_tokens": [], "eva_config": {"rho": 2.0}, "later_size": 16}).encode()
    yield "alora", json.dumps({**base, "target_modules": ["q_proj"], "alora_invocation_tokens": [1, 5]}).encode()
    yield "patterns", json.dumps({**base, "target_modules": ".*(q|up)_proj", "use_dora": True, "rank_pattern": {"q_proj": 2, "layers\\.0.*up_proj": 3},
                                  "alpha_pattern": {"up_proj": 1.5}}).encode()
    yield "oft", json.dumps({"peft_type": "OFT", "r": 0, "oft_block_size": 4, "peft_version": "0.18.0", "target_modules": ["q_proj", "down_proj"],
                             "block_share": True, "num_cayley_neumann_terms": 6, "base_model_name_or_path": "m"}).encode()


RUN_FILES = ["run.yaml", "run.json", "deepspeed", "accelerate_config", "fsdp_config", "override"]  # in the order of fuzz_run_file.cpp


def run_files():
    def of(name, kind, text):
        return f"{kind}_{name}", bytes([RUN_FILES.index(kind)]) + text.encode()

    yield of("lora", "run.yaml", "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\nlora_target: q_proj,v_proj\ndataset: [a, b]\n"
             "learning_rate: 1.0e-4\nbf16: yes\nsave_steps: 0.5\nwarmup_ratio: .1\ntemplate: 'qwen'\ndefault_system: |\n  two\n  lines\n"
             "report_to: none\ndata_seed: ~\n")
    yield of("odd", "run.yaml", "seed: 0x10\nlora_rank: 1_000\nval_size: 1e-3\noutput_dir: $HOME/x\nbf16: 1\n")
    for name, text in (("anchor", "a: &x [1]\nb: *x\n"), ("merge", "a: &x {b: 1}\nc:\n  <<: *x\n"), ("tag", "seed: !!int 8\n"),
                       ("deep", "[" * 100), ("deep_block", "- " * 100), ("deep_key", "? " * 100), ("deep_map", "{a: " * 100),
                       ("documents", "a: 1\n---\nb: 2\n"), ("directive", "%YAML 1.1\n%TAG ! x\n---\nseed: 1\n"), ("twice", "seed: 1\nseed: 2\n")):
        yield of(name, "run.yaml", text)
    yield of("plain", "run.json", json.dumps({"model_name_or_path": "m", "max_grad_norm": None, "dataset": ["a"], "deepspeed": "zero2_offload"}))
    yield of("inline", "run.json", json.dumps({"deepspeed": {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}}))
    stock = {"train_batch_size": "auto", "gradient_accumulation_steps": 2, "gradient_clipping": 1.0, "bf16": {"enabled": True},
             "fp16": {"enabled": False, "loss_scale": 0, "hysteresis": 2}, "steps_per_print": 1e9,
             "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "betas": [0.9, 0.95], "eps": "auto", "weight_decay": 0}},
             "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}, "reduce_bucket_size": 5e8},
             "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": "auto", "warmup_num_steps": 10, "total_num_steps": "auto"}}}
    yield of("stock", "deepspeed", json.dumps(stock))
    yield of("linear", "deepspeed", json.dumps({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear", "warmup_max_lr": 1, "warmup_num_steps": 2}}}))
    yield of("flat", "deepspeed", '{"zero_optimization": true, "bf16": null, "curriculum_learning": {}}')
    head = "compute_environment: LOCAL_MACHINE\nmixed_precision: bf16\nnum_processes: 2\nmachine_rank: 0\n"
    yield of("fsdp1", "accelerate_config", head + "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n  fsdp_offload_params: true\n")
    yield of("fsdp2", "accelerate_config", head + "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n"
             "  fsdp_activation_checkpointing: true\n")
    yield of("deepspeed", "accelerate_config", head + "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n  offload_param_device: none\n")
    yield of("none", "accelerate_config", "distributed_type: 'NO'\nfsdp_config: {}\n")
    yield of("words", "fsdp_config", "min_num_params: 0\nreshard_after_forward: SHARD_GRAD_OP\ntransformer_layer_cls_to_wrap: [X]\n")
    for name, text in (("list", "dataset=[a, b]"), ("map", "deepspeed={zero_optimization: {stage: 1}}"), ("null", "max_grad_norm="), ("none", "=1"),
                       ("deep", "dataset=" + "[" * 100)):
        yield of(name, "override", text)


def main():
    for target, files in (("records", records()), ("dataset_info", dataset_infos()), ("tokenizer", tokenizers()), ("jinja", jinja_templates()), ("pack", packs(sys.argv[1])),
                          ("safetensors", safetensors_files()), ("torch_file", torch_files()), ("index", indexes()), ("manifest", manifests()),
                          ("model_config", model_configs()), ("adapter_config", adapter_configs()),
                          ("run_file", run_files())):
        folder = HERE / "corpus" / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files:
            (folder / name).write_bytes(data)


main()
