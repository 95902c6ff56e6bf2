#include "local/usage_sampler.h"

#include <dirent.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "smp/plan/system/control_groups.h"
#include "smp/plan/system/file_descriptor.h"

namespace smp::local {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kRestFor = 2000;  // pause after a sample, in durations of the sample
constexpr std::chrono::seconds kBetweenTrees{3};  // between searches for processes of the ranks
constexpr size_t kMostProcesses = 1000;           // searched per rank

using Buffer = std::array<char, 32 << 10>;

// The text of a small file of /proc, up to the size of the buffer and zero-terminated; empty if the
// file does not exist any more.
std::string_view text_of(const std::string& path, Buffer& buffer) {
  buffer[0] = '\0';
  const system::FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  size_t size = 0;
  for (ssize_t got = 1; file && got > 0 && size < buffer.size() - 1;) {
    got = read(file.number(), buffer.data() + size, buffer.size() - 1 - size);
    if (got > 0) size += static_cast<size_t>(got);
  }
  buffer[size] = '\0';
  return {buffer.data(), size};
}

double tick_s() {
  static const double kTick = 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK));
  return kTick;
}

double seconds_since_boot() {
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct ProcessUsage {
  double began_s = 0;  // since boot
  double cpu_s = 0;    // includes children that the process has waited for
  int64_t memory_bytes = 0;
};

// /proc/<pid>/stat: "pid (name) state ppid ...". The name may have any characters, so the fields
// start after the last parenthesis; utime, stime, cutime and cstime are fields 14 to 17, starttime
// is the 22nd, rss the 24th (proc(5)).
std::optional<ProcessUsage> usage_of(pid_t pid) {
  static const int64_t kPage = sysconf(_SC_PAGESIZE);
  Buffer buffer;
  const std::string_view text = text_of("/proc/" + std::to_string(pid) + "/stat", buffer);
  const size_t name_end = text.rfind(')');
  if (name_end == text.npos) return std::nullopt;
  long long user = 0, system = 0, children_user = 0, children_system = 0, began = 0, pages = 0;
  if (std::sscanf(text.data() + name_end + 1,
                  " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lld %lld %lld %lld %*d %*d %*d "
                  "%*d %lld %*u %lld",
                  &user, &system, &children_user, &children_system, &began, &pages) != 6)
    return std::nullopt;
  const double cpu_s =
      tick_s() * static_cast<double>(user + system + children_user + children_system);
  return ProcessUsage{tick_s() * static_cast<double>(began), cpu_s, pages * kPage};
}

// Adds the children of all threads of a process. Adds none if the kernel has no such file
// (CONFIG_PROC_CHILDREN).
void add_children(pid_t pid, std::vector<pid_t>& tree) {
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(tasks.c_str()), closedir);
  if (folder == nullptr) return;
  Buffer buffer;
  while (const dirent* entry = readdir(folder.get())) {
    if (entry->d_name[0] == '.') continue;
    const char* at = text_of(tasks + "/" + entry->d_name + "/children", buffer).data();
    for (char* end = nullptr; *at != '\0'; at = end) {
      const long child = std::strtol(at, &end, 10);
      if (end == at) break;
      tree.push_back(static_cast<pid_t>(child));
    }
  }
}

int64_t number_behind(std::string_view text, std::string_view name) {
  const size_t at = text.find(name);
  return at == text.npos ? 0 : std::strtoll(text.data() + at + name.size(), nullptr, 10);
}

// CPU time of this thread, to measure the cost of a sample.
Clock::duration own_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

UsageSampler::UsageSampler(milliseconds every) : every_(every), gpus_(every) {
  for (const auto& [unified, legacy] : {std::pair("memory.current", "memory.usage_in_bytes"),
                                        std::pair("memory.max", "memory.limit_in_bytes")}) {
    const std::vector<std::string> files = system::own_group_files(unified, legacy);
    if (!files.empty()) group_files_.push_back(files.front());
  }
}

std::optional<system::HostUsage> UsageSampler::take(Clock::time_point now) {
  if (now < due_) return std::nullopt;
  const Clock::duration before = own_time();
  if (now >= trees_due_) find_processes(now);
  const double seconds =
      looked_at_ ? std::chrono::duration<double>(now - *looked_at_).count() : 0.0;
  const double boot_s = seconds_since_boot();
  system::HostUsage usage = look(seconds);
  looked_at_ = now;
  looked_boot_s_ = boot_s;
  due_ = now + std::max<Clock::duration>(every_, kRestFor * (own_time() - before));
  if (seconds == 0.0) return std::nullopt;
  return usage;
}

