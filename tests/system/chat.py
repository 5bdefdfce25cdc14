"""qft chat on a terminal: what its keys and commands do, Ctrl-C, and that the terminal is given back; and that piped lines are answered as
ever. A tiny model that does not sample tells by its answers what it was asked."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unicodedata
from pathlib import Path

from common import Report, arguments, with_sessions
from tiny import make, write

PROMPT = "\r\x1b[J> \r> "  # drawn without a text
UP, DOWN, RIGHT, LEFT, HOME, END, DELETE = "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D", "\x1b[H", "\x1b[F", "\x1b[3~"
COLUMNS, LINES = 40, 12


def rows_of(output):
    """What a terminal of that width shows of it, and the row and column of the cursor."""
    rows, row, column, last = [{}], 0, 0, 0
    for control, character in re.findall(r"(\x1b\[[?\d;]*[A-Za-z])|(.)", output, re.DOTALL):
        if control.endswith("A"):
            row -= int(control[2:-1])
        elif control.endswith("J"):
            rows[row:] = [{k: c for k, c in rows[row].items() if k < column}]
        elif character == "\r":
            column = 0
        elif character == "\n":
            row += 1
        elif character and unicodedata.combining(character):
            rows[row][last] += character
        elif character:
            width = 2 if unicodedata.east_asian_width(character) in "WF" else 1
            if column + width > COLUMNS:
                row, column = row + 1, 0
            rows += [{} for _ in range(row + 1 - len(rows))]
            rows[row][column], last = character, column
            column += width
        rows += [{} for _ in range(row + 1 - len(rows))]
    return ["".join(r[k] for k in sorted(r)).rstrip() for r in rows], (row, column)


class Chat:
    """The program in the foreground of a terminal of its own."""

    def __init__(self, command, environment):
        self.master, self.slave = pty.openpty()
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen([str(word) for word in command], stdin=self.slave, stdout=self.slave, stderr=self.slave,
                                        env=environment, preexec_fn=self._own_terminal)
        self.output = ""
        self._bytes = b""
        self.start = self.until(PROMPT)

    def _own_terminal(self):
        os.setsid()
        fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)

    def until(self, text, begin=0, seconds=60):
        """Reads until `text` stands behind `begin`; what stands there up to its end."""
        deadline = time.monotonic() + seconds
        while text not in self.output[begin:]:
            if time.monotonic() > deadline or not self._read(deadline - time.monotonic()):
                raise SystemExit(f"FAILED: no {text!r} in {self.output[begin:]!r}")
        return self.output[begin : self.output.index(text, begin) + len(text)]

    def _read(self, seconds):
        if not select.select([self.master], [], [], max(0, seconds))[0]:
            return False
        self._bytes += os.read(self.master, 65536)
        self.output = self._bytes.decode(errors="replace").replace("\r\r\n", "\r\n")  # the terminal puts \r before each \n
        return True

    def send(self, keys):
        os.write(self.master, keys.encode())

    def type(self, keys, shown):
        """Sends keys, waits until they have been taken; what the terminal shows from the prompt on and where the cursor is there."""
        begin = self.output.rindex(PROMPT)
        self.send(keys)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            rows, cursor = rows_of(self.output[begin:])
            if (rows, cursor) == shown:
                break
            self._read(deadline - time.monotonic())
        return rows, cursor

    def ask(self, keys):
        """Sends keys that end a message; what is said to it."""
        begin = len(self.output)
        self.send(keys)
        said = self.until("\n" + PROMPT, begin).removesuffix(PROMPT)
        last = said[said.rindex("\x1b[J") :]
        return re.match(r".*?\r(?!\n)[^\r]*\r\n(.*)\r\n$", last, re.DOTALL)[1].replace("\r\n", "\n")

    def end(self, keys="", number=None):
        """The exit code behind keys or a signal, and whether the terminal is as it was."""
        self.send(keys)
        if number is not None:
            self.process.send_signal(number)
        code = self.process.wait(60)
        while select.select([self.master], [], [], 0)[0]:
            self._read(0)
        same = termios.tcgetattr(self.slave) == self.before and self.output.rindex("\x1b[?2004l") > self.output.rindex("\x1b[?2004h")
        os.close(self.master)
        os.close(self.slave)
        return code, same


class Program:
    def __init__(self, qft, tmp):
        settings = make(tmp, positions=16384)
        self.run_file = write(tmp / "talk.yaml", {key: settings[key] for key in ("model_name_or_path", "template")} |
                              {"max_new_tokens": 12, "compute_dtype": "float32", "do_sample": False})
        self.qft, self.state = qft, tmp / "state"
        self.environment = with_sessions({**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm", "XDG_STATE_HOME": str(self.state)})

    def chat(self, *words, **variables):
        return Chat([self.qft, "chat", self.run_file, *words], {**self.environment, **variables})

    def piped(self, text, *words, name="chat"):
        told = subprocess.run([self.qft, name, self.run_file, *words], input=text.encode(), capture_output=True, env=self.environment, check=True)
        return told.stdout.decode(errors="replace")

    def answers(self, *lines):
        """The answers to piped lines, one conversation, as a terminal shows them."""
        said = self.piped("".join(line + "\n" for line in lines))
        return [visible(answer) for answer in said.removeprefix("> ").removesuffix("\n> \n").split("\n> ")]

    def answer(self, text):
        return visible(self.piped("", f"prompt={text}", name="generate").removesuffix("\n"))


def visible(text):
    return "".join(c for c in text if c in "\n\t" or " " <= c < "\x7f" or c >= "\xa0")


def editing(report, program):
    hello, two = program.answers("hello world", "你好 again")
    chat = program.chat()
    report.holds("a line says what one talks with, and how to get help",
                 f"You are talking to {program.run_file.parent / 'model'}; the chat template is smollm2" in chat.start and "/help" in chat.start, chat.start)
    report.equal("arrows edit", chat.ask("hllo wrl" + LEFT * 2 + "o" + RIGHT * 2 + "d" + HOME + RIGHT + "e\r"), hello)
    report.equal("wide characters are one step, and a conversation goes on",
                 chat.ask("好好 aagain" + "\x01" + RIGHT + "\x7f你" + "\x05" + "\x1bb" + DELETE + "\r"), two)
    begin = len(chat.output)
    chat.send("\r")
    report.holds("an empty line does nothing", chat.until("\n" + PROMPT, begin) == f"{PROMPT}\r\n{PROMPT}", chat.output)
    report.equal("/new starts anew", (chat.ask("/new\r"), chat.ask("hello world\r")), ("A new conversation begins.", hello))
    chat.ask("/new\r")
    report.equal("history recalls, and its lines are edited", chat.ask(UP * 4 + DOWN + UP * 2 + "\x17你好 again\x01" + "\x0b" + "\x19\x15" + UP + "\x03" + UP * 2 + "\r"), hello)
    report.equal("Ctrl-U, Ctrl-W and Ctrl-Y erase and put back",
                 (chat.ask("/new\r"), chat.ask("nonsense\x15hello there\x17world\x17\x19\r"))[1], hello)
    chat.ask("/new\r")
    width, text = COLUMNS - 2, "文" * 25 + "e\u0301nd"
    shown = ["> " + "文" * (width // 2), "文" * (25 - width // 2) + "e\u0301nd"]
    report.equal("a long line goes on in the next row", chat.type(text, (shown, (1, 15))), (shown, (1, 15)))
    shown = ["> 文x" + "文" * 17, "文" * 6 + "e\u0301nd"], (0, 5)
    report.equal("... and its beginning is edited", chat.type(HOME + RIGHT + "x" + DELETE, shown), shown)
    report.equal("Ctrl-C clears a line", chat.type("\x03", ([">"], (0, 2))), ([">"], (0, 2)))
    report.equal("unknown keys are no text", chat.ask("hello\x1b[15~\x1b[1;2A\x1bOP world\r"), hello)
    report.holds("no key is shown as itself", "^[" not in chat.output and "[A" not in re.sub(r"\x1b\[\d*A", "", chat.output), chat.output)
    report.equal("Ctrl-D on an empty line ends, the terminal is as it was", chat.end("\x04"), (0, True))


def several_lines(report, program):
    expected = program.answer("one\n  two\nthree")
    chat = program.chat()
    report.equal("a backslash begins another line", chat.ask("one\\\r  two\\\rthree\r"), expected)
    chat.ask("/new\r")
    report.equal("Alt-Enter does", chat.ask("one\x1b\r  to\x1b\rthree" + UP + LEFT + "w\r"), expected)
    chat.ask("/new\r")
    report.equal("a pasted text is one message", chat.ask("\x1b[200~one\r\n  two\rthree\x1b[201~\r"), expected)
    chat.ask("/new\r")
    report.equal("it comes back from the history whole", chat.ask(UP * 2 + "\r"), expected)
    shown = ["> one", "    two", "  three"]
    report.equal("its lines stand below each other", chat.type(UP, (shown, (2, 7))), (shown, (2, 7)))
    report.equal("/quit ends", chat.end("\x03/quit\r"), (0, True))
    file = program.state / "qft/chat_history"
    lines = file.read_text().split("\n")
    report.equal("the history is in a file for its owner alone", (oct(file.stat().st_mode & 0o777), lines[-3:]), ("0o600", ["one\\n  two\\nthree", "/quit", ""]))
    chat = program.chat()
    report.equal("another chat knows it", chat.ask(UP * 2 + "\r"), expected)
    report.equal("/exit ends", chat.end("/exit\r"), (0, True))
    environment = {name: value for name, value in program.environment.items() if name not in ("HOME", "XDG_STATE_HOME")}
    chat = Chat([program.qft, "chat", program.run_file], environment)
    report.equal("without a home the history is in memory", (chat.ask("one\r"), chat.ask("/new\r"), chat.ask(UP * 2 + "\r"))[::2], (program.answer("one"),) * 2)
    chat.end("\x04")


def commands(report, program):
    first, second = program.answers("one", "two")
    chat = program.chat()
    for key in ("undo", "regen"):
        report.holds(f"/{key} without a question says so", "no" in chat.ask(f"/{key}\r"), chat.output)
    told = chat.ask("/help\r")
    report.holds("/help lists the commands", all(f"/{name} " in told for name in ("new", "system", "undo", "regen", "help", "exit", "quit")), told)
    report.holds("an unknown command is told with the list", "There is no command /foo" in (told := chat.ask("/foo bar\r")) and "/regen" in told, told)
    report.equal("// sends a slash", chat.ask("//foo\r"), program.answer("/foo"))
    report.holds("/system without a text shows it", "No system message" in chat.ask("/system\r"), chat.output)
    report.holds("/system sets it", "set" in chat.ask("/system be short\r"), chat.output)
    report.equal("    ... and it is used", chat.ask("one\r"), visible(program.piped("one\n", "system=be short")[2:-4]))
    report.holds("    ... and shown", "be short" in chat.ask("/system\r"), chat.output)
    chat.end("\x04")

    chat = program.chat()
    report.equal("two questions", (chat.ask("one\r"), chat.ask("two\r")), (first, second))
    begin = len(chat.output)
    chat.ask("/new\r")
    chat.send("one\rtwo\r")
    report.holds("what is typed during an answer is the next message", chat.until(f"{second}\r\n{PROMPT}", begin).count(first) == 1, chat.output)
    report.holds("/undo takes one back", "two" in chat.ask("/undo\r"), chat.output)
    report.equal("    ... which can be asked again", chat.ask("two\r"), second)
    told = chat.ask("/regen\r")
    report.holds("/regen without sampling says that nothing changes", told.startswith("Without sampling") and told.endswith(second), told)
    long = chat.ask("\x1b[200~" + "number " * 17000 + "\x1b[201~\r")
    report.holds("an error of a message does not end a chat", "error: " in long and "raise max_new_tokens" in long, long)
    report.equal("    ... which is as it was", (chat.ask("/undo\r"), chat.ask("two\r"))[1], second)
    chat.end("\x04")

    chat = program.chat("do_sample=true", "seed=3")
    answers = [chat.ask("one\r")] + [chat.ask("/regen\r") for _ in range(3)]
    report.equal("/regen gives other answers", len(set(answers)), 4)
    report.holds("    ... to the one question", "Removed" in chat.ask("/undo\r") and "nothing" in chat.ask("/undo\r"), chat.output)
    chat.end("\x04")


def interrupts(report, program):
    alone = program.answer("two")
    chat = program.chat("max_new_tokens=12000", "do_sample=true", "temperature=0.1")
    begin = len(chat.output)
    chat.send("one\r")
    while len(chat.output) < begin + 100:
        chat._read(60)
    chat.send("\x03")
    chat.until(" [interrupted]\r\n" + PROMPT, begin)
    report.holds("Ctrl-C stops an answer, not the program", chat.process.poll() is None)
    report.holds("what was said stays", "Removed, with its answer: one" in chat.ask("/undo\r"), chat.output)
    report.holds("    ... and one Ctrl-C is one", "Press Ctrl-C again" not in chat.output, chat.output)
    report.holds("Ctrl-C without a text tells how to end", "Press Ctrl-C again" in chat.ask("\x03"), chat.output)
    chat.type("a\x7f", ([">"], (0, 2)))
    report.holds("    ... another key in between", "Press Ctrl-C again" in chat.ask("\x03"), chat.output)
    report.equal("twice in a row it ends the program", chat.end("\x03"), (130, True))

    chat = program.chat("max_new_tokens=12000")
    chat.send("one\r")
    while "one\r\n" not in chat.output[-200:] and len(chat.output) < 1000:
        chat._read(60)
    report.equal("SIGTERM during an answer: the terminal is as it was", chat.end(number=signal.SIGTERM), (-signal.SIGTERM, True))
    chat = program.chat()
    chat.type("typed", (["> typed"], (0, 7)))
    report.equal("SIGHUP while one types: the terminal is as it was", chat.end(number=signal.SIGHUP), (-signal.SIGHUP, True))
    chat = program.chat()
    chat.type("typed", (["> typed"], (0, 7)))
    chat.process.send_signal(signal.SIGINT)
    report.equal("SIGINT from elsewhere is Ctrl-C", chat.type("", ([">"], (0, 2))), ([">"], (0, 2)))
    report.equal("what follows is a message", chat.ask("two\r"), alone)
    chat.end("\x04")


def pipes(report, program):
    one, again = (program.answer(text) for text in ("one", "/help"))
    report.equal("piped lines are answered as ever: an empty one starts anew, a slash is text",
                 visible(program.piped("one\n\n/help\n")), f"> {one}\n> > {again}\n> \n")
    history = (program.state / "qft/chat_history").read_text()
    report.holds("    ... and no history is kept of them", history.count("/help\n") == 1, history)
    master, slave = pty.openpty()
    told = subprocess.run([program.qft, "chat", program.run_file], stdin=slave, input=None, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          env=program.environment, preexec_fn=lambda: os.write(master, b"one\n\x04")).stdout.decode(errors="replace")
    report.equal("with standard output elsewhere too", visible(told), f"> {one}\n> \n")
    chat = subprocess.run([program.qft, "chat", program.run_file], stdin=subprocess.DEVNULL, capture_output=True, env=program.environment)
    report.equal("no input at all", (chat.returncode, chat.stdout), (0, b"> \n"))
    os.close(master)
    os.close(slave)


def main():
    args = arguments()
    report = Report()
    with tempfile.TemporaryDirectory() as tmp:
        program = Program(args.build / "bin/qft", Path(tmp))
        editing(report, program)
        several_lines(report, program)
        commands(report, program)
        interrupts(report, program)
        pipes(report, program)
    report.finish()


main()
