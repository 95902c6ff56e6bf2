#include "smp/launcher/hosts/host_list.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "smp/launcher/schedulers/slurm.h"
#include "smp/plan/base/errors.h"

using namespace smp;
using namespace smp::hosts;
using namespace smp::schedulers;

namespace {

// "user@name:port x slots gpu 0 2", what was not said left out.
std::string text_of(const std::vector<HostSpec>& hosts) {
  std::string text;
  for (const HostSpec& host : hosts) {
    if (!text.empty()) text += ", ";
    if (!host.user.empty()) text += host.user + "@";
    text += host.name;
    if (host.port != 0) text += fmt::format(":{}", host.port);
    if (host.slots != 0) text += fmt::format(" x {}", host.slots);
    if (!host.gpus.empty()) text += fmt::format(" gpu {}", fmt::join(host.gpus, " "));
  }
  return text;
}

std::string parsed(const std::string& text) { return text_of(parse_hosts(text)); }
std::string file(const std::string& text) { return text_of(parse_host_file("hosts", text)); }

template <typename Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

std::string hosts_error(const std::string& text) {
  return error_of([&] { parse_hosts(text); });
}

std::vector<HostSpec> settled(const std::string& text, const WantedRanks& wanted) {
  std::vector<HostSpec> result = parse_hosts(text);
  settle_slots(result, wanted);
  return result;
}

}  // namespace

TEST_CASE("--hosts: names, slots, ports, users, addresses, GPUs") {
  CHECK(parsed("a") == "a");
  CHECK(parsed("a,b:8") == "a, b x 8");
  CHECK(parsed("10.0.0.1:2222:8") == "10.0.0.1:2222 x 8");
  CHECK(parsed("[fe80::1]:8,[fe80::2]:22:4") == "fe80::1 x 8, fe80::2:22 x 4");
  CHECK(parsed("ann@h,bob@[fe80::1]") == "ann@h, bob@fe80::1");
  CHECK(parsed("big:4@gpu=0,2-4,10.0.0.1:2222:8") == "big x 4 gpu 0 2 3 4, 10.0.0.1:2222 x 8");
  CHECK(parsed("a@gpu=1,b") == "a gpu 1, b");
  CHECK(parsed("node-1.rack_2.example.com") == "node-1.rack_2.example.com");
}

TEST_CASE("--hosts: ranges keep their zeros, and multiply") {
  CHECK(parsed("h[08-11,20]:2") == "h08 x 2, h09 x 2, h10 x 2, h11 x 2, h20 x 2");
  CHECK(parsed("h[8-11]") == "h8, h9, h10, h11");
  CHECK(parsed("h[0-1]") == "h0, h1");
  CHECK(parsed("r[1-2]n[1-2].x") == "r1n1.x, r1n2.x, r2n1.x, r2n2.x");
  CHECK(parsed("u@h[1-2]:22:4") == "u@h1:22 x 4, u@h2:22 x 4");
}

TEST_CASE("--hosts: what is wrong is shown with its place") {
  CHECK(hosts_error("a,b:x") ==
        "--hosts: slots 'x' is not a whole number from 1 to 4096\n  a,b:x\n      ^");
  CHECK(hosts_error("a:0") ==
        "--hosts: slots '0' is not a whole number from 1 to 4096\n  a:0\n    ^");
  CHECK(hosts_error("a:70000:1") ==
        "--hosts: port '70000' is not a whole number from 1 to 65535\n  a:70000:1\n    ^");
  CHECK(hosts_error("a,,b") == "--hosts: a host's name is missing\n  a,,b\n    ^");
  CHECK(hosts_error("") == "--hosts: a host's name is missing");
  CHECK(hosts_error("a,b,a") == "--hosts: host 'a' is named twice\n  a,b,a\n      ^");
  CHECK(hosts_error("h[3-1]") == "--hosts: the range 3-1 runs backwards\n  h[3-1]\n    ^");
  CHECK(hosts_error("h[01-5]") ==
        "--hosts: the range 01-5 has fewer digits at its end\n  h[01-5]\n    ^");
  CHECK(hosts_error("h[1-2") == "--hosts: this '[' has no ']'\n  h[1-2\n   ^");
  CHECK(hosts_error("h[a]") ==
        "--hosts: a number of a range is missing: write it like node[01-16,20]\n  h[a]\n    ^");
  CHECK(hosts_error("h[0-999999]") == "--hosts: more than 131072 hosts\n  h[0-999999]\n    ^");
  CHECK(hosts_error("-oProxyCommand=x") ==
        "--hosts: a host's name does not begin with '-'\n  -oProxyCommand=x\n  ^");
  CHECK(hosts_error("a b") == "--hosts: unexpected ' b'\n  a b\n   ^");
  CHECK(hosts_error("@h") == "--hosts: a user's name is missing before '@'\n  @h\n  ^");
  CHECK(hosts_error("a:3@gpu=0,1") ==
        "--hosts: 3 slots, but 2 GPUs: give as many slots as GPUs\n  a:3@gpu=0,1\n  ^");
  CHECK(hosts_error("a@gpu=0,0-1") == "--hosts: GPU 0 is named twice\n  a@gpu=0,0-1\n          ^");
  CHECK(hosts_error("[fe80::x y]") == "--hosts: not an IPv6 address\n  [fe80::x y]\n          ^");
}

