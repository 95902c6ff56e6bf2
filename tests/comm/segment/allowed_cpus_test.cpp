#include "segment/allowed_cpus.h"

#include <doctest/doctest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "scratch_folder.h"

using namespace smp;
using namespace smp::segment;

TEST_CASE("a control group's quota says how many CPUs there are") {
  CHECK(cpus_of_quota("200000 100000") == 2);
  CHECK(cpus_of_quota("250000 100000") == 2);
  CHECK(cpus_of_quota("50000 100000") == 1);
  for (const char* text : {"max 100000", "", "0 100000", "5", "-1 100000"})
    CHECK_FALSE(cpus_of_quota(text));
}

TEST_CASE("ranks may use the CPUs of their affinity, or fewer by the quotas of their groups") {
  const ScratchFolder folder;
  const std::string root = folder.path();
  const int all = allowed_cpus({}, root).count;  // nothing says less
  CHECK(all >= 1);
  std::filesystem::create_directories(root + "/proc/self");
  std::filesystem::create_directories(root + "/sys/fs/cgroup/job/step");
  const auto write = [&](const std::string& file, const std::string& text) {
    std::ofstream(root + file) << text << "\n";
  };
  write("/proc/self/cgroup", "1:memory:/else\n0::/job/step");
  write("/sys/fs/cgroup/job/step/cpu.max", "max 100000");
  CHECK(allowed_cpus({}, root).count == all);
  write("/sys/fs/cgroup/job/cpu.max", "100000 100000");
  CHECK(allowed_cpus({}, root).count == 1);
  // v1: its controllers' folder, which mostly has a link of the name of each.
  for (const char* mount : {"cpu,cpuacct", "cpu"}) {
    const std::string group = std::string("/sys/fs/cgroup/") + mount + "/job";
    std::filesystem::create_directories(root + group);
    write("/proc/self/cgroup", "5:memory:/job\n4:cpu,cpuacct:/job\n1:name=systemd:/x");
    write(group + "/cpu.cfs_period_us", "100000");
    write(group + "/cpu.cfs_quota_us", "-1");
    CHECK(allowed_cpus({}, root).count == all);
    write(group + "/cpu.cfs_quota_us", "150000");
    CHECK(allowed_cpus({}, root).count == 1);
    std::filesystem::remove_all(root + group);
  }
  write("/proc/self/cgroup", "0::/");  // a container sees its own group as the root
  CHECK(allowed_cpus({}, root).count == all);
  write("/sys/fs/cgroup/cpu.max", "100000 100000");
  CHECK(allowed_cpus({}, root).count == 1);
}

TEST_CASE("the last caches of the CPUs count once each, by a quota's share") {
  const ScratchFolder folder;
  const std::string root = folder.path();
  constexpr int64_t kMiB = 1 << 20;
  CHECK(allowed_cpus({}, root).cache_bytes == 32 * kMiB);  // nothing says more
  const int cpus = allowed_cpus({}, root).count;
  cpu_set_t mine;
  CPU_ZERO(&mine);
  REQUIRE(sched_getaffinity(0, sizeof(mine), &mine) == 0);
  const auto write = [&](const std::string& file, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + file).parent_path());
    std::ofstream(root + file) << text << "\n";
  };
  const auto describe = [&](int cpu, const std::string& sharing, const std::string& size) {
    if (!CPU_ISSET(cpu, &mine)) return;
    const std::string caches = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index";
    for (const char* index : {"0", "1"}) {
      write(caches + index + "/size", index[0] == '0' ? "48K" : size);
      write(caches + index + "/shared_cpu_list", index[0] == '0' ? std::to_string(cpu) : sharing);
    }
  };
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) describe(cpu, "0-1023", "6144K");
  CHECK(allowed_cpus({}, root).cache_bytes == 6 * kMiB / cpus * cpus);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) describe(cpu, std::to_string(cpu), "2M");
  CHECK(allowed_cpus({}, root).cache_bytes == cpus * 2 * kMiB);
  write("/proc/self/cgroup", "0::/");
  write("/sys/fs/cgroup/cpu.max", "100000 100000");
  CHECK(allowed_cpus({}, root).cache_bytes == 2 * kMiB);
}

TEST_CASE("ranks that are bound each to a CPU have all of these together") {
  const ScratchFolder folder;  // without quotas
  cpu_set_t mine, first, last;
  CPU_ZERO(&mine);
  REQUIRE(sched_getaffinity(0, sizeof(mine), &mine) == 0);
  int a = 0, b = CPU_SETSIZE - 1;
  while (!CPU_ISSET(a, &mine)) ++a;
  while (!CPU_ISSET(b, &mine)) --b;
  const auto bound_to = [](int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);
      pause();
      _exit(0);
    }
    REQUIRE(sched_setaffinity(child, sizeof(set), &set) == 0);
    return child;
  };
  CPU_ZERO(&first);
  CPU_SET(a, &first);
  CPU_ZERO(&last);
  CPU_SET(b, &last);
  std::vector<int> others = {bound_to(a), bound_to(b)};
  REQUIRE(sched_setaffinity(0, sizeof(first), &first) == 0);
  CHECK(allowed_cpus({}, folder.path()).count == 1);
  CHECK(allowed_cpus({others[0]}, folder.path()).count == 1);
  const AllowedCpus both = allowed_cpus(others, folder.path());
  CHECK(both.count == (a == b ? 1 : 2));
  CHECK(both.place_here() == 0);
  CHECK(sched_setaffinity(0, sizeof(last), &last) == 0);
  CHECK(both.place_here() == both.count - 1);
  for (const int child : others) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  CHECK(allowed_cpus(others, folder.path()).count == 1);  // they are gone
  CHECK(sched_setaffinity(0, sizeof(mine), &mine) == 0);
}
