"""Numbers of a judge that stand in the repository, and the judge asked again."""
import json

import torch

SAME = 1e-6  # of the judge in fp64: two processors differ by less
FP32 = 1.5  # so far apart may the processor put two fp32 errors of one program


def rms_error(ours, theirs):
    """Over all values together: which single one is worst is chance."""
    ours, theirs = (torch.as_tensor(x, dtype=torch.float64) for x in (ours, theirs))
    return ((ours - theirs).norm() / theirs.norm()).item()


def check_again(report, golden, path):
    """The judge of today against what stands in `path`; nothing there: nothing to hold it against."""
    if not path.exists():
        return
    old = json.loads(path.read_text())
    report.equal("inputs are those of the recorded numbers", golden["inputs"], old["inputs"])
    report.equal("numbers are those recorded", sorted(golden["fp64"]), sorted(old["fp64"]))
    for what in golden["fp64"].keys() & old["fp64"].keys():
        report.check(f"{what} as recorded", rms_error(golden["fp64"][what], old["fp64"][what]), SAME)
        now, before = golden["fp32 error"][what], old["fp32 error"][what]
        report.check(f"{what}: fp32 error {now:.1e} and the recorded one apart by", max(now / before, before / now), FP32)


def write(report, golden, path):
    """Only where every comparison held; to accept others, remove the file first."""
    if report.failed:
        print(f"{path} stays as it was: {report.failed} comparison(s) failed; to take the judge's new numbers, remove it and ask again")
        return
    path.write_text(json.dumps(golden, indent=1) + "\n")
