"""Conversations as chat templates meet them, and as they should not: made by a seed."""
import random

WORDS = ["Hello", "what is 2 < 3 & 4?", "Ünïcödé 漢字", "👩‍👩‍👧 ok", "<think>", "</think>", "a\n\nb", "  spaced  ", "\ttab", "it's \"quoted\"", "back\\slash",
         "<tool_call>\n{}\n</tool_call>", "<|im_end|>", "{{ not }} {% a %} template", "line\r\nend", "İstanbul ß", "0", "\u2028sep", "end.\n"]
ROLES = ["system", "user", "assistant", "tool", "developer", "function", "ipython", "tool_response", "observation", "critic"]


def text(rng):
    kind = rng.random()
    if kind < 0.06:
        return rng.choice(["", " ", "\n", "\n\n  "])
    return rng.choice([" ", "\n", ""]).join(rng.choice(WORDS) for _ in range(rng.randint(1, 4)))


def thought(rng, answer):
    return rng.choice(["<think>\n{}\n</think>\n\n{}", "<think>{}</think>{}", "{}</think>\n{}", "<think>\n\n</think>\n\n{}{}"]).format(text(rng), answer)


def blocks(rng, images=True):
    out = [{"type": "text", "text": text(rng)} for _ in range(rng.randint(0, 2))]
    if images and rng.random() < 0.5:
        out.insert(rng.randint(0, len(out)), rng.choice([{"type": "image"}, {"type": "image", "image": "a.png"}, {"type": "image_url", "image_url": {"url": "u"}},
                                                        {"type": "video"}, {"type": "audio"}, {"type": "video", "video": "v.mp4"}]))
    return out


def content(rng, listed):
    kind = rng.random()
    if kind < listed:
        return blocks(rng)
    if kind < listed + 0.03:
        return None
    return text(rng)


