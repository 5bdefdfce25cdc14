"""Models and sequences that both sides compute, and how far apart their numbers are."""
import atexit
import contextlib
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from common import with_sessions, write


def tiny_configs():
    """name -> transformers config; each stresses something that the others do not."""
    from transformers import (ArceeConfig, LlamaConfig, MistralConfig, MixtralConfig, Olmo2Config, Qwen2Config, Qwen2MoeConfig, Qwen3_5MoeTextConfig, Qwen3_5TextConfig, Qwen3Config,
                              Qwen3MoeConfig, Qwen3NextConfig)

    base = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=3, vocab_size=211, rms_norm_eps=1e-5,
                max_position_embeddings=512)
    longer = {**base, "num_hidden_layers": 4}  # PEFT names fewer than 20 linears by their paths, which is refused
    llama3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=64)
    yarn = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=32)
    delta_net = dict(linear_num_key_heads=3, linear_num_value_heads=6, linear_key_head_dim=10, linear_value_head_dim=14,
                     head_dim=24, num_attention_heads=4, num_key_value_heads=2)
    hybrid = dict(layer_types=["linear_attention", "full_attention", "linear_attention"], linear_conv_kernel_dim=4,
                  rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.25))
    sparse = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=40)
    return {
        "qwen2_tied": Qwen2Config(**base, num_attention_heads=6, num_key_value_heads=2, tie_word_embeddings=True),
        "qwen2_untied": Qwen2Config(**base, num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=False),
        "qwen3": Qwen3Config(**base, num_attention_heads=4, num_key_value_heads=2, head_dim=24, tie_word_embeddings=False),
        "qwen3_tied": Qwen3Config(**base, num_attention_heads=6, num_key_value_heads=3, head_dim=16, tie_word_embeddings=True),
        "qwen2_window": Qwen2Config(**base, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
                                    use_sliding_window=True, sliding_window=16, max_window_layers=1),
        "qwen3_window": Qwen3Config(**base, num_attention_heads=4, num_key_value_heads=2, head_dim=24, tie_word_embeddings=False,
                                    use_sliding_window=True, sliding_window=7,
                                    layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
        "mistral": MistralConfig(**base, num_attention_heads=4, num_key_value_heads=2, head_dim=20, tie_word_embeddings=False,
                                 sliding_window=32),
        "qwen2_moe": Qwen2MoeConfig(**base, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, num_experts=5,
                                    num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=40),
        "qwen3_moe": Qwen3MoeConfig(**base, num_attention_heads=4, num_key_value_heads=2, head_dim=24, tie_word_embeddings=False,
                                    num_experts=7, num_experts_per_tok=3, moe_intermediate_size=22, norm_topk_prob=True,
                                    mlp_only_layers=[1]),
        "mixtral": MixtralConfig(**base, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
                                 num_local_experts=4, num_experts_per_tok=2),
        "qwen3_next": Qwen3NextConfig(**base, **delta_net, **hybrid, **sparse, tie_word_embeddings=False, mlp_only_layers=[1]),
        "qwen3_5": Qwen3_5TextConfig(**base, **delta_net, **hybrid, tie_word_embeddings=True),
        "qwen3_5_moe": Qwen3_5MoeTextConfig(**{k: v for k, v in base.items() if k != "intermediate_size"}, **delta_net, **hybrid, **sparse,
                                            tie_word_embeddings=False),
        "olmo2": Olmo2Config(**base, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False, pad_token_id=None,
                             eos_token_id=None),
        "olmo2_biases": Olmo2Config(**base, num_attention_heads=3, num_key_value_heads=3, attention_bias=True, tie_word_embeddings=True,
                                    pad_token_id=None, eos_token_id=None),
        "arcee": ArceeConfig(**longer, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False, bos_token_id=None,
                             eos_token_id=None),
        "arcee_biases": ArceeConfig(**longer, num_attention_heads=3, num_key_value_heads=1, head_dim=20, attention_bias=True, mlp_bias=True,
                                    tie_word_embeddings=True, bos_token_id=None, eos_token_id=None),
        "qwen3_yarn": Qwen3Config(**base, num_attention_heads=4, num_key_value_heads=2, head_dim=24, tie_word_embeddings=False,
                                  rope_parameters=yarn),
        "llama_linear": LlamaConfig(**base, num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=False,
                                    rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.5)),
        "llama_dynamic": LlamaConfig(**{**base, "max_position_embeddings": 32}, num_attention_heads=4, num_key_value_heads=2,
                                     tie_word_embeddings=False, rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=2.5)),
        "qwen2_dynamic": Qwen2Config(**{**base, "max_position_embeddings": 32}, num_attention_heads=6, num_key_value_heads=2,
                                     tie_word_embeddings=True, rope_parameters=dict(rope_type="dynamic", rope_theta=1000000.0, factor=4.0)),
        "mistral_dynamic": MistralConfig(**{**base, "max_position_embeddings": 32}, num_attention_heads=4, num_key_value_heads=2, head_dim=20,
                                         tie_word_embeddings=False, sliding_window=48,
                                         rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0)),
        "llama_one_kv_head": LlamaConfig(**base, num_attention_heads=6, num_key_value_heads=1, tie_word_embeddings=False),
        "llama_biases": LlamaConfig(**base, num_attention_heads=3, num_key_value_heads=3, attention_bias=True, mlp_bias=True,
                                    tie_word_embeddings=True),
        "llama3_rope": LlamaConfig(**base, num_attention_heads=4, num_key_value_heads=2, rope_parameters=llama3,
                                   tie_word_embeddings=False),
    }


