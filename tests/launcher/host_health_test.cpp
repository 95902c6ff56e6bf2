#include "smp/launcher/host_health.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "scratch_folder.h"

using namespace smp;

namespace {

constexpr int64_t kGiB = 1 << 30;

HostHealth good() {
  HostHealth health;
  health.cpus = 8;
  health.memory_bytes = 64 * kGiB;
  health.memory_free_bytes = 60 * kGiB;
  health.shm_bytes = health.shm_free_bytes = 8 * kGiB;
  health.open_files = 4096;
  health.processes = kUnlimited;
  health.locked_bytes = kUnlimited;
  return health;
}

CheckedHost host(const std::string& name, const std::string& gpu = {},
                 const std::string& driver = {}, int64_t skew_ms = 0) {
  CheckedHost one{name, {}, good(), {}, skew_ms};
  if (!gpu.empty()) one.health.gpus.push_back(gpu);
  one.health.driver = driver;
  return one;
}

void write_file(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("a host's memory, limits and GPUs are read where the kernel and the driver tell them") {
  const ScratchFolder folder;
  const std::string root = folder.path();
  write_file(folder / "proc/meminfo",
             "MemTotal:       16384 kB\nMemFree: 1 kB\nMemAvailable:    8192 kB\n");
  write_file(folder / "sys/fs/cgroup/memory.max", "8388608\n");
  write_file(folder / "sys/fs/cgroup/memory.current", "1048576\n");
  write_file(folder / "proc/driver/nvidia/version",
             "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC "
             "2024\nGCC version:  gcc 12\n");
  for (const char* gpu : {"0000:01:00.0", "0000:02:00.0"})
    write_file(fmt::format("{}/proc/driver/nvidia/gpus/{}/information", root, gpu),
               "Model: \t\t NVIDIA H100\nIRQ: 1\n");
  const HostHealth health = own_health(root);
  CHECK(health.memory_bytes == 8388608);
  CHECK(health.memory_free_bytes == 7340032);
  CHECK(health.driver == "550.54.15");
  CHECK(health.gpus == std::vector<std::string>{"NVIDIA H100", "NVIDIA H100"});
  CHECK(own_health().cpus >= 1);
  CHECK(own_health().memory_bytes > 0);
  CHECK(own_health().clock_ms > 1'700'000'000'000);
}

TEST_CASE("what a host lacks is said with what to do about it") {
  const auto wrong = [](const HostHealth& health, const HealthWish& wish) {
    std::string text;
    for (const HealthFinding& one : findings_of(health, wish)) {
      if (!one.ok) text += fmt::format("{}: {}: {:.30}\n", one.name, one.text, one.fix);
    }
    return text;
  };
  CHECK(wrong(good(), {8, 0, 60 * kGiB}) == "");
  CHECK(wrong(good(), {9, 0, 0}) == "cpus: 8 for 9 ranks: ranks that share a core wait f\n");
  CHECK(wrong(good(), {8, 0, 61 * kGiB}) ==
        "memory: 60 GiB free of 64 GiB, 61 GiB planned: end what else runs there, or r\n");
  CHECK(wrong(good(), {8, 2, 0}) == "GPUs: none: 2 are wanted: is the driver lo\n");
  HostHealth container = good();
  container.shm_bytes = container.shm_free_bytes = 64 << 20;
  container.open_files = 256;
  container.processes = 10;
  container.locked_bytes = 65536;
  CHECK(wrong(container, {1, 0, 0}) ==
        "/dev/shm: 64 MiB free of 64 MiB: ranks talk through it: remove \n"
        "open files: 256 at most: raise the hard limit to 320 (u\n"
        "processes: 10 at most, threads too: raise the limit to 64 (ulimit \n");
  container = good();
  container.locked_bytes = 65536;
  container.gpus.emplace_back("X");
  CHECK(wrong(container, {1, 1, 0}) ==
        "locked memory: 0 MiB at most: network cards read from locked\n");
}

TEST_CASE("the hosts of a check stand beside each other, and differences are found") {
  const HostTable fine = table_of({host("a"), host("b", {}, {}, 20)});
  CHECK(fine.ok);
  CHECK(fine.text ==
        "host  reached  clock   cpus  memory free  /dev/shm  files  processes  GPUs  driver\n"
        "a     yes      +0.0 s  8     60 GiB       8.0 GiB   4096   unlimited  0     -\n"
        "b     yes      +0.0 s  8     60 GiB       8.0 GiB   4096   unlimited  0     -\n"
        "\n"
        "2 hosts: nothing is wrong\n");
  const CheckedHost lost{"d", "connection refused: no sshd there", {}, {}, 0};
  const HostTable table = table_of({host("a", "H100", "550.1"), host("b", "H100", "560.2", -4200),
                                    host("c", "H100", "550.1"), lost});
  CHECK(!table.ok);
  CHECK(table.text.substr(table.text.find("\n\n") + 2) ==
        "host b: its clock is -4.2 s off: run chrony or ntpd\n"
        "host d: connection refused: no sshd there\n"
        "host b: driver '560.2', but '550.1' on 2 others: install the same\n"
        "3 things are wrong\n");
  CHECK(table_of({host("a", "H100"), host("b", "A100"), host("c", "H100")})
            .text.find("host b: GPUs 'A100', but 'H100' on 2 others") != std::string::npos);
}
