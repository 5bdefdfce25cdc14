"""qft-pack on two ranks, killed at random moments: no half pack is left, and the next run makes the same file.

    pack_kill.py --build build [--kills N]
"""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import arguments


def write_inputs(folder):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    rng = random.Random(3)
    with open(folder / "d.jsonl", "w", encoding="utf-8") as lines:
        for i in range(40_000):
            lines.write(json.dumps({"instruction": f"question {i}", "input": "", "output": "answer " * rng.randrange(1, 60)}) + "\n")
    (folder / "dataset_info.json").write_text(json.dumps({"d": {"file_name": "d.jsonl"}}))
    (folder / "run.yaml").write_text(f"stage: sft\nmodel_name_or_path: {folder}\ndataset_dir: {folder}\ndataset: d\n"
                                     "template: chatml\n")


def start(program, folder, name, ranks=2):
    mpirun = ["mpirun", "--oversubscribe", "--bind-to", "none", "--allow-run-as-root", "-np", str(ranks)]
    return subprocess.Popen((mpirun if ranks > 1 else []) + [program, folder / "run.yaml", "--workers", "1", "--output", folder / name],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def children_of(pid):
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def kill_all(process):
    """mpirun and its ranks at once, as a node that goes down."""
    for pid in [*children_of(process.pid), process.pid]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


def main():
    args = arguments(kills=8)
    program = args.build / "bin/qft-pack"
    rng = random.Random(time.time_ns())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_inputs(folder)
        begin = time.monotonic()
        assert start(program, folder, "whole.h5").wait() == 0
        took = time.monotonic() - begin
        whole = (folder / "whole.h5").read_bytes()
        for ranks in (1, 3):
            assert start(program, folder, "other.h5", ranks).wait() == 0
            assert (folder / "other.h5").read_bytes() == whole, f"{ranks} ranks make another file"
        pack, unfinished = folder / "p.h5", 0
        for kill in range(args.kills):
            delay = rng.uniform(0, took)
            process = start(program, folder, "p.h5")
            time.sleep(delay)
            kill_all(process)
            if pack.exists():
                assert pack.read_bytes() == whole, f"kill {kill} after {delay:.3f} s left a pack that is not whole"
            else:
                unfinished += 1
            assert start(program, folder, "p.h5").wait() == 0, f"the run after kill {kill} failed"
            assert pack.read_bytes() == whole, f"kill {kill} after {delay:.3f} s changed the pack"
            assert not (folder / "tmp-p.h5.parts").exists(), "parts are left"
            pack.unlink()
        print(f"{args.kills} kills within {took:.2f} s, {unfinished} before the end: the same {len(whole)} bytes each time")
        assert unfinished > 0, "every kill came too late"


if __name__ == "__main__":
    sys.exit(main())
