"""qft bench machine writes a description that qft plan reads; qft plan predicts, without weights and without MPI, the memory that a run
predicts and the bytes that its strategy moves, and says what is wrong with a description."""
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from common import Report, arguments, mpirun
from tiny import make, write


def main():
    args = arguments()
    qft = args.build / "bin/qft"
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = make(tmp, samples=60) | {"compute_dtype": "float32", "save_strategy": "no", "max_steps": 2, "packing": True}
        run_file = write(tmp / "run.yaml", settings)

        def plan(*words, check=True):
            return subprocess.run([qft, "plan", run_file, "--ranks", "2", *words], capture_output=True, text=True, check=check)

        mpirun(2, [qft, "train", run_file, "strategy=zero3", "breadth_first_micro_batches=2"])
        results = json.loads((tmp / "out/train_results.json").read_text())
        told = mpirun(2, [qft, "train", run_file, "tensor_parallel=2", f"output_dir={tmp / 'shared'}"]).stderr
        shared = json.loads((tmp / "shared/train_results.json").read_text())
        report.equal("results name the degrees", [shared[f"{axis}_parallel"] for axis in ("data", "tensor", "context")], [1, 2, 1])
        report.holds("    ... and the seconds in exchanges", 0 < shared["train_exchange_runtime"] < shared["train_runtime"] and "train_exchange_runtime" not in results, shared)
        report.holds("    ... and so does the last line", re.search(r"done: 2 steps in .*; 2 ranks = data 1 x tensor 2 x context 1, \d+% of the time in exchanges; results in", told), told)
        (tmp / "model/model.safetensors").unlink()

        machine = tmp / "machine.yaml"
        mpirun(2, [qft, "bench", "machine", run_file, "--output", machine])
        for what in ("gemm", "attention", "step"):
            rows = json.loads(mpirun(2, [qft, "bench", what, run_file, "--json"]).stdout)["rows"]
            report.holds(f"bench {what} times each operation", rows and all(row["seconds"] > 0 for row in rows), rows)

        told = json.loads(plan("--machine", machine, "--json", "breadth_first_micro_batches=2").stdout)
        rows = {(row["strategy"], row["g"]): row for row in told["rows"]}
        for name in ("ddp", "zero1", "zero2", "shard_grad_op", "zero3"):
            row = rows[name, 1]
            report.holds(f"{name}: a step takes at least its compute", 0 < row["seconds"]["compute"] <= row["seconds"]["step"] * 1.001)
        zero3 = rows["zero3", 2]["memory"]
        for part in ("weights", "gathered", "gradients", "optimizer"):
            report.check(f"zero3: {part} as the run predicted and held", abs(zero3[part] / results[f"memory_{part}_predicted"] - 1)
                         + abs(results[f"memory_{part}_predicted"] / results[f"memory_{part}"] - 1), 0.02)
        degrees = {row["tensor_parallel"]: row for row in told["verdict"]["degrees"]}
        report.equal("each degree of the ranks is planned", sorted(degrees), [1, 2])
        fixed = json.loads(plan("tensor_parallel=2", "--json").stdout)["verdict"]["degrees"]
        report.equal("    ... also without a machine and with a degree set, and the run's is marked",
                     sorted((row["tensor_parallel"], row["context_parallel"], row["run"]) for row in fixed), [(1, 1, False), (1, 2, False), (2, 1, True)])
        report.holds("    ... and what it exchanges", degrees[1]["bytes"]["tensor"] == 0 < degrees[2]["bytes"]["tensor"] and degrees[2]["seconds"]["tensor"] > 0, degrees)
        one = json.loads(plan("--machine", machine, "--json", "tensor_parallel=2").stdout)["rows"]
        report.equal("two ranks that share matrices are one data rank", [(row["strategy"], row["tensor_ranks"]) for row in one], [("ddp", 2)])
        for part in ("weights", "gradients", "optimizer", "activations"):
            report.check(f"    ... {part} as the run predicted and held", abs(one[0]["memory"][part] / shared[f"memory_{part}_predicted"] - 1)
                         + abs(shared[f"memory_{part}_predicted"] / shared[f"memory_{part}"] - 1), 0.1)
        report.holds("the pack of the run is what is planned with", "in the loader's order" in told["data"])
        words = plan("--machine", machine, "breadth_first_micro_batches=2").stdout
        report.holds("the first lines are a verdict: memory, micro-batch, time of the run's steps",
                     re.match(r"fits: \w+ on 2 ranks takes .*\nlargest micro-batch: per_device_train_batch_size \d+ .*\ntime: .* 2 steps take about", words), words)
        report.holds("no line is wider than a page", max(map(len, words.splitlines())) <= 120, words)
        tight = plan("max_memory=0.001").stdout
        report.holds("what fits nowhere is said to", tight.startswith("does not fit: ") and "nothing that was tried fits" in tight, tight)
        listed = subprocess.run([qft, "plan", "--machine", "list"], capture_output=True, text=True, check=True).stdout
        report.holds("--machine list needs no run file", len(listed.splitlines()) >= 12 and "h100" in listed, listed)
        report.holds("a machine of the list is found by name", "machine: H100 SXM" in plan("--machine", "h100,network_gb_s=92").stdout)
        unnamed = plan("--machine", "h1000", check=False)
        report.holds("another name is refused with the nearest", unnamed.returncode == 2 and "did you mean 'h100'?" in unnamed.stderr, unnamed.stderr)
        installed = tmp / "prefix/share/qft/configs/machines"
        installed.mkdir(parents=True)
        (installed / "ours.yaml").write_text(machine.read_text())
        (tmp / "prefix/bin").mkdir()
        shutil.copy(qft, tmp / "prefix/bin/qft")
        found = subprocess.run([tmp / "prefix/bin/qft", "plan", "--machine", "list"], capture_output=True, text=True).stdout
        report.holds("an installed program reads the descriptions beside it", found.startswith("ours ") and found.count("\n") == 1, found)
        half = json.loads(plan("fp16=true", "compute_dtype=auto", "use_cpu=true", "--json").stdout)["notes"]
        report.holds("fp16 on CPUs is warned of", any("set bf16: true instead of fp16: true" in note for note in half), half)
        report.holds("without a machine there are bytes and no times", "seconds" not in json.loads(plan("--json").stdout)["rows"][0])

        def ddp(memory, cutoff):
            words = (f"output_dir={tmp / 'elsewhere'}", "packing=false", "per_device_train_batch_size=1", "gradient_checkpointing=false",
                     f"max_memory={memory}", f"cutoff_len={cutoff}")
            return next(row for row in json.loads(plan(*words, "--json").stdout)["rows"] if row["strategy"] == "ddp")

        memory = ddp(100, 64)["memory"]
        least, most, process = memory["total"], ddp(100, 448)["memory"]["total"], memory["process"] - memory["kernels"]
        limit = (process + ((least + most) / 2 - process) / 0.9) / 1e9
        longest = ddp(limit, 64)["longest_sequence"]
        report.holds("the longest sequence that fits", 64 <= longest < 448 and longest % 64 == 0, longest)
        report.equal("    ... fits as cutoff_len, and 64 tokens more do not", [ddp(limit, longest + more)["fits"] for more in (0, 64)], [True, False])
        report.equal("    ... where there is room, all that the model sees", ddp(100, 64)["longest_sequence"], 512)

        measured = machine.read_text()
        machine.write_text(re.sub(r"threads_per_rank: \d+", "threads_per_rank: 5", measured))
        os.environ.pop("OMP_NUM_THREADS", None)
        report.equal("buffers are planned for the threads of the machine", json.loads(plan("--machine", machine, "--json").stdout)["threads"], 5)
        machine.write_text(measured)
        os.environ["QFT_DEVICE"] = "cuda"  # as a login node's profile may set it
        report.holds("QFT_DEVICE=cuda plans for GPUs, here or not", "for ranks on GPUs" in plan().stdout)
        os.environ |= {"QFT_DEVICE": "sim", "QFT_BACKEND_PATH": str(args.build / "tests"), "QFT_SIM_UNIFIED": "1"}
        unified = plan("offload_optimizer=cpu").stdout
        report.holds("a device with unified memory here: nothing is planned on the host, and why is said",
                     "GPUs with unified memory, as here" in unified and "note: offload_optimizer is cpu, which has no effect" in unified and "on the host" not in unified, unified)
        for name in ("QFT_DEVICE", "QFT_BACKEND_PATH", "QFT_SIM_UNIFIED"):
            del os.environ[name]

        machine.write_text(measured + "netwrok_gb_s: 3\n")
        wrong = plan("--machine", machine, check=False)
        report.holds("an unknown key of a machine is refused by line, with the nearest name",
                     wrong.returncode == 2 and "did you mean 'network_gb_s'" in wrong.stderr, wrong.stderr)
        report.holds("under mpirun it is refused", mpirun(2, [qft, "plan", run_file, "--ranks", "2"], check=False).returncode == 2)
    report.finish()


main()
