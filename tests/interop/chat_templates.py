#!/usr/bin/env python3
"""Holds our renderer of chat templates against transformers': the same text and assistant's ranges, an error where it raises one.

The templates are those of installed packages (trl, axolotl), of the tokenizers beside the checkout, and our own of jinja_cases.py.
    chat_templates.py --build BUILD [--conversations 60] [--seed 1] [--expressions 400]
"""
import datetime
import importlib.util
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import conversations
import jinja_cases
from common import ROOT, Report, arguments

from transformers.utils import chat_template_utils as judge

NOW = (2026, 3, 9, 7, 5, 2)  # what strftime_now() tells on both sides


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(*NOW)


class Watched:
    """A compiled template that keeps what it was rendered with, and what came of it."""

    def __init__(self, template):
        self.template, self.environment = template, template.environment
        self.variables = self.text = self.error = None

    def render(self, **variables):
        return "".join(self.generate(**variables))

    def generate(self, **variables):
        self.variables, self.text, self.error = json.dumps(variables, ensure_ascii=False), "", None
        try:
            for piece in self.template.generate(**variables):
                self.text += piece
                yield piece
        except GeneratorExit:
            raise
        except BaseException as error:  # a RecursionError, too
            self.error = error
            raise


def packaged():
    """Chat templates inside installed packages: (name, text)."""
    for package, least in (("trl", 60), ("axolotl", 20)):
        found = importlib.util.find_spec(package)
        folder = Path(found.submodule_search_locations[0]) if found else None
        files = sorted(folder.rglob("*.jinja")) if folder else []
        if len(files) < least:
            print(f"SKIPPED: {len(files)} templates in the package {package}: scripts/setup.sh test installs it")
        for file in files:
            yield f"{package}/{file.name}", file.read_text(encoding="utf-8")


def texts_in(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item["template"])


def beside(shared):
    """Chat templates of the tokenizers beside the checkout."""
    folders = sorted(shared.glob("tokenizers/*"))
    if not folders:
        print(f"SKIPPED: no tokenizers in {shared}")
    for folder in folders:
        for file in sorted(folder.glob("*.jinja")):
            yield f"{folder.name}/{file.name}", file.read_text(encoding="utf-8")
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        for number, text in enumerate(texts_in(config.get("chat_template"))):
            yield f"{folder.name}/tokenizer_config.json:{number}", text


class Jobs:
    """What the probe is asked, and what the judge says to each."""

    def __init__(self):
        self.lines, self.expected = [], []

    def template(self, name, text):
        self.lines.append(json.dumps({"template": text, "name": name}, ensure_ascii=False))
        self.expected.append(("template", name, text, None))

    def render(self, name, variables, now, outcome):
        self.lines.append(f'{{"now": {json.dumps(now)}, "variables": {variables}}}')
        self.expected.append(("render", name, variables, outcome))


def judge_conversations(jobs, name, text, count, seed):
    """Asks the judge about one template; how many conversations reached it."""
    jobs.template(name, text)
    try:
        watched = Watched(judge._cached_compile_jinja_template(text))
    except Exception:
        return 0
    judge._compile_jinja_template = lambda _: watched
    tracked = "endgeneration" in text
    asked = rendered = 0
    for number in range(2 * count):  # until enough were rendered; some templates refuse most
        if rendered >= count:
            break
        options = conversations.make(f"{seed} {name} {number}")
        watched.variables = None
        ranges = None
        try:
            _, indices = judge.render_jinja_template(chat_template=text, return_assistant_tokens_mask=tracked, **options)
            ranges = indices[0] if tracked else None
        except BaseException:
            pass
        if watched.variables is None:
            continue
        asked += 1
        rendered += watched.error is None
        jobs.render(f"{name} {number}", watched.variables, NOW, (watched.text, watched.error, ranges))
    return asked


def judge_case(jobs, name, text, variables):
    jobs.template(name, text)
    try:
        template = judge._cached_compile_jinja_template(text)
    except BaseException as error:
        jobs.expected[-1] = ("refused", name, text, error)
        return
    try:
        outcome = (template.render(**variables), None, None)
    except BaseException as error:
        outcome = (None, error, None)
    jobs.render(name, json.dumps(variables, ensure_ascii=False), NOW, outcome)


def in_characters(text, ranges):
    encoded = text.encode()
    return [tuple(len(encoded[:end].decode()) for end in pair) for pair in ranges]


