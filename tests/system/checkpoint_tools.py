"""qft-ckpt on the checkpoints of real runs: resharded ones resume to the very bytes, diff tells runs apart."""
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from common import Report, arguments, mpirun, run
from tiny import log_of, make, write, write_model


def main():
    args = arguments()
    qft, ckpt = args.build / "bin/qft", args.build / "bin/qft-ckpt"
    report = Report()

    def code(*words):
        return run([ckpt, *words], check=False).returncode

    for name, changes in [("LoRA", {}), ("full", {"finetuning_type": "full", "learning_rate": 1e-3})]:
        with tempfile.TemporaryDirectory() as tmp:
            tmp = Path(tmp)
            settings = {**make(tmp), **changes, "compute_dtype": "float32", "save_steps": 3}
            whole = tmp / "whole"
            mpirun(2, [qft, "train", write(tmp / "whole.yaml", {**settings, "output_dir": str(whole)})])
            steps = len(log_of(whole))
            last = whole / f"checkpoint-{steps}"
            weights = next(whole.glob("*.safetensors")).name
            for ranks in (1, 3):
                resharded = tmp / f"for{ranks}/checkpoint-3"
                run([ckpt, "reshard", whole / "checkpoint-3", "--ranks", ranks, "--output", resharded])
                report.equal(f"{name}: {ranks} ranks: verify", code("verify", resharded), 0)
                report.equal(f"{name}: {ranks} ranks: equal to the original", code("diff", whole / "checkpoint-3", resharded), 0)
                resumed = tmp / f"resumed{ranks}"
                mpirun(2, [qft, "train", write(tmp / "resumed.yaml", {
                    **settings, "output_dir": str(resumed), "resume_from_checkpoint": str(resharded)})])
                same = (whole / weights).read_bytes() == (resumed / weights).read_bytes()
                report.holds(f"{name}: {ranks} ranks: resumed to the same weights", same)
                report.equal(f"{name}: {ranks} ranks: the same last checkpoint", code("diff", last, resumed / last.name), 0)
                report.equal(f"{name}: {ranks} ranks: its output_dir is another", code("diff", "--strict", last, resumed / last.name), 1)
            other = json.loads(run([ckpt, "diff", "--json", whole / "checkpoint-3", last], check=False).stdout)
            report.holds(f"{name}: later steps differ", not other["equal"] and other["position"], other)
            report.equal(f"{name}: masters that did not move", [t["name"] for t in other["tensors"] if t["name"].startswith("master.") and t["equal"]], [])
            report.equal(f"{name}: a missing one is exit code 2", code("diff", last, tmp / "none"), 2)

            shutil.copytree(last, whole / "tmp-checkpoint-99.0a1b2c3d")
            before = sorted(p.name for p in whole.iterdir())
            dry = run([ckpt, "gc", whole, "--keep", 1, "--min-age", 0, "--dry-run"]).stdout
            report.equal(f"{name}: gc --dry-run removes nothing", {p.name for p in whole.iterdir()}, set(before))
            run([ckpt, "gc", whole, "--keep", 1, "--min-age", 0])
            gone = set(before) - {p.name for p in whole.iterdir()}
            expected = {p for p in before if "checkpoint-" in p} - {last.name}
            report.equal(f"{name}: gc removes", gone, expected)
            report.equal(f"{name}: gc --dry-run did not name", [n for n in gone if n not in dry], [])
            report.equal(f"{name}: inspect", code("inspect", whole), 0)
    with tempfile.TemporaryDirectory() as tmp:
        expand(report, ckpt, Path(tmp))
    report.finish()


def expand(report, ckpt, tmp):
    """A deeper model keeps what its layers were: here full attention, which windows would begin behind; names of files' tensors may be odd."""
    write_model(tmp / "model", "qwen3", layers=2)
    config = json.loads((tmp / "model/config.json").read_text()) | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 2}
    (tmp / "model/config.json").write_text(json.dumps(config))
    path, odd = tmp / "model/model.safetensors", "model.layers.x.rotary_emb.inv_freq"
    save_file({**load_file(path), odd: np.ones(4, np.float32)}, path, metadata={"format": "pt"})
    run([ckpt, "expand", tmp / "model", "--layers", 2, "--output", tmp / "deeper"])
    deeper = json.loads((tmp / "deeper/config.json").read_text())
    report.equal("expand: layers, and those without a window", (deeper["num_hidden_layers"], deeper["max_window_layers"]), (4, 4))
    report.holds("expand: a tensor of no layer stays", odd in load_file(tmp / "deeper/model.safetensors"))


main()
