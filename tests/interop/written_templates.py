"""The Jinja chat template with which a model trained by a YAML template is saved: transformers' apply_chat_template gives for it the
text, and where turns meet at tokens the ids, that qft trains on."""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from common import ROOT, Report, arguments, run, write

sys.path.append(str(ROOT / "tests/system"))
from tiny import write_model, write_tokenizer  # noqa: E402

SEPARATOR = "\n</tool_response>\n<tool_response>\n"
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Weather of a \"city\"", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "as in Malmö", "enum": ["Oslo", "Rome"]},
                                         "days": {"type": "array", "items": {"type": "integer"}, "description": "it's {{optional}}"}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "now", "description": "the time", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"name": "weather", "arguments": {"city": "Oslo", "days": [1, 2], "exact": True, "scale": 0.5, "unit": None, "note": "it's \\ \n {% 7 %}"}}
# Marks that templates need, beside the tokenizer's own.
MARKS = ["<s>", "</s>", "<|eot_id|>", "<|eom_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|end_of_text|>", "<start_of_turn>", "<end_of_turn>",
         "<eos>", "<|im_sep|>", "<｜User｜>", "<｜Assistant｜>", "[INST]", "[/INST]"]
# Where the parts of a conversation do not meet at tokens, a tokenizer may join their letters: of these the text is compared.
PLAIN = {"alpaca", "default", "empty", "llama2", "vicuna", "mistral", "ministral", "gemma", "gemma2", "gemma3", "deepseek3", "deepseekr1"}


def user(text):
    return {"role": "user", "content": text}


def said(text, thought=None, calls=()):
    message = {"role": "assistant", "content": text}
    if thought is not None:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = [{"id": "c", "type": "function", "function": call} for call in calls]
    return message


CONVERSATIONS = [
    {"messages": [user("Who's there?"), said("It's me.\n\nReally: {{ 'x' }} {% if %} {# y #}")]},
    {"messages": [user("1"), said("one"), user("2 }}"), said("two")], "system": "Be brief: don't \\n.\n"},
    {"messages": [user("q"), said("a", thought="Let's\nthink")]},
    {"messages": [user("q0"), said("a0", thought="t0"), user("q1"), said("a1", thought="t1"), user("q2"), said("a2")], "system": "s"},
    {"messages": [user("Oslo?"), said("", calls=[CALL]), {"role": "tool", "content": "rain"}, said("Rain.")], "tools": TOOLS},
    {"messages": [user("Oslo?"), said("", thought="look", calls=[CALL]), {"role": "tool", "content": "rain\n"}, said("Rain.", thought="so")],
     "tools": TOOLS, "system": "Use tools."},
    {"messages": [user("Both?"), said("", calls=[CALL, {"name": "now", "arguments": {}}]), {"role": "tool", "content": "rain"},
                  {"role": "tool", "content": "12:00"}, said("Rain at noon."), user("Thanks"), said("Bye")], "tools": TOOLS[:1]},
]


def as_sharegpt(conversation, words):
    """The same for a dataset, with thoughts in the template's words."""
    turns, results = [], []
    for message in conversation["messages"]:
        if message["role"] == "tool":
            results.append(message["content"])
            continue
        if results:
            turns.append({"from": "observation", "value": SEPARATOR.join(results)})
            results = []
        thought = words[0] + message["reasoning_content"] + words[1] if "reasoning_content" in message else ""
        calls = [call["function"] for call in message.get("tool_calls", [])]
        text = json.dumps(calls if len(calls) > 1 else calls[0], ensure_ascii=False) if calls else message["content"]
        kind = "human" if message["role"] == "user" else "function_call" if calls else "gpt"
        turns.append({"from": kind, "value": thought + text})
    record = {"conversations": turns}
    if "tools" in conversation:
        record["tools"] = json.dumps(conversation["tools"], ensure_ascii=False)
    if "system" in conversation:
        record["system"] = conversation["system"]
    return record


