"""The files beside a model's weights go along: a Qwen3.5 that sees, saved by a full run and by checkpoints, merged and exported, is one that
transformers' AutoProcessor and AutoModelForImageTextToText load; what the template and the tokenizer of the training were is in all."""
import json
import shutil
import sys
import tempfile
from pathlib import Path

from common import ROOT, Report, arguments, run, write

try:
    import PIL  # noqa: F401
    import torchvision  # noqa: F401
except ImportError as e:
    print(f"skipped: {e}")
    sys.exit(77)

sys.path.append(str(ROOT / "tests/system"))
import torch
from tiny import write_tokenizer

VOCABULARY = 1024
MARKS = ["<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
OWN = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
       "{{ c.text if 'text' in c else '<|vision_start|><|image_pad|><|vision_end|>' }}{% endfor %}{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}"
       "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
# Files that a model's folder may have beside those that transformers writes today.
MORE = {"generation_config.json": json.dumps({"eos_token_id": 0, "temperature": 0.6}),
        "additional_chat_templates/tool_use.jinja": "tools of the base", "additional_chat_templates/rag.jinja": "documents of the base",
        "preprocessor_config.json": None, "video_preprocessor_config.json": None, "merges.txt": "#version: 0.2\n", "tokenizer.model": "\n"}


def make(directory):
    from transformers import (AutoTokenizer, Qwen2VLImageProcessor, Qwen3_5Config, Qwen3_5ForConditionalGeneration, Qwen3VLProcessor,
                              Qwen3VLVideoProcessor)

    text = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2, vocab_size=VOCABULARY + 8, num_attention_heads=4, num_key_value_heads=2,
                head_dim=24, layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2, linear_num_value_heads=4,
                linear_key_head_dim=12, linear_value_head_dim=8, max_position_embeddings=512, tie_word_embeddings=True)
    vision = dict(depth=1, hidden_size=32, intermediate_size=48, num_heads=2, out_hidden_size=48, num_position_embeddings=16)
    torch.manual_seed(0)
    numbers = {f"{name}_token_id": VOCABULARY + MARKS.index(f"<|{mark}|>") for name, mark in
               (("vision_start", "vision_start"), ("vision_end", "vision_end"), ("image", "image_pad"), ("video", "video_pad"))}
    model = Qwen3_5ForConditionalGeneration(Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=True, **numbers))
    model.save_pretrained(directory)
    write_tokenizer(directory, VOCABULARY)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    tokenizer.add_tokens(MARKS, special_tokens=True)
    tokenizer.eos_token = "<|endoftext|>"
    tokenizer.chat_template = OWN
    images, videos = Qwen2VLImageProcessor(), Qwen3VLVideoProcessor()
    Qwen3VLProcessor(image_processor=images, tokenizer=tokenizer, video_processor=videos, chat_template=OWN).save_pretrained(directory)
    for name, content in MORE.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(content or json.dumps((videos if "video" in name else images).to_dict()))


