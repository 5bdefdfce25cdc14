"""A model that has learned one answer says it, and ends by itself, in transformers' chat pipeline: trained by alpaca's template, by the
base's own, and by a changed one, in full and with LoRA, exported. With --keep DIR the exports, as GGUF too, stay there for
llama_cpp_answers.py."""
import json
import sys
import tempfile
from pathlib import Path

from common import ROOT, Report, arguments, run, write

sys.path.append(str(ROOT / "tests/system"))
from tiny import write_model, write_tokenizer  # noqa: E402

QUESTION, ANSWER, LIMIT = "Say the number 7 again", "7 8 9 10, now?", 40
CHANGED = """name: changed
system: "<|im_start|>rules\\n{{content}}<|im_end|>\\n"
user: "<|im_start|>human\\n{{content}}<|im_end|>\\n<|im_start|>machine\\n"
assistant: "{{content}}<|im_end|>\\n"
default_system: "It's simple."
stop_words: ["<|im_end|>"]
replace_eos: true
"""
OWN = ("{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
       "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
# What trains, its template (None: the base's own, which is smollm2's), and the token that ends its answers.
CASES = {"alpaca": ("full", "alpaca", "<|endoftext|>"), "own": ("lora", None, "<|im_end|>"), "changed": ("lora", "changed", "<|im_end|>")}


def make_base(directory, own):
    """Its end token is another than that of its chat template, as in many base models."""
    write_model(directory, "llama", hidden=64, intermediate=128, head_dim=16)
    write_tokenizer(directory)
    path = directory / "tokenizer_config.json"
    config = json.loads(path.read_text()) | {"eos_token": "<|endoftext|>"}
    path.write_text(json.dumps(config if own else {**config, "chat_template": OWN}))
    (directory / "special_tokens_map.json").unlink(missing_ok=True)
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": 0}))


def make(build, tmp, name, gguf):
    kind, template, _ = CASES[name]
    directory = tmp / name
    make_base(directory / "model", template is None)
    (directory / "d.json").write_text(json.dumps([{"instruction": QUESTION, "output": ANSWER}]))
    (directory / "changed.yaml").write_text(CHANGED)
    chosen = {} if template is None else {"template": str(directory / "changed.yaml") if template == "changed" else template}
    settings = {"model_name_or_path": str(directory / "model"), "stage": "sft", "finetuning_type": kind, **chosen}
    more = {"lora_rank": 16, "lora_target": "all", "lora_alpha": 32} if kind == "lora" else {}
    run([build / "bin/qft", "train", write(directory / "train.yaml", {
        **settings, **more, "do_train": True, "dataset": str(directory / "d.json"), "cutoff_len": 128, "max_steps": 60, "save_steps": 1000, "logging_steps": 20,
        "learning_rate": 1e-2 if kind == "lora" else 3e-3, "compute_dtype": "float32", "output_dir": str(directory / "out")})])
    trained = {"adapter_name_or_path": str(directory / "out")} if kind == "lora" else {"model_name_or_path": str(directory / "out")}
    exported = directory / "out"
    if kind == "lora":
        exported = directory / "export"
        run([build / "bin/qft", "export", write(directory / "export.yaml", {**settings, **trained, "export_dir": str(exported)})])
    if gguf:
        run([build / "bin/qft", "export", write(directory / "gguf.yaml", {**settings, **trained, "export_format": "gguf", "export_dir": str(directory / "gguf")})])
    return exported


def judge(report, name, directory):
    from transformers import AutoTokenizer, pipeline

    ends = CASES[name][2]
    chat = pipeline("text-generation", model=str(directory), max_new_tokens=LIMIT, do_sample=False, return_full_text=False)
    answer = chat([{"role": "user", "content": QUESTION}])[0]["generated_text"]
    report.equal(f"{name}: what transformers' chat pipeline answers", answer.strip(), ANSWER)
    report.equal(f"{name}: the end token of its files", AutoTokenizer.from_pretrained(directory).eos_token, ends)
    ids = chat.tokenizer.apply_chat_template([{"role": "user", "content": QUESTION}], add_generation_prompt=True, return_tensors="pt", return_dict=False)
    said = chat.model.generate(ids, max_new_tokens=LIMIT, do_sample=False)[0, ids.shape[1]:].tolist()
    report.holds(f"{name}: it ends by itself, with that token", len(said) < LIMIT and chat.tokenizer.decode(said[-1:]) == ends, said)


def main():
    args, report = arguments(keep=""), Report()
    with tempfile.TemporaryDirectory() as folder:
        tmp = Path(args.keep or folder)
        exported = {name: make(args.build, tmp, name, bool(args.keep)) for name in CASES}
        for name, directory in exported.items():
            judge(report, name, directory)
        if args.keep:
            (tmp / "cases.json").write_text(json.dumps({"question": QUESTION, "answer": ANSWER, "limit": LIMIT, "cases": {n: str(tmp / n / "gguf") for n in CASES}}))
    report.finish()


main()