def value(rng, depth=0):
    kind = rng.randint(0, 8 if depth < 2 else 5)
    if kind == 0:
        return rng.choice([0, 1, -7, 12345678901234567890, 2**70])
    if kind == 1:
        return rng.choice([1.5, -0.0, 1e100, 1e-7, 3.0])
    if kind == 2:
        return rng.choice([True, False, None])
    if kind <= 5:
        return text(rng)
    if kind == 6:
        return [value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    return {rng.choice(["a", "b c", "é", "x1", "location"]): value(rng, depth + 1) for _ in range(rng.randint(0, 3))}


def schema(rng, depth=0):
    kind = rng.choice(["string", "integer", "number", "boolean", "array", "object"] if depth < 2 else ["string", "integer"])
    out = {"type": kind if rng.random() < 0.9 else [kind, "null"]}
    if rng.random() < 0.8:
        out["description"] = text(rng)
    if kind == "string" and rng.random() < 0.3:
        out["enum"] = ["a", "b", "漢"]
    if rng.random() < 0.15:
        out["nullable"] = True
    if rng.random() < 0.15:
        out["default"] = value(rng, 2)
    if kind == "array":
        out["items"] = schema(rng, depth + 1)
    if kind == "object":
        out["properties"] = {name: schema(rng, depth + 1) for name in rng.sample(["x", "y", "unit", "ключ", "items", "type"], rng.randint(0, 3))}
        out["required"] = rng.sample(sorted(out["properties"]), rng.randint(0, len(out["properties"])))
    return out


def tool(rng, number):
    properties = {name: schema(rng) for name in rng.sample(["city", "unit", "days", "options", "name", "values"], rng.randint(0, 4))}
    function = {"name": rng.choice(["get_weather", "search", "f", "запрос"]) + str(number), "description": text(rng),
                "parameters": {"type": "object", "properties": properties, "required": sorted(properties)[:rng.randint(0, 2)]}}
    if rng.random() < 0.1:
        del function["parameters"]
    if rng.random() < 0.15:
        function["return"] = {"type": "string", "description": "a text"}
    if rng.random() < 0.1:
        function["response"] = {"type": "OBJECT", "description": "d"}
    return {"type": "function", "function": function} if rng.random() < 0.9 else function


def call(rng, number):
    arguments = {name: value(rng) for name in rng.sample(["city", "unit", "days", "é"], rng.randint(0, 3))}
    if rng.random() < 0.3:
        arguments = rng.choice(["{\"city\": \"Paris\", \"days\": 3}", "{}", "", "not json"])
    function = {"name": f"get_weather{number}", "arguments": arguments}
    out = {"type": "function", "function": function} if rng.random() < 0.85 else function
    if rng.random() < 0.6:
        out = {"id": f"call{number:05d}", **out}
    return out


def assistant(rng, tools, listed):
    message = {"role": "assistant", "content": content(rng, listed)}
    if rng.random() < 0.25 and isinstance(message["content"], str):
        message["content"] = thought(rng, message["content"])
    if rng.random() < 0.25:
        message[rng.choice(["reasoning_content", "reasoning_content", "reasoning", "thinking"])] = rng.choice([text(rng), text(rng), "", None])
    if tools and rng.random() < 0.5:
        message["tool_calls"] = [call(rng, i) for i in range(rng.choice([0, 1, 1, 1, 2, 3]))]
        if rng.random() < 0.4:
            message["content"] = rng.choice([None, "", text(rng)])
        if rng.random() < 0.15:
            del message["content"]
    if rng.random() < 0.03:
        message["refusal"] = text(rng)
    return message


def messages(rng, tools, listed, odd):
    out = []
    if rng.random() < 0.5:
        out.append({"role": "system" if rng.random() < 0.9 else "developer", "content": content(rng, listed / 2)})
    for _ in range(rng.randint(1, 6)):
        out.append({"role": "user", "content": content(rng, listed)})
        if odd and rng.random() < 0.2:
            out.append({"role": rng.choice(ROLES), "content": content(rng, listed)})
        answer = assistant(rng, tools, listed)
        out.append(answer)
        if answer.get("tool_calls"):
            for i, _ in enumerate(answer["tool_calls"]):
                result = {"role": "tool", "content": content(rng, listed) if rng.random() < 0.9 else value(rng)}
                if rng.random() < 0.5:
                    result["tool_call_id"] = f"call{i:05d}"
                if rng.random() < 0.5:
                    result["name"] = f"get_weather{i}"
                out.append(result)
            if rng.random() < 0.8:
                out.append(assistant(rng, tools and rng.random() < 0.3, listed))
    if rng.random() < 0.3:
        out.pop()
    if odd:
        kind = rng.randint(0, 5)
        if kind == 0:
            rng.shuffle(out)
        elif kind == 1:
            out[rng.randrange(len(out))].pop("content", None)
        elif kind == 2:
            out[rng.randrange(len(out))]["role"] = rng.choice(ROLES)
        elif kind == 3:
            out = []
        elif kind == 4:
            out[rng.randrange(len(out))].pop("role", None)
    return out


def make(seed):
    """Keyword arguments of render_jinja_template, but for the template."""
    rng = random.Random(seed)
    amount = rng.random()
    tools = None if amount < 0.45 else [tool(rng, i) for i in range(1 if amount < 0.6 else rng.choice([0, 2, 3]))]
    odd = rng.random() < 0.2
    chat = messages(rng, bool(tools), rng.choice([0, 0, 0.1, 0.6]), odd)
    out = {"conversations": [chat], "tools": tools, "add_generation_prompt": rng.random() < 0.5}
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    out.update(tokens if rng.random() < 0.9 else {})
    for name, choices, chance in (("enable_thinking", [True, False], 0.4), ("preserve_thinking", [True, False], 0.3), ("date_string", ["26 Jul 2024"], 0.15),
                                  ("builtin_tools", [["wolfram_alpha"], ["browser", "python"]], 0.15), ("reasoning_effort", ["low", "high"], 0.15),
                                  ("documents", [[{"title": "T", "text": "é\nb"}], [{"title": "a", "contents": "b"}, {"title": "c", "text": ""}]], 0.2),
                                  ("custom_tools", [[{"name": "f", "description": "d", "parameters": {}}]], 0.05), ("keep_past_thinking", [True], 0.1),
                                  ("tools_in_user_message", [True, False], 0.2), ("thinking", [True, False], 0.1), ("add_vision_id", [True], 0.1),
                                  ("model_identity", ["You are X."], 0.1), ("xml_tools", [None], 0.03), ("truncate_history_thinking", [True, False], 0.15)):
        if rng.random() < chance:
            out[name] = rng.choice(choices)
    if rng.random() < 0.08 and chat:
        out.update(continue_final_message=True, add_generation_prompt=False)
    return out
