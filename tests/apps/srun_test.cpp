#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "held_port.h"
#include "program.h"
#include "smp/launcher/schedulers/srun_transport.h"
#include "smp/plan/system/file_descriptor.h"

// smp-launch in an allocation of Slurm, whose srun and scontrol are scripts here: agents come to
// where Slurm says the step was made. A real Slurm: tests/hosts/run_slurm.py.
using namespace smp;
using namespace smp::reach;
using namespace smp::schedulers;
using namespace smp::system;

namespace {

// Starts the agents as srun does, all in one step, with the variables that --export names.
constexpr const char* kSrun = R"(#!/bin/sh
echo "$@" >>{0}/calls
[ -e {0}/fails ] && {{ mv {0}/fails {0}/failed; cat {0}/failed >&2; exit 1; }}
for word in "$@"; do
  case $word in --nodelist=*) names=$(echo ${{word#--nodelist=}} | tr , " ") ;; esac
done
while [ "$1" != --quiet ]; do shift; done
shift
export SLURM_LAUNCH_NODE_IPADDR=$(cat {0}/address)
for name in $names; do
  if [ -e {0}/no-$name ]; then
    echo "srun: warning: is of nobody" >&2
    echo "srun: error: $name: task 1: Exited with exit code 2" >&2
    continue
  fi
  SLURMD_NODENAME=$name "$@" &
done
wait
)";

struct Allocation {
  ScratchFolder folder;

  explicit Allocation(const std::string& ports = "0-0") {
    script("srun", fmt::format(kSrun, folder.path()));
    std::ofstream(folder / "address") << "127.0.0.1";
    script("scontrol", fmt::format("#!/bin/sh\necho 'SrunPortRange           = {}'\n", ports));
  }
  void script(const std::string& name, const std::string& text) {
    std::ofstream(folder / name) << text;
    std::filesystem::permissions(folder / name, std::filesystem::perms::owner_all);
  }
  ProgramEnd run(const std::vector<std::string>& options, const std::string& text = "true") {
    return run_program(
        joined(joined({SMP_LAUNCH, "--via", "srun"}, options), {"--", "/bin/sh", "-c", text}),
        {"SLURM_JOB_ID=1", fmt::format("PATH={}:{}", folder.path(), std::getenv("PATH"))});
  }
};

}  // namespace

TEST_CASE("one step of srun brings an agent on every node, however many, and no key is told") {
  Allocation slurm;
  const ProgramEnd end = slurm.run({"--hosts", "h[1-65]"},
                                   "env | grep SMP_MEETING; tr '\\0' '\\n' </proc/$PPID/environ | "
                                   "grep SMP_MEETING_KEY=.; true");
  CHECK(end.err == "");
  CHECK(end.out == "");
  CHECK(end.code == 0);
  const std::vector<std::string> calls = wait_for_lines(slurm.folder / "calls", 1);
  CHECK(calls.size() == 1);
  CHECK(contains(calls[0], "--nodes=65 --ntasks=65 --ntasks-per-node=1 --nodelist=h1,h2,"));
  CHECK(contains(calls[0], "--kill-on-bad-exit=0 --no-kill "));
  CHECK(contains(calls[0], ",SMP_MEETING_KEY,SMP_MEETING_HOSTS --quiet "));
  CHECK(!contains(calls[0], "SMP_MEETING_KEY="));
}

TEST_CASE("a node whose agent srun cannot start is named with srun's words about it") {
  Allocation slurm;
  SUBCASE("while the others' have come") {
    std::ofstream(slurm.folder / "no-b") << "";
    const ProgramEnd end = slurm.run({"--hosts", "a,b,c"});
    CHECK(end.code == 125);
    CHECK(end.err ==
          "smp-launch: 1 of 3 hosts could not be used:\n  host b: no agent connected after srun "
          "reported a failure: srun: error: b: task 1: Exited with exit code 2\n");
    CHECK(contains(slurm.run({"--hosts", "a,b,c", "--check"}).out,
                   "no agent connected after srun reported"));
  }
  SUBCASE("and when srun ends") {
    std::ofstream(slurm.folder / "fails") << "srun: error: Unable to create step\n";
    const ProgramEnd end = slurm.run({"--hosts", "a,b"});
    CHECK(end.code == 125);
    CHECK(end.err ==
          "smp-launch: 2 of 2 hosts could not be used:\n  host a: no agent connected before srun "
          "ended: srun: error: Unable to create step\n  host b: no agent connected before srun "
          "ended: srun: error: Unable to create step\n");
  }
  SUBCASE("or says nothing") {
    slurm.script("srun", "#!/bin/sh\nexec sleep 100\n");
    const ProgramEnd end = slurm.run({"--hosts", "a", "--connect-timeout", "200ms"});
    CHECK(end.code == 125);
    CHECK(end.err.starts_with(
        "smp-launch: 1 of 1 host could not be used:\n  host a: no agent connected within 200 ms to "
        "port "));
    CHECK(end.err.ends_with(
        " of this host, which Slurm's SrunPortRange or --rendezvous sets: it said nothing\n"));
    const std::string place = fmt::format("127.0.0.1:{}", HeldPort().number());
    CHECK(contains(
        slurm.run({"--hosts", "a", "--connect-timeout", "200ms", "--rendezvous", place}).err,
        fmt::format(" no agent connected within 200 ms to {}: it said nothing\n", place)));
  }
}

TEST_CASE("a spare takes the place of a node whose agent srun cannot start again") {
  Allocation slurm;
  const ProgramEnd end = slurm.run(
      {"--hosts", "a,b,c", "--spares", "1", "--max-restarts", "2", "--restart-pause", "10ms",
       "--show-ranks", "all"},
      fmt::format("[ $TORCHELASTIC_RESTART_COUNT != 0 ] && exec echo $SLURMD_NODENAME; [ $RANK = 1 "
                  "] || exec sleep 100; touch {}/no-b; exit 1",
                  slurm.folder.path()));
  CHECK(end.code == 0);
  CHECK(sorted_lines(end.out) == std::vector<std::string>{"[0] a", "[1] c"});
  CHECK(contains(end.err, "smp-launch: host c takes the place of host b\n"));
}

TEST_CASE("--check shows the others where srun ends since one node fails") {
  Allocation slurm;
  std::ofstream(slurm.folder / "fails")
      << "srun: error: Task launch for StepId=1.0 failed on node b: no such slurmd\n";
  const ProgramEnd end = slurm.run({"--hosts", "a,b,c", "--check"});
  CHECK(end.code == 1);
  CHECK(contains(end.out,
                 "host b: no agent connected before srun ended: srun: error: Task launch for "
                 "StepId=1.0 failed on node b: no such slurmd\n"));
  CHECK(!contains(end.out, "host a: no"));
  CHECK(contains(wait_for_lines(slurm.folder / "calls", 2)[1], " --nodelist=a,c "));
}

TEST_CASE("an agent goes to where Slurm says that the step was made, or says why not") {
  const auto place = [](const std::string& address) {
    const RendezvousEndpoint found = place_of_srun(":7", address);
    return fmt::format("{} {}", found.host, found.port);
  };
  CHECK(place("10.0.0.1") == "10.0.0.1 7");
  CHECK(place("fe80::1") == "fe80::1 7");
  CHECK(place("::ffff:10.0.0.1") == "10.0.0.1 7");
  CHECK(place_of_srun("host:8", "").host == "host");
  Allocation slurm;
  SUBCASE("an address of IPv4 in IPv6's words") {
    std::ofstream(slurm.folder / "address") << "::ffff:127.0.0.1";
    CHECK(slurm.run({"--hosts", "a"}).code == 0);
  }
  SUBCASE("no address") {
    std::ofstream(slurm.folder / "address") << "";
    CHECK(contains(
        slurm.run({"--hosts", "a"}).err,
        "host a: no agent connected before srun ended: smp-launch: a: Slurm has not set the "
        "address of the launching node (SLURM_LAUNCH_NODE_IPADDR): give --rendezvous\n"));
  }
  SUBCASE("an address where nobody waits: it says so before smp-launch gives up") {
    const HeldPort held;
    slurm.script("srun", fmt::format("#!/bin/sh\nwhile [ $1 != --quiet ]; do shift; done; shift\n"
                                     "SLURMD_NODENAME=a exec $1 --agent --meet 127.0.0.1:{} "
                                     "--connect-timeout 100ms\n",
                                     held.number()));
    CHECK(
        contains(slurm.run({"--hosts", "a"}).err,
                 fmt::format("host a: no agent connected before srun ended: smp-launch: a: host 0 "
                             "was not reached at 127.0.0.1:{} within 100 ms: Connection refused\n",
                             held.number())));
  }
  SUBCASE("a node of another name") {
    const ProgramEnd end = run_program(
        {SMP_LAUNCH, "--agent", "--meet", ":1", "--connect-timeout", "1s"},
        {"SMP_MEETING_KEY=0123456789abcdef", "SMP_MEETING_HOSTS=a,b", "SLURMD_NODENAME=a1"});
    CHECK(end.code == 3);
    CHECK(end.err ==
          "smp-launch: Slurm calls this node 'a1', which is not in --hosts: give Slurm's names of "
          "the nodes\n");
  }
}

TEST_CASE("where srun ends since one node fails, a spare is for that one alone") {
  Allocation slurm;
  const ProgramEnd end = slurm.run(
      {"--hosts", "a,b,c", "--spares", "1", "--max-restarts", "2", "--restart-pause", "10ms",
       "--show-ranks", "all"},
      fmt::format("[ $TORCHELASTIC_RESTART_COUNT != 0 ] && exec echo $SLURMD_NODENAME; [ $RANK = 1 "
                  "] || exec sleep 100; echo 'srun: error: Task launch for StepId=1.0 failed on "
                  "node b: Communication connection failure' >{}/fails; exit 1",
                  slurm.folder.path()));
  CHECK(end.code == 0);
  CHECK(sorted_lines(end.out) == std::vector<std::string>{"[0] a", "[1] c"});
  CHECK(contains(end.err, "smp-launch: host c takes the place of host b\n"));
  CHECK(!contains(end.err, "is left for host a: the next start tries this host again"));
}

// srun has no step any more when the last agent ends, and ends too.
TEST_CASE(
    "the only node whose agent is killed is lost, with srun's words, and a spare replaces it") {
  Allocation slurm;
  const ProgramEnd end = slurm.run(
      {"--hosts", "a,b", "--spares", "1", "--max-restarts", "1", "--restart-pause", "10ms",
       "--show-ranks", "all"},
      "[ $TORCHELASTIC_RESTART_COUNT != 0 ] && exec echo $SLURMD_NODENAME; echo 'srun: error: a: "
      "task 0: Killed' >/proc/$PPID/fd/2; read -r pid name state guard rest </proc/$PPID/stat; "
      "kill -9 $guard $PPID");
  CHECK(end.code == 0);
  CHECK(end.out == "[0] b\n");
  CHECK(contains(end.err, "smp-launch: host a was lost with rank 0, "));
  CHECK(
      contains(end.err, ": the connection to its agent ended (srun: error: a: task 0: Killed)\n"));
  CHECK(contains(end.err, "smp-launch: host b takes the place of host a\n"));
}

TEST_CASE("agents come to a port of Slurm's SrunPortRange, or to the place that is given") {
  const HeldPort held;  // smp-launch may have it
  const int port = held.number();
  SUBCASE("of the range") {
    Allocation slurm(fmt::format("{0}-{0}", port));
    CHECK(slurm.run({"--hosts", "a"}).code == 0);
    CHECK(wait_for_lines(slurm.folder / "calls", 1)[0].ends_with(
        fmt::format(" --meet :{} --connect-timeout 25000ms", port)));
  }
  SUBCASE("where none of them is free") {
    const FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    socklen_t size = sizeof address;
    address.sin_family = AF_INET;
    REQUIRE(bind(listener.number(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(listen(listener.number(), 1) == 0);
    getsockname(listener.number(), reinterpret_cast<sockaddr*>(&address), &size);
    const std::string range = fmt::format("{0}-{0}", ntohs(address.sin_port));
    const ProgramEnd end = Allocation(range).run({"--hosts", "a"});
    CHECK(end.code == 125);
    CHECK(end.err.starts_with("smp-launch: --via srun: no port of Slurm's SrunPortRange (" + range +
                              ") is free here: give one with --rendezvous ADDRESS:PORT\n"));
  }
  SUBCASE("given") {
    Allocation slurm;
    const std::string place = fmt::format("127.0.0.1:{}", port);
    CHECK(slurm.run({"--hosts", "a", "--rendezvous", place}).code == 0);
    CHECK(wait_for_lines(slurm.folder / "calls", 1)[0].ends_with(
        fmt::format(" --meet {} --connect-timeout 25000ms", place)));
  }
}

TEST_CASE("srun is for nodes of an allocation, by their names") {
  const std::vector<std::string> outside = {"/usr/bin/env", "-u", "SLURM_JOB_ID", SMP_LAUNCH,
                                            "--hosts",      "a",  "--via",        "srun"};
  const ProgramEnd refused = run_program(joined(outside, {"--", "true"}));
  CHECK(refused.code == 125);
  CHECK(refused.err.starts_with(
      "smp-launch: --via srun: this is not an allocation of Slurm (SLURM_JOB_ID is not set): run "
      "smp-launch under salloc or in a script of sbatch\n"));
  CHECK(run_program(joined(outside, {"--dry-run", "--", "true"})).code == 0);
  Allocation slurm;
  CHECK(slurm.run({"--hosts", "ann@a"})
            .err.starts_with("smp-launch: --via srun takes node names only: leave user and port of "
                             "host 'a' out\n"));
  const ProgramEnd by_hand =
      run_program({SMP_LAUNCH, "--agent", "--meet", ":1", "--connect-timeout", "1s"});
  CHECK(by_hand.code == 3);
  CHECK(by_hand.err ==
        "smp-launch: --agent --meet is for srun, as smp-launch --via srun starts it\n");
}
