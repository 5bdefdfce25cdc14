#!/usr/bin/env python3
"""Writes ms-swift's loss_scale results for texts and conversations: tests/encode/weights/loss_scale.jsonl.

    .venv/bin/python tests/encode/make_loss_scale_goldens.py MS_SWIFT_CHECKOUT

Runs the checkout's own code: swift/loss_scale, swift/template/utils.py, and the methods of swift/template/base.py that turn weighted
parts into tokens with labels. Each byte is a token, and so are <|im_start|> and <|im_end|>; the template is chatml. Lines are either a
text ({"loss_scale", "question", "text", "parts": [[text, weight], ...]}) or a conversation ({"loss_scale", "messages", "runs": [[text,
weight], ...]}), in which weight 0 is not learned. Adjacent parts with equal weights are merged.
"""
import ast
import importlib.util
import itertools
import json
import random
import re
import sys
import types
from pathlib import Path

SWIFT = Path(sys.argv[1]) / "swift"
OUT = Path(__file__).parent / "weights" / "loss_scale.jsonl"


def module(name, path=None, **names):
    made = types.ModuleType(name) if path is None else importlib.util.module_from_spec(importlib.util.spec_from_file_location(name, path))
    made.__dict__.update(names)
    sys.modules[name] = made
    if path is not None:
        made.__spec__.loader.exec_module(made)
    return made


def load():
    import logging

    module("swift", __path__=[str(SWIFT)])
    module("swift.utils", get_logger=logging.getLogger)
    utils = module("swift.template.utils", SWIFT / "template" / "utils.py")
    module("swift.template", **utils.__dict__)
    import swift.loss_scale as loss_scale

    tree = ast.parse((SWIFT / "template" / "base.py").read_text())
    wanted = {"_simplify_context_list", "_split_special_tokens", "_encode_context_list", "_add_dynamic_eos"}
    whole = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Template")
    whole.body = [n for n in whole.body if isinstance(n, ast.FunctionDef) and n.name in wanted]
    whole.bases, whole.decorator_list = [], []
    names = {**utils.__dict__, "StdTemplateInputs": object, "split_str_parts_by": utils.split_str_parts_by}
    exec(compile(ast.Module([whole], []), "base.py", "exec"), names)
    return loss_scale, utils.ContextType, names["Template"]


def tokenize(text):
    ids = []
    for part in re.split(r"(<\|im_start\|>|<\|im_end\|>)", text):
        ids += [256 + (part == "<|im_end|>")] if part in ("<|im_start|>", "<|im_end|>") else list(part.encode())
    return ids


def decode(ids):
    return b"".join(bytes([i]) if i < 256 else (b"<|im_start|>", b"<|im_end|>")[i - 256] for i in ids).decode()


def joined(parts):
    runs = []
    for text, weight in parts:
        if runs and runs[-1][1] == weight:
            runs[-1][0] += text
        elif text:
            runs.append([text, weight])
    return runs


def conversation(loss_scale, kinds, template_class, spec, messages):
    template_class.special_tokens = ["<image>"]
    template = template_class()
    template.is_binary_loss_scale = False
    template.loss_scale, template._pre_tokenize, template._tokenize = loss_scale.get_loss_scale(spec), lambda c, w, i: (c, w), tokenize
    contexts, types_ = [], []
    for at in range(0, len(messages), 2):
        contexts += [f"<|im_start|>user\n{messages[at]['content']}<|im_end|>\n<|im_start|>assistant\n", messages[at + 1]["content"], "<|im_end|>\n"]
        types_ += [kinds.OTHER, kinds.RESPONSE, kinds.SUFFIX if at + 2 == len(messages) else kinds.OTHER]
    contexts, weights = template.loss_scale(contexts, types_, messages)
    contexts, weights = template._simplify_context_list(contexts, weights, None)
    ids, labels, scale = template._encode_context_list(contexts, weights)
    template._add_dynamic_eos(ids, labels, scale, tokenize("<|im_end|>\n"))
    runs = []
    for weight, group in itertools.groupby(zip(ids, labels, scale), lambda t: t[2] if t[1] >= 0 else 0):
        runs.append([[t[0] for t in group], weight])
    return [[decode(ids), weight] for ids, weight in runs]


