"""Files of torch.save(), written by torch: torch_file_interop.py FOLDER

Each NAME.pt has beside it NAME.safetensors with the same tensors, row-major and each with bytes of its own; the files in
FOLDER/refused have none.
"""
import builtins
import collections
import os
import sys
import zipfile
from pathlib import Path

import torch
from safetensors.torch import save_file

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
          torch.uint8, torch.bool]


def good():
    values = torch.arange(60, dtype=torch.float64).reshape(3, 4, 5) / 4
    yield "dtypes", {f"w.{d}": values.to(d) for d in DTYPES} | {"scalar": torch.tensor(2.5), "empty": torch.empty(0, 7)}, {}
    yield "views", {"whole": values, "transposed": values.permute(2, 0, 1), "row": values[1], "column": values[:, 2],
                    "every_other": values[:, ::2, 1:], "matrix": values[0].t(), "one": values[2, 3, 4], "thin": values[:, :, :1],
                    "none": values[3:], "flat": values.flatten()[7:13]}, {}
    tied = torch.nn.Parameter(values.bfloat16())
    model = torch.nn.Sequential(collections.OrderedDict(embed=torch.nn.Embedding(7, 5), norm=torch.nn.LayerNorm(5),
                                                        head=torch.nn.Linear(5, 7, bias=False)))
    model.head.weight = model.embed.weight
    state = model.state_dict()
    assert hasattr(state, "_metadata")
    yield "module", state, {}
    yield "tied", {"a": tied, "b": tied, "c": tied.data}, {}
    yield "parameters", dict(model.named_parameters()), {}
    for protocol in (3, 4, 5):
        yield f"protocol_{protocol}", {**state, "tied": tied}, {"pickle_protocol": protocol}
    yield "nested", {"model": collections.OrderedDict(w=values, sub={"v": values.half()}), "list": [values[0], None], "step": 3,
                     "name": "x", "loss": 0.5, "done": True, "type": None}, {}
    yield "many", {f"layer.{i}.weight": torch.full((2, 3), float(i)) for i in range(3000)}, {}
    yield "large_number", {"w": values, "seed": 2**40, "negative": -(2**40)}, {}


def flat(value, name=""):
    if isinstance(value, torch.Tensor):
        yield name, value.detach().clone().contiguous()
    elif isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from flat(item, f"{name}.{key}" if name else str(key))


class Evil:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def refused(folder):
    w = torch.ones(3)
    witness = str(folder / "EXECUTED")
    yield "system", {"w": w, "x": Evil(os.system, f"touch {witness}")}, {}
    yield "eval", {"w": w, "x": Evil(builtins.eval, f"open({witness!r}, 'w')")}, {}
    yield "exec_4", {"w": w, "x": Evil(builtins.exec, f"open({witness!r}, 'w')")}, {"pickle_protocol": 4}
    yield "training_args", {"w": w, "args": collections.Counter("a")}, {}
    yield "sparse", {"w": w.to_sparse()}, {}
    yield "expanded", {"w": w.expand(1000, 3)}, {}
    yield "complex", {"w": torch.ones(3, dtype=torch.complex64)}, {}
    yield "float8", {"w": w.to(torch.float8_e4m3fn)}, {}
    yield "single", w, {}
    yield "legacy", {"w": w}, {"_use_new_zipfile_serialization": False}


def rewrite(source, target, method, change):
    """The archive with records changed by `change`, (name, bytes) to bytes or None, as another program packs it."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", method) as new:
        for record in old.infolist():
            content = change(record.filename, old.read(record))
            if content is not None:
                new.writestr(record.filename, content)


def main():
    folder = Path(sys.argv[1])
    for name, value, options in good():
        torch.save(value, folder / f"{name}.pt", **options)
        save_file(dict(flat(value)), folder / f"{name}.safetensors")
    bad = folder / "refused"
    bad.mkdir()
    for name, value, options in refused(folder):
        torch.save(value, bad / f"{name}.pt", **options)
    torch.jit.script(torch.nn.Linear(2, 2)).save(bad / "script.pt")

    plain = folder / "dtypes.pt"
    as_it_is = lambda name, content: content
    rewrite(plain, folder / "packed_again.pt", zipfile.ZIP_STORED, as_it_is)
    (folder / "packed_again.safetensors").write_bytes((folder / "dtypes.safetensors").read_bytes())
    rewrite(plain, bad / "compressed.pt", zipfile.ZIP_DEFLATED, as_it_is)
    rewrite(plain, bad / "big_endian.pt", zipfile.ZIP_STORED, lambda n, c: b"big" if n.endswith("byteorder") else c)
    rewrite(plain, bad / "no_pickle.pt", zipfile.ZIP_STORED, lambda n, c: None if n.endswith("data.pkl") else c)
    rewrite(plain, bad / "no_record.pt", zipfile.ZIP_STORED, lambda n, c: None if n.endswith("data/1") else c)
    rewrite(plain, bad / "short_record.pt", zipfile.ZIP_STORED, lambda n, c: c[:-1] if n.endswith("data/1") else c)
    (bad / "truncated.pt").write_bytes(plain.read_bytes()[:-1])
    (bad / "no_zip.pt").write_bytes(b"x" * 100)


main()