TEST_CASE("a host is the same in capitals and with the dot of a whole name: names have an end") {
  CHECK(hosts_error("n1,N1") == "--hosts: host 'N1' is named twice\n  n1,N1\n     ^");
  CHECK(hosts_error("n1.x.org,n1.X.org.") ==
        "--hosts: host 'n1.X.org.' is named twice\n  n1.x.org,n1.X.org.\n           ^");
  CHECK(error_of([] { parse_host_file("hosts", "n1\nN1 slots=2\n"); }) ==
        "hosts:2:1: host 'N1' is named twice\n  N1 slots=2\n  ^");
  CHECK(parsed("N1:2,n2.") == "N1 x 2, n2.");
  CHECK(text_of(without_hosts(parse_hosts("N1,n2."), "n2")) == "N1");
  CHECK(hosts_error("a,..") == "--hosts: '..' is not a host name\n  a,..\n    ^");
  CHECK(hosts_error("a..b") == "--hosts: 'a..b' is not a host name\n  a..b\n  ^");
  const std::string longest(253, 'n');
  CHECK(parsed(longest) == longest);
  const std::string most = "'s name has at most 253 characters, and this has ";
  for (const std::string& text :
       {longest + "n", longest + "n[1-100000]", longest + "[1-9]", "[::" + longest + "]"})
    CHECK(hosts_error(text).starts_with("--hosts: a host" + most + "25"));
  CHECK(hosts_error(std::string(300'000, 'n')).size() < 1000);
  CHECK(hosts_error(longest + "n@h").starts_with("--hosts: a user" + most + "254"));
}

TEST_CASE("an IPv6 address without brackets is told to have some") {
  const std::string advice = "an IPv6 address needs brackets, as in [fd00::1] or [fd00::1]:8";
  CHECK(hosts_error("a,fd00::1") == "--hosts: " + advice + "\n  a,fd00::1\n    ^");
  CHECK(hosts_error("bob@fe80:0:0:0:0:0:0:1:8") ==
        "--hosts: " + advice + "\n  bob@fe80:0:0:0:0:0:0:1:8\n      ^");
  CHECK(error_of([] { parse_host_file("hosts", "fd00::1 slots=2\nfe80::2%eth0:4\n"); }) ==
        "hosts:1:1: " + advice + "\n  fd00::1 slots=2\n  ^\n" + "hosts:2:1: " + advice +
            "\n  fe80::2%eth0:4\n  ^");
  CHECK(error_of([] { without_hosts(parse_hosts("[fd00::1],b"), "fd00::1"); }) ==
        "--exclude: " + advice + "\n  fd00::1\n  ^");
  CHECK(file("[fd00::1] slots=2\n[fd00::2]:4\n") == "fd00::1 x 2, fd00::2 x 4");
}

TEST_CASE("host files of Open MPI, MPICH, DeepSpeed, and plain ones") {
  CHECK(file("# all of them\nn1 slots=4 max_slots=8\n\n  n2 slots=2 # two\r\n") ==
        "n1 x 4, n2 x 2");
  CHECK(file("n1:4\nn2:2\n") == "n1 x 4, n2 x 2");
  CHECK(file("worker-[1-2] slots=8\nworker-3 gpu=0,3") ==
        "worker-1 x 8, worker-2 x 8, worker-3 gpu 0 3");
  CHECK(file("n1\nuser@n2:2222:1") == "n1, user@n2:2222 x 1");
  CHECK(file("n1 max_slots=2") == "n1 x 2");
}

TEST_CASE("a host file may begin with a byte order mark, and one in UTF-16 is said to be that") {
  CHECK(file("\xEF\xBB\xBFn1 slots=2\r\nn2 slots=2\r\n") == "n1 x 2, n2 x 2");
  const std::string wide("\xFF\xFEn\0001\0\n\0", 8);
  CHECK(
      error_of([&] { file(wide); }) ==
      "hosts: the file contains NUL bytes, as in UTF-16 and binary files: save the text as UTF-8");
}

TEST_CASE("all that is wrong in a host file is told, each with line and column") {
  CHECK(error_of([] {
          parse_host_file("hosts", "a slots=2\nb slots=two\nc cores=3\na\nd slots=4 max_slots=2\n");
        }) ==
        "hosts:2:9: slots 'two' is not a whole number from 1 to 4096\n  b slots=two\n   "
        "       ^\nhosts:3:3: unexpected 'cores=3': expected slots=, max_slots= or gpu= after a "
        "host\n  c "
        "cores=3\n    ^\nhosts:4:1: host 'a' is named twice\n  a\n  ^\nhosts:5:11: 4 slots are "
        "more than max_slots=2\n  d slots=4 max_slots=2\n            ^");
  CHECK(error_of([] { parse_host_file("hosts", "a gpu=4 max_slots=8\n"); }) ==
        "hosts:1:9: 8 slots, but 1 GPU: give as many slots as GPUs\n  a gpu=4 max_slots=8\n        "
        "  ^");
  CHECK(error_of([] { parse_host_file("hosts", "# none\n"); }) == "hosts: names no host");
  CHECK(error_of([] { parse_host_file("hosts", "a slots=1 slots=1\n"); }) ==
        "hosts:1:11: slots are given twice\n  a slots=1 slots=1\n            ^");
}

TEST_CASE("--exclude takes hosts out, and only such that are in") {
  CHECK(text_of(without_hosts(parse_hosts("h[1-5]:2"), "h2,h[4-5]")) == "h1 x 2, h3 x 2");
  const auto error = [](const std::string& excluded) {
    return error_of([&] { without_hosts(parse_hosts("node1,node2"), excluded); });
  };
  CHECK(error("nod2") == "--exclude: host 'nod2' is not one of the 2 hosts, did you mean 'node2'?");
  CHECK(error("node[1-2]") == "--exclude: no host is left");
  CHECK(error("node1:4") == "--exclude: unexpected ':4'\n  node1:4\n       ^");
  CHECK(error("u@node1") == "--exclude: 'u@node1': expected a host name without a user");
}

TEST_CASE("every host has its slots, and all numbers agree") {
  CHECK(text_of(settled("a,b", {})) == "a x 1, b x 1");
  CHECK(text_of(settled("a,b", {6, 0, 0})) == "a x 3, b x 3");
  CHECK(text_of(settled("a:3,b:1", {4, 0, 0})) == "a x 3, b x 1");
  CHECK(text_of(settled("a@gpu=0-2,b", {})) == "a x 3 gpu 0 1 2, b x 1");
  CHECK(text_of(settled("a,b", {0, 8, 2})) == "a x 8, b x 8");
  CHECK(slots_of(settled("h[1-100]:4096", {})) == 409600);
  // A plan of 2 hosts with 3 processes each, on others that have as many slots in all.
  CHECK(text_of(settled("big:4,small:2", {0, 3, 2})) == "big x 4, small x 2");
  CHECK(text_of(settled("a@gpu=0-3,b:1,c:1", {0, 3, 2})) == "a x 4 gpu 0 1 2 3, b x 1, c x 1");
  const auto error = [](const std::string& text, const WantedRanks& wanted) {
    return error_of([&] { settled(text, wanted); });
  };
  CHECK(error("a:4,b:2,c:1", {0, 3, 2}) ==
        "the plan has 6 ranks, but the hosts have 7 slots: give as many slots as ranks, or plan "
        "again");
  CHECK(error("a,b", {5, 0, 0}) ==
        "-n 5 ranks do not divide evenly over 2 hosts: give the ranks of each host, as in --hosts "
        "a:3,b:2");
  CHECK(
      error("a:2,b:2", {5, 0, 0}) ==
      "-n gives 5 ranks, but the hosts have 4 slots: leave -n out, or give as many slots as ranks");
  CHECK(error("a", {0, 8, 2}) ==
        "the plan is for 2 hosts, but 1 host is given: give as many hosts as planned, or plan "
        "again with --hosts 1");
  CHECK(
      error("a:8,b:4", {0, 8, 2}) ==
      "the plan has 8 processes per host, but host 'b' has 4 slots: write b:8, or plan again with "
      "cluster.processes_per_host=4");
}

TEST_CASE("the hosts of a Slurm allocation") {
  CHECK(text_of(hosts_of_slurm({"n[1-4]", "5,1(x3)"})) == "n1 x 5, n2 x 1, n3 x 1, n4 x 1");
  CHECK(text_of(hosts_of_slurm({"n[08-09],big", "4(x2),16"})) == "n08 x 4, n09 x 4, big x 16");
  CHECK(text_of(hosts_of_slurm({"n[1-2]", "1(x2)"})) == "n1, n2");  // left to -n and the plan
  CHECK(text_of(hosts_of_slurm({"n1", ""})) == "n1");
  const auto error = [](const std::string& tasks) {
    return error_of([&] { hosts_of_slurm({"n[1-2]", tasks}); });
  };
  for (const char* tasks : {"x", "2(x", "2(x0)", "0", "2,", "2(x2", "99999999999", "2x2"})
    CHECK(error(tasks) ==
          fmt::format("SLURM_TASKS_PER_NODE='{}': expected a list such as 5,1(x3)", tasks));
  CHECK(error("3(x3)") ==
        "SLURM_TASKS_PER_NODE='3(x3)' has 3 nodes, but SLURM_JOB_NODELIST='n[1-2]' has 2");
  CHECK(error_of([] { hosts_of_slurm({"n[", ""}); }).starts_with("SLURM_JOB_NODELIST: --hosts: "));
  CHECK(slurm_allocation({"A=1", "SLURM_JOB_NODELIST=n1"}).nodes == "n1");
  CHECK(error_of([] { slurm_allocation({"SLURM_JOB_NODELISTS=n1"}); }) ==
        "--hosts slurm: this is not an allocation of Slurm (SLURM_JOB_NODELIST is not set): run "
        "smp-launch under salloc or in a script of sbatch");
}

TEST_CASE("where srun may be connected to is what Slurm's configuration says") {
  const auto ports = [](const std::string& text) { return ports_of_srun(text); };
  CHECK(ports("SrunEpilog = (null)\nSrunPortRange           = 60001-63000\nX = 1\n") ==
        std::pair(60001, 63000));
  for (const char* text : {"SrunPortRange           = 0-0\n", "", "SrunPortRange = 7-5\n",
                           "SrunPortRange = 7\n", "SrunPortRange"})
    CHECK(ports(text) == std::pair(0, 0));
}

TEST_CASE("the nodes that srun says have failed are those of its errors alone") {
  const auto failed = [](const std::string& line) {
    std::string names;
    for (const std::string& name : nodes_failed_by(line))
      names += (names.empty() ? "" : " ") + name;
    return names;
  };
  CHECK(failed("srun: error: n2: task 0: Killed") == "n2");
  CHECK(failed("srun: error: gpu-n[2-3,7]: tasks 1-3: Exited with exit code 1") ==
        "gpu-n2 gpu-n3 gpu-n7");
  CHECK(failed("srun: error: Task launch for StepId=1.0 failed on node n3: Communication "
               "connection failure") == "n3");
  CHECK(failed("srun: error: Node failure on n[3-4]") == "n3 n4");
  for (const char* line : {"srun: error: Unable to create step for job 5: Requested nodes are busy",
                           "srun: error: the plugin says n2: this", "srun: warning: n2: slow",
                           "srun: error: n[2: broken", "srun: error: ", "n2: task 0: Killed", ""})
    CHECK(failed(line) == "");
}

// A hundred times as many would take ten thousand times as long, were each compared with the
// others.
TEST_CASE("100,000 hosts are read in about the time of 100 times 1,000") {
  const auto processor_ms = [](int times, const std::string& text) {  // other work does not count
    const std::clock_t start = std::clock();
    for (int i = 0; i < times; ++i) CHECK(!parse_hosts(text).empty());
    return 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  const std::string many = "rack[001-100]node[0001-1000]:8";
  const std::vector<HostSpec> all = parse_hosts(many);
  CHECK(all.size() == 100'000);
  CHECK(all.back().name == "rack100node1000");
  constexpr double kMostTimes = 20;    // 1 to 3 in truth, 100 if it were quadratic
  double of_many = 1e9, of_few = 1e9;  // the best of some: others disturb the caches
  for (int i = 0; i == 0 || (i < 10 && of_many > kMostTimes * of_few); ++i) {
    of_many = std::min(of_many, processor_ms(1, many));
    of_few = std::min(of_few, processor_ms(100, "rack[001]node[0001-1000]:8"));
  }
  MESSAGE("100,000 hosts in ", of_many, " ms, 100 times 1,000 in ", of_few, " ms");
  CHECK(of_many <= kMostTimes * of_few);
}
