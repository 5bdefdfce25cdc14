#!/usr/bin/env python3
"""Preference pairs from the demo's facts: the right answer to a question, and that of another question.

    python3 examples/make_pairs.py     writes examples/data/cluster_pairs.json and cluster_pairs_held_out.json
"""
import json
import random
from pathlib import Path

DATA = Path(__file__).parent / "data"


def pairs_of(records, answers, rng):
    return [{"instruction": r["instruction"], "input": "", "chosen": r["output"], "rejected": rng.choice([a for a in answers if a != r["output"]])}
            for r in records]


def main():
    rng = random.Random(1)
    facts, questions = (json.loads((DATA / f"{name}.json").read_text()) for name in ("cluster_facts", "cluster_questions"))
    answers = sorted({r["output"] for r in facts})
    for name, records in (("cluster_pairs", facts), ("cluster_pairs_held_out", questions)):
        (DATA / f"{name}.json").write_text(json.dumps(pairs_of(records, answers, rng), indent=1) + "\n")


if __name__ == "__main__":
    main()