def make_old(directory, source):
    """As transformers wrote it before: the processor's template in chat_template.json."""
    shutil.copytree(source, directory, ignore=shutil.ignore_patterns("additional_chat_templates", "chat_template.jinja"))
    (directory / "chat_template.json").write_text(json.dumps({"chat_template": OWN}))
    config = json.loads((directory / "tokenizer_config.json").read_text())
    named = [{"name": "default", "template": OWN}, {"name": "tool_use", "template": "tools of the base"}]
    (directory / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": named}))


def judged_old(report, label, folder, template):
    """Whoever reads it finds the trained template, wherever it looks."""
    from transformers import AutoProcessor, AutoTokenizer

    report.equal(f"{label}: templates of processor and tokenizer", [AutoProcessor.from_pretrained(folder).chat_template == template,
                                                                   AutoTokenizer.from_pretrained(folder).chat_template == template], [True, True])
    report.equal(f"{label}: its files", [json.loads((folder / "chat_template.json").read_text())["chat_template"] == template,
                                         json.loads((folder / "tokenizer_config.json").read_text()).get("chat_template")], [True, None])


def judged(report, label, folder, template, whole=True):
    from transformers import AutoModelForImageTextToText, AutoProcessor, AutoTokenizer

    names = {str(p.relative_to(folder)) for p in folder.rglob("*")}
    expected = {"processor_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "additional_chat_templates/rag.jinja",
                *(name for name in MORE if "tool_use" not in name and (whole or "generation" not in name))}
    report.equal(f"{label}: files that are missing", sorted(expected - names), [])
    report.equal(f"{label}: tool_use of the base", "additional_chat_templates/tool_use.jinja" in names, False)
    processor, tokenizer = AutoProcessor.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    asked = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "hi"}]}]
    prompt = processor.apply_chat_template(asked, add_generation_prompt=True, tokenize=False)
    report.equal(f"{label}: the processor's prompt", prompt, "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>hi<|im_end|>\n<|im_start|>assistant\n")
    report.equal(f"{label}: the template of processor and tokenizer", [type(processor).__name__, processor.chat_template["default"] == template,
                                                                      tokenizer.chat_template["default"] == template], ["Qwen3VLProcessor", True, True])
    report.equal(f"{label}: the end token", tokenizer.eos_token, "<|im_end|>")
    if not whole:
        return
    report.equal(f"{label}: generation_config.json", json.loads((folder / "generation_config.json").read_text()), {"eos_token_id": [2, 0], "temperature": 0.6})
    model, info = AutoModelForImageTextToText.from_pretrained(folder, output_loading_info=True)
    report.equal(f"{label}: the model that sees", [type(model).__name__, list(info["missing_keys"])], ["Qwen3_5ForConditionalGeneration", []])


def main():
    args, report = arguments(), Report()
    with tempfile.TemporaryDirectory() as folder:
        tmp = Path(folder)
        make(tmp / "model")
        (tmp / "d.json").write_text(json.dumps([{"instruction": "Say 7", "output": "7 8"}, {"instruction": "hi", "output": "hello"}]))
        settings = {"model_name_or_path": str(tmp / "model"), "stage": "sft", "do_train": True, "template": "chatml", "dataset": str(tmp / "d.json"),
                    "cutoff_len": 64, "max_steps": 1, "save_steps": 1, "learning_rate": 1e-4, "compute_dtype": "float32"}
        for kind in ("full", "lora"):
            run([args.build / "bin/qft", "train", write(tmp / f"{kind}.yaml", {**settings, "finetuning_type": kind, "output_dir": str(tmp / kind)})])
        template = (tmp / "full/chat_template.jinja").read_text()
        judged(report, "full run", tmp / "full", template)
        judged(report, "checkpoint of a full run", tmp / "full/checkpoint-1", template)
        judged(report, "adapter", tmp / "lora", template, whole=False)
        told = run([args.build / "bin/qft-ckpt", "verify", tmp / "full/checkpoint-1"])
        report.holds("the checkpoint's manifest lists all files", "not in the manifest" not in told.stdout + told.stderr, told.stdout)
        run([args.build / "bin/qft-ckpt", "merge", tmp / "lora", "--output", tmp / "merged"])
        judged(report, "qft-ckpt merge", tmp / "merged", template)
        keys = {"model_name_or_path": str(tmp / "model"), "adapter_name_or_path": str(tmp / "lora/checkpoint-1"), "finetuning_type": "lora"}
        for name, more in (("named", {"template": "chatml"}), ("unnamed", {})):
            run([args.build / "bin/qft", "export", write(tmp / f"{name}.yaml", {**keys, **more, "export_dir": str(tmp / name)})])
            judged(report, f"qft export, template {name}", tmp / name, template)
        make_old(tmp / "old", tmp / "model")
        run([args.build / "bin/qft", "export", write(tmp / "older.yaml", {**keys, "model_name_or_path": str(tmp / "old"), "export_dir": str(tmp / "from_old")})])
        judged_old(report, "a base with chat_template.json", tmp / "from_old", template)
    report.finish()


main()
