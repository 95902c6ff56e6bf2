#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The resources that the ranks of one host used between two samples: a line of usage.jsonl in the
// run's folder. smp-launch writes the file and its report reads it. Plain data and pure functions.
namespace smp::system {

struct RankUsage {
  int rank = 0;
  int processes = 0;         // its own, and those that it has started
  double cpus = 0;           // kept busy, on average since the sample before
  int64_t memory_bytes = 0;  // resident; a page that processes share counts in each

  friend bool operator==(const RankUsage&, const RankUsage&) = default;
};

// Memory of one GPU that the processes of a rank hold.
struct GpuShare {
  int rank = 0;
  int64_t memory_bytes = 0;

  friend bool operator==(const GpuShare&, const GpuShare&) = default;
};

struct GpuUsage {
  int gpu = 0;  // as nvidia-smi numbers them
  int busy_percent = 0;
  int64_t memory_bytes = 0, memory_total_bytes = 0;
  double power_w = 0;
  std::vector<GpuShare> ranks;

  friend bool operator==(const GpuUsage&, const GpuUsage&) = default;
};

struct HostUsage {
  std::chrono::system_clock::time_point time{};
  int start = 1;  // of the job, from 1
  std::string host;
  int64_t memory_bytes = 0, memory_total_bytes = 0;  // of the host; what could be had is not used
  // About the control group that the ranks run in, if it accounts for memory; limit 0 = none.
  std::optional<int64_t> group_memory_bytes;
  int64_t group_limit_bytes = 0;
  double received_bytes_per_s = 0, sent_bytes_per_s = 0;  // all interfaces but loopback
  std::vector<RankUsage> ranks;
  std::vector<GpuUsage> gpus;

  friend bool operator==(const HostUsage&, const HostUsage&) = default;
};

// One line, without its end.
std::string usage_json(const HostUsage& usage);
// Throws ConfigError if the text is not such a line; the caller names the line.
HostUsage parse_usage(std::string_view line);

}  // namespace smp::system
