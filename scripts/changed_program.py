"""A program of a finished build with some sources changed: compiles those alone, links the program again, and leaves the build as it is.
"""
import re
import shlex
import subprocess
from pathlib import Path


def write(path, text):
    """Returns whether the file is new or had another text."""
    if path.exists() and path.read_text() == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return True


class ChangedProgram:
    """`changed`: the texts of sources by path. Files are made in `folder`; a later call compiles again what has changed since."""

    def __init__(self, build, folder, program, changed):
        self.build, self.folder, self.changed = build, folder, changed
        self.made = {}     # by the path in the build that stands in commands: the file in its place
        self.seen = set()  # sources that were compiled
        self.run(["ninja", "-C", build, program])
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

    def compile(self, words):
        """A command's source may be a list of sources that are compiled together."""
        source, output = Path(words[words.index("-c") + 1]), words[words.index("-o") + 1]
        together = re.findall(r'#include "(.+)"', source.read_text()) if source.name.startswith("unity_") else [str(source)]
        here = [path for path in together if path in self.changed]
        if not here:
            return
        self.seen.update(here)
        copies = {path: self.folder / "sources" / path.lstrip("/") for path in here}
        stale = [write(copies[path], self.changed[path]) for path in here]
        if together != [str(source)]:
            text = source.read_text()
            for path, copy in copies.items():
                text = text.replace(f'"{path}"', f'"{copy}"')
            source = self.folder / "sources" / str(source).lstrip("/")
            stale.append(write(source, text))
        else:
            source = copies[str(source)]
        to = self.folder / output
        self.made[output] = str(to)
        if any(stale) or not to.exists() or to.stat().st_mtime < (self.build / output).stat().st_mtime:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.unlink(missing_ok=True)
            for flag, arguments in (("-MD", 1), ("-MT", 2), ("-MF", 2)):
                at = words.index(flag)
                del words[at:at + arguments]
            folders = [word for path in here for word in ("-iquote", str(Path(path).parent))]
            words[words.index("-c"):] = ["-w", "-O1", *folders, "-c", str(source)]
            words[words.index("-o") + 1] = str(to)
            self.run(words)

    def repeat(self, command, output):
        """Makes `output` again if a part of it was; returns its file."""
        if not any(word in self.made for word in command.split()):
            return self.build / output
        to = self.folder / output
        to.parent.mkdir(parents=True, exist_ok=True)
        self.made[output] = str(to)
        self.run(" ".join(self.made.get(word, word) for word in command.split(" ")), shell=True)
        return to
