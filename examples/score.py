#!/usr/bin/env python3
"""Counts right answers: score.py QUESTIONS.json NAME=generated_predictions.jsonl ...

QUESTIONS.json is an alpaca file whose records have a `key`, a text or a list of texts. An answer is right where it has all
of them, in capital letters or small ones. `qft eval` with predict_with_generate writes the answers, in the order of the
questions.
"""

import json
import sys
from pathlib import Path


def is_right(answer: str, key) -> bool:
    keys = [key] if isinstance(key, str) else key
    return all(word.lower() in answer.lower() for word in keys)


def answers_of(file: str, count: int) -> list:
    try:
        lines = Path(file).read_text(encoding="utf-8").strip().split("\n")
    except OSError as error:
        sys.exit(f"{error}: give NAME=FILE, a file that qft eval with predict_with_generate wrote")
    answers = [json.loads(line)["predict"] for line in lines]
    if len(answers) != count:
        sys.exit(f"{file}: {len(answers)} answers to {count} questions: are they to these?")
    return answers


def main() -> None:
    if len(sys.argv) < 3:
        sys.exit(__doc__.splitlines()[0])
    questions = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for argument in sys.argv[2:]:
        name, _, file = argument.partition("=")
        answers = answers_of(file, len(questions))
        wrong = [(q["instruction"], a) for q, a in zip(questions, answers) if not is_right(a, q["key"])]
        print(f"{name + ':':12} {len(questions) - len(wrong)} of {len(questions)} questions answered right")
    for question, answer in wrong:  # of the last one
        print(f"  wrong: {question}\n         {' '.join(answer.split())[:100]}")


if __name__ == "__main__":
    main()
