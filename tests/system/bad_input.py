"""Every kind of bad input ends on all ranks, soon, with an exit code and a message that says what and where."""
import json
import os
import shutil
import struct
import tempfile
from pathlib import Path

from common import Report, arguments, mpirun, run
from tiny import make, write, write_model


def rewrite_header(path, change):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + size:])


def truncate(path, share=0.5):
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])


def edit_json(path, **changes):
    content = json.loads(path.read_text())
    content.update(changes)
    path.write_text(json.dumps(content))


def records(directory, text):
    (directory / "data/numbers.json").write_text(text)


def jsonl(directory, lines):
    (directory / "data/numbers.jsonl").write_text("\n".join(lines))
    (directory / "data/dataset_info.json").write_text(json.dumps({"numbers": {"file_name": "numbers.jsonl"}}))


def wrong_dtype(header):
    entry = next(v for k, v in header.items() if k.endswith("q_proj.weight"))
    entry["dtype"] = "I32"


def fill_output(directory):
    (directory / "out").mkdir()
    (directory / "out/thesis.txt").write_text("do not touch")


def lock_output(directory):
    (directory / "out").write_text("a file where a directory should be")


GOOD = '{"instruction": "a", "input": "", "output": "b"}'

# name, what is broken (directory), settings, words that the message must hold, exit code
CASES = [
    ("a model by its name on a hub", None, {"model_name_or_path": "Qwen/Qwen2.5-7B-Instruct"},
     ["there is no folder 'Qwen/Qwen2.5-7B-Instruct'", "qft fetch Qwen/Qwen2.5-7B-Instruct", "HF_HUB_OFFLINE"], 2),
    ("missing model directory", None, {"model_name_or_path": "/no/such/model"}, ["/no/such/model"], 2),
    ("missing weights", lambda d: (d / "model/model.safetensors").unlink(), {}, ["model"], 1),
    ("truncated shard", lambda d: truncate(d / "model/model.safetensors"), {}, ["model.safetensors"], 1),
    ("wrong dtype", lambda d: rewrite_header(d / "model/model.safetensors", wrong_dtype), {}, ["q_proj", "I32"], 1),
    ("shapes other than config.json's", lambda d: edit_json(d / "model/config.json", intermediate_size=64), {}, ["48", "64"], 1),
    ("config.json of a clone without Git LFS", lambda d: (d / "model/config.json").write_text("version https://git-lfs.github.com/spec/v1\n"), {},
     ["config.json' is a Git LFS pointer", "git lfs pull"], None),
    ("unknown model type", lambda d: edit_json(d / "model/config.json", model_type="mamba"), {}, ["mamba"], 1),
    ("unknown rope scaling", lambda d: edit_json(d / "model/config.json", rope_parameters={"rope_type": "longrope", "factor": 4.0}), {}, ["longrope"], 1),
    ("unknown key", None, {"learning_rat": 1e-4}, ["learning_rat", "learning_rate"], 2),
    ("wrong type", None, {"lora_rank": "many"}, ["lora_rank", "many"], 2),
    ("unknown value", None, {"lr_scheduler_type": "staircase"}, ["staircase"], 2),
    ("unknown LoRA target", None, {"lora_target": "query"}, ["query", "this llama", "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj\n"], 2),
    ("answers that are cut off", None, {"cutoff_len": 1}, ["no sample has an answer to learn", "were cut to cutoff_len 1: raise it"], 2),
    ("more epochs than a run can have", None, {"num_train_epochs": 1e300}, ["num_train_epochs", "at most 1000000000"], 2),
    ("a LoRA target that matches nothing", None, {"lora_target": "layers.0.*q_proj"}, ["matches no linear module", "model.layers.0.self_attn.q_proj"], 2),
    ("a LoRA target that is no expression", None, {"lora_target": "(q_proj"}, ["is not a valid regular expression"], 2),
    ("a rank for no module", None, {"rank_pattern": {"query": 4}}, ["rank_pattern", "query", "matches no module"], 2),
    ("a rank that is none", None, {"rank_pattern": {"q_proj": 1.5}}, ["run.yaml", "rank_pattern", "q_proj", "1.5"], 2),
    ("unknown template", None, {"template": "klingon"}, ["klingon"], 2),
    ("template that does not fit", None, {"template": "llama3"}, ["llama3"], 2),
    ("unknown dataset", None, {"dataset": "letters"}, ["letters"], 2),
    ("missing column", lambda d: records(d, '[{"instruction": "a", "input": "", "answer": "b"}]'), {}, ["output", "numbers.json"], None),
    ("broken line", lambda d: jsonl(d, [GOOD, '{"instruction": "a", "output": ', GOOD]), {}, ["numbers.jsonl:2"], 1),
    ("all labels truncated", None, {"cutoff_len": 1}, [], None),
    ("vocabulary of another model", lambda d: shrink_vocabulary(d), {}, ["1024", "100", "(id 100)", "qft-ckpt add-tokens"], None),
    ("output_dir in use", fill_output, {}, ["out", "overwrite_output_dir"], 2),
    ("output_dir is a file", lock_output, {}, ["out"], None),
    ("no checkpoint to resume", None, {"resume_from_checkpoint": True}, ["resume_from_checkpoint"], 2),
    ("num_processes other than -np", lambda d: (d / "acc.yaml").write_text("distributed_type: MULTI_GPU\nnum_processes: 8\n"),
     {"accelerate_config": "acc.yaml"}, ["num_processes", "8"], 2),
]


