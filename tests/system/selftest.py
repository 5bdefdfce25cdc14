"""qft selftest as a user runs it: the table, its JSON, its exit codes, alone and with two ranks, on the CPU and a part of it on
the simulated device."""
import json
import os
import re
import time
from unittest import mock

from common import Report, arguments, mpirun, run

GROUPS = ["copies", "kernels", "optimizers", "products", "attention", "collectives", "steps", "decoding"]
# On the simulated device, which takes its time: something of each group.
FEW = "copies/pinned|copies/graphs|kernels/rope|optimizers/.*fp32, 1029|products/.*fp32, (1|37) |attention/.*fp32.*64$|" \
      "collectives/.*f32, 1009|steps/(ddp|zero3)/LoRA, fp32|decoding/.*fp32, qwen3, ddp"
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}


def whole(report, qft, ranks):
    start = time.monotonic()
    command = [qft, "selftest", "--device", "cpu", "--json"]
    result = mpirun(ranks, command, check=False) if ranks > 1 else run(command, check=False, env=ENV)
    report.equal(f"{ranks} ranks: exit code", result.returncode, 0)
    told = json.loads(result.stdout)
    failed = [check for check in told["checks"] if check["verdict"] == "FAILED"]
    report.equal("    no check fails", failed, [])
    report.equal("    its groups, in order", list(dict.fromkeys(check["group"] for check in told["checks"])), GROUPS)
    report.equal("    ranks and verdict", (told["ranks"], told["passed"]), (ranks, True))
    report.holds("    errors are within limits", all(c["error"] <= c["limit"] for c in told["checks"] if "limit" in c))
    report.holds("    what is skipped says why", all(c["why"] for c in told["checks"] if c["verdict"] == "skipped"))
    report.holds("    most is measured", sum("limit" in c for c in told["checks"]) > 150, len(told["checks"]))
    report.holds("    the summary", re.fullmatch(rf"selftest passed: \d+ checks \(\d+ skipped\) on {ranks} ranks?, cpu \(.+\), \d+ s", told["summary"]), told["summary"])
    strategies = {check["what"] for check in told["checks"] if check["group"] == "steps"}
    report.equal("    its strategies", strategies, {"ddp", "zero3"} if ranks == 1 else {"ddp", "zero1", "zero2", "shard_grad_op", "zero3"})
    print(f"        {len(told['checks'])} checks, {time.monotonic() - start:.0f} s")


def simulated(report, build, ranks):
    sim = {"QFT_DEVICE": "sim", "QFT_BACKEND_PATH": str(build / "tests")}
    command = [build / "bin/qft", "selftest", "--json", "--only", FEW]
    with mock.patch.dict(os.environ, sim):
        result = mpirun(ranks, command, check=False) if ranks > 1 else run(command, check=False, env=ENV | sim)
    report.equal(f"simulated device, {ranks} ranks: exit code", result.returncode, 0)
    told = json.loads(result.stdout)
    report.equal("    no check fails", [check for check in told["checks"] if check["verdict"] == "FAILED"], [])
    report.equal("    each group has been run", {check["group"] for check in told["checks"] if check["verdict"] == "ok"}, set(GROUPS))
    report.holds("    it names the device", re.search(rf"on {ranks} ranks?, sim \(simulated device", told["summary"]), told["summary"])


def parts(report, qft):
    table = run([qft, "selftest", "--device", "cpu", "--only", "kernels/rope"], env=ENV).stdout.splitlines()
    report.holds("a part of it as a table", table[0].split() == ["group", "what", "case", "error", "limit", "verdict"] and
                 all(re.match(r"kernels +rope +.* ok$", line) for line in table[1:-1]) and table[-1].startswith(f"selftest passed: {len(table) - 2} checks"), table)
    none = run([qft, "selftest", "--only", "no such check"], check=False, env=ENV)
    report.holds("a pattern that fits nothing", none.returncode == 2 and "matches no check" in none.stderr, none.stderr)
    absent = run([qft, "selftest", "--device", "tpu"], check=False, env=ENV)
    report.holds("a device that is not known", absent.returncode == 2 and "tpu" in absent.stderr, absent.stderr)


def main():
    report = Report()
    build = arguments().build
    qft = build / "bin/qft"
    parts(report, qft)
    for ranks in (1, 2):
        whole(report, qft, ranks)
        simulated(report, build, ranks)
    report.finish()


main()
