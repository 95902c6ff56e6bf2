#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <fstream>

#include "program.h"
#include "smp/plan/text/json.h"

// smp-launch puts hosts at one switch next to each other.

using namespace smp;
using namespace smp::text;

namespace {

constexpr const char* kTree =
    "SwitchName=s0 Nodes=n[1,3]\\nSwitchName=s1 Nodes=n[2,4]\\nSwitchName=t Switches=s[0-1]\\n";

// A scontrol of our own, first in PATH, in an allocation of n1 to n4.
std::vector<std::string> in_allocation(const ScratchFolder& folder, const std::string& script) {
  const std::string file = folder / "scontrol";
  std::ofstream(file) << "#!/bin/sh\n" << script << "\n";
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  return {fmt::format("PATH={}:/usr/bin:/bin", folder.path()), "SLURM_JOB_NODELIST=n[1-4]"};
}

ProgramEnd dry_run(const std::vector<std::string>& options,
                   const std::vector<std::string>& environment = {}) {
  return run_program(
      joined(joined({SMP_LAUNCH, "--dry-run=json", "-n", "4"}, options), {"--", "/bin/true"}),
      environment);
}

// The hosts of ranks 0 to 3, and what the dry run says about their order.
std::string hosts_of(const ProgramEnd& end) {
  if (end.code != 0) return end.err;
  const auto json = Json::parse(end.out);
  std::vector<std::string> hosts;
  for (const auto& rank : json["ranks"]) hosts.push_back(rank["host"]);
  std::string said;
  for (const auto& check : json["checks"])
    if (check["name"] == "order") said = ": " + check["text"].get<std::string>();
  return fmt::format("{}{}", fmt::join(hosts, " "), said);
}

// Four ranks, one on each host of the allocation, that write where they are.
ProgramEnd run_in(const std::vector<std::string>& allocation) {
  ProgramEnd end = run_program(
      {SMP_LAUNCH, "--hosts", "slurm", "-n", "4", "--via",
       "exec:SMP_TEST_HOST=$SMP_HOST exec $SMP_AGENT --agent", "--env-all", "--show-ranks", "all",
       "--prefix", "", "--", "/bin/sh", "-c", "echo $RANK $SMP_TEST_HOST"},
      allocation);
  end.out = fmt::format("{}\n", fmt::join(sorted_lines(end.out), "\n"));
  return end;
}

}  // namespace

TEST_CASE("hosts of Slurm are ordered by its switches") {
  const ScratchFolder folder;
  const auto environment =
      in_allocation(folder, fmt::format("[ \"$*\" = 'show topology' ] && printf '{}'", kTree));
  CHECK(hosts_of(dry_run({"--hosts", "slurm", "--topology", "slurm"}, environment)) ==
        "n1 n3 n2 n4: hosts in the order of their switches, from slurm: 2 of 3 neighbours share a "
        "switch (0 in the listed order)");
  CHECK(hosts_of(dry_run({"--hosts", "slurm", "--topology", "off"}, environment)) == "n1 n2 n3 n4");
  CHECK(hosts_of(dry_run({"--hosts", "n[2-4],x", "--topology", "slurm"}, environment)) ==
        "n2 n4 n3 x: hosts in the order of their switches, from slurm: 1 of 3 neighbours share a "
        "switch (0 in the listed order); hosts with an unknown switch: 1");
  CHECK(hosts_of(dry_run({"--hosts", "n[1-4]"}, environment)) == "n1 n2 n3 n4");
}

TEST_CASE("a dry run does not ask Slurm by itself, the run does") {
  const ScratchFolder folder;
  const auto environment =
      in_allocation(folder, fmt::format("echo asked >> {}; printf '{}'", folder / "asked", kTree));
  CHECK(hosts_of(dry_run({"--hosts", "slurm"}, environment)) ==
        "n1 n2 n3 n4: hosts in Slurm's order: a launch, or --topology slurm, asks Slurm for their "
        "switches");
  CHECK(!std::filesystem::exists(folder / "asked"));
  const ProgramEnd end = run_in(environment);
  CHECK(end.err ==
        "smp-launch: hosts in the order of their switches, from slurm: 2 of 3 neighbours share a "
        "switch (0 in the listed order)\n");
  CHECK(end.out == "0 n1\n1 n3\n2 n2\n3 n4\n");
}