def shrink_vocabulary(directory):
    """A model whose embedding has fewer rows than the tokenizer has tokens."""
    write_model(directory / "model", layers=1, vocab=100)


def check(report, name, result, words, code):
    text = result.stdout + result.stderr
    bad = [w for w in words if w not in text]
    codes = (1, 2) if code is None else (code,)
    if result.returncode not in codes:
        bad.append(f"exit code {result.returncode}, not {codes}")
    if "Traceback" in text or "frame #" in text or "Segmentation" in text:
        bad.append("a stack trace")
    report.holds(name, not bad, f"missing: {bad}\n{text}")


def main():
    os.environ["HF_HUB_OFFLINE"] = "1"
    args = arguments()
    qft = args.build / "bin/qft"
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        whole = Path(tmp) / "whole"
        whole.mkdir()
        settings = make(whole)
        for name, damage, changes, words, code in CASES:
            case = Path(tmp) / "case"
            shutil.rmtree(case, ignore_errors=True)
            shutil.copytree(whole, case)
            if damage:
                damage(case)
            local = {k: v.replace(str(whole), str(case)) if isinstance(v, str) else v for k, v in {**settings, **changes}.items()}
            run_file = write(case / "run.yaml", local)
            before = {*case.rglob("*")}
            result = mpirun(2, [qft, "train", run_file], check=False, cwd=case, timeout=60)
            check(report, name, result, words, code)
            left = sorted(str(path.relative_to(case)) for path in {*case.rglob("*")} - before)
            if result.returncode == 2:
                report.equal("    ... and leaves nothing behind", left, [])
            if name == "output_dir in use":
                report.holds("    ... and is left alone", (case / "out/thesis.txt").read_text() == "do not touch")

        # A pack made with another tokenizer or template, and a rank that does not see what the others see.
        case = Path(tmp) / "pack"
        shutil.copytree(whole, case)
        local = {k: v.replace(str(whole), str(case)) if isinstance(v, str) else v for k, v in settings.items()}
        run_file = write(case / "run.yaml", local)
        run([args.build / "bin/qft-pack", run_file, "--output", case / "train.h5"])
        other = write(case / "other.yaml", {**local, "template": "default"})
        check(report, "pack of another template", mpirun(2, [qft, "train", other, f"pack={case / 'train.h5'}"], check=False, timeout=60),
              ["template", "train.h5"], 2)
        longer = write(case / "other.yaml", {**local, "cutoff_len": 64})
        check(report, "pack of another cutoff_len", mpirun(2, [qft, "train", longer, f"pack={case / 'train.h5'}"], check=False, timeout=60),
              ["cutoff_len", "64", "128"], 2)
        masked = write(case / "other.yaml", {**local, "mask_history": True})
        check(report, "pack with other labels", mpirun(2, [qft, "train", masked, f"pack={case / 'train.h5'}"], check=False, timeout=60),
              ["other.yaml:", "mask_history is true, false in the pack", "train.h5"], 2)
        bare = write(case / "other.yaml", {k: v for k, v in local.items() if k not in ("dataset", "dataset_dir", "template", "cutoff_len")})
        check(report, "    ... and one whose options the run leaves open", mpirun(2, [qft, "train", bare, f"pack={case / 'train.h5'}"], check=False, timeout=60),
              ["taken from pack", "cutoff_len 128"], 0)
        tokenizer = json.loads((case / "model/tokenizer.json").read_text())
        tokenizer["model"]["merges"].pop()
        (case / "model/tokenizer.json").write_text(json.dumps(tokenizer))
        check(report, "pack of another tokenizer", mpirun(2, [qft, "train", run_file, f"pack={case / 'train.h5'}"], check=False, timeout=60),
              ["tokenizer", "train.h5"], 2)

        blind = Path(tmp) / "blind"
        shutil.copytree(whole, blind)
        script = blind / "rank.sh"
        script.write_text(f'#!/bin/sh\nif [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then set -- "$@" model_name_or_path=/not/on/this/node; fi\nexec {qft} "$@"\n')
        script.chmod(0o755)
        local = {k: v.replace(str(whole), str(blind)) if isinstance(v, str) else v for k, v in settings.items()}
        result = mpirun(2, [script, "train", write(blind / "run.yaml", local)], check=False, timeout=60)
        check(report, "a rank that does not see the model", result, ["/not/on/this/node", "rank 1"], 2)
    report.finish()


main()
