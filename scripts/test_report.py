#!/usr/bin/env python3
"""Passes on what ctest prints, and puts before its closing lines which single cases were skipped, why, and the slowest tests.

    ctest --test-dir BUILD ... | test_report.py BUILD
"""
import re
import sys
from collections import Counter
from pathlib import Path


def skipped_cases(log):
    """reason -> cases, from ctest's log, which has the output of tests that passed, too."""
    reasons = {}
    for entry in re.split(r"^ *\d+/\d+ Testing: ", log, flags=re.M)[1:]:
        name, reason = entry.split("\n", 1)[0].strip(), ""
        for line in entry.splitlines():
            if case := re.match(r"\[  SKIPPED \] ([\w/.]+) \(\d+ ms\)", line):
                reasons.setdefault(reason or "no reason given", []).append(f"{name}: {case[1]}")
            elif line.startswith("skipped: "):
                reasons.setdefault(line[9:], []).append(name)
            # GoogleTest prints the place, "Skipped", the reason, an empty line and then the case.
            reason = line if line and not line.startswith("[") and line != "Skipped" and not line.endswith(": Skipped") else reason
    return reasons


def report(build, seconds, log_is_new):
    log = build / "Testing/Temporary/LastTest.log"
    reasons = skipped_cases(log.read_text(errors="replace")) if log_is_new and log.exists() else {}
    if reasons:
        print(f"\nSkipped cases: {sum(map(len, reasons.values()))}")
        for reason, cases in sorted(reasons.items(), key=lambda item: -len(item[1])):
            programs = Counter(case.split(": ")[0] for case in cases)
            shown = ", ".join(cases) if len(cases) <= 3 else ", ".join(f"{n} of {program}" for program, n in programs.items())
            print(f"  {reason}: {shown}")
    if seconds:
        print("\nSlowest tests:")
        for name, took in sorted(seconds.items(), key=lambda item: -item[1])[:10]:
            print(f"  {took:7.1f} s  {name}")
    sys.stdout.flush()


def main():
    build, seconds, closing = Path(sys.argv[1]), {}, False
    for line in sys.stdin:
        if result := re.match(r"\s*\d+/\d+ Test +#\d+: (\S+) .*?([\d.]+) sec$", line):
            seconds[result[1]] = float(result[2])
        if not closing and re.match(r"\d+% tests passed", line):
            closing = True
            report(build, seconds, bool(seconds))
            print()
        print(line, end="", flush=True)


main()
