"""What each program does with a run file is what was asked, and is said: notes, element types, adapters, results, `qft check`."""
import json
import os
import shutil
import tempfile
from pathlib import Path

from common import Report, arguments, mpirun, run
from tiny import make, write

NOTE = "use_swanlab has no effect in qft"
WATCHDOG = "ddp_timeout is 180000000 s"


class Case:
    """One tiny run of training, and what is done with it."""

    def __init__(self, build, tmp, report):
        self.bin, self.tmp, self.report = build / "bin", tmp, report
        self.settings = {**make(tmp, samples=12), "max_steps": 2, "save_steps": 2, "val_size": 4, "compute_dtype": "auto", "do_eval": True,
                         "use_swanlab": True, "ddp_timeout": 180000000}
        del self.settings["global_batch_size"]
        self.out = tmp / "out"
        self.file = write(tmp / "run.yaml", self.settings)

    def run(self, program, *arguments, ranks=1, code=0, file=None):
        """stdout and stderr; a wrong exit code is reported."""
        command = [self.bin / program.split()[0], *program.split()[1:], file or self.file, *arguments]
        result = mpirun(ranks, command, check=False) if ranks > 1 else run(command, check=False)
        if result.returncode != code:
            self.report.holds(f"{program} {arguments} ends with {code}", False, f"{result.returncode}: {result.stderr}")
        return result.stdout, result.stderr

    def check(self, what, condition, seen=""):
        self.report.holds(what, condition, seen)

    def says(self, what, text, *parts):
        missing = [p for p in parts if p not in text]
        self.check(what, not missing, f"{text[-1300:]} lacks {missing}")


def results(case, name, directory=None):
    return json.loads(((directory or case.out) / f"{name}_results.json").read_text())


def check_training(case):
    """A base in bfloat16, made by an export that only converts; training, and two resumes of which the second changes nothing else."""
    _, log = case.run("qft export", f"export_dir={case.tmp / 'half'}", "infer_dtype=bfloat16")
    config = json.loads((case.tmp / "half/config.json").read_text())
    case.check("the exported config.json names bfloat16", config.get("torch_dtype", config.get("dtype")) == "bfloat16")
    import torch
    from safetensors.torch import load_file

    ours, base = load_file(case.tmp / "half/model.safetensors"), load_file(case.tmp / "model/model.safetensors")
    case.check("its tensors are PyTorch's conversion", all(torch.equal(t, base[n].to(torch.bfloat16)) for n, t in ours.items()))

    _, log = case.run("qft train", ranks=2)
    case.check("training notes keys without effect once", log.count(NOTE) == 1 and log.count(WATCHDOG) == 1, log)
    first = Path(shutil.copytree(case.out, case.tmp / "resumed"))
    for steps in (3, 4):
        _, log = case.run("qft train", f"output_dir={first}", f"max_steps={steps}", ranks=2)
    case.says("a second resume names what has changed", log, "settings changed since", "max_steps 3 -> 4")
    again, rate = case.run("qft train", f"output_dir={first}", "max_steps=4", "learning_rate=0.5", ranks=2), "learning_rate"
    case.says("a finished run that gets another setting says that it had no effect", again[1], rate, "nothing is left to train: all 4 steps")
    case.check("and not the global batch, which nobody changed", "global_batch_size" not in log.split("settings changed since")[1].split("\n")[0])


def check_notes(case):
    adapter = f"adapter_name_or_path={case.out}"
    programs = [("qft-pack", ["--output", case.tmp / "a.h5"]), ("qft-pack check", []), ("qft eval", [adapter]),
                ("qft export", [adapter, f"export_dir={case.tmp / 'merged'}"]), ("qft generate", [adapter, "prompt=a", "max_new_tokens=2"]),
                ("qft plan", ["--ranks", "2"]), ("qft check", [])]
    for program, extra in programs:
        _, log = case.run(program, *extra)
        case.check(f"{program} notes keys without effect once", log.count(NOTE) == 1 and log.count(WATCHDOG) == 1, log)


