"""Which weights train, and how: steps of a tiny model in fp64 beside a loop of transformers and PEFT, and the files in both ways.

Two ranks share weights and optimizer. NEFTune is transformers' own hook, given qft's random numbers."""
import contextlib
import json
import math
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from common import ROOT, Report, arguments, mpirun, run
from models import forget_lengths, in_double, relative_error, train
from recorded import rms_error

sys.path.append(str(ROOT / "tests/system"))
from tiny import log_of, make, write  # noqa: E402

STEPS, BATCH, LR, DECAY, CLIP, RATIO, ALPHA, SEED = 6, 2, 1e-2, 0.1, 1.0, 7.0, 5.0, 7
EXACT = 1e-6  # two programs in fp64 differ by 1e-14, unless a cosine in fp32 has another last bit
FILES = 1e-5  # merged weights are rounded to the files' fp32
LORA = dict(r=4, lora_alpha=8, lora_dropout=0.0, task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj", "down_proj"])
MASK = 0xFFFFFFFF


def philox(counter, key):
    """Philox4x32-10 of int64 tensors or numbers."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(p1 >> 32 & MASK) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32 & MASK) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def uniform(step, sample, length, width):
    """[length, width] in (-1, 1), as qft draws it."""
    key = philox([step, 0, MASK, 0], [SEED, 0])[:2]
    blocks = torch.arange((width + 7) // 8).expand(length, -1)
    positions = torch.arange(length)[:, None].expand_as(blocks)
    words = torch.stack(philox([blocks, positions, torch.full_like(blocks, sample), torch.zeros_like(blocks)], key), -1)
    halves = torch.stack([words & 0xFFFF, words >> 16 & 0xFFFF], -1).reshape(length, -1)[:, :width]
    return (2.0 * halves.double() + 1) / 65536 - 1


@contextlib.contextmanager
def noise(model, position):
    """transformers' NEFTune, whose random numbers are qft's for the sample and step that `position` holds."""
    from transformers.integrations.neftune import neftune_post_forward_hook

    embeddings = model.get_input_embeddings()
    embeddings.neftune_noise_alpha = ALPHA
    hook, drawn = embeddings.register_forward_hook(neftune_post_forward_hook), torch.Tensor.uniform_

    def draw(tensor, low, high):
        u = uniform(*position, *tensor.shape[-2:])
        return tensor.copy_(low + (high - low) * (u + 1) / 2)

    torch.Tensor.uniform_ = draw
    try:
        yield
    finally:
        torch.Tensor.uniform_ = drawn
        hook.remove()


def train_theirs(model, samples, optimizer, position=None):
    def at(step, number):
        if position is not None:
            position[:] = [step, number]
        forget_lengths(model)

    model.train()
    losses, norms = train(model, samples, optimizer, STEPS, BATCH, CLIP, before_sample=at)
    return {"loss": losses, "grad_norm": norms}


def adamw(model):
    """Groups as HF Trainer has them."""
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    return torch.optim.AdamW([{"params": [p for n, p in named if "norm" not in n], "weight_decay": DECAY},
                              {"params": [p for n, p in named if "norm" in n], "weight_decay": 0.0}], lr=LR)


def compare_log(report, label, out, theirs, limit=EXACT):
    log = [entry for entry in log_of(out) if "loss" in entry]
    for what, values in theirs.items():
        report.check(f"{label}: {what}", rms_error([entry[what] for entry in log], values), limit)


class Bench:
    """A tiny model, its data as both sides have them, and runs of it."""

    def __init__(self, build, folder, tied):
        self.build, self.folder = build, folder
        folder.mkdir()
        self.settings = {**make(folder, samples=STEPS * BATCH), "lora_dropout": 0.0, "learning_rate": LR, "weight_decay": DECAY,
                         "max_grad_norm": CLIP, "lr_scheduler_type": "constant", "warmup_ratio": 0, "disable_shuffling": True,
                         "global_batch_size": BATCH, "max_steps": STEPS, "save_strategy": "no", "seed": SEED}
        self.base = folder / "model"
        if not tied:
            self.untie()
        run_file = write(folder / "pack.yaml", {**self.settings, "finetuning_type": "full"})
        run([build / "bin/qft-pack", run_file, "--output", folder / "train.h5"])
        self.samples = [json.loads(line) for line in run([build / "bin/qft-pack", "export", folder / "train.h5"]).stdout.splitlines()]

    def untie(self):
        tensors = load_file(self.base / "model.safetensors")
        table = tensors["model.embed_tokens.weight"]
        tensors["lm_head.weight"] = table + 0.1 * torch.randn(table.shape, generator=torch.Generator().manual_seed(5))
        save_file(tensors, self.base / "model.safetensors", metadata={"format": "pt"})
        config = json.loads((self.base / "config.json").read_text())
        (self.base / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": False}))

    def load(self, directory=None):
        from transformers import AutoModelForCausalLM

        return AutoModelForCausalLM.from_pretrained(directory or self.base, dtype=torch.float64)

    def train(self, name, strategy, ranks=2, **settings):
        """The folder of what qft has trained."""
        out = self.folder / name
        run_file = write(self.folder / f"{name}.yaml", {**self.settings, "strategy": strategy, **settings, "output_dir": str(out)})
        mpirun(ranks, [self.build / "bin/qft", "train", run_file, f"pack={self.folder / 'train.h5'}"])
        return out

    def peft(self, directory, **options):
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(self.load(), LoraConfig(**{**LORA, **options}))
        torch.manual_seed(3)
        with torch.no_grad():
            for n, p in model.named_parameters():
                if "lora_" in n or "modules_to_save" in n:
                    p.add_(torch.randn_like(p) * 0.05)
        model.save_pretrained(directory)
        return model

    def logits(self, model):
        with torch.no_grad(), in_double():
            return torch.cat([forget_lengths(model.eval())(input_ids=torch.tensor([s["ids"]])).logits[0] for s in self.samples[:3]])


def compare_whole(report, label, out, base, model, trained):
    """The weights that qft wrote beside the loop's; those that do not train are the base's."""
    ours, before, after = load_file(out / "model.safetensors"), load_file(base / "model.safetensors"), model.state_dict()
    report.equal(f"{label}: tensors", sorted(ours), sorted(before))
    report.check(f"{label}: trained weights", max(relative_error(ours[n], after[n]) for n in trained), EXACT)
    report.equal(f"{label}: what else has changed", [n for n in before if n not in trained and not torch.equal(ours[n], before[n].to(ours[n].dtype))], [])
    report.equal(f"{label}: what has not been trained", [n for n in trained if torch.equal(ours[n], before[n].to(ours[n].dtype))], [])


def neftune(report, bench):
    model, position = bench.load(), [0, 0]
    with in_double(), noise(model, position):
        theirs = train_theirs(model, bench.samples, adamw(model), position)
    out = bench.train("noise", "zero3", finetuning_type="full", neftune_noise_alpha=ALPHA)
    compare_log(report, "NEFTune", out, theirs)
    still = bench.load()
    with in_double():
        without = train_theirs(still, bench.samples, adamw(still))
    report.holds("NEFTune: changes the losses", rms_error(without["loss"], theirs["loss"]) > 100 * EXACT)


def freeze(report, bench, label, strategy, settings, trains, base=None):
    base = base or bench.base
    model = bench.load(base)
    for name, p in model.named_parameters():
        p.requires_grad_(trains(name))
    trained = [n for n, p in model.named_parameters() if p.requires_grad]
    with in_double():
        theirs = train_theirs(model, bench.samples, adamw(model))
    out = bench.train(label.replace(" ", "_"), strategy, finetuning_type="freeze", model_name_or_path=str(base), **settings)
    compare_log(report, label, out, theirs)
    compare_whole(report, label, out, base, model, trained)


def adapter(report, bench, label, strategy, modules, ratio=None):
    """LoRA with modules in full, from PEFT's files, trained, and back to PEFT; merged by both."""
    from peft import PeftModel
    from peft.optimizers import create_loraplus_optimizer
    from transformers.models.llama.modeling_llama import LlamaRMSNorm
    from transformers.pytorch_utils import ALL_LAYERNORM_LAYERS

    # transformers 4 listed its norms there itself. Without them PEFT's LoRA+ lets norms decay, which HF Trainer never does.
    if LlamaRMSNorm not in ALL_LAYERNORM_LAYERS:
        ALL_LAYERNORM_LAYERS.append(LlamaRMSNorm)
    name = label.replace(" ", "_").replace(",", "")
    initial = bench.folder / f"{name}_initial"
    model = bench.peft(initial, modules_to_save=modules)
    if ratio:
        optimizer = create_loraplus_optimizer(model, torch.optim.AdamW, lr=LR, loraplus_lr_ratio=ratio, loraplus_weight_decay=DECAY)
    else:
        optimizer = adamw(model)
    with in_double():
        theirs = train_theirs(model, bench.samples, optimizer)
    settings = {"adapter_name_or_path": str(initial), **({"loraplus_lr_ratio": ratio} if ratio else {})}
    out = bench.train(name, strategy, **settings)
    compare_log(report, label, out, theirs)
    ours = load_file(out / "adapter_model.safetensors")
    model.save_pretrained(bench.folder / f"{name}_theirs")
    judge = load_file(bench.folder / f"{name}_theirs/adapter_model.safetensors")
    report.equal(f"{label}: tensors", sorted(ours), sorted(judge))
    report.check(f"{label}: weights", max(relative_error(ours[n], judge[n]) for n in judge), EXACT)
    report.equal(f"{label}: modules_to_save", json.loads((out / "adapter_config.json").read_text())["modules_to_save"], modules)
    target = bench.logits(model)
    report.check(f"{label}: logits of our adapter in PEFT", relative_error(bench.logits(PeftModel.from_pretrained(bench.load(), out).double()), target), EXACT)
    exported = bench.folder / f"{name}_exported"
    run([bench.build / "bin/qft", "export", write(bench.folder / "export.yaml", {
        "model_name_or_path": str(bench.base), "adapter_name_or_path": str(out), "export_dir": str(exported), "template": "smollm2"})])
    report.check(f"{label}: logits of our merged model", relative_error(bench.logits(bench.load(exported)), target), FILES)
    begin = bench.train(f"{name}_begun", strategy, additional_target=modules or [], lora_target="q_proj,v_proj,down_proj", learning_rate=0.0)
    fresh, before = load_file(begin / "adapter_model.safetensors"), load_file(bench.base / "model.safetensors")
    of_base = lambda n: n if n in before else "model.embed_tokens.weight"
    report.equal(f"{label}: a new adapter has the same tensors", sorted(fresh), sorted(judge))
    report.equal(f"{label}: and begins with the base's", [n for n in fresh if "lora_" not in n and not torch.equal(
        fresh[n], before[of_base(n.removeprefix("base_model.model."))])], [])


def llama_pro(report, bench):
    """A deeper model computes the same; then its new layers alone train."""
    deeper = bench.folder / "deeper"
    run([bench.build / "bin/qft-ckpt", "expand", bench.base, "--layers", 2, "--output", deeper])
    model = bench.load(deeper)
    report.equal("LLaMA-Pro: layers", model.config.num_hidden_layers, 4)
    report.check("LLaMA-Pro: logits of the deeper model", relative_error(bench.logits(model), bench.logits(bench.load())), EXACT)
    freeze(report, bench, "LLaMA-Pro", "zero3", {"freeze_trainable_layers": 2, "use_llama_pro": True}, lambda n: ".layers.1." in n or ".layers.3." in n, deeper)


def stacked(report, bench):
    """The first of two adapters becomes a part of the base weights, the second one is trained on; or a new one is."""
    from peft import LoraConfig, PeftModel, get_peft_model

    first, second = bench.folder / "first", bench.folder / "second"
    bench.peft(first, modules_to_save=["model.norm"])
    bench.peft(second, target_modules=["k_proj", "gate_proj"])
    base = lambda: PeftModel.from_pretrained(bench.load(), first).merge_and_unload()
    model = PeftModel.from_pretrained(base(), second, is_trainable=True)
    with in_double():
        theirs = train_theirs(model, bench.samples, adamw(model))
    settings = {"adapter_name_or_path": f"{first},{second}"}
    for strategy in ("ddp", "zero3"):
        out = bench.train(f"stacked_{strategy}", strategy, **settings)
        compare_log(report, f"the second of two adapters, {strategy}", out, theirs, FILES)
    exported, target = bench.folder / "stacked_exported", bench.logits(model)
    run([bench.build / "bin/qft", "export", write(bench.folder / "export.yaml", {
        "model_name_or_path": str(bench.base), "adapter_name_or_path": f"{first},{out}", "export_dir": str(exported), "template": "smollm2"})])
    report.check("both merged: logits", relative_error(bench.logits(bench.load(exported)), target), FILES)
    new = get_peft_model(base(), LoraConfig(**LORA))
    with in_double():
        fresh = train_theirs(new, bench.samples[:BATCH] * STEPS, torch.optim.SGD(new.parameters(), lr=0.0))
    out = bench.train("anew", "zero2", create_new_adapter=True, adapter_name_or_path=str(first), lora_rank=3, lora_target="q_proj")
    report.check("a new adapter on a merged one: first loss", abs(log_of(out)[0]["loss"] / fresh["loss"][0] - 1), FILES)
    report.equal("a new adapter on a merged one: rank", json.loads((out / "adapter_config.json").read_text())["r"], 3)


def more_tokens(report, bench):
    """qft-ckpt add-tokens beside transformers' add_tokens() and resize_token_embeddings(); then the new rows train."""
    from transformers import AutoTokenizer

    larger, words, text = bench.folder / "larger", ["<tool>", "wörd"], "A<tool> wörd and<|act|>so <tool>"
    out = json.loads(run([bench.build / "bin/qft-ckpt", "add-tokens", bench.base, "--tokens", ",".join(words), "--special", "<|act|>,<|im_start|>",
                          "--output", larger, "--json"]).stdout)
    theirs, ours = AutoTokenizer.from_pretrained(bench.base), AutoTokenizer.from_pretrained(larger)
    theirs.add_tokens(words)
    theirs.add_tokens(["<|act|>"], special_tokens=True)
    ids = theirs(text)["input_ids"]
    report.equal("more tokens: ids of a text", ours(text)["input_ids"], ids)
    report.equal("    ... decoded, without special tokens", ours.decode(ids, skip_special_tokens=True), theirs.decode(ids, skip_special_tokens=True))
    report.equal("    ... and what the tokenizer had", (out["ids"], out["had"]), ([theirs.convert_tokens_to_ids(w) for w in [*words, "<|act|>"]], ["<|im_start|>"]))
    judge = bench.load()
    judge.resize_token_embeddings(len(theirs), pad_to_multiple_of=64)
    model = bench.load(larger)
    for what in ("get_input_embeddings", "get_output_embeddings"):
        table, expected = getattr(model, what)().weight.detach(), getattr(judge, what)().weight.detach()
        known = len(bench.load().get_input_embeddings().weight)
        report.equal(f"    ... {what}: shape", table.shape, expected.shape)
        report.holds(f"    ... {what}: known rows", torch.equal(table[:known], expected[:known]))
        noise = (table[known:] - table[:known].mean(0)) * math.sqrt(table.shape[1])
        report.check(f"    ... {what}: new rows from the mean, deviation from 1", abs(float(noise.std()) - 1), 0.1)
    (bench.folder / "data/words.json").write_text(json.dumps([{"instruction": text, "input": "", "output": f"<tool>{i}"} for i in range(STEPS * BATCH)]))
    info = json.loads((bench.folder / "data/dataset_info.json").read_text())
    (bench.folder / "data/dataset_info.json").write_text(json.dumps({**info, "words": {"file_name": "words.json"}}))
    trained = bench.folder / "words"
    run_file = write(bench.folder / "words.yaml", {**bench.settings, "model_name_or_path": str(larger), "dataset": "words", "additional_target": ["embed_tokens", "lm_head"],
                                                   "output_dir": str(trained)})
    mpirun(2, [bench.build / "bin/qft", "train", run_file])
    rows = load_file(trained / "adapter_model.safetensors")["base_model.model.model.embed_tokens.weight"]
    moved = (rows.double() - model.get_input_embeddings().weight.detach()).abs().amax(1) > 2 * LR * DECAY * STEPS
    report.equal("    ... rows of new tokens that a text trains", [i for i in out["ids"] if moved[i]], out["ids"])


def longer(report, bench, kind):
    """rope_scaling by key beside transformers with the configuration that LLaMA-Factory's configure_rope makes."""
    from transformers import AutoConfig, AutoModelForCausalLM

    first = 40
    base = bench.folder / "short"
    if not base.exists():
        shutil.copytree(bench.base, base)
        config = json.loads((base / "config.json").read_text())
        (base / "config.json").write_text(json.dumps({**config, "max_position_embeddings": first}))
    config, factor = AutoConfig.from_pretrained(base), math.ceil(bench.settings["cutoff_len"] / first)
    more = {"linear": {}, "yarn": {"original_max_position_embeddings": first}, "dynamic": {"original_max_position_embeddings": first},
            "llama3": {"original_max_position_embeddings": first, "low_freq_factor": 1.0, "high_freq_factor": 4.0}}[kind]
    config.rope_parameters = {"rope_theta": config.rope_parameters["rope_theta"], "rope_type": kind, "factor": float(factor), **more}
    config.max_position_embeddings = first * factor
    model = AutoModelForCausalLM.from_pretrained(base, config=config, dtype=torch.float64)
    with in_double():
        theirs = train_theirs(model, bench.samples, adamw(model))
    out = bench.train(f"longer_{kind}", "zero3", finetuning_type="full", rope_scaling=kind, model_name_or_path=str(base))
    compare_log(report, f"rope_scaling {kind}", out, theirs)
    told = AutoConfig.from_pretrained(out)
    report.equal(f"rope_scaling {kind}: config.json", (told.rope_parameters, told.max_position_embeddings), (config.rope_parameters, first * factor))
    report.check(f"rope_scaling {kind}: logits of our files", relative_error(bench.logits(bench.load(out)), bench.logits(model)), EXACT)


def dynamic(report, bench):
    """A model whose own configuration scales dynamically, trained on texts of which each is longer than its positions, or not."""
    from transformers import AutoConfig

    lengths = sorted(len(s["ids"]) for s in bench.samples)
    base, positions = bench.folder / "dynamic", lengths[len(lengths) // 2] - 1
    shutil.copytree(bench.base, base)
    config = json.loads((base / "config.json").read_text())
    config.update(max_position_embeddings=positions, rope_scaling={"rope_type": "dynamic", "factor": 4.0})
    (base / "config.json").write_text(json.dumps(config))
    report.holds("dynamic rope: texts on both sides of the positions", lengths[0] <= positions < lengths[-1])
    model = bench.load(base)
    with in_double():
        theirs = train_theirs(model, bench.samples, adamw(model))
    for strategy, batch in (("zero3", 1), ("ddp", BATCH)):
        label = f"dynamic rope, {strategy}, micro-batches of {batch}"
        out = bench.train(f"dynamic_{strategy}", strategy, ranks=2 // batch, finetuning_type="full", model_name_or_path=str(base),
                          per_device_train_batch_size=batch)
        compare_log(report, label, out, theirs)
        told = AutoConfig.from_pretrained(out)
        report.equal(f"{label}: config.json", (told.rope_parameters["rope_type"], told.max_position_embeddings), ("dynamic", positions))
        report.check(f"{label}: logits of our files", relative_error(bench.logits(bench.load(out)), bench.logits(model)), EXACT)


def main():
    args = arguments()
    torch.set_num_threads(1)
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tied, untied = Bench(args.build, Path(tmp) / "tied", True), Bench(args.build, Path(tmp) / "untied", False)
        neftune(report, tied)
        for kind in ("linear", "yarn", "llama3", "dynamic"):
            longer(report, tied, kind)
        dynamic(report, tied)
        freeze(report, untied, "freeze last layer", "zero3", {"freeze_trainable_layers": 1, "freeze_extra_modules": "lm_head"},
               lambda n: ".layers.1." in n or "lm_head" in n)
        freeze(report, tied, "freeze parts", "zero2", {"freeze_trainable_layers": -1, "freeze_trainable_modules": "self_attn,input_layernorm",
                                                       "freeze_extra_modules": "embed_tokens,norm"},
               lambda n: "norm" in n or "embed_tokens" in n or ".layers.0.self_attn." in n)
        adapter(report, untied, "LoRA+", "ddp", None, RATIO)
        adapter(report, untied, "LoRA+ and modules", "zero3", ["norm", "lm_head"], RATIO)
        adapter(report, tied, "embeddings of a tied model", "zero3", ["embed_tokens"])
        adapter(report, tied, "embeddings, head of a tied model", "zero1", ["embed_tokens", "lm_head"])
        llama_pro(report, tied)
        stacked(report, tied)
        more_tokens(report, tied)
        more_tokens(report, untied)
    report.finish()


main()