TEST_CASE("a Slurm without switches, or that does not answer, leaves the hosts as they are") {
  const ScratchFolder folder;
  const auto without =
      in_allocation(folder, "echo 'scontrol: error: No topology information available' >&2");
  const std::string as_listed = "0 n1\n1 n2\n2 n3\n3 n4\n";
  const ProgramEnd quiet = run_in(without);
  CHECK(quiet.err == "");
  CHECK(quiet.out == as_listed);
  CHECK(dry_run({"--hosts", "slurm", "--topology", "slurm"}, without).err ==
        "smp-launch: --topology slurm: Slurm has no topology of switches (TopologyPlugin): leave "
        "--topology out\n");
  const auto broken = in_allocation(folder, "echo 'scontrol: error: no controller' >&2; exit 1");
  const ProgramEnd told = run_in(broken);
  CHECK(told.err ==
        "smp-launch: hosts in Slurm's order, because their switches are unknown: scontrol show "
        "topology: scontrol: error: no controller\n");
  CHECK(told.out == as_listed);
  CHECK(dry_run({"--hosts", "slurm", "--topology", "slurm"}, broken).err ==
        "smp-launch: scontrol show topology: scontrol: error: no controller\n");
}

TEST_CASE("ranks run where the order of switches has put them, and a line says so") {
  const ScratchFolder folder;
  std::ofstream(folder / "t.json") << R"({"Instances": [
      {"InstanceId": "i-1", "NetworkNodes": ["a", "b"]},
      {"InstanceId": "i-2", "NetworkNodes": ["a", "c"]},
      {"InstanceId": "i-3", "NetworkNodes": ["a", "b"]}]})";
  std::ofstream(folder / "i.json") << R"({"Reservations": [{"Instances": [
      {"InstanceId": "i-1", "PrivateIpAddress": "10.0.0.1"},
      {"InstanceId": "i-2", "PrivateIpAddress": "10.0.0.2"},
      {"InstanceId": "i-3", "PrivateIpAddress": "10.0.0.3"}]}]})";
  const ProgramEnd end = run_program(
      {SMP_LAUNCH, "--hosts", "10.0.0.[1-3]", "--topology", folder / "t.json", "--topology",
       folder / "i.json", "--via", "exec:SMP_TEST_HOST=$SMP_HOST exec $SMP_AGENT --agent",
       "--env-all", "--show-ranks", "all", "--", "/bin/sh", "-c", "echo $RANK $SMP_TEST_HOST"});
  CHECK(end.code == 0);
  CHECK(end.err == fmt::format("smp-launch: hosts in the order of their switches, from {}: 1 of 2 "
                               "neighbours share a switch (0 in the listed order)\n",
                               folder / "t.json"));
  CHECK(sorted_lines(end.out) ==
        std::vector<std::string>{"[0] 0 10.0.0.1", "[1] 1 10.0.0.3", "[2] 2 10.0.0.2"});
}

TEST_CASE("what does not go with an order of hosts is refused") {
  const auto error_of = [](const std::vector<std::string>& options) {
    return run_program(joined(joined({SMP_LAUNCH}, options), {"--", "true"})).err;
  };
  CHECK(contains(error_of({"-n", "2", "--topology", "f"}),
                 "smp-launch: --topology is for jobs on other hosts: name the hosts with --hosts "
                 "or --hostfile"));
  CHECK(contains(error_of({"--hosts", "a,b", "--topology", "off", "--topology", "f"}),
                 "smp-launch: --topology off: this value excludes other values of --topology"));
  CHECK(contains(error_of({"--hosts", "a,b", "--topology", "/no/such"}),
                 "smp-launch: /no/such: No such file or directory"));
}
