"""The outside judge for qft's safetensors: writes files for qft to read, checks what qft wrote.

usage: safetensors_interop.py write|check FILE
Both files hold "w" [3, 5] = arange / 4 in every dtype that qft knows, a scalar and an empty tensor.
"""
import sys

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}


def expected():
    values = torch.arange(15, dtype=torch.float64).reshape(3, 5) / 4
    tensors = {f"w.{name}": values.to(dtype) for name, dtype in DTYPES.items()}
    tensors["scalar"] = torch.tensor(2.5)
    tensors["empty"] = torch.empty(0, 7, dtype=torch.bfloat16)
    return tensors


def main():
    action, path = sys.argv[1:]
    if action == "write":
        save_file(expected(), path, metadata={"format": "pt"})
        return
    with safe_open(path, "pt") as f:
        assert f.metadata() == {"format": "pt"}, f.metadata()
    got, want = load_file(path), expected()
    assert got.keys() == want.keys(), got.keys()
    for name, tensor in want.items():
        assert got[name].dtype == tensor.dtype and torch.equal(got[name], tensor), name


main()
