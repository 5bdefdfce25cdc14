"""The text part of a checkpoint that sees, with further layers that predict several tokens: computed as transformers does; what else
its files hold stays as it is."""
import json
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "system"))
from common import Report, arguments, run, write
import tiny
from merge_parity import weights
from model_parity import compare, reference
from models import in_double, make_sequences, probe


def make(directory):
    """A tiny Qwen3.5 with eyes; returns it and the tensors beside its text model."""
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration

    text = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2, vocab_size=211, num_attention_heads=4, num_key_value_heads=2,
                head_dim=24, layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2, linear_num_value_heads=4,
                linear_key_head_dim=12, linear_value_head_dim=8, max_position_embeddings=512, tie_word_embeddings=True)
    vision = dict(depth=1, hidden_size=32, intermediate_size=48, num_heads=2, out_hidden_size=48, num_position_embeddings=16)
    torch.manual_seed(0)
    model = Qwen3_5ForConditionalGeneration(Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=True))
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_((0.2 if "norm" in name else 0.15) * torch.randn_like(p))
    model.save_pretrained(directory)
    tensors = load_file(directory / "model.safetensors")
    tensors["mtp.fc.weight"] = torch.randn(48, 96)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    return model.eval(), {n: t for n, t in tensors.items() if n.startswith(("model.visual.", "mtp."))}


def holds_others(report, label, directory, others):
    written = weights(directory)
    report.holds(f"{label}: {len(others)} tensors beside the text model are as they were",
                 all(n in written and torch.equal(written[n], t) for n, t in others.items()))


def trained(report, build, tmp):
    """A fully tuned model, saved by two ranks, is whole again."""
    settings = tiny.make(tmp / "run", "qwen3_5")
    write(tmp / "run.yaml", {**settings, "finetuning_type": "full", "max_steps": 2})
    run(["mpirun", "-np", 2, "--oversubscribe", "--bind-to", "none", build / "bin/qft", "train", tmp / "run.yaml"])
    before, after = weights(tmp / "run/model"), weights(settings["output_dir"])
    report.equal("full training: names of tensors", sorted(after), sorted(before))
    report.equal("full training: tensors that are as they were", [n for n in before if torch.equal(before[n], after[n].to(before[n].dtype))],
                 [n for n in before if n.startswith("model.visual.")])


def main():
    from peft import LoraConfig, get_peft_model
    from transformers import Qwen3_5ForConditionalGeneration

    args = arguments()
    report = Report()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        model, others = make(tmp / "model")
        report.holds("there are tensors of vision", len(others) > 5)
        sequences = make_sequences(211, [5, 33, 100], seed=1)
        base = {"model_name_or_path": str(tmp / "model"), "stage": "sft", "output_dir": str(tmp / "out"), "compute_dtype": "float64"}
        model.model.visual.requires_grad_(False)
        with in_double():
            judge = reference(model.double(), sequences)
        compare(report, "full", probe(args.build, tmp, {**base, "finetuning_type": "full"}, sequences), judge)

        peft_model = get_peft_model(model.float(), LoraConfig(r=4, lora_alpha=12, target_modules=r".*language_model.*\.(q_proj|in_proj_qkv|out_proj|down_proj)"))
        with torch.no_grad():
            for name, p in peft_model.named_parameters():
                if "lora_" in name:
                    p.copy_(0.1 * torch.randn_like(p))
        peft_model.save_pretrained(tmp / "adapter")
        described = json.loads((tmp / "adapter/adapter_config.json").read_text())
        described["target_modules"] = ["q_proj", "in_proj_qkv", "out_proj", "down_proj"]
        (tmp / "adapter/adapter_config.json").write_text(json.dumps(described))
        with in_double():
            judge = reference(peft_model.double(), sequences)
        lora = {**base, "finetuning_type": "lora", "adapter_name_or_path": str(tmp / "adapter")}
        compare(report, "LoRA", probe(args.build, tmp, lora, sequences), judge)

        (tmp / "export.yaml").write_text(json.dumps({**{k: v for k, v in lora.items() if k not in ("output_dir", "compute_dtype", "stage")},
                                                     "export_dir": str(tmp / "merged"), "template": "default"}))
        run([args.build / "bin/qft", "export", tmp / "export.yaml"])
        holds_others(report, "export", tmp / "merged", others)
        merged, info = Qwen3_5ForConditionalGeneration.from_pretrained(tmp / "merged", dtype=torch.float64, output_loading_info=True)
        report.equal("export: transformers misses no tensor", [list(info["missing_keys"]), list(info["mismatched_keys"])], [[], []])
        ids = torch.tensor([sequences[2]["ids"]])
        with torch.no_grad(), in_double():
            report.check("export: logits of the merged model", (merged.eval()(input_ids=ids).logits - peft_model(input_ids=ids).logits).abs().max().item(), 1e-5)
        trained(report, args.build, tmp)
    report.finish()


if __name__ == "__main__":
    main()