def check_types(case):
    """The element type that runs is the one asked for, in the same order of precedence everywhere."""
    half = f"model_name_or_path={case.tmp / 'half'}"
    losses = {}
    for extra, dtype in [([], "bfloat16"), (["bf16=false"], "float32"), (["infer_dtype=float32"], "float32"),
                         (["bf16=true", "infer_dtype=float32"], "float32"), (["infer_dtype=float16"], "float16"),
                         (["compute_dtype=float64"], "float64")]:
        out, log = case.run("qft eval", half, "output_dir=" + str(case.tmp / "types"), *extra, "--json")
        found = json.loads(out)
        case.check(f"qft eval {' '.join(extra)} computes in {dtype}, not {found['dtype']}", found["dtype"] == dtype)
        case.says("    ... and logs it", log, f"computed in {dtype}")
        losses[" ".join(extra)] = found["eval_loss"]
    case.check("float32 is not bfloat16", losses["bf16=false"] == losses["infer_dtype=float32"] != losses[""])
    case.check("float64 is near float32", abs(losses["compute_dtype=float64"] - losses["bf16=false"]) < 1e-5)
    out, _ = case.run("qft eval", half, "output_dir=" + str(case.tmp / "types"))
    case.says("the text names model and type", out, "half", "in bfloat16")
    _, log = case.run("qft generate", half, "infer_dtype=float32", "prompt=a", "max_new_tokens=2")
    case.says("qft generate takes infer_dtype", log, "computed in float32 (infer_dtype)")


def check_adapters(case):
    """Which of base and adapter runs is said; what cannot be as asked is refused."""
    adapter = f"adapter_name_or_path={case.out}"
    trained = results(case, "eval")
    out, log = case.run("qft eval", adapter, "--json")
    case.check("the adapter in output_dir has the loss that training reported", abs(json.loads(out)["eval_loss"] - trained["eval_loss"]) < 1e-6)
    case.says("the adapter is named", log, f"adapter '{case.out}' (rank 4")
    case.check("without a warning", "warning" not in log)
    base, log = case.run("qft eval", f"output_dir={case.out}", "--json")
    case.says("the base instead of what was trained is warned of", log, "no adapter", f"to use the result, set adapter_name_or_path={case.out}")
    case.check("and is the base", json.loads(base)["adapter_name_or_path"] is None and json.loads(base)["eval_loss"] != trained["eval_loss"])
    _, log = case.run("qft eval", "adapter_name_or_path=null")
    case.check("asked for by name it is no reason for a warning", "warning" not in log)

    _, log = case.run("qft export", f"export_dir={case.tmp / 'nothing'}", code=2)
    case.says("an export of nothing merged is refused", log, "nothing to merge", f"adapter_name_or_path={case.out}")
    case.check("and writes nothing", not (case.tmp / "nothing").exists())
    for key, value, theirs in [("lora_rank", 16, "4"), ("lora_alpha", 3, "8"), ("lora_target", "q_proj", "k_proj")]:
        _, log = case.run("qft train", adapter, f"{key}={value}", f"output_dir={case.tmp / 'on'}", code=2)
        case.says(f"{key} other than the adapter's is refused", log, f"{key} is {value}", str(case.out), theirs)


def check_results(case):
    """Files under HF's names, merged with those of training; do_eval and do_predict without do_train."""
    fresh = case.tmp / "fresh"
    case.run("qft eval", f"output_dir={fresh}", ranks=2)
    found, every = results(case, "eval", fresh), results(case, "all", fresh)
    keys = ["eval_loss", "eval_runtime", "eval_samples_per_second", "eval_steps_per_second", "perplexity"]
    case.check("eval_results.json has HF's names", [k for k in keys if k not in found] == [])
    case.check("all_results.json has them too", all(every[k] == found[k] for k in keys))
    every = results(case, "all")
    case.check("beside those of training", "train_loss" in every and "eval_loss" in every)

    answers = ["predict_with_generate=true", "max_new_tokens=4", "do_sample=false", f"adapter_name_or_path={case.out}"]
    case.run("qft eval", f"output_dir={fresh}", *answers)
    alone = case.tmp / "alone"
    settings = {k: v for k, v in case.settings.items() if k not in ("do_train", "do_eval")}
    file = write(case.tmp / "predict.yaml", {**settings, "output_dir": str(alone), "do_predict": True})
    _, log = case.run("qft train", *answers, file=file)
    case.says("do_predict alone predicts", log, "without do_train: nothing is trained", "answers to 4 samples")
    answered = (fresh / "generated_predictions.jsonl").read_bytes()
    case.run("qft train", f"output_dir={fresh}", "max_steps=1")
    every = results(case, "all", fresh)
    case.check("training may start where the base was evaluated", "train_loss" in every and "predict_bleu-4" in every, every)
    same = (alone / "generated_predictions.jsonl").read_bytes() == answered
    case.check("the answers of qft eval", same and "predict_bleu-4" in results(case, "predict", alone))
    case.check("and nothing else", not list(alone.glob("checkpoint-*")) and not (alone / "eval_results.json").exists())
    _, log = case.run("qft train", "do_train=false", "do_eval=true", f"output_dir={alone}")
    case.check("do_eval alone evaluates", "eval_loss" in results(case, "eval", alone) and "predict_bleu-4" in results(case, "all", alone))
    _, log = case.run("qft train", "do_train=false", "do_eval=false", f"output_dir={alone}", code=2)
    case.says("nothing asked for is refused", log, "do_train is false", "do_eval", "do_predict")


