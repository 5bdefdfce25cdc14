"""The rules of the judges themselves: what counts as a failure, and that a failed judge writes nothing."""
import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

import torch

import model_parity
import recorded
from common import ROOT, Report
from models import ends_clearly

sys.path.insert(0, str(ROOT / "tests/tokenizer"))


def fails(compare):
    """Whether comparisons made in compare(report) fail."""
    inner = Report()
    with contextlib.redirect_stdout(io.StringIO()):
        compare(inner)
    return inner.failed > 0


def check_recorded_numbers(report, directory):
    path = directory / "numbers.json"
    old = {"inputs": {"run": "a"}, "fp64": {"losses": [1.0, 2.0]}, "fp32 error": {"losses": 1e-6}}
    cases = [("the same", {}, True), ("an fp32 error like the recorded", {"fp32 error": {"losses": 1.3e-6}}, True),
             ("a larger fp32 error", {"fp32 error": {"losses": 1e-5}}, False),
             ("a smaller fp32 error", {"fp32 error": {"losses": 1e-7}}, False),
             ("another loss", {"fp64": {"losses": [1.0, 2.1]}}, False), ("other inputs", {"inputs": {"run": "b"}}, False),
             ("a number less", {"fp64": {}}, False)]
    for name, changes, good in cases:
        path.write_text(json.dumps(old))
        golden = {**old, **changes, "made": "now"}

        def judge(inner):
            recorded.check_again(inner, golden, path)
            recorded.write(inner, golden, path)

        report.equal(f"judged again, {name}: fails", fails(judge), not good)
        report.equal(f"judged again, {name}: written", json.loads(path.read_text()) == golden, good)


def check_tokenizers(report, directory):
    import interop

    interop.GOLDEN = directory / "golden/answers.json"
    judge = interop.Judge()

    def write(answer, wrong):
        """How many suites changed, and whether they were recorded."""
        judge.suites = {"one": {"tokenizer": "t", "texts": "x", "answers": [answer]}}
        with contextlib.redirect_stdout(io.StringIO()):
            changed = judge.write(wrong)
        return changed, interop.GOLDEN.exists() and json.loads(interop.GOLDEN.read_text())["suites"] == judge.suites

    report.equal("answers that qft does not give: changed, recorded", write("a", 1), (0, False))
    report.equal("first answers: changed, recorded", write("a", 0), (0, True))
    report.equal("other answers: changed, recorded", write("b", 0), (1, False))


def check_ends(report):
    """Answers of 3 tokens; `clear` counts their end too."""
    for name, length, clear, whole in [("its end is clear", 3, 4, True), ("a tie at its end", 3, 3, False), ("a tie inside", 3, 2, False),
                                       ("as long as it may be", 5, 5, True), ("a tie in its last token", 5, 4, False)]:
        report.equal(f"an answer is met as a whole: {name}", ends_clearly([0] * length, clear, 5), whole)


def check_gradients(report):
    """30 layers in fp64, rounded by two programs alike; then one tensor of one layer is wrong."""
    generator = torch.Generator().manual_seed(0)
    random = lambda *shape: torch.randn(*shape, dtype=torch.float64, generator=generator)
    judge = {f"grad.layers.{i}.{name}.weight": random(*shape) for i in range(30) for name, shape in {"norm": (64,), "up": (64, 32)}.items()}
    judge.update(logits=random(5, 9), loss=random(1))

    def rounded():
        return {name: value * (1 + 2e-5 * random(*value.shape)) if name.startswith("grad.") else value for name, value in judge.items()}

    theirs = rounded()
    report.equal("gradients as good as transformers': fail", fails(lambda inner: model_parity.compare(inner, "", rounded(), judge, theirs)), False)
    for name in ("grad.layers.7.norm.weight", "grad.layers.29.up.weight"):
        for what, wrong in {"0": 0 * judge[name], "of the other sign": -judge[name], "rolled": judge[name].roll(1),
                            "too large by 0.02 %": judge[name] * 1.0002}.items():
            compare = lambda inner: model_parity.compare(inner, "", {**rounded(), name: wrong}, judge, theirs)
            report.equal(f"{name} is {what}: fails", fails(compare), True)


def main():
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        check_recorded_numbers(report, Path(tmp))
        check_tokenizers(report, Path(tmp))
    check_ends(report)
    check_gradients(report)
    report.finish()


main()
