#include "smp/launcher/health/host_health.h"

#include <dlfcn.h>
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "scratch_folder.h"
#include "smp/launcher/health/gpu_health.h"
#include "smp/launcher/probe/network_probe.h"

using namespace smp;
using namespace smp::health;
using namespace smp::probe;
using namespace smp::process;

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

TEST_CASE("errors of GPUs that the kernel has logged are found with their age") {
  const ScratchFolder folder;
  write_file(folder / "proc/uptime", "7265.00 100.00\n");
  for (const char* gpu : {"0000:3b:00.0", "0000:02:00.0"})
    write_file(fmt::format("{}/proc/driver/nvidia/gpus/{}/information", folder.path(), gpu), "");
  const auto logged = [&](const std::string& line) {
    write_file(folder / "dev/kmsg", line);
    std::string text;
    for (const GpuNote& note : own_health(folder.path()).gpu_health.logged)
      text += fmt::format("{}: {}", note.gpu, note.text);
    return text;
  };
  const std::string gone =
      ",-;NVRM: Xid (PCI:0000:3b:00): 79, pid=12, GPU has fallen off the bus.\n SUBSYSTEM=pci\n";
  const std::string told = "1: Xid (PCI:0000:3b:00): 79, pid=12, GPU has fallen off the bus.";
  CHECK(logged("4,339,5140900" + gone) == told + ", 2 h ago");
  CHECK(logged("4,339,7000000000" + gone) == told + ", 4 min ago");
  CHECK(logged("4,339,9000000000" + gone) == told);  // the clock is a container's
  CHECK(logged("4,340,7264000000,-;NVRM: Xid (PCI:0000:ff:00): 48, x\n") ==
        "-1: Xid (PCI:0000:ff:00): 48, x, 0 min ago");
  CHECK(logged("4,340,1,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=12, MMU Fault\n") == "");
  CHECK(logged("4,340,1,-;NVRM: Xid (PCI:0000:3b:00): 63, Row Remapper: ...\n") == "");
  CHECK(logged("4,340,1,-;NVRM: Xid (PCI:0000:3b:00)") == "");
}

TEST_CASE("NVML that hangs on a GPU is not waited for, and is an error of the GPUs") {
  void* const library = dlopen(FAKE_NVML, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != nullptr);
  const auto hang = reinterpret_cast<void (*)(bool)>(dlsym(library, "fake_nvml_hang"));
  REQUIRE(static_cast<bool>(hang));
  const ScratchFolder nothing_logged;
  hang(true);
  const GpuHealth health = own_gpu_health(nothing_logged.path(), std::chrono::milliseconds(20));
  hang(false);
  REQUIRE(health.errors.size() == 1);
  CHECK(health.errors[0].gpu == -1);
  CHECK(health.errors[0].text == "NVML does not answer in 20 ms");
  CHECK(own_gpu_health(nothing_logged.path(), std::chrono::minutes(1)).errors.empty());
}

TEST_CASE("what is told of GPUs: of those of the job, and what may be over is not wrong") {
  HostHealth health = good();
  CHECK(gpu_findings_of(health.gpu_health, {}).empty());
  health.gpu_health = {{{0, "x"}, {1, "y"}}, {{-1, "Xid"}, {2, "z"}}, {{0, "process 1"}}};
  const auto told = [&](const std::vector<int>& gpus) {
    std::string text;
    for (const HealthFinding& one : gpu_findings_of(health.gpu_health, gpus))
      text += fmt::format("{}{}: {}\n", one.optional ? "-- " : "", one.name, one.text);
    return text;
  };
  CHECK(
      told({}) ==
      "GPU errors: GPU 0: x; GPU 1: y\n-- GPU log: Xid; GPU 2: z\nGPUs in use: GPU 0: process 1\n");
  CHECK(told({1}) == "GPU errors: GPU 1: y\n-- GPU log: Xid\n");
  CHECK(told({3}) == "-- GPU log: Xid\n");
  health.gpu_health.errors.clear();
  health.gpu_health.held_by.clear();
  const HostTable table = table_of({{"a", {}, health, {}, 0}});
  CHECK(table.ok);
  CHECK(table.text.substr(table.text.find("\n\n") + 2) ==
        "note: host a: GPU log: Xid; GPU 2: z: if the GPU was not reset since then: nvidia-smi "
        "--gpu-reset, or leave the host out (--exclude)\n1 host: no problem found\n");
}

