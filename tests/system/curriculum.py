"""use_curriculum: each stage logs the shares that were asked for; without levels a warning and the usual order."""
import json
import re
import tempfile
from pathlib import Path

from common import Report, arguments, mpirun
from tiny import log_of, make, write

SHARES = [{"explain": 80, "reasoning": 20, "topology": 0}, {"explain": 40, "reasoning": 40, "topology": 20},
          {"explain": 25, "reasoning": 35, "topology": 40}]


def main():
    args = arguments()
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        settings = {**make(tmp), "max_steps": 10, "global_batch_size": 20, "per_device_train_batch_size": 10, "gradient_accumulation_steps": 1,
                    "dataset": "levels", "use_curriculum": True}
        sizes = {"explain": 60, "reasoning": 30, "topology": 5}  # topology is short for its share
        records = [{"instruction": f"Say {i}", "input": "", "output": str(i), "difficulty": level}
                   for level, size in sizes.items() for i in range(size)]
        (tmp / "data/levels.json").write_text(json.dumps(records))
        info = json.loads((tmp / "data/dataset_info.json").read_text())
        (tmp / "data/dataset_info.json").write_text(json.dumps({**info, "levels": {"file_name": "levels.json"}}))
        run_file = write(tmp / "run.yaml", {**settings, "output_dir": str(tmp / "levels")})
        lines = [line for line in mpirun(2, [args.build / "bin/qft", "train", run_file]).stderr.splitlines() if "curriculum, " in line]
        report.equal("stages in the log", len(lines), len(SHARES))
        for shares, line in zip(SHARES, lines):
            for level, share in shares.items():
                reached = re.search(rf"{level} ([\d.]+) %", line)
                report.check(f"{level} in '{line[line.index('curriculum'):][:24]}', percent", abs(float(reached[1]) - share), 0.05)
        report.holds("the short level is repeated", "repeated" in lines[-1], lines[-1])

        plain = write(tmp / "plain.yaml", {**settings, "dataset": "numbers", "output_dir": str(tmp / "plain")})
        usual = write(tmp / "usual.yaml", {**settings, "dataset": "numbers", "output_dir": str(tmp / "usual"), "use_curriculum": False})
        warned = mpirun(2, [args.build / "bin/qft", "train", plain]).stderr
        mpirun(2, [args.build / "bin/qft", "train", usual])
        report.holds("no level: a warning", "no sample has one of the levels" in warned, warned)
        losses = [[entry["loss"] for entry in log_of(tmp / name) if "loss" in entry] for name in ("plain", "usual")]
        report.equal("no level: the usual order", losses[0], losses[1])
    report.finish()


if __name__ == "__main__":
    main()
