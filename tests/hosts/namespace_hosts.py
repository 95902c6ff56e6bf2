"""Hosts made of namespaces on this machine (scripts/namespace-hosts), for the tests in this folder."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from checks import SKIPPED


class Hosts:
    def __init__(self, script, count):
        self.script, self.count = str(script), count
        self.folder = tempfile.mkdtemp(prefix="smp-hosts-") + "/hosts"
        done = subprocess.run([self.script, "up", str(count), self.folder], stdout=subprocess.PIPE, text=True)
        if done.returncode == SKIPPED:
            print(done.stdout, end="")
            shutil.rmtree(os.path.dirname(self.folder))
            sys.exit(SKIPPED)
        done.check_returncode()

    def tell(self, word, host):
        subprocess.run([self.script, word, self.folder, host], check=True)

    def down(self):
        subprocess.run([self.script, "down", self.folder], check=True)
        os.rmdir(os.path.dirname(self.folder))

    def pids(self, host):
        """Processes on that host, by numbers of this machine."""
        space = os.readlink(f"/proc/{self.child(host)}/ns/pid")
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{entry}/ns/pid") == space:
                    found.append((int(entry), pathlib.Path(f"/proc/{entry}/comm").read_text().strip()))
            except OSError:
                continue
        return found

    def child(self, host):
        parent = pathlib.Path(self.folder, host, "pid").read_text().strip()
        return pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0]
