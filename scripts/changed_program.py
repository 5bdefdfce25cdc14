"""A program of a finished build with some files changed: compiles the sources that are or include them, links the program again, and leaves
the build as it is.
"""
import re
import shlex
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def write(path, text):
    """Leaves a file that has this text as it is."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class ChangedProgram:
    """`changed`: the texts of sources and headers by path. Files are made in `folder`; a later call compiles again what has changed since."""

    def __init__(self, build, folder, program, changed):
        self.build, self.folder, self.changed = build, folder, changed
        self.made = {}     # by the path in the build that stands in commands: the file in its place
        self.seen = set()  # files that were compiled
        self.run(["ninja", "-C", build, program])
        self.files = self.files_by_object()
        commands = self.run(["ninja", "-C", build, "-t", "commands", program]).splitlines()
        for command in commands:
            if " -c " in command:
                self.compile(shlex.split(command))
            elif archive := re.search(r"\bar qc (\S+)", command):
                self.repeat(command, archive.group(1))
        if left := sorted(set(changed) - self.seen):
            raise SystemExit(f"{program} is made without {', '.join(left)}")
        self.path = self.repeat(commands[-1], re.search(r" -o (\S+)", commands[-1]).group(1))

    def run(self, command, shell=False):
        done = subprocess.run(command, shell=shell, cwd=self.build, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{command} failed:\n{(done.stdout + done.stderr)[-3000:]}")
        return done.stdout

    def files_by_object(self):
        """The project's sources and headers that each object was compiled from."""
        files = {}
        for line in self.run(["ninja", "-C", self.build, "-t", "deps"]).splitlines():
            if " #deps " in line:
                of_object = files.setdefault(line.split(":")[0], set())
            elif line:
                path = (self.build / line.strip()).resolve()
                if any(path.is_relative_to(ROOT / top) for top in ("include", "src", "tests")):
                    of_object.add(str(path))
        return files

    def copy_of(self, path):
        return self.folder / "sources" / str(path).lstrip("/")

    def compile(self, words):
        """Compiles copies of all files that the object is made from: what a file includes from its own folder is then a copy too."""
        source, output = Path(words[words.index("-c") + 1]), words[words.index("-o") + 1]
        files = self.files.get(output, set())
        if not files & self.changed.keys():
            return
        self.seen |= files
        for path in files:
            write(self.copy_of(path), self.changed.get(path) or Path(path).read_text())
        if str(source) not in files:  # a list of sources that are compiled together
            write(self.copy_of(source), re.sub(r'#include "(.+)"', lambda line: f'#include "{self.copy_of(line[1])}"', source.read_text()))
        to = self.folder / output
        self.made[output] = str(to)
        parts = [self.build / output, self.copy_of(source), *map(self.copy_of, files)]
        if not to.exists() or to.stat().st_mtime < max(part.stat().st_mtime for part in parts):
            to.parent.mkdir(parents=True, exist_ok=True)
            to.unlink(missing_ok=True)
            for flag, arguments in (("-MD", 1), ("-MT", 2), ("-MF", 2)):
                at = words.index(flag)
                del words[at:at + arguments]
            words[words.index("-c"):] = ["-w", "-O1", "-c", str(self.copy_of(source))]
            words[words.index("-o") + 1] = str(to)
            self.run([w for word in words for w in ([f"-I{self.copy_of(word[2:])}"] if word.startswith("-I") else []) + [word]])

    def repeat(self, command, output):
        """Makes `output` again if a part of it was; returns its file."""
        if not any(word in self.made for word in command.split()):
            return self.build / output
        to = self.folder / output
        to.parent.mkdir(parents=True, exist_ok=True)
        self.made[output] = str(to)
        self.run(" ".join(self.made.get(word, word) for word in command.split(" ")), shell=True)
        return to
