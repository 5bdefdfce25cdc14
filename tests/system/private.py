"""output_dir private to each node, by mount namespaces: each of two ranks sees a directory of its own under the same path.
Checkpoints are whole on rank 0's, a resume needs nothing on the other's, and the run is that of a shared directory."""
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

from common import Report, arguments, mpirun, run
from tiny import cut, log_of, make, write

SAME = ["loss", "grad_norm", "lr", "epoch", "total_tokens"]


def wrapper(tmp, out):
    """A script that runs a program with disks/RANK mounted as OUT, in a mount namespace of its own."""
    script = tmp / "private.sh"
    disks = tmp / "disks"
    unshare = "unshare -m --propagation unchanged" if os.geteuid() == 0 else "unshare -rm"
    script.write_text(f'#!/bin/sh\nexec {unshare} sh -c \'mount --bind "{disks}/$OMPI_COMM_WORLD_RANK" "{out}" && exec "$@"\' sh "$@"\n')
    script.chmod(0o755)
    for rank in range(2):
        (disks / str(rank)).mkdir(parents=True)
    out.mkdir()
    return script, disks


@contextmanager
def own_mount(directory):
    """What a rank mounts below DIRECTORY stays in its namespace, however the file system around it propagates mounts."""
    mounted = os.geteuid() == 0 and subprocess.run(["mount", "--bind", directory, directory], capture_output=True).returncode == 0
    if mounted:
        subprocess.run(["mount", "--make-private", directory], check=True)
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", "-l", directory], check=True)


def permitted(script):
    result = subprocess.run([script, "true"], env={**os.environ, "OMPI_COMM_WORLD_RANK": "0"}, capture_output=True, text=True)
    return result.returncode == 0, result.stderr.strip()


def main():
    args = arguments()
    qft, ckpt = args.build / "bin/qft", args.build / "bin/qft-ckpt"
    report = Report()
    for name, changes in [("LoRA by PiSSA ddp", {"save_on_each_node": True, "pissa_init": True}),
                          ("full zero3", {"finetuning_type": "full", "learning_rate": 1e-3, "strategy": "zero3"})]:
        with tempfile.TemporaryDirectory() as tmp, own_mount(tmp):
            tmp = Path(tmp)
            out = tmp / "out"
            script, disks = wrapper(tmp, out)
            works, why = permitted(script)
            if not works:
                print(f"skipped: no mount namespaces here: {why}")
                sys.exit(77)
            settings = {**make(tmp), **changes, "compute_dtype": "float32", "save_steps": 3}
            # Packs are made by all ranks together: on private disks they come from elsewhere.
            run([args.build / "bin/qft-pack", write(tmp / "pack.yaml", settings), "--output", tmp / "train.h5"])
            settings["pack"] = str(tmp / "train.h5")
            shared = tmp / "shared"
            mpirun(2, [qft, "train", write(tmp / "shared.yaml", {**settings, "output_dir": str(shared)})])
            run_file = write(tmp / "private.yaml", {**settings, "output_dir": str(out)})

            def same_as_shared(what):
                ours, theirs = log_of(disks / "0"), log_of(shared)
                lines = sum(any(a.get(k) != b.get(k) for k in SAME) for a, b in zip(ours, theirs)) + abs(len(ours) - len(theirs))
                report.equal(f"{name}: {what}: log lines that differ", lines, 0)
                weights = next(shared.glob("*.safetensors")).name
                report.holds("    ... the same weights", (shared / weights).read_bytes() == (disks / "0" / weights).read_bytes())
                for checkpoint in shared.glob("checkpoint-*"):
                    mine = disks / "0" / checkpoint.name
                    report.equal(f"    ... {checkpoint.name} verifies", run([ckpt, "verify", mine], check=False).returncode, 0)
                    report.equal("    ... and equals the shared one", run([ckpt, "diff", checkpoint, mine], check=False).returncode, 0)
                left = [p.name for p in (disks / "1").rglob("*") if p.is_file()]
                report.equal("    ... files left on the other disk", left, [])
                report.equal("    ... files in the directory below the mounts", list(out.iterdir()), [])

            told = mpirun(2, [script, qft, "train", run_file]).stderr
            if "save_on_each_node" in changes:
                report.holds(f"{name}: save_on_each_node is said to have no effect", "save_on_each_node" in told, told)
            same_as_shared("private directories")
            whole = tmp / "whole"
            (disks / "0").rename(whole)
            cut(whole, disks / "0", 6)
            mpirun(2, [script, qft, "train", run_file])
            same_as_shared("resumed")
            # The other rank has a copy of its own, as after an rsync: it reads that one.
            shutil.rmtree(disks / "0")
            cut(whole, disks / "0", 6)
            shutil.copytree(disks / "0/checkpoint-6", disks / "1/checkpoint-6")
            mpirun(2, [script, qft, "train", run_file])
            shutil.rmtree(disks / "1/checkpoint-6")
            same_as_shared("resumed with a copy on each disk")
    report.finish()


if __name__ == "__main__":
    main()
