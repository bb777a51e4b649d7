"""A control group of memory (version 1 or 2) for a server, in which the kernel kills the process that a test chooses. Needs root."""
import os
import signal
import subprocess
import sys
import time
import uuid

import server as sv

HOG = """
import os, sys, time
open(sys.argv[1], "w").write(str(os.getpid()))
open("/proc/self/oom_score_adj", "w").write("-900")
held = []
def lives():
    try:
        return open("/proc/%s/stat" % sys.argv[2]).read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
while lives():
    held.append(bytearray(b"x") * (1 << 20))
    if len(held) > 1024:
        sys.exit("a GiB is there")
"""


def parent():
    """The folder of this process's own group, and whether it is of version 2; None: nothing here can be used."""
    with open("/proc/self/cgroup") as f:
        groups = dict((line.split(":")[1], line.strip().split(":", 2)[2]) for line in f)
    for name, mount in (("memory", "/sys/fs/cgroup/memory"), ("", "/sys/fs/cgroup")):
        path = mount + groups.get(name, "/nowhere")
        if os.path.exists(path + ("/memory.oom_control" if name else "/cgroup.controllers")) and os.access(path, os.W_OK):
            if name or "memory" in open(path + "/cgroup.subtree_control").read().split():
                return path, not name
    return None


class Group:
    def __init__(self):
        path, self.v2 = parent()
        self.path = os.path.join(path, "sluice-test-" + uuid.uuid4().hex[:8])
        os.mkdir(self.path)
        self.wrap = ("sh", "-c", 'echo $$ > %s/cgroup.procs && exec "$@"' % self.path, "_")

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w") as f:
            f.write(str(value))

    def read(self, name):
        with open(os.path.join(self.path, name)) as f:
            return f.read().strip()

    def limit(self, n):
        self.write("memory.max" if self.v2 else "memory.limit_in_bytes", n)

    def used(self):
        return int(self.read("memory.current" if self.v2 else "memory.usage_in_bytes"))

    def kill(self, pid, parent=None):
        """Has the kernel kill this process for want of memory. Returns when it is dead. parent: is stopped meanwhile, so that what it
        starts anew does not meet the same want."""
        if parent:
            os.kill(parent, signal.SIGSTOP)
        with open("/proc/%d/oom_score_adj" % pid, "w") as f:
            f.write("1000")
        for _ in range(20):  # an old kernel refuses a limit below what is used in this moment
            try:
                self.limit(self.used() + (4 << 20))
                break
            except OSError:
                time.sleep(0.01)
        hog = subprocess.Popen([sys.executable, "-c", HOG, self.path + "/cgroup.procs", str(pid)])
        try:
            sv.wait_for("the kernel kills %d" % pid, lambda: not sv.is_alive(pid) or hog.poll() is not None, pause=0.002)
            assert not sv.is_alive(pid), "the kernel killed another one, or nobody"
        finally:
            self.limit(1 << 36)  # not none: it is named in the log
            hog.kill()
            hog.wait()
            if parent:
                os.kill(parent, signal.SIGCONT)

    def close(self):
        def gone():
            try:
                os.rmdir(self.path)
                return True
            except OSError:
                return not os.path.exists(self.path)
        sv.wait_for("the group is empty", gone)