TEST_CASE("what a host lacks is said with what to do about it") {
  const auto wrong = [](const HostHealth& health, const HealthRequirements& requirements) {
    std::string text;
    for (const HealthFinding& one : findings_of(health, requirements)) {
      if (!one.ok) text += fmt::format("{}: {}: {:.30}\n", one.name, one.text, one.fix);
    }
    return text;
  };
  CHECK(wrong(good(), {8, 0, 60 * kGiB}) == "");
  CHECK(wrong(good(), {9, 0, 0}) == "cpus: 8 for 9 ranks: ranks that share a core wait f\n");
  CHECK(wrong(good(), {8, 0, 61 * kGiB}) ==
        "memory: 60 GiB free of 64 GiB, 61 GiB planned: end other programs on this hos\n");
  CHECK(wrong(good(), {8, 2, 0}) == "GPUs: none: 2 are needed: check that the d\n");
  HostHealth container = good();
  container.shm_bytes = container.shm_free_bytes = 64 << 20;
  container.open_files = 256;
  container.processes = 10;
  container.locked_bytes = 65536;
  CHECK(wrong(container, {1, 0, 0}) ==
        "/dev/shm: 64 MiB free of 64 MiB: ranks exchange data through /d\nopen files: 256 at most: "
        "raise the hard limit to 320 (u\nprocesses: 10 at most, threads included: raise the limit "
        "to 64 (ulimit \n");
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
        "host  reached  clock   cpus  memory free  /dev/shm  files  processes  GPUs  driver\na     "
        "yes      +0.0 s  8     60 GiB       8.0 GiB   4096   unlimited  0     -\nb     yes      "
        "+0.0 s  8     60 GiB       8.0 GiB   4096   unlimited  0     -\n\n2 hosts: no problem "
        "found\n");
  const CheckedHost lost{"d", "connection refused: no sshd there", {}, {}, 0};
  const HostTable table = table_of({host("a", "H100", "550.1"), host("b", "H100", "560.2", -4200),
                                    host("c", "H100", "550.1"), lost});
  CHECK(!table.ok);
  CHECK(table.text.substr(table.text.find("\n\n") + 2) ==
        "host b: its clock is -4.2 s off: run chrony or ntpd\nhost d: connection refused: no sshd "
        "there\nhost b: driver '560.2', but '550.1' on 2 others: install the same on all hosts\n3 "
        "things are wrong\n");
  CHECK(table_of({host("a", "H100"), host("b", "A100"), host("c", "H100")})
            .text.find("host b: GPUs 'A100', but 'H100' on 2 others") != std::string::npos);
}

TEST_CASE("a check tells which links are slower, and which hosts do not reach each other") {
  CheckedHost a = host("a"), b = host("b"), c = host("c");
  a.link = "eth0, up, 25 Gb/s";
  a.link_mbps = 25'000;
  a.reached_us = {80, 120};
  b.link = "eth0, up, 1 Gb/s";
  b.link_mbps = 1'000;
  b.reached_us = {210};
  c.link = "eth0";  // not known: not judged
  b.unreached = {"host c at 10.0.0.3: no answer in 5 s"};
  const HostTable table = table_of({a, b, c});
  CHECK(!table.ok);
  CHECK(table.text.substr(table.text.find("\n\n") + 2) ==
        "ranks of 1 host meet over eth0\nranks of 1 host meet over eth0, up, 1 Gb/s\nranks of 1 "
        "host meet over eth0, up, 25 Gb/s\n3 connections between hosts: 0.08 ms to 0.21 ms, half "
        "of them below 0.12 ms\nhost b: eth0, up, 1 Gb/s, but host a has eth0, up, 25 Gb/s: check "
        "the cable and switch of the slower host, or leave that host out (--exclude)\nhost b: does "
        "not reach host c at 10.0.0.3: no answer in 5 s: check for a firewall between the hosts, "
        "or for another network (--interface)\n2 things are wrong\n");
}

TEST_CASE("the link of an address is what the kernel tells of its interface") {
  const ScratchFolder folder;
  write_file(folder / "sys/class/net/lo/operstate", "up\n");
  write_file(folder / "sys/class/net/lo/speed", "25000\n");
  const LinkFacts link = link_of_address("127.0.0.1", folder.path());
  CHECK(text_of(link) == "lo, up, 25 Gb/s");
  CHECK(link.speed_mbps == 25'000);
  write_file(folder / "sys/class/net/lo/operstate", "unknown\n");
  write_file(folder / "sys/class/net/lo/speed", "-1\n");
  CHECK(text_of(link_of_address("127.0.0.1", folder.path())) == "lo");
  CHECK(text_of(LinkFacts{"ib0", "down", 100}) == "ib0, down, 100 Mb/s");
  CHECK(link_of_address("192.0.2.255", folder.path()).name.empty());
}
