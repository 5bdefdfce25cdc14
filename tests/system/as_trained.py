"""An adapter is asked as it was trained, however it is named: prompt tokens, system message and element type of qft generate, chat and
eval beside those of training, for alpaca's template, the model's own and one of the user's."""
import json
import shutil
import tempfile
from pathlib import Path

from common import Report, arguments, run, write
from tiny import write_model, write_tokenizer

QUESTION, ANSWER, SYSTEM = "Which port does the scheduler use?", "Port 17001.", "Be brief."
CUSTOM = """
name: custom
user: "<<{{content}}>> "
assistant: "{{content}}<|im_end|>"
system: "(({{content}})) "
stop_words: ["<|im_end|>"]
replace_eos: true
"""
CASES = {"alpaca": {"template": "alpaca", "default_system": SYSTEM}, "own": {}, "custom": {"template": "custom.yaml"}}


def train(qft, tmp, name):
    """One record, two steps of LoRA in bf16; returns the folder of the run and the tokens of its sample, split before the answer."""
    directory = tmp / name
    directory.mkdir()
    data = directory / "data.json"
    data.write_text(json.dumps([{"instruction": QUESTION, "output": ANSWER}]))
    (directory / "custom.yaml").write_text(CUSTOM)
    out = directory / "out"
    run([qft, "train", write(directory / "train.yaml", {
        "model_name_or_path": str(tmp / "model"), "stage": "sft", "finetuning_type": "lora", **CASES[name], "dataset": str(data), "cutoff_len": 128,
        "max_steps": 2, "save_steps": 1, "learning_rate": 1e-2, "bf16": True, "output_dir": str(out)})], cwd=directory)
    item = json.loads(run([qft.parent / "qft-pack", "export", out / "packs/train.h5"]).stdout.splitlines()[0])
    begin = item["label_spans"][0][0]
    return directory, data, item["ids"], begin


def spellings(tmp, directory, out):
    """How one may name the adapter, after the subcommand."""
    base = str(tmp / "model")
    run_file = write(directory / "ask.yaml", {"model_name_or_path": base, "adapter_name_or_path": str(out)})
    return {"a run file": [run_file], "adapter_name_or_path alone": [f"adapter_name_or_path={out}"],
            "--adapter_name_or_path with the base": ["--model_name_or_path", base, "--adapter_name_or_path", str(out)],
            "ms-swift's names": ["--model", base, "--adapters", str(out)], "a folder": [str(out)], "a checkpoint's folder": [str(out / "checkpoint-2")],
            "two folders": [base, str(out)]}


def judge(report, qft, tmp, name):
    directory, data, ids, begin = train(qft, tmp, name)
    if name == "custom":
        shutil.move(directory / "custom.yaml", directory / "moved.yaml")  # the copy beside the weights serves
    greedy = ["do_sample=false", "max_new_tokens=6"]
    for how, words in spellings(tmp, directory, directory / "out").items():
        told = run([qft, "generate", *words, f"prompt={QUESTION}", "--json", *greedy], cwd=directory)
        answer = json.loads(told.stdout)
        report.equal(f"{name}, {how}: qft generate's prompt", answer["prompt_ids"], ids[:begin])
        chat = run([qft, "chat", *words, *greedy], cwd=directory, input=QUESTION + "\n")
        report.equal(f"{name}, {how}: qft chat's answer is that of generate", chat.stdout.removeprefix("> ").removesuffix("\n> \n"), answer["text"])
        logprobs = directory / "logprobs.jsonl"
        scores = run([qft, "eval", *words, f"eval_dataset={data}", f"output_dir={directory / 'eval'}", "overwrite_output_dir=true", f"predict_logprobs={logprobs}"], cwd=directory)
        report.equal(f"{name}, {how}: qft eval's sample", json.loads(logprobs.read_text().splitlines()[0])["ids"], ids)
        report.holds(f"{name}, {how}: in the type of training", "in bfloat16" in scores.stdout, scores.stdout)
        report.holds(f"{name}, {how}: what is taken is told in one line", told.stderr.count("settings taken from ") == 1, told.stderr)
    template = "smollm2" if name == "alpaca" else "alpaca"
    other = run([qft, "generate", str(directory / "out"), f"template={template}", f"prompt={QUESTION}", "--json", *greedy], cwd=directory)
    report.holds(f"{name}: a key that is given counts", json.loads(other.stdout)["prompt_ids"] != ids[:begin], other.stdout)


def repeat(report, qft, tmp):
    """qft train run.json: the same losses, also on another number of ranks."""
    losses = lambda out: [json.loads(line)["loss"] for line in (out / "trainer_log.jsonl").read_text().splitlines()]
    first = tmp / "own/out"
    run([qft, "train", first / "run.json", f"output_dir={tmp / 'again'}"], cwd=tmp / "own")
    report.equal("qft train run.json repeats the run", losses(tmp / "again"), losses(first))


def main():
    args = arguments()
    qft, report = args.build.resolve() / "bin/qft", Report()
    with tempfile.TemporaryDirectory() as name:
        tmp = Path(name)
        write_model(tmp / "model", "llama", hidden=64, intermediate=128, head_dim=16)
        write_tokenizer(tmp / "model")
        for case in CASES:
            judge(report, qft, tmp, case)
        repeat(report, qft, tmp)
    report.finish()


if __name__ == "__main__":
    main()
