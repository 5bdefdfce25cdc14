"""precompute_ref_log_probs: the steps are those of the live reference, for pairs and answers, under every number of ranks; the file is made
once, goes on where a run had to stop, and is refused where pack, model, adapter or type are others, or where it is damaged; training holds one
model, as qft plan and the run predict."""
import io
import json
import shutil
import tempfile
from pathlib import Path

import h5py
import numpy as np
from safetensors.numpy import load_file, save_file

from common import Report, arguments, mpirun, run
from preferences import log_of, make_adapter, settings_of, write
from tiny import write_model, write_tokenizer

EXACT = 1e-12
# What is compared with, strategy, ranks.
CASES = [({"pref_loss": "sigmoid", "pref_beta": 0.5, "ld_alpha": 0.3, "pref_ftx": 0.1}, "ddp", 1),
         ({"pref_loss": "ipo", "pref_beta": 0.3, "finetuning_type": "full"}, "zero3", 2),
         ({"pref_loss": "hinge", "pref_beta": 0.3, "rpo_alpha": 0.5, "ref_model": "other"}, "zero2", 3),
         ({"stage": "kto", "dataset": "answers", "pref_beta": 0.5, "finetuning_type": "full"}, "zero3", 3),
         ({"stage": "kto", "dataset": "answers", "pref_beta": 0.5, "pref_ftx": 0.2, "ref_model_adapters": "adapter"}, "ddp", 2)]


def another(directory, model, seed=8):
    """The same model with other weights."""
    shutil.copytree(model, directory)
    rng, file = np.random.default_rng(seed), directory / "model.safetensors"
    save_file({n: t * (1 + 0.1 * rng.standard_normal(t.shape)).astype(t.dtype) for n, t in load_file(file).items()}, file, metadata={"format": "pt"})
    return directory


def add_long_pairs(data):
    """As long as each other, so that each micro-batch is as large as the plan says."""
    records = [{"instruction": " ".join(str(i + k) for k in range(60)), "input": "", "chosen": "yes " * 80, "rejected": "no " * 80} for i in range(16)]
    (data / "long.json").write_text(json.dumps(records))
    info = json.loads((data / "dataset_info.json").read_text())
    info["long"] = {**info["pairs"], "file_name": "long.json"}
    (data / "dataset_info.json").write_text(json.dumps(info))


def worst(ours, theirs):
    """Over all numbers that both logs have of the steps and evaluations."""
    names = {name for entry in theirs for name in entry if name.startswith(("loss", "eval_loss", "grad_norm", "rewards", "eval_rewards", "logps", "eval_logps", "kl", "eval_kl"))}
    errors = [abs(a[n] - b[n]) / max(1.0, abs(b[n])) for a, b in zip(ours, theirs) for n in names if n in b]
    return max(errors) if len(ours) == len(theirs) and errors else float("inf")


def contents(data):
    """The sums in a file of log-probabilities, and all that it says beside them."""
    with h5py.File(io.BytesIO(data)) as file:
        return file["sums"][:].tolist(), {k: str(v) for k, v in file.attrs.items() if k != "crc32c"}


class Runs:
    def __init__(self, tmp, qft, settings):
        self.tmp, self.qft, self.settings = tmp, qft, settings

    def train(self, name, ranks, changes, check=True):
        options = {**self.settings, "output_dir": str(self.tmp / name), **changes}
        if options["finetuning_type"] == "full":
            options.pop("adapter_name_or_path")
        file = write(self.tmp / f"{name}.yaml", {k: v for k, v in options.items() if v is not None})
        return mpirun(ranks, [self.qft, "train", file], check=check), self.tmp / name


def check_steps(report, runs, paths):
    for number, (options, strategy, ranks) in enumerate(CASES):
        what = ", ".join(f"{k} {v}" for k, v in options.items() if k != "dataset")
        changes = {**options, **{k: paths[k] for k in options if k in paths}, "strategy": strategy, "eval_dataset": options.get("dataset", "pairs")}
        _, live = runs.train(f"live{number}", ranks, changes)
        told, kept = runs.train(f"kept{number}", ranks, {**changes, "precompute_ref_log_probs": True})
        report.check(f"{what}, {strategy} on {ranks}: steps and evaluations as with the live reference", worst(log_of(kept), log_of(live)), EXACT)
        report.holds("    ... of files beside both packs", all((kept / f"packs/{part}.h5.reference").exists() for part in ("train", "eval")), told.stderr)
        held, without = (json.loads((out / "train_results.json").read_text()) for out in (live, kept))
        report.holds("    ... without a second model", "memory_reference" not in without, without)
        if "ref_model" in options or options.get("finetuning_type") == "full":
            report.holds("    ... of which a plan was made", 0 < held["memory_reference"] <= held["memory_reference_predicted"], held)