def write_marked_tokenizer(directory):
    write_model(directory)
    write_tokenizer(directory)
    tokenizer, config = (json.loads((directory / name).read_text()) for name in ("tokenizer.json", "tokenizer_config.json"))
    for mark in MARKS:
        token = {"content": mark, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        number = 1024 + MARKS.index(mark)
        tokenizer["added_tokens"].append({"id": number, **token})
        config["added_tokens_decoder"][str(number)] = token
    config |= {"bos_token": "<s>", "eos_token": "</s>"}
    config.pop("chat_template", None)
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    (directory / "special_tokens_map.json").unlink(missing_ok=True)


def trained_ids(build, tmp, number, names, keys):
    """Of each template and conversation, as qft packs it: the templates are those of datasets of one pack."""
    import h5py

    (tmp / "d.jsonl").write_text("".join(json.dumps(as_sharegpt(c, ("<think>\n", "\n</think>\n\n")), ensure_ascii=False) + "\n" for c in CONVERSATIONS))
    (tmp / "dataset_info.json").write_text(json.dumps({name: {"file_name": "d.jsonl", "formatting": "sharegpt", "template": name, "columns": {
        "messages": "conversations", "system": "system", "tools": "tools"}} for name in names}))
    run_file = write(tmp / f"{number}.yaml", {"model_name_or_path": str(tmp / "model"), "stage": "sft", "template": names[0], "cutoff_len": 4096,
                                              "dataset": ",".join(names), "dataset_dir": str(tmp), "output_dir": str(tmp / f"out{number}"), **keys})
    run([build / "bin/qft-pack", run_file, "--output", tmp / f"{number}.h5", "--workers", 1])
    with h5py.File(tmp / f"{number}.h5") as pack:
        tokens, ends, of = (pack[key][:].tolist() for key in ("tokens", "sequence_offsets", "dataset"))
    ids = [tokens[begin:end] for begin, end in zip(ends, ends[1:])]
    return [[i for i, dataset in zip(ids, of, strict=True) if dataset == number] for number in range(len(names))]


def saved_texts(build, tmp, cases):
    """What models trained so are saved with, by the probe in one process."""
    lines = ["\t".join(f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in {"model_name_or_path": str(tmp / "model"), "stage": "sft", "template": name, "dataset": "d",
                                                          "output_dir": str(tmp / "o"), **keys}.items()) for name, keys in cases]
    told = subprocess.run([build / "tests/trained_text_probe"], input="\n".join(lines) + "\n", capture_output=True, text=True)
    if told.returncode != 0:
        sys.exit(f"trained_text_probe: {told.stdout}\n{told.stderr}")
    return [json.loads(line) for line in told.stdout.splitlines()]


def compare(report, tokenizer, name, keys, saved, ids):
    what = name + "".join(f", {k} {v}" for k, v in keys.items())
    texts, prompts = [], []
    for conversation, trained in zip(CONVERSATIONS, ids, strict=True):
        thinks = any("reasoning_content" in message for message in conversation["messages"])
        if thinks and "tools" in conversation and keys == {"mask_history": True}:
            continue  # which thoughts of a chain of calls stay is the encoder's to say
        messages = ([{"role": "system", "content": conversation["system"]}] if "system" in conversation else []) + conversation["messages"]
        asked = {"chat_template": saved["chat_template"], "tools": conversation.get("tools")}
        text = tokenizer.apply_chat_template(messages, tokenize=False, **asked)
        if text != tokenizer.decode(trained):
            texts.append(f"{text!r} for {tokenizer.decode(trained)!r}")
        elif name not in PLAIN and tokenizer.apply_chat_template(messages, return_dict=False, **asked) != trained:
            texts.append(f"other tokens of {text!r}")
        unlike = thinks and not keys.get("enable_thinking", True)  # a prompt without a thought, where the answer has one
        if len(conversation["messages"]) == 2 and not unlike and not tokenizer.decode(trained).startswith(
                tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True, **asked)):
            prompts.append(text)
    report.equal(f"{what}: conversations that read otherwise than in training", texts, [])
    report.equal(f"{what}: prompts that are not the beginning of what was trained", prompts, [])


def main():
    from transformers import AutoTokenizer

    args, report = arguments(), Report()
    with tempfile.TemporaryDirectory() as folder:
        tmp = Path(folder)
        write_marked_tokenizer(tmp / "model")
        names = sorted(path.stem for path in (ROOT / "configs/templates").glob("*.yaml"))
        changed = [
            ("qwen3", {"enable_thinking": False}), ("qwen3", {"enable_thinking": None}), ("qwen3", {"mask_history": True}),
            ("qwen3", {"mask_history": True, "preserve_thinking": True}), ("deepseekr1", {"enable_thinking": False}),
            ("chatml", {"tool_format": "qwen", "default_system": "It's \"you\" \\ {{ x }}"}), ("vicuna", {"tool_format": "mistral"})]
        cases = [(name, {}) for name in names] + changed
        saved = saved_texts(args.build, tmp, cases)
        tokenizer = AutoTokenizer.from_pretrained(tmp / "model")
        ids = trained_ids(args.build, tmp, 0, names, {})
        for number, (name, keys) in enumerate(changed):
            ids += trained_ids(args.build, tmp, number + 1, [name], keys)
        for (name, keys), text, trained in zip(cases, saved, ids, strict=True):
            compare(report, tokenizer, name, keys, text, trained)
        ends = {name: text.get("end_token") for (name, keys), text in zip(cases, saved) if not keys}
        report.equal("end tokens", ends, {name: ENDS.get(name, "</s>") for name in names})
    report.finish()


ENDS = {"empty": None, "qwen3_emb": None, "llama3": "<|eot_id|>", **{name: "<end_of_turn>" for name in ("gemma", "gemma2", "gemma3")},
        **{name: "<|im_end|>" for name in ("chatml", "phi4", "qwen", "qwen3", "qwen3_5", "qwen3_5_nothink", "qwen3_nothink", "qwen3_reranker", "smollm", "smollm2")}}

main()