def check_check(case):
    """`qft check` refuses what training would refuse, writes nothing, and says what would run."""
    new = case.tmp / "checked"
    out, log = case.run("qft check", f"output_dir={new}", ranks=2)
    case.says("a good run passes", out + log, "check passed", "numbers: 12 records", "training starts at step 0", "predicted")
    case.check("its layout comes before the machine", 0 < out.find("2 ranks = data 2 x tensor 1 x context 1") < out.find("qft version"), out)
    case.check("and nothing is written", not new.exists())
    os.environ["NPROC_PER_NODE"] = "8"
    out, log = case.run("qft check", "max_steps=5")
    del os.environ["NPROC_PER_NODE"]
    case.says("a variable that starts ranks elsewhere is answered", log, "only one rank runs although NPROC_PER_NODE is 8", "mpirun -np 8")
    case.says("a run that would go on says so", out, "resumes from", "checkpoint-2', step 2", "5 steps")
    refused = [("dataset=letters", 2, ["letters"]), ("template=klingon", 2, ["klingon"]), ("lora_target=query", 2, ["query", "q_proj"]),
               ("cutoff_len=1", 2, ["cutoff_len 128 -> 1"]), ("max_steps=1", 2, ["step 2", "1 steps"]), ("lora_alpha=77", 2, ["lora_alpha is 77"]),
               ("pack=/no/such/pack.h5", 1, ["pack.h5"]), ("max_memory=0.001", 2, ["max_memory"]),
               (f"adapter_name_or_path={case.tmp / 'none'}", 1, ["none"]), ("global_batch_size=5", 2, ["global_batch_size"])]
    for override, code, words in refused:
        out, log = case.run("qft check", override, code=code)
        case.says(f"{override} is refused", out + log, *words)
        case.check("    ... once", not ("FAIL  run" in out and "error: " in log), out + log)
    case.says("and the table says so", out, "FAIL  run", "check failed")
    out, _ = case.run("qft check", "learning_rate=0.5")
    case.says("a run that is done says so", out, "nothing is left to train")
    case.says("resume_from_checkpoint=false is answered by what is there", case.run("qft train", "resume_from_checkpoint=false", code=2)[1],
              "resume_from_checkpoint is false", "is not empty", "overwrite_output_dir")

    def others(name):
        (case.tmp / "out" / name).mkdir()
        return case.tmp / "out" / name

    aside = others("abandoned-checkpoint-6-0123abcd")
    case.run("qft check", "max_steps=6")
    aside.rmdir()
    way = others("checkpoint-6")
    out, log = case.run("qft check", "max_steps=6", code=2)
    case.says("another program's checkpoint where the run would save is refused", out + log, "checkpoint-6' is not a checkpoint of qft", "is not replaced")
    way.rmdir()
    broken = Path(shutil.copytree(case.tmp / "model", case.tmp / "broken")) / "model.safetensors"
    broken.write_bytes(broken.read_bytes()[:-1000])
    out, log = case.run("qft check", f"model_name_or_path={broken.parent}", f"output_dir={new}", code=1)
    case.says("weights that are cut short are refused", out + log, "model.safetensors")
    out, log = case.run("qft check", f"pack={case.tmp / 'a.h5'}", "template=default", code=2)
    case.says("a pack of another template is refused", out + log, "template", "a.h5")


def main():
    args = arguments()
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        case = Case(args.build, Path(tmp), report)
        for part in (check_training, check_notes, check_types, check_adapters, check_results, check_check):
            part(case)
    report.finish()


main()