void UsageSampler::find_processes(Clock::time_point now) {
  const Clock::duration before = own_time();
  for (auto& [number, rank] : ranks_) {
    rank.tree.assign(1, rank.pid);
    for (size_t i = 0; i < rank.tree.size() && i < kMostProcesses; ++i)
      add_children(rank.tree[i], rank.tree);
  }
  trees_due_ = now + std::max<Clock::duration>(kBetweenTrees, kRestFor * (own_time() - before));
}

// CPU time is summed over all processes and compared with the last sum, because the CPU time of an
// ended process is added to the process that waited for it. A process that is seen for the first
// time but is older than the last sample does not count in this sample.
system::RankUsage UsageSampler::look_at(int number, Rank& rank, double seconds) {
  if (rank.tree.empty()) rank.tree.push_back(rank.pid);
  system::RankUsage usage;
  usage.rank = number;
  double used_s = -rank.cpu_s;
  rank.cpu_s = 0;
  std::map<pid_t, double> seen;
  for (const pid_t pid : rank.tree) {
    const auto process = usage_of(pid);
    if (!process) continue;
    ++usage.processes;
    usage.memory_bytes += process->memory_bytes;
    rank.cpu_s += process->cpu_s;
    const auto before = rank.seen.find(pid);
    const bool is_known = before != rank.seen.end() && before->second == process->began_s;
    const bool is_young = process->began_s + tick_s() > looked_boot_s_;
    if (is_known || is_young) used_s += process->cpu_s;
    seen[pid] = process->began_s;
  }
  rank.seen = std::move(seen);
  // The sum can decrease: the CPU time of a child that was not waited for is lost.
  if (seconds > 0) usage.cpus = std::max(used_s, 0.0) / seconds;
  return usage;
}

system::HostUsage UsageSampler::look(double seconds) {
  system::HostUsage usage;
  usage.time = std::chrono::system_clock::now();
  Buffer buffer;
  const std::string_view memory = text_of("/proc/meminfo", buffer);  // in KiB
  usage.memory_total_bytes = number_behind(memory, "MemTotal:") * 1024;
  usage.memory_bytes = usage.memory_total_bytes - number_behind(memory, "MemAvailable:") * 1024;
  if (group_files_.size() == 2) {
    const std::string_view held = text_of(group_files_[0], buffer);
    if (!held.empty()) usage.group_memory_bytes = std::strtoll(held.data(), nullptr, 10);
    const std::string_view limit = text_of(group_files_[1], buffer);
    // No limit is "max" in v2, and a number above any memory size in v1.
    const int64_t most = limit.empty() ? 0 : std::strtoll(limit.data(), nullptr, 10);
    if (most <= usage.memory_total_bytes) usage.group_limit_bytes = most;
  }
  Traffic traffic;
  std::string_view lines = text_of("/proc/net/dev", buffer);
  for (size_t end = 0; !lines.empty(); lines.remove_prefix(end)) {
    end = std::min(lines.find('\n'), lines.size() - 1) + 1;
    const std::string_view line = lines.substr(0, end);
    const size_t colon = line.find(':');
    if (colon == line.npos || line.substr(0, colon).ends_with(" lo")) continue;
    long long received = 0, sent = 0;
    if (std::sscanf(line.data() + colon + 1, "%lld %*d %*d %*d %*d %*d %*d %*d %lld", &received,
                    &sent) != 2)
      continue;
    traffic.received += received;
    traffic.sent += sent;
  }
  const auto rate = [&](int64_t before, int64_t after) {
    return seconds > 0 ? static_cast<double>(std::max<int64_t>(after - before, 0)) / seconds : 0.0;
  };
  usage.received_bytes_per_s = rate(traffic_.received, traffic.received);
  usage.sent_bytes_per_s = rate(traffic_.sent, traffic.sent);
  traffic_ = traffic;
  for (auto& [number, rank] : ranks_) usage.ranks.push_back(look_at(number, rank, seconds));
  add_gpus(usage);
  return usage;
}

void UsageSampler::add_gpus(system::HostUsage& usage) const {
  for (health::GpuSample& sample : gpus_.latest()) {
    for (const auto& [number, rank] : ranks_) {
      system::GpuShare share{number, 0};
      bool there = false;
      for (const health::GpuProcess& process : sample.processes) {
        if (std::find(rank.tree.begin(), rank.tree.end(), process.pid) == rank.tree.end()) continue;
        there = true;
        share.memory_bytes += process.memory_bytes;
      }
      if (there) sample.usage.ranks.push_back(share);
    }
    usage.gpus.push_back(std::move(sample.usage));
  }
}

}  // namespace smp::local