SPECS = ["hermes", "react", "agentflan", "alpha_umi", "qwen", "ignore_empty_think", "ignore_think_prefix", "hermes+ignore_empty_think", "ignore_empty_think+hermes",
         "react+ignore_think_prefix", "alpha_umi+qwen", "react+react"]
WORDS = ["Action:", "Action Input:", "Thought:", "Final Answer:", "Observation:", "Next:", "Name:", "Tool:", "Command", "action input", "ACTION_INPUT:", "<tool_call>",
         "</tool_call>", "<think>", "</think>", "<think>\n\n</think>\n\n", "</mm:think>", "<|channel>thought\n<channel|>", "✿FUNCTION✿:", "✿ARGS✿:", "✿RESULT✿:", "✿RETURN✿:", "\n",
         " ", "\u3000", "a", "search", "是", "\x1f", "\u00a0"]
QUESTIONS = ["hello", "What is the value of x?", "What are the required parameter names for this tool?"]
TEXTS = ["", "plain", "<think>\n\n</think>\n\nabc<think>\n\n</think>\n\n123", "<think>\n\n</think>\n\n</think>abc", "<tool_call></tool_call>", "<tool_call>\n{\"name\": \"f\"}\n</tool_call>\n<tool_call>x</tool_call>",
         "<seed:think><seed:cot_budget_reflect>The current thinking budget is 0, so I will directly start answering the question.</seed:cot_budget_reflect>\n</seed:think>\nyes",
         "Thought: now\nAction: search\nAction Input: {}\nObservation: 3\nThought: done\nFinal Answer: 3"]


def main():
    loss_scale, kinds, template_class = load()
    draw = random.Random(5)
    texts = TEXTS + ["".join(draw.choices(WORDS, k=draw.randint(1, 12))) for _ in range(60)]
    lines = []
    for spec in SPECS:
        for text in texts:
            question = draw.choice(QUESTIONS)
            contexts, weights = loss_scale.get_loss_scale(spec).get_loss_scale(text, query=question)
            lines.append({"loss_scale": spec, "question": question, "text": text, "parts": joined(zip(contexts, weights))})
    call = "<tool_call>\n{\"name\": \"f\"}\n</tool_call>"
    think = "<think>\n\n</think>\n\n"
    talks = [
        [{"content": "Hello!"}, {"content": "Hi, how can I help you?", "loss": False}, {"content": "What is 1+1?"}, {"content": "It equals 2", "loss": True}],
        [{"content": "hello!"}, {"content": "hi!", "loss_scale": 2.0}, {"content": "1+1=?"}, {"content": think + "2"}],
        [{"content": "q"}, {"content": "x" + call}, {"content": call}, {"content": think + "I know." + call}],
        [{"content": "q"}, {"content": TEXTS[-1]}, {"content": "r"}, {"content": "Observation: 3"}],
        [{"content": "q"}, {"content": "Thought: a\nObservation: 3"}, {"content": "r"}, {"content": think + "b", "loss_scale": 0.5}],
        [{"content": "q"}, {"content": "a", "loss": True}, {"content": "r"}, {"content": "b"}, {"content": "s"}, {"content": think + "c"}],
    ]
    for base in ("", "default+", "last_round+", "all+"):
        for spec in ("ignore_empty_think", "hermes", "react", "hermes+ignore_empty_think", ""):
            name = (base + spec).rstrip("+")
            for talk in talks if name else []:
                if base == "all+" and any(m.get("loss") is False for m in talk):
                    continue  # ms-swift learns the marks after it
                messages = [{"role": ("user", "assistant")[i % 2], **m} for i, m in enumerate(talk)]
                lines.append({"loss_scale": name, "messages": messages, "runs": conversation(loss_scale, kinds, template_class, name, json.loads(json.dumps(messages)))})
    OUT.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    print(f"{len(lines)} cases in {OUT}")


if __name__ == "__main__":
    main()
