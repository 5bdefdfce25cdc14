"""What the test scripts and test.sh say of themselves: a Report without checks fails, skips and slow tests are listed."""
import contextlib
import io
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/interop"))
from common import Report  # noqa: E402

LOG = """1/2 Testing: encode_test
Output:
----------------------------------------------------------
[ RUN      ] Golden.Encodes
/a/b_test.cpp:12: Skipped
no shared test data

[  SKIPPED ] Golden.Encodes (0 ms)
[ RUN      ] Golden.Other
[       OK ] Golden.Other (0 ms)
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] Golden.Encodes
2/2 Testing: interop.text
Output:
----------------------------------------------------------
skipped: no module named 'jieba'
"""
PRINTED = """1/2 Test #1: encode_test ........   Passed    1.25 sec
2/2 Test #2: interop.text .....***Skipped   0.50 sec

100% tests passed, 0 tests failed out of 2

Total Test time (real) =   1.80 sec
"""


def ending(fill):
    report = Report()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        fill(report)
        try:
            report.finish()
        except SystemExit as end:
            return end.code, said.getvalue()


def of_script(script):
    with tempfile.TemporaryDirectory() as build:
        (Path(build) / "Testing/Temporary").mkdir(parents=True)
        (Path(build) / "Testing/Temporary/LastTest.log").write_text(LOG)
        return subprocess.run([sys.executable, ROOT / "scripts/test_report.py", build], input=PRINTED, capture_output=True, text=True, check=True).stdout


def main():
    report = Report()
    report.holds("a report without checks fails", ending(lambda r: None)[0] not in (0, None))
    report.equal("one that held is a success", ending(lambda r: r.equal("one", 1, 1))[0], 0)
    code, said = ending(lambda r: (r.equal("one", 2, 1), r.holds("two", True)))
    report.holds("one that did not is a failure, with both values", code == 1 and "2, expected 1" in said, said)
    code, said = ending(lambda r: r.check("error", float("nan"), 1e-3))
    report.equal("no number is no small error", code, 1)
    try:
        ending(lambda r: r.check("wrong", 0 if True else 1, 0))
        report.holds("a boolean is not taken for an error", False)
    except ValueError:
        report.holds("a boolean is not taken for an error", True)

    said = of_script("test_report.py")
    report.holds("each skipped case is listed by its reason", "no shared test data: encode_test: Golden.Encodes\n" in said, said)
    report.holds("    ... a skipped script too", "no module named 'jieba': interop.text\n" in said, said)
    report.holds("    ... and their number", "Skipped cases: 2" in said, said)
    report.holds("the slowest tests come first", said.index("1.2 s  encode_test") < said.index("0.5 s  interop.text"), said)
    report.holds("the last lines are ctest's", said.endswith(PRINTED[PRINTED.index("100%"):]), said)
    report.finish()


main()
