"""One set of programs with and without a back end's file beside them: what they are linked with, what they say of a device that they do not
use, and that they go on on the CPU."""
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from unittest import mock

from common import Report, arguments, mpirun
from tiny import make, write

FOREIGN = re.compile(r"cuda|nccl|cudnn|cublas|nvrtc|cupti|hip|rccl")
DRIVER = """
#include <stdlib.h>
int cuInit(unsigned flags) { return atoi(getenv("FAKE_INIT")); }
int cuDeviceGetCount(int* count) { *count = atoi(getenv("FAKE_COUNT")); return 0; }
"""


def needed(file):
    text = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", text)


def linked(report, build):
    files = [build / "bin" / name for name in ("qft", "qft-pack", "qft-ckpt")]
    for file in files:
        report.equal(f"{file.name} names no library of an accelerator", [name for name in needed(file) if FOREIGN.search(name)], [])


def version(qft, **environment):
    return subprocess.run([qft, "--version"], capture_output=True, text=True, check=True, env={**os.environ, **environment}).stdout


def reasons(report, qft, tmp, backend):
    """Why CUDA is not used, one obstacle after the other."""
    (tmp / "driver.c").write_text(DRIVER)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp / "libcuda.so.1", tmp / "driver.c"], check=True)
    empty, broken = tmp / "empty", tmp / "broken"
    empty.mkdir()
    broken.mkdir()
    (broken / "libqft_cuda.so").write_text("no object")
    driver = {"LD_LIBRARY_PATH": f"{tmp}:{os.environ.get('LD_LIBRARY_PATH', '')}", "FAKE_INIT": "0", "FAKE_COUNT": "1"}
    cases = [("no file", {"QFT_BACKEND_PATH": str(empty)}, "libqft_cuda.so is not beside the program"),
             ("a file that is no object", {"QFT_BACKEND_PATH": str(broken), **driver}, r"'\S+/libqft_cuda.so' does not load: .*(too short|invalid)")]
    other = tmp / "other"
    other.mkdir()
    (other / "table.c").write_text('const char* const qft_device_backend_abi = "of another day";\nvoid* qft_device_backend(void) { return 0; }\n')
    subprocess.run(["cc", "-shared", "-fPIC", "-o", other / "libqft_cuda.so", other / "table.c"], check=True)
    cases += [("a file of another build", {"QFT_BACKEND_PATH": str(other), **driver}, r"and the program are from different builds \(ABI of another day and ")]
    if backend:
        cases += [("a driver that does not start", {**driver, "FAKE_INIT": "3"}, r"does not start \(cuInit: error 3\)"),
                  ("no GPU shown", {**driver, "FAKE_INIT": "100", "CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES='' leaves no GPU"),
                  ("a driver that is none", driver, "cudaGetDeviceCount: ")]
    for name, environment, words in cases:
        told = version(qft, **environment)
        report.holds(f"{name}: qft --version says why CUDA is not used", re.search(f"^cuda: not used: .*{words}", told, re.M), told)
    return driver


def main():
    args = arguments()
    qft = args.build / "bin/qft"
    report = Report()
    backend = (args.build / "bin/libqft_cuda.so").exists()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        linked(report, args.build)
        driver = reasons(report, qft, tmp, backend)
        settings = make(tmp) | {"compute_dtype": "float32", "max_steps": 2, "save_strategy": "no"}

        def losses(name, **environment):
            out = tmp / name
            run_file = write(tmp / f"{name}.yaml", settings | {"output_dir": str(out)})
            with mock.patch.dict(os.environ, environment):
                result = mpirun(2, [qft, "train", run_file], check=False)
            lines = (out / "trainer_log.jsonl").read_text().splitlines() if result.returncode == 0 else []
            return result, [json.loads(line).get("loss") for line in lines]

        alone = shutil.copytree(args.build / "bin", tmp / "alone", ignore=lambda _, names: [n for n in names if n.endswith(".so")])
        _, expected = losses("with", QFT_DEVICE="auto")
        _, without = losses("without", QFT_BACKEND_PATH=str(tmp / "empty"))
        report.equal("the same losses without the file", without, expected)
        report.holds("there are losses", expected and all(x is not None for x in expected[:1]), expected)
        told = subprocess.run([alone / "qft", "--version"], capture_output=True, text=True, check=True).stdout
        report.holds("a copy of the programs alone runs", "cuda: not used: libqft_cuda.so is not beside the program" in told, told)
        if backend:
            result, on_cpu = losses("no-gpu", **driver)
            report.equal("where CUDA's part loads and finds no GPU, training goes on on the CPU", on_cpu, expected)
            report.holds("... which is said", re.search("cuda is not used: cudaGetDeviceCount: ", result.stderr), result.stderr)
        result, _ = losses("asked", QFT_DEVICE="cuda")
        if "cuda: not used" in version(qft):
            report.holds("a device that is asked for and not here is refused with the reason",
                         result.returncode == 2 and "device 'cuda' cannot be used here: " in result.stderr, result.stderr)
    report.finish()


main()