def chosen(models, only):
    """All, or those whose name begins with `only`."""
    return {name: model for name, model in models.items() if name.startswith(only or "")}


def is_moe(config):
    return bool(getattr(config, "num_experts_per_tok", 0))


def by_expert(model):
    """Sets that a model with experts computes by its plain loop, the only one of its ways that fp64 has."""
    for module in model.modules():
        if is_moe(getattr(module, "config", None)):
            module.config._experts_implementation = "eager"
    return model


def forget_lengths(model):
    """Makes the angles of dynamic scaling those of a model that has seen no sequence yet."""
    for module in model.modules():
        if getattr(module, "rope_type", None) == "dynamic":
            module.inv_freq, module.max_seq_len_cached = module.original_inv_freq.clone(), module.original_max_seq_len
    return model


def make_model(config, directory, dtype=torch.float32, seed=0, **save_options):
    """A random model in which every parameter, biases and norms too, differs from its default."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model = by_expert(AutoModelForCausalLM.from_config(config, dtype=torch.float32))
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn_like(p)
            p.copy_(1 + 0.2 * noise if "norm" in name else 0.15 * noise)
    model = model.to(dtype)
    model.save_pretrained(directory, **save_options)
    return model


def make_sequences(vocab, lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    out = []
    for n in lengths:
        ids = torch.randint(0, vocab, (n,), generator=generator).tolist()
        begin = int(torch.randint(1, max(2, n // 2), (1,), generator=generator))
        out.append({"ids": ids, "label_spans": [[begin, n]] if n < 8 else [[begin, begin + 2], [begin + 3, n]]})
    return out


def labels_of(sequence):
    labels = torch.full((len(sequence["ids"]),), -100)
    for begin, end in sequence["label_spans"]:
        labels[begin:end] = torch.tensor(sequence["ids"][begin:end])
    labels[0] = -100
    return labels


def train(model, samples, optimizer, steps, batch, clip, before_sample=lambda step, number: None, before_update=lambda step: None):
    """The loop that people write: losses and norms of the gradient, a value a step. `number` counts samples from the run's start."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    losses, norms = [], []
    for step in range(steps):
        chosen = range(step * batch, (step + 1) * batch)
        count = sum(int((labels_of(samples[i]) >= 0).sum()) for i in chosen)
        total = 0.0
        for number in chosen:
            before_sample(step, number)
            out = model(input_ids=torch.tensor([samples[number]["ids"]])).logits[0]
            loss = torch.nn.functional.cross_entropy(out[:-1], labels_of(samples[number])[1:], reduction="sum") / count
            loss.backward()
            total += loss.item()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, clip).item())
        before_update(step)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total)
    return losses, norms