def disagreement(answer, outcome):
    """What differs, or nothing."""
    text, error, ranges = outcome
    if error is not None:
        if "error" not in answer:
            return f"rendered, but the judge raises {type(error).__name__}: {error}"
        if type(error).__name__ == "TemplateError" and answer.get("refusal") != str(error.message):
            return f"refuses {answer.get('refusal')!r}, the judge {error.message!r} ({answer['error']})"
        return None
    if re.search(r" at 0x[0-9a-f]{6,}>", text):  # an address in memory
        return None if "only an address" in answer.get("error", "") else f"prints {answer.get('text')!r}, expected an error: an address in memory"
    if "error" in answer:
        return f"raises {answer['error']}, but the judge renders"
    if answer["text"] != text:
        at = next((i for i, (a, b) in enumerate(zip(answer["text"], text)) if a != b), min(len(text), len(answer["text"])))
        return f"at {at}: {answer['text'][max(at - 30, 0):at + 40]!r}, expected {text[max(at - 30, 0):at + 40]!r}"
    if ranges is not None and in_characters(text, answer["ranges"]) != [tuple(pair) for pair in ranges]:
        return f"ranges {in_characters(text, answer['ranges'])}, expected {ranges}"
    return None


def make_variables_of():
    environment = judge._cached_compile_jinja_template("").environment
    return lambda text: sorted(judge.jinja2.meta.find_undeclared_variables(environment.parse(text)))


def compare(report, jobs, answers):
    """One line of report for each template, with what first differs."""
    current, wrong, seen = None, [], 0
    variables_of = make_variables_of()

    def close():
        if current is not None and (seen or wrong):
            report.holds(f"{current} ({seen} conversations)" if seen != 1 else current, not wrong, "; ".join(wrong[:3]))

    for (kind, name, given, outcome), answer in zip(jobs.expected, answers):
        if kind in ("template", "refused"):
            close()
            current, wrong, seen = name, [], 0
            if kind == "refused":
                seen = 1
                if "error" not in answer:
                    wrong.append(f"{given!r} is parsed, but the judge raises {outcome}")
            elif "error" not in answer and answer["variables"] != variables_of(given):
                wrong.append(f"variables {answer['variables']}, expected {variables_of(given)}")
            left_out = "error" in answer and "not implemented" in answer["error"]
            continue
        seen += 1
        what = disagreement(answer, outcome)
        if what and not (left_out or "not implemented" in answer.get("error", "")):
            wrong.append(f"{name}: {what}")
    close()


def ask(program, jobs):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.write("\n".join(jobs.lines) + "\n")
        file.flush()
        result = subprocess.run([program, file.name], capture_output=True)
    answers = [json.loads(line) for line in result.stdout.decode().split("\n") if line]
    if result.returncode != 0 or len(answers) != len(jobs.lines):
        sys.exit(f"FAILED: {program} gave {len(answers)} of {len(jobs.lines)} answers, exit code {result.returncode}\n{result.stderr.decode()}"
                 f"\nat {jobs.lines[min(len(answers), len(jobs.lines) - 1)][:2000]}")
    return answers


def main():
    args = arguments(shared=str(ROOT.parent / "shared"), conversations=60, seed=1, expressions=400)
    judge.datetime = Clock
    jobs, report = Jobs(), Report()
    templates = [*packaged(), *beside(Path(args.shared))]
    asked = sum(judge_conversations(jobs, name, text, args.conversations, args.seed) for name, text in templates)
    cases = list(jinja_cases.all_cases())
    for number, (text, variables) in enumerate(cases):
        judge_case(jobs, f"case {number}: {text[:60]!r}", text, variables)
    rng = random.Random(args.seed)
    for number in range(args.expressions):
        judge_case(jobs, f"expression {number}", *jinja_cases.random_case(rng))
    answers = ask(args.build / "tests" / "jinja_probe", jobs)
    compare(report, jobs, answers)
    raised = sum(kind == "render" and outcome[1] is not None and " " in name and not name.startswith(("case", "expression"))
                 for kind, name, _, outcome in jobs.expected)
    refused = sorted({f"{given[:60]!r}: {answer['error']}" for (kind, _, given, _), answer in zip(jobs.expected, answers)
                      if "not implemented" in answer.get("error", "")})
    print(f"{len(templates)} templates, {asked} conversations, of which the judge refuses {raised}; {len(cases)} cases of our own, "
          f"{args.expressions} random expressions; not implemented here: {len(refused)}")
    for line in refused:
        print(f"  {line}"[:200])
    report.holds("at least one template was judged", templates or cases)
    report.finish()


if __name__ == "__main__":
    main()