def check_reuse(report, runs, pack):
    """A run makes the file, the next one takes it, and one that was stopped goes on; resumed, the bits go on."""
    given = {"pack": str(pack), "precompute_ref_log_probs": True, "eval_dataset": None, "do_eval": None, "dataset": None, "deterministic": True, "save_steps": 2}
    file = Path(f"{pack}.reference")
    _, first = runs.train("first", 2, given)
    made = file.read_bytes()
    told, second = runs.train("second", 1, given)
    report.holds("the next run on the pack takes the file", "log-probabilities from" in told.stderr and file.read_bytes() == made, told.stderr)
    numbers = lambda out: [[e[k] for k in ("current_steps", "loss", "grad_norm")] for e in log_of(out) if "loss" in e]
    report.equal("    ... with the same bits", numbers(second), numbers(first))
    _, resumed = runs.train("resumed", 2, {**given, "resume_from_checkpoint": str(first / "checkpoint-2")})
    report.equal("    ... and so does a run that resumes", numbers(resumed), numbers(first)[2:])

    file.unlink()
    stopped = 0
    while True:
        told, _ = runs.train("stopped", 2, {**given, "max_hours": 1e-9, "gradient_accumulation_steps": 1, "per_device_train_batch_size": 2}, check=False)
        if "of 12 items, and the next run continues" not in told.stderr or stopped > 3:
            break
        stopped += 1
        report.equal(f"stopped in the pass ({stopped}): exit code", told.returncode, 75)
    report.holds("a run that has to stop keeps what is done of the pass", stopped == 3, told.stderr)
    runs.train("after", 1, given)
    (sums, identity), (kept, kept_identity) = contents(file.read_bytes()), contents(made)
    # Products of other numbers of rows may differ in their last bits.
    report.check("    ... and the file is that of one pass", max(abs(a - b) / abs(b) for a, b in zip(sums, kept)), EXACT)
    report.equal("    ... as it says", (len(sums), identity), (len(kept), kept_identity))
    return given, file


def check_tensor_ranks(report, runs, pack):
    """A pass that was stopped goes on with ranks that share matrices: each of them needs the sums of the first part too."""
    given = {"pack": str(pack), "precompute_ref_log_probs": True, "eval_dataset": None, "do_eval": None, "dataset": None, "strategy": "ddp",
             "num_train_epochs": 1}
    file = Path(f"{pack}.reference")
    file.unlink(missing_ok=True)
    _, one = runs.train("one", 1, given)
    (sums, _), _ = contents(file.read_bytes()), file.unlink()
    shared = {**given, "tensor_parallel": 2}
    told, _ = runs.train("begun", 2, {**shared, "max_hours": 1e-9, "gradient_accumulation_steps": 3, "per_device_train_batch_size": 2,
                                      "global_batch_size": None}, check=False)
    report.holds("tensor_parallel 2, stopped: 6 of 12 items", "of 6 of 12 items" in told.stderr, told.stderr)
    _, two = runs.train("two", 2, shared)
    report.check("    ... the next run has the sums of one rank", max(abs(a - b) / abs(b) for a, b in zip(contents(file.read_bytes())[0], sums)), EXACT)
    report.check("    ... and trains as one rank does", worst(log_of(two), log_of(one)), 1e-9)


def check_refused(report, runs, given, file, paths):
    made = file.read_bytes()

    def refused(what, changes, code, *words):
        bad, _ = runs.train("bad", 2, {**given, **changes}, check=False)
        report.equal(f"{what}: exit code", bad.returncode, code)
        report.holds(f"{what}: the reason", all(w in bad.stderr for w in (*words, "remove the file")), bad.stderr)

    refused("another reference", {"ref_model": paths["ref_model"]}, 2, "of another model", "there", "in this run")
    refused("an adapter on it", {"ref_model_adapters": paths["ref_model_adapters"]}, 2, "of another adapter", "none there")
    refused("another type", {"compute_dtype": "float32"}, 2, "of another compute", "float64 there, float32 in this run")
    other = file.with_name("other.h5.reference")
    other.write_bytes(made)
    refused("another pack", {"pack": str(other.with_suffix(""))}, 2, "of another pack")
    for what, damaged in (("cut short", made[:-64]), ("a byte changed", made[:-9] + bytes([made[-9] ^ 1]) + made[-8:]), ("no such file", b"{}" * 400)):
        file.write_bytes(damaged)
        refused(what, {}, 1, "cannot be used")
        report.holds("    ... and it stays as it was", file.read_bytes() == damaged)
    file.write_bytes(made)
    told, _ = runs.train("asft", 1, {"stage": "sft", "dataset": "numbers", "eval_dataset": None, "do_eval": None, "precompute_ref_log_probs": True})
    report.holds("without pairs it has no effect, and this is said", "precompute_ref_log_probs has no effect" in told.stderr, told.stderr)


