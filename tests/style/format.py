"""Every C++ and CUDA source is as clang-format writes it, by .clang-format and in the version of scripts/python/test.txt (others differ).

    format.py [--fix]    # name the files that differ; or rewrite them
"""
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("apps", "bench", "cmake", "data_tools", "include", "src", "tests")
ENDINGS = {".cpp", ".h", ".cu", ".cuh"}
FILES_A_CALL = 40


def main():
    program = Path(sys.executable).with_name("clang-format")
    if not program.exists():
        sys.exit(f"FAILED: there is no {program}: scripts/setup.sh test installs it")
    files = sorted(str(f) for folder in FOLDERS for f in (ROOT / folder).rglob("*") if f.suffix in ENDINGS)
    how = ["-i"] if "--fix" in sys.argv[1:] else ["--dry-run", "--Werror"]
    wrong, waiting = [], []
    groups = [files[i:i + FILES_A_CALL] for i in range(0, len(files), FILES_A_CALL)]
    while groups or waiting:
        while groups and len(waiting) < (os.cpu_count() or 1):
            waiting.append(subprocess.Popen([program, *how, *groups.pop()], stderr=subprocess.PIPE, text=True))
        done = waiting.pop(0)
        said = done.communicate()[1]
        if done.returncode != 0:
            wrong += {line.split(":")[0] for line in said.splitlines() if "error:" in line} or {said}
    for file in sorted(wrong):
        print(f"not as clang-format writes it: {os.path.relpath(file, ROOT)}")
    print(f"{len(files)} files, {len(wrong)} of them laid out otherwise" + (": run tests/style/format.py --fix" if wrong else ""))
    sys.exit(bool(wrong) or not files)


main()
