#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/launcher/health/gpu_health.h"

// What a host has that a job may lack, and what is wrong with it. Pure functions but for
// own_health(); any thread.
namespace smp::health {

constexpr int64_t kUnlimited = -1;      // of a limit
std::string limit_text(int64_t limit);  // the number, or "unlimited"

struct HostHealth {
  std::string name, kernel;
  int64_t clock_ms = 0;  // since 1970
  int64_t cpus = 0;      // that it may run on
  // Of the machine, or of the control group where that allows less; what is free of it.
  int64_t memory_bytes = 0, memory_free_bytes = 0;
  int64_t shm_bytes = 0, shm_free_bytes = 0;                // /dev/shm
  int64_t open_files = 0, processes = 0, locked_bytes = 0;  // limits
  std::vector<std::string> gpus;                            // their models
  std::string driver;                                       // of the GPUs
  GpuHealth gpu_health;
};

// Of this host, as this process sees it. `root` stands before /proc, /sys and /dev, for tests.
HostHealth own_health(const std::string& root = "");

// What a job asks of a host.
struct HealthRequirements {
  int64_t ranks = 1;
  int64_t gpus = 0;
  int64_t memory_bytes = 0;       // of all ranks; 0: not known
  std::vector<int> these_gpus{};  // empty: any
};

struct HealthFinding {
  std::string name;
  bool ok = true;
  std::string text;       // what is there
  std::string fix;        // what to do, where it is not ok
  bool optional = false;  // jobs may run all the same
};

// What is wrong, or was, with these GPUs of a host (none: with any), and who holds them.
std::vector<HealthFinding> gpu_findings_of(const GpuHealth& health, const std::vector<int>& gpus);

std::vector<HealthFinding> findings_of(const HostHealth& health,
                                       const HealthRequirements& requirements);

// The hosts of --check beside each other.
struct CheckedHost {
  std::string name;
  std::string why_not;  // it was not reached; empty: it was
  HostHealth health;
  HealthRequirements requirements;
  int64_t clock_skew_ms = 0;  // its clock ahead of this one's
  std::string link{};         // at whose address the ranks meet: "eth0, up, 25 Gb/s"; may be empty
  int link_mbps = 0;          // 0: not known
  std::vector<int> reached_us{};         // times to connect to the hosts that it can connect to
  std::vector<std::string> unreached{};  // the others, and why
};

struct HostTable {
  std::string text;
  bool ok = true;
};

// One line a host, then what is wrong, with fixes; differences between hosts are found, too.
HostTable table_of(const std::vector<CheckedHost>& hosts);

}  // namespace smp::health
