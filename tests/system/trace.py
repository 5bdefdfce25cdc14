"""A trace of chosen steps: the form that viewers read, a thread for each lane of each rank, prefetches beside the computation, the
loader and a save that runs in the background; the simulated device's streams; files that are not to be replaced."""
import json
import os
import tempfile
from pathlib import Path

from common import Report, arguments, mpirun
from tiny import make, write


def check_form(report, what, trace):
    """Chrome's trace event format, as far as Perfetto needs it."""
    names, bad, last = {}, [], {}
    for event in trace["traceEvents"]:
        if event["ph"] == "M":
            if event["name"] in ("thread_name", "process_name"):
                names[event["name"], event["pid"], event["tid"]] = event["args"]["name"]
            continue
        if event["ph"] != "X" or not isinstance(event["ts"], (int, float)) or not event["dur"] >= 0 or not event["name"] or event["ts"] < -1e4:
            bad.append(event)
        if ("thread_name", event["pid"], event["tid"]) not in names:
            bad.append(event)
        stack = last.setdefault((event["pid"], event["tid"]), [])
        while stack and stack[-1] <= event["ts"] + 1e-3:
            stack.pop()
        if stack and event["ts"] + event["dur"] > stack[-1] + 1e-3:  # neither behind the one before it nor inside
            bad.append(event)
        stack.append(event["ts"] + event["dur"])
    report.equal(f"{what}: each event is complete, in a named thread, nested or apart", bad, [])
    return names


def spans(trace, rank, lane, word=""):
    return [(e["ts"], e["ts"] + e["dur"], e["name"]) for e in trace["traceEvents"]
            if e["ph"] == "X" and e["pid"] == rank and e["cat"] == lane and word in e["name"]]


def overlap(one, other):
    return any(a < d and c < b for a, b, _ in one for c, d, _ in other)


def main():
    args = arguments()
    qft, report = args.build / "bin/qft", Report()
    with tempfile.TemporaryDirectory() as name:
        tmp = Path(name)
        settings = {**make(tmp), "max_steps": 6, "logging_steps": 1, "save_steps": 3, "strategy": "zero3", "finetuning_type": "full"}

        def train(what, **changes):
            run_file = write(tmp / f"{what}.yaml", {**settings, "output_dir": str(tmp / what), **changes})
            return mpirun(2, [qft, "train", run_file], check=False, timeout=120)

        file = tmp / "traces/steps.json"
        result = train("zero3", trace=str(file), trace_steps="2-3")
        report.equal("a run with a trace ends with 0", result.returncode, 0)
        report.holds("the log names the file", f"trace of steps 2 to 3: '{file}'" in result.stderr, result.stderr)
        trace = json.loads(file.read_text())
        names = check_form(report, "zero3", trace)
        report.equal("a process for each rank", sorted(p for kind, p, _ in names if kind == "process_name"), [0, 1])
        for rank in (0, 1):
            forward, backward = spans(trace, rank, "main thread", "forward"), spans(trace, rank, "main thread", "backward")
            gathers = spans(trace, rank, "collectives: slices", "all_gather")
            report.holds(f"rank {rank}: forward and backward of the layers", forward and len(backward) == len(forward), [len(forward), len(backward)])
            report.holds(f"rank {rank}: prefetches beside the computation", overlap(gathers, forward + backward), gathers)
            report.holds(f"rank {rank}: gradients are scattered", spans(trace, rank, "collectives: slices", "reduce_scatter"), names)
            report.equal(f"rank {rank}: two optimizer updates", len(spans(trace, rank, "main thread", "optimizer")), 2)
            report.equal(f"rank {rank}: two batches", len(spans(trace, rank, "main thread", "wait for the batch")), 2)
            report.holds(f"rank {rank}: the checkpoint of step 3 begins", spans(trace, rank, "main thread", "start a checkpoint"), names)
            ends = max(end for _, end, _ in forward + backward)
            report.holds(f"rank {rank}: nothing of other steps", ends < 60e6, ends)

        whole = train("whole", trace=str(tmp / "short.json"), trace_steps="5-20")
        report.equal("steps behind the end are left out", json.loads((tmp / "short.json").read_text())["otherData"]["last_step"], 6)
        report.holds("    ... with a warning", "trace_steps is 5-20, but the run has 6 steps" in whole.stderr, whole.stderr)

        late = train("late", trace=str(file), trace_steps="7")
        report.holds("steps that do not exist are refused", late.returncode == 2 and "trace_steps is 7, but the run has 6 steps" in late.stderr, late.stderr)
        bad = train("bad", trace=str(file), trace_steps="3-2")
        report.holds("a range must rise", bad.returncode == 2 and "trace_steps" in bad.stderr and "3-2" in bad.stderr, bad.stderr)
        other = tmp / "notes.json"
        other.write_text('{"mine": true}\n')
        taken = train("taken", trace=str(other))
        report.holds("another program's file is not replaced", taken.returncode == 2 and other.read_text() == '{"mine": true}\n', taken.stderr)
        again = train("again", trace=str(file), trace_steps="4")
        report.equal("an earlier trace is", json.loads(file.read_text())["otherData"]["first_step"], 4)
        report.equal("    ... and the run ends with 0", again.returncode, 0)

        plain = train("plain")
        losses = [[json.loads(line)["loss"] for line in (tmp / run / "trainer_log.jsonl").read_text().splitlines() if "loss" in json.loads(line)][:6]
                  for run in ("plain", "zero3")]
        report.equal("a traced run has the same losses", losses[0], losses[1])

        os.environ |= {"QFT_DEVICE": "sim", "QFT_BACKEND_PATH": str(args.build / "tests")}
        sim = train("sim", trace=str(tmp / "sim.json"), trace_steps="2", compute_dtype="float32")
        report.equal("on the simulated device: ends with 0", sim.returncode, 0)
        trace = json.loads((tmp / "sim.json").read_text())
        check_form(report, "    ...", trace)
        for lane, word in (("stream: compute", "forward"), ("stream: compute", "optimizer"), ("stream: collectives", "all_gather")):
            report.holds(f"    ... {lane} did {word}", spans(trace, 1, lane, word), sorted({e.get("cat") for e in trace["traceEvents"]} - {None}))
    report.finish()


main()