def check_memory(report, runs, qft, directory):
    """Full training of 33 M parameters: a second model is predicted and held; without it a rank needs its bytes less."""
    write_model(directory, hidden=384, intermediate=1536, layers=6, heads=6, kv_heads=6, head_dim=64, positions=1024, vocab=49152)
    write_tokenizer(directory, 49152)
    parameters = 49152 * 384 + 6 * (4 * 384 * 384 + 3 * 384 * 1536 + 2 * 384) + 384
    for strategy, ranks in (("ddp", 1), ("zero3", 2)):
        changes = {"model_name_or_path": str(directory), "finetuning_type": "full", "compute_dtype": "auto", "bf16": True, "max_steps": 2,
                   "save_strategy": "no", "strategy": strategy, "per_device_train_batch_size": 4, "global_batch_size": 4 * ranks, "dataset": "long",
                   "eval_dataset": None, "do_eval": None, "pref_loss": "sigmoid"}
        seen = {}
        for word in (False, True):
            name = f"memory-{ranks}-{word}"
            _, out = runs.train(name, ranks, {**changes, "precompute_ref_log_probs": word})
            seen[word] = json.loads((out / "train_results.json").read_text())
            report.check(f"{strategy} on {ranks}, computed before {word}: peak {seen[word]['memory_peak'] / 1e6:.0f} MB, predicted off by",
                         abs(seen[word]["memory_predicted"] / seen[word]["memory_peak"] - 1), 0.1)
        live, held = seen[False], seen[False]["memory_reference"]
        report.check(f"    ... reference: held {held / 1e6:.0f} MB, predicted off by", abs(live["memory_reference_predicted"] / held - 1), 0.1)
        report.holds("    ... which the run with the file does not hold", "memory_reference" not in seen[True], seen[True])
        saved = live["memory_peak"] - seen[True]["memory_peak"]
        report.holds(f"    ... its peak is {saved / 1e6:.0f} MB lower", saved > 0.8 * 2 * parameters / ranks, [held, seen])
        file = runs.tmp / f"memory-{ranks}-False.yaml"
        rows = json.loads(run([qft, "plan", file, "--ranks", ranks, "--json"]).stdout)["rows"]
        planned = next(r["memory"]["reference"] for r in rows if r["strategy"] == strategy and r["g"] == 1)
        report.check("    ... qft plan: off by", abs(planned / held - 1), 0.1)


def check_plan(report, runs, qft):
    """qft plan's reference, and the bytes that it brings."""
    full = {**runs.settings, "adapter_name_or_path": None, "finetuning_type": "full", "strategy": "zero3", "output_dir": str(runs.tmp / "live1"), "pref_loss": "ipo"}
    rows = {}
    for word in ("false", "true"):
        told = run([qft, "plan", write(runs.tmp / "plan.yaml", {k: v for k, v in full.items() if v is not None}), "--ranks", "2", "--json", f"precompute_ref_log_probs={word}"]).stdout
        rows[word] = next(r for r in json.loads(told)["rows"] if r["strategy"] == "zero3" and r["g"] == 1)
    results = json.loads((runs.tmp / "live1/train_results.json").read_text())
    report.check("qft plan has the reference that the run predicted", abs(rows["false"]["memory"]["reference"] / results["memory_reference_predicted"] - 1), 0.1)
    report.equal("    ... and none where it is computed before", rows["true"]["memory"]["reference"], 0)
    report.holds("    ... nor its gathers", rows["true"]["bytes"]["weights"] < rows["false"]["bytes"]["weights"], rows)


def main():
    args = arguments()
    qft, report = args.build / "bin/qft", Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = settings_of(tmp, stage="dpo", dataset="pairs", eval_dataset="pairs", learning_rate=2e-3, num_train_epochs=2, global_batch_size=4,
                               do_eval=True)
        model = settings["model_name_or_path"]
        settings["adapter_name_or_path"] = str(make_adapter(tmp / "trained", model))
        paths = {"ref_model": str(another(tmp / "other", model)), "ref_model_adapters": str(make_adapter(tmp / "adapter", model))}
        add_long_pairs(tmp / "data")
        runs = Runs(tmp, qft, settings)
        check_steps(report, runs, paths)
        check_plan(report, runs, qft)
        check_memory(report, runs, qft, tmp / "larger")
        pack, another_pack = tmp / "given.h5", tmp / "other.h5"
        shutil.copy(tmp / "live0/packs/train.h5", pack)
        check_tensor_ranks(report, runs, pack)
        given, file = check_reuse(report, runs, pack)
        run([args.build / "bin/qft-pack", write(tmp / "p.yaml", {**settings, "max_samples": 8, "eval_dataset": None, "do_eval": None, "output_dir": None}), "--output", another_pack])
        check_refused(report, runs, given, file, paths)
    report.finish()


main()
