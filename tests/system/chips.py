"""What differs from chip to chip, on the simulated device: memory that is the host's, no bf16, no kernels for the chip."""
import json
import os
import re
import struct
import subprocess
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
from safetensors.numpy import load_file

from common import Report, arguments, mpirun
from tiny import make, write


def to_bf16(model):
    """The model's weights as bfloat16, which numpy does not have: its upper 16 bits, under a header of our own."""
    header, data = {}, b""
    for name, values in load_file(model / "model.safetensors").items():
        half = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(half)]}
        data += half
    text = json.dumps(header).encode()
    (model / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    args = arguments()
    qft = args.build / "bin/qft"
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        base = make(tmp) | {"max_steps": 2, "save_strategy": "no", "overwrite_output_dir": True, "global_batch_size": 2}

        def run(command, settings, ranks=1, **chip):
            run_file = write(tmp / "run.yaml", base | settings)
            sim = {"QFT_DEVICE": "sim", "QFT_BACKEND_PATH": str(args.build / "tests")}
            # What is said of one rank is as "0=1": QFT_SIM_BF16="1=0" takes bf16 from rank 1.
            of_one = {name: value.split("=") for name, value in chip.items() if re.fullmatch(r"\d=\d", value)}
            each = "".join(f"[ $OMPI_COMM_WORLD_RANK = {rank} ] && export {name}={value}; " for name, (rank, value) in of_one.items())
            with mock.patch.dict(os.environ, sim | {name: value for name, value in chip.items() if name not in of_one}):
                result = mpirun(ranks, ["bash", "-c", each + 'exec "$@"', "rank", qft, *command.split(), run_file], check=False)
            log = tmp / "out/trainer_log.jsonl"
            losses = [json.loads(line).get("loss") for line in log.read_text().splitlines()] if log.exists() else []
            return result, result.stdout + result.stderr, losses

        def memory():
            return json.loads((tmp / "out/train_results.json").read_text())["memory_predicted"]

        # Unified memory: what is offloaded would stay where it is.
        offload = {"strategy": "zero2", "offload_optimizer": "cpu"}
        apart, told, expected = run("train", offload)
        report.equal("a device with its own memory trains with offloading", apart.returncode, 0)
        report.holds("and says so", "offloaded to host memory: optimizer" in told and "is cpu, which has no effect" not in told, told)
        unified, told, losses = run("train", offload | {"offload_param": "cpu"}, QFT_SIM_UNIFIED="1")
        report.equal("one with unified memory trains too", unified.returncode, 0)
        report.equal("the same losses", losses, expected)
        for key in ("offload_optimizer", "offload_param"):
            report.holds(f"{key} is said to have no effect",
                         re.search(f"note: {key} is cpu, which has no effect on simulated device, .*: its memory is host memory", told), told)
        report.holds("nothing is offloaded", "strategy   zero2: " in told and "offloaded to" not in told, told)
        predicted = memory()
        run("train", {"strategy": "zero2"})
        report.equal("what the allocator holds is predicted without copies in host memory", predicted, memory())
        _, told, losses = run("train", offload, ranks=2, QFT_SIM_UNIFIED="1=1")
        report.holds("where one rank's memory is the host's, all run without offloading", losses and "strategy   zero2: " in told and "offloaded to" not in told, told)

        # No bf16, as on V100.
        for settings, key in (({"compute_dtype": "auto", "bf16": True}, "bf16"), ({"compute_dtype": "bfloat16"}, "compute_dtype")):
            result, told, _ = run("train", settings, QFT_SIM_BF16="0")
            report.equal(f"{key}: a chip without bf16 is a user's error", result.returncode, 2)
            report.holds("which names the chip and what to set",
                         re.search(rf"{key} asks for bf16, which this device does not support \(simulated device, .*\): set fp16: true instead",
                                   told), told)
        result, told, losses = run("train", {"compute_dtype": "auto", "fp16": True}, QFT_SIM_BF16="0")
        report.holds("fp16 trains there", result.returncode == 0 and losses and losses[0] is not None, told)
        for compute, bf16, advised in (("float16", "0", False), ("float32", "0", False), ("float32", "1", True)):
            result, told, _ = run("train", {"compute_dtype": compute, "lora_dropout": 0.0, "cuda_graphs": True}, QFT_SIM_BF16=bf16)
            report.holds(f"cuda_graphs without flash attention, {compute}, bf16 {bf16}: bf16 is advised where it helps",
                         result.returncode == 2 and "needs flash attention" in told and ("set bf16: true" in told) == advised, told)
        to_bf16(tmp / "model")
        ask = {"compute_dtype": "auto", "prompt": "Say the number 3", "max_new_tokens": 2, "do_sample": False}
        result, told, _ = run("generate", ask, QFT_SIM_BF16="0")
        report.holds("a model in bf16 answers in fp32 there, and why is said",
                     result.returncode == 0 and "in bfloat16, which this device does not support" in told, told)

        # Ranks on unlike chips compute in one type.
        result, told, _ = run("eval", {"compute_dtype": "auto", "do_train": False, "eval_dataset": "numbers"}, ranks=2, QFT_SIM_BF16="1=0")
        report.holds("where one rank's chip has no bf16 all answer in fp32, and why is said",
                     result.returncode == 0 and "in bfloat16, which another rank's device does not support" in told, told)
        result, told, _ = run("train", {"compute_dtype": "auto", "bf16": True}, ranks=2, QFT_SIM_BF16="1=0")
        report.holds("training in bf16 is refused there, by that rank", result.returncode == 2 and re.search(r"rank 1.*bf16 asks for bf16, which this device does not support", told), told)

        # A chip that nothing was compiled for.
        obstacle = "its compute capability is 7.0, but qft's kernels are compiled for 8.0, 9.0"
        result, told, _ = run("train", {}, ranks=2, QFT_SIM_OBSTACLE=obstacle)
        report.equal("a chip without kernels is refused before anything runs", result.returncode, 2)
        report.holds("with both versions and what to do", re.search(rf"sim:0 \(simulated device\) cannot be used: {obstacle}; use .*use_cpu", told), told)
        report.holds("in one message", told.count(obstacle) == 1, told)
        result, _, losses = run("train", {"use_cpu": True}, QFT_SIM_OBSTACLE=obstacle)
        report.holds("use_cpu: true goes on without it", result.returncode == 0 and losses, result.stderr)
        environment = {**os.environ, "QFT_DEVICE": "sim", "QFT_BACKEND_PATH": str(args.build / "tests"), "QFT_SIM_OBSTACLE": obstacle}
        told = subprocess.run([qft, "--version"], capture_output=True, text=True, check=True, env=environment).stdout
        report.holds("qft --version says it too", obstacle in told, told)
    report.finish()


main()