def train_on(items, loss_of, parameters, optimizer, batch, epochs):
    """Steps over the items in their order, `batch` at a time. loss_of(items) gives a loss and what to log of it. What each step logs, with the
    norm of its gradient, which is clipped at 1; and what an evaluation of all items logs after the last."""
    steps = []
    for step in range(epochs * len(items) // batch):
        first = step * batch % len(items)
        loss, seen = loss_of(items[first:first + batch])
        loss.backward()
        seen["grad_norm"] = torch.nn.utils.clip_grad_norm_(parameters, 1.0).item()
        optimizer.step()
        optimizer.zero_grad()
        steps.append(seen)
    with torch.no_grad():
        return steps, loss_of(items)[1]


class Prober:
    """A model_probe that waits for jobs: starting one takes longer than most of them."""

    def __init__(self, build):
        self.process = subprocess.Popen([build / "tests/model_probe"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=with_sessions(os.environ))
        atexit.register(self.end)

    def end(self):
        self.process.stdin.close()
        if code := self.process.wait(60):
            print(f"model_probe ended with {code}", flush=True)
            os._exit(1)

    def compute(self, job):
        self.process.stdin.write(job)
        self.process.stdin.flush()
        if (answer := self.process.stdout.readline()) != "done\n":
            print(f"model_probe answered {answer!r} to {job}", flush=True)
            sys.exit(1)


prober = functools.cache(Prober)


def job_of(directory, run_file, sequences, group=1, micro_batch=1):
    """A line for model_probe; the run file lies in the directory, as the output will."""
    settings = write(Path(directory) / "run.yaml", run_file)
    given = {"sequences": sequences, "group": group, "micro_batch": micro_batch}
    return json.dumps({"run": str(settings), "input": given, "output": str(Path(directory) / "output.safetensors")}) + "\n"


def probe(build, directory, run_file, sequences, **options):
    """What model_probe computes, as a dict of fp64 tensors."""
    prober(build).compute(job_of(directory, run_file, sequences, **options))
    return load_file(Path(directory) / "output.safetensors")


@contextlib.contextmanager
def in_double():
    """transformers' norms, routers and delta rules in fp64 where the weights are: it names torch.float32 in them, torch.float in a
    softmax, and calls float(). What it has in fp32 besides, angles of rotary embedding, is what qft has."""
    single, softmax, to_single = torch.float32, torch.nn.functional.softmax, torch.Tensor.float
    torch.Tensor.float = lambda tensor: tensor if tensor.dtype == torch.float64 else to_single(tensor)
    torch.float32 = torch.float64
    torch.nn.functional.softmax = lambda *args, dtype=None, **more: softmax(*args, dtype=torch.float64 if dtype is single else dtype, **more)
    try:
        yield
    finally:
        torch.float32, torch.nn.functional.softmax, torch.Tensor.float = single, softmax, to_single


TIE = 1e-4  # two logits so close, relative to them, may change places in fp32


def greedy(model, ids, eos, max_new_tokens, penalty=1.0):
    """The ids of a model in fp64 after `ids`, and how many of them, the end included, come before the first tie."""
    with in_double():
        out = model.generate(ids, max_new_tokens=max_new_tokens, do_sample=False, repetition_penalty=penalty, eos_token_id=eos,
                             pad_token_id=eos, output_scores=True, return_dict_in_generate=True)
    best = [scores[0].topk(2).values for scores in out.scores]
    clear = next((i for i, (first, second) in enumerate(best) if first - second < TIE * first.abs()), len(best))
    answer = out.sequences[0, ids.shape[1]:].tolist()
    return answer[:answer.index(eos)] if eos in answer else answer, clear


def ends_clearly(answer, clear, max_new_tokens):
    """Whether greedy()'s answer is to be met as a whole: its end, too, comes before the first tie; at the most tokens there is none."""
    return clear > len(answer) or clear == len(answer) == max_new_tokens


def relative_error(ours, theirs):
    """Largest difference over the largest value: one scale for the whole tensor."""
    theirs = theirs.double()
    return ((ours.double() - theirs).abs().max() / theirs.abs().max().clamp_min(1e-12)).item()
