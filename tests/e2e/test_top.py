"""`sluice top` in a terminal and out of it, while the mesh works, loads, loses a process, and ends."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import server as sv


def top(s, *flags, timeout=20):
    p = subprocess.run([sv.SLUICE, "top", "--mesh", str(s.p.pid), "--ipc-dir", s.tmp, *flags], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, timeout=timeout * sv.SLOW)
    return p.returncode, p.stdout.decode()


class Screen:
    """`sluice top` on a terminal of its own."""

    def __init__(self, s, *flags, size=(40, 120)):
        self.master, slave = pty.openpty()
        self.seen = ""
        self.resize(*size)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.p = subprocess.Popen([sv.SLUICE, "top", "--mesh", str(s.p.pid), "--ipc-dir", s.tmp, "--interval", "0.2", *flags],
                                  stdin=slave, stdout=slave, stderr=slave, start_new_session=True)

    def resize(self, rows, cols):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def read(self, seconds=0.05):
        while select.select([self.master], [], [], seconds)[0]:
            try:
                data = os.read(self.master, 65536)
            except OSError:
                return
            self.seen += data.decode()
            seconds = 0

    def frames(self):
        self.read()
        return self.seen.split("\033[H")[1:]

    def wait_for(self, what):
        def check():
            done = [f for f in self.frames() if f.endswith("\033[J")]
            return done and re.search(what, done[-1])
        sv.wait_for("%s on the screen" % what, check, 20)

    def expect_end(self):
        assert self.p.wait(10 * sv.SLOW) == 0
        self.read()
        assert "\033[?1049l" in self.seen and "\033[?25h" in self.seen
        assert termios.tcgetattr(self.slave) == self.before, "the terminal is as it was"
        os.close(self.master)
        os.close(self.slave)


def test_one_frame_without_a_terminal(start, tiny):
    server = start(tiny, "--device", "null", "--null-step-us", "5000", frontends=2).ready()
    st = server.stream(max_tokens=4000, ignore_eos=True)  # twenty seconds
    assert st.next()
    for flags in ((), ("--once", "--interval=0.5")):
        code, text = top(server, *flags)
        assert code == 0 and "\033" not in text, text
        assert text.count("supervisor") == 1 and re.search(r"running 1 ", text), text
        assert re.search(r"tokens +[\d.]+k?/s out", text)
        assert re.search(r"between tokens +[\d.]+ [mu]s", text)
        for pid in [server.p.pid, *server.kids("")]:
            assert re.search(r"(supervisor|executor|worker 0|frontend [01]) +serving +%d +[\d.]+ \w+ +[\d.]+ +\d+M" % pid, text), (pid, text)
    st.close()


def test_flags():
    code = subprocess.run([sv.SLUICE, "top", "--help"], stdout=subprocess.PIPE)
    assert code.returncode == 0 and b"example:" in code.stdout
    for flags in (["--interval", "0"], ["--interval=x"], ["--interval"], ["--nothing"], ["word"]):
        assert subprocess.run([sv.SLUICE, "top", *flags], stderr=subprocess.PIPE).returncode == 2, flags


def test_a_terminal_is_used_and_given_back(server):
    screen = Screen(server)
    screen.wait_for("frontend 1 +serving")
    screen.resize(19, 50)
    os.kill(screen.p.pid, signal.SIGWINCH)
    screen.wait_for(r"\.\.\. and \d+ more")
    lines = screen.frames()[-1].replace("\033[K", "").replace("\033[J", "").split("\r\n")
    assert len(lines) <= 19 and all(len(re.sub(r"\033\[\d*m", "", line)) <= 50 for line in lines), lines
    os.write(screen.master, b"xq")
    screen.expect_end()
    for sig in (signal.SIGINT, signal.SIGTERM):
        screen = Screen(server)
        screen.wait_for("supervisor")
        screen.p.send_signal(sig)
        screen.expect_end()


def test_follows_a_mesh_through_its_life(start, models):
    s = start(models(context=64), "--hang-timeout", "5")
    sv.wait_for("the mesh is found", lambda: top(s, "--once", "--interval", "0.1")[0] == 0)
    screen = Screen(s)
    screen.wait_for("worker 0 +serving")
    pid = s.kids("worker")[0]
    os.kill(pid, signal.SIGSTOP)  # it is there, and does nothing
    screen.wait_for("worker 0")
    os.kill(pid, signal.SIGKILL)
    screen.wait_for(r"worker 1  \(no memory")  # restarts
    screen.wait_for("worker 0 +serving")
    s.stop()
    screen.expect_end()
    assert "has ended" in screen.seen
    begin = time.monotonic()
    code, text = top(s)
    assert code == 1 and time.monotonic() - begin < 5 and "sluice: top: " in text or "error" in text, text
