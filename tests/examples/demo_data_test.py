"""The demo's questions can be scored, and none was trained on. usage: demo_data_test.py EXAMPLES_DIR"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

examples = Path(sys.argv[1])
sys.path.insert(0, str(examples))
sys.dont_write_bytecode = True
import score  # noqa: E402

failed = 0


def check(good: bool, what: str) -> None:
    global failed
    failed += not good
    if not good:
        print(f"FAILED  {what}")


facts = json.loads((examples / "data/cluster_facts.json").read_text(encoding="utf-8"))
questions = json.loads((examples / "data/cluster_questions.json").read_text(encoding="utf-8"))
trained = {record["instruction"].strip().lower() for record in facts}
check(len(facts) >= 100 and len(questions) >= 20, "there are facts and questions")
check(len(trained) == len(facts), "no question is trained on twice")
for q in questions:
    check(q["instruction"].strip().lower() not in trained, f"held out: {q['instruction']}")
    check(any(q["output"] == record["output"] for record in facts), f"the fact is taught: {q['output']}")
    check(score.is_right(q["output"], q["key"]), f"the expected answer has its key {q['key']}: {q['output']}")
    check(not score.is_right(q["instruction"], q["key"]), f"the question does not hold its key {q['key']}")

with tempfile.TemporaryDirectory() as tmp:
    def predictions(name: str, answers: list) -> str:
        path = Path(tmp) / name
        path.write_text("".join(json.dumps({"prompt": "", "predict": a, "label": ""}) + "\n" for a in answers))
        return f"{name}={path}"

    command = [sys.executable, examples / "score.py", examples / "data/cluster_questions.json"]
    right = [q["output"].upper() for q in questions]
    told = subprocess.run([*command, predictions("none", ["no idea"] * len(questions)), predictions("most", ["?"] + right[1:])],
                          capture_output=True, text=True, check=True).stdout
    check(f"0 of {len(questions)}" in told and f"{len(questions) - 1} of {len(questions)}" in told and "wrong: " + questions[0]["instruction"] in told, told)
    short = subprocess.run([*command, predictions("short", right[1:])], capture_output=True, text=True)
    check(short.returncode == 1 and "answers to" in short.stderr, "too few answers are an error")

print(f"{len(questions)} questions, {len(facts)} trained ones, {failed} checks failed")
sys.exit(1 if failed else 0)
