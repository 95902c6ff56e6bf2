#!/usr/bin/env python3
"""smp-launch under a real mpirun of Open MPI, on this machine and on hosts made of namespaces. Returns 77, with the
reason, where there is no mpirun or no such hosts may be made.

  run_mpirun.py SMP_LAUNCH SOURCE_DIR
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

from checks import SKIPPED, Checks
from namespace_hosts import Hosts

launch, source = sys.argv[1:]
checks = Checks()
check = checks.check
if not shutil.which("mpirun") or "Open MPI" not in subprocess.run(["mpirun", "--version"], capture_output=True,
                                                                   text=True).stdout:
    print("skipped: there is no mpirun of Open MPI (apt-get install openmpi-bin)")
    sys.exit(SKIPPED)


def run(mpi, own, script):
    return subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", *mpi, launch, "--inside", "mpirun",
                           "--show-ranks", "all", *own, "--", "/bin/sh", "-c", script],
                          capture_output=True, text=True, timeout=200)


ENVIRONMENT = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def via_command(options, script):
    return [launch, "--via", "mpirun", "--show-ranks", "all", *options, "--", "/bin/sh", "-c", script]


def via(options, script, env=None):
    return subprocess.run(via_command(options, script), capture_output=True, text=True, timeout=200,
                          env=env or ENVIRONMENT)


def via_mpirun(hosts):
    """smp-launch starts mpirun, which starts the agents."""
    config = f"--mca plm_rsh_args '-F {hosts.folder}/ssh_config'"
    launcher = pathlib.Path(hosts.folder, "hosts").read_text().splitlines()[1].split()[0].rsplit(".", 1)[0] + ".254"
    options = ["--hosts", "h1:2,h2:1", "--mpirun-args", config, "--rendezvous", f"{launcher}:29411"]
    done = via(options, "echo $RANK $LOCAL_RANK $(hostname) ${OMPI_COMM_WORLD_RANK-none} ${SMP_MEETING_KEY-none}")
    check("--via mpirun: ranks on two hosts, the key is nobody's", done.returncode == 0
          and sorted(done.stdout.splitlines()) == ["[0] 0 0 h1 none none", "[1] 1 1 h1 none none",
                                                   "[2] 2 0 h2 none none"], done.stdout + done.stderr)
    own = os.uname().nodename
    done = via(["--hosts", f"h1:2,{own}:1", *options[2:]], "echo $RANK $LOCAL_RANK $(hostname)")
    check("--via mpirun: its own host is last, and it would number that one first", done.returncode == 0
          and sorted(done.stdout.splitlines()) == ["[0] 0 0 h1", "[1] 1 1 h1", f"[2] 2 0 {own}"],
          done.stdout + done.stderr)
    done = via(options, "test $RANK = 2 && kill -SEGV $$; sleep 30")
    check("--via mpirun: a rank that dies ends all, and is named", done.returncode == 139
          and "smp-launch: rank 2 on host h2 was killed by SIGSEGV" in done.stderr, done.stderr)
    done = via(["--hosts", "h1,h2", "--mpirun-args", config], "true")
    check("--via mpirun: names that are not known here need an address to come to", done.returncode == 125
          and "--via mpirun: no address for the agents to connect to, because 'h1' is a name that this host cannot resolve" in done.stderr, done.stderr)
    done = via(["--hosts", "localhost,h1", "--mpirun-args", config], "true")
    check("--via mpirun: others would not find this host at a loopback address", done.returncode == 125
          and "--via mpirun: no address for the agents to connect to, because 'h1' is a name that this host cannot resolve" in done.stderr, done.stderr)
    done = via(["--hosts", "localhost,127.0.0.1", "--mpirun-args", config], "true")
    check("... where there is no other they are told no place", done.returncode == 125
          and "--via mpirun: no address for the agents to connect to, because 'localhost' is known on this host only by a "
          "loopback address: give an address of this host, as in --rendezvous 10.0.0.1:29400" in done.stderr, done.stderr)
    done = via(["--hosts", f"localhost,{launcher}", "--mpirun-args", config + " --oversubscribe"],
               "tr '\\0' ' ' </proc/$PPID/cmdline; echo")
    check("... and where there is one they come there", done.returncode == 0
          and done.stdout.count(f" --agent --meet {launcher}:") == 2, done.stdout + done.stderr)
    done = via(["--hosts", "h1,nowhere", "--mpirun-args", config, "--rendezvous", f"{launcher}:29412"], "true")
    check("--via mpirun: what mpirun said is told", done.returncode == 125
          and "smp-launch: mpirun ended before " in done.stderr, done.stderr)
    way_ends(hosts, options, options[-1])
    not_reached(options, options[-1])


def command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:  # it has ended
        return []


def processes_of(place):
    """mpirun and what it has started on this machine, for agents that come to that place."""
    return [int(pid) for pid in filter(str.isdigit, os.listdir("/proc"))
            if place in command_line(pid) and "--via" not in command_line(pid)]


def way_ends(hosts, options, place):
    """What leads to the hosts dies, and no host is to blame."""
    def cause_when(end):
        program = subprocess.Popen(via_command(options, "echo up; sleep 30"), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        for _ in range(3):
            program.stdout.readline()
        end()
        return program.communicate(timeout=200)[1]

    text = cause_when(lambda: [os.kill(pid, signal.SIGKILL) for pid in processes_of(place)
                               if command_line(pid)[0] == "mpirun"])
    # mpirun's daemons end the agents, which may still tell of a rank that they ended.
    check("--via mpirun: mpirun is killed: it is the cause, and no host",
          "smp-launch: the connection to all hosts was lost with rank" in text
          and "after the start: mpirun was killed by SIGKILL (Killed): it said nothing" in text, text)
    text = cause_when(lambda: [os.kill(pid, signal.SIGKILL) for pid, name in hosts.pids("h2") if name == "orted"])
    check("--via mpirun: a daemon is killed: mpirun's own words name it",
          "smp-launch: the connection to all hosts was lost with rank" in text and "mpirun ended with exit code" in text
          and "on node h2" in text and " was lost with its host" not in text, text)
    folder = pathlib.Path(hosts.folder, "noisy")
    folder.mkdir()
    noise = "head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2"
    (folder / "mpirun").write_text(f"#!/bin/sh\n{noise}\n(sleep 1; {noise}; touch {folder}/said) &\n"
                                   f"exec {shutil.which('mpirun')} \"$@\"\n")
    (folder / "mpirun").chmod(0o755)
    done = via(options, f"while ! test -e {folder}/said; do sleep 0.1; done",
               {**ENVIRONMENT, "PATH": f"{folder}:{os.environ['PATH']}"})
    check("--via mpirun: one that says much is heard out", done.returncode == 0, done.stdout + done.stderr)


def not_reached(options, place):
    """Hosts that do not answer: nothing that mpirun started is left, whatever ends the waiting."""
    waits = pathlib.Path(hosts.folder, "waits")
    mark = f"{500000 + os.getpid()}"
    ssh = f"/usr/bin/ssh -F {hosts.folder}/ssh_config"
    waits.write_text(f"#!/bin/sh\ntest $1 = h1 && exec {ssh} \"$@\"\nexec sleep {mark}\n")
    waits.chmod(0o755)
    options = [*options[:2], "--mpirun-args", f"--mca plm_rsh_agent {waits}", *options[4:]]

    def left():
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and (processes_of(place) or sleepers()):
            time.sleep(0.05)
        return [command_line(pid) for pid in [*processes_of(place), *sleepers()]]

    def sleepers():
        return [pid for pid in filter(str.isdigit, os.listdir("/proc")) if command_line(pid)[:2] == ["sleep", mark]]

    done = via([*options, "--connect-timeout", "2s"], "true")
    check("--via mpirun: a host that does not answer is named in time", done.returncode == 125
          and re.search(rf"smp-launch: (1|2) of 2 hosts: no agent connected to {place} within 2.0 s: (h1, )?h2; mpirun: ",
                        done.stderr), done.stderr)
    check("... and nothing is left", not left(), str(left()))
    program = subprocess.Popen(via_command(options, "true"), stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    while not sleepers():
        time.sleep(0.05)
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=200)
    check("... nor where the waiting is interrupted", program.returncode == 130 and not left(), str(left()))


def places(what, mpi, own, hosts):
    done = run(mpi, own, "echo $RANK $LOCAL_RANK $GROUP_RANK/$GROUP_WORLD_SIZE ${OMPI_COMM_WORLD_RANK-none}")
    expected = [f"[{rank}] {rank} {rank % (4 // hosts)} {rank // (4 // hosts)}/{hosts} none" for rank in range(4)]
    check(what, done.returncode == 0 and sorted(done.stdout.splitlines()) == expected, done.stdout + done.stderr)


places("4 ranks on one host", ["-n", "4"], [], 1)
done = run(["-n", "3"], [], "grep Cpus_allowed_list /proc/self/status")
whole = subprocess.run(["grep", "Cpus_allowed_list", "/proc/self/status"], capture_output=True, text=True).stdout
check("no rank is bound to the core of one process of mpirun",
      done.stdout.count(whole.split("\t")[1].strip()) == 3, done.stdout)
done = run(["-n", "3"], [], "test $RANK = 2 && exit 7; sleep 30")
check("a rank that fails ends all, with its code", done.returncode == 7
      and "smp-launch: rank 2 ended with exit code 7" in done.stderr, done.stderr)

hosts = Hosts(pathlib.Path(source, "scripts/namespace-hosts"), 2)
try:
    key = pathlib.Path(hosts.folder, "meeting-key")
    key.write_text("a secret of the test's own\n")
    key.chmod(0o600)
    mpi = ["-n", "4", "--host", "h1:2,h2:2", "--mca", "plm_rsh_args", f"-F {hosts.folder}/ssh_config"]
    own = ["--rendezvous", "h1:29400", "--key-file", str(key)]
    places("2 ranks on each of two hosts", mpi, own, 2)
    done = run(mpi, own, "test $RANK = 3 && kill -SEGV $$; sleep 30")
    check("a rank that dies on the second ends all, and is named with it", done.returncode == 139
          and "rank 3 on host node1 (h2) was killed by SIGSEGV" in done.stderr, done.stdout + done.stderr)
    via_mpirun(hosts)
finally:
    hosts.down()
sys.exit(1 if checks.failed else 0)
