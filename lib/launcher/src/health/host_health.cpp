#include "smp/launcher/health/host_health.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/health/bytes_text.h"

namespace smp::health {
namespace {

constexpr int64_t kMiB = 1 << 20;
// A container's 64 MiB do not hold the buffers through which ranks talk.
constexpr int64_t kLeastShmBytes = 512 * kMiB;
// Pipes, logs and channels of a rank, and what a program opens (datasets, sockets of its peers).
constexpr int64_t kFilesOfRank = 64, kFilesOfLauncher = 256;
// Threads count as processes: OpenMP's, data loaders.
constexpr int64_t kProcessesOfRank = 64;
// A driver that is not kept loaded sets up every GPU first, which takes seconds.
constexpr std::chrono::milliseconds kPatienceWithNvml{10'000};

int64_t limit_of(int which, bool hard) {
  rlimit limit{};
  getrlimit(static_cast<__rlimit_resource>(which), &limit);
  const rlim_t value = hard ? limit.rlim_max : limit.rlim_cur;
  return value == RLIM_INFINITY ? kUnlimited : static_cast<int64_t>(value);
}

// A number alone in a file; `otherwise` where there is none ("max").
int64_t number_in(const std::string& path, int64_t otherwise) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : otherwise;
}

// "MemTotal:  123 kB"
int64_t meminfo(const std::string& root, const std::string& key) {
  std::ifstream file(root + "/proc/meminfo");
  std::string word;
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    if (words >> word >> number && word == key) return number * 1024;
  }
  return 0;
}

void read_memory(const std::string& root, HostHealth& health) {
  health.memory_bytes = meminfo(root, "MemTotal:");
  health.memory_free_bytes = meminfo(root, "MemAvailable:");
  const std::string v2 = root + "/sys/fs/cgroup/", v1 = v2 + "memory/";
  const int64_t limit = std::min(number_in(v2 + "memory.max", INT64_MAX),
                                 number_in(v1 + "memory.limit_in_bytes", INT64_MAX));
  if (limit >= health.memory_bytes) return;
  const int64_t used =
      std::max(number_in(v2 + "memory.current", 0), number_in(v1 + "memory.usage_in_bytes", 0));
  health.memory_bytes = limit;
  health.memory_free_bytes = std::min(health.memory_free_bytes, std::max<int64_t>(0, limit - used));
}

// As NVIDIA's driver tells.
void read_gpus(const std::string& root, HostHealth& health) {
  const std::string folder = root + "/proc/driver/nvidia";
  std::ifstream version(folder + "/version");
  for (std::string word; version >> word;) {
    if (std::count(word.begin(), word.end(), '.') >= 1 && std::isdigit(word.front()) != 0) {
      health.driver = word;
      break;
    }
  }
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/gpus", error)) {
    std::ifstream about(entry.path() / "information");
    for (std::string line; std::getline(about, line);) {
      if (!line.starts_with("Model:")) continue;
      const size_t at = line.find_first_not_of(" \t", 6);
      health.gpus.push_back(at == line.npos ? "GPU" : line.substr(at));
    }
  }
  std::sort(health.gpus.begin(), health.gpus.end());
}

HealthFinding finding(const char* name, bool ok, std::string text, const std::string& fix) {
  return {name, ok, std::move(text), ok ? "" : fix};
}

bool is_below(int64_t limit, int64_t wanted) { return limit != kUnlimited && limit < wanted; }

}  // namespace

std::string limit_text(int64_t limit) {
  return limit == kUnlimited ? "unlimited" : std::to_string(limit);
}

HostHealth own_health(const std::string& root) {
  HostHealth health;
  utsname names{};
  uname(&names);
  health.name = names.nodename;
  health.kernel = names.release;
  health.clock_ms = std::chrono::duration_cast<std::chrono::milliseconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count();
  health.cpus = environment::available_cpus();
  read_memory(root, health);
  struct statvfs shm {};
  if (statvfs((root + "/dev/shm").c_str(), &shm) == 0) {
    health.shm_bytes = static_cast<int64_t>(shm.f_blocks * shm.f_frsize);
    health.shm_free_bytes = static_cast<int64_t>(shm.f_bavail * shm.f_frsize);
  }
  health.open_files = limit_of(RLIMIT_NOFILE, true);  // smp-launch raises the soft one
  health.processes = limit_of(RLIMIT_NPROC, false);
  health.locked_bytes = limit_of(RLIMIT_MEMLOCK, false);
  read_gpus(root, health);
  health.gpu_health = own_gpu_health(root, kPatienceWithNvml);
  return health;
}

std::vector<HealthFinding> findings_of(const HostHealth& health,
                                       const HealthRequirements& requirements) {
  std::vector<HealthFinding> found;
  found.push_back(finding("cpus", health.cpus >= requirements.ranks,
                          fmt::format("{} for {} rank{}", health.cpus, requirements.ranks,
                                      requirements.ranks == 1 ? "" : "s"),
                          "ranks that share a core wait for each other: start fewer ranks, or "
                          "enlarge the CPU set (taskset, cpuset of the container)"));
  const int64_t memory = requirements.memory_bytes;
  found.push_back(
      finding("memory", health.memory_free_bytes >= memory,
              fmt::format("{} free of {}{}", text_of_bytes(health.memory_free_bytes),
                          text_of_bytes(health.memory_bytes),
                          memory == 0 ? "" : fmt::format(", {} planned", text_of_bytes(memory))),
              "end other programs on this host, or raise the limit of the control group"));
  found.push_back(finding("/dev/shm", health.shm_free_bytes >= kLeastShmBytes,
                          fmt::format("{} free of {}", text_of_bytes(health.shm_free_bytes),
                                      text_of_bytes(health.shm_bytes)),
                          "ranks exchange data through /dev/shm: remove old files there, or mount "
                          "-o remount,size=8G /dev/shm (docker: --shm-size 8g)"));
  const int64_t files = kFilesOfLauncher + kFilesOfRank * requirements.ranks;
  found.push_back(
      finding("open files", !is_below(health.open_files, files),
              fmt::format("{} at most", limit_text(health.open_files)),
              fmt::format("raise the hard limit to {} (ulimit -Hn, limits.conf)", files)));
  const int64_t processes = kProcessesOfRank * requirements.ranks;
  found.push_back(
      finding("processes", !is_below(health.processes, processes),
              fmt::format("{} at most, threads included", limit_text(health.processes)),
              fmt::format("raise the limit to {} (ulimit -u, limits.conf)", processes)));
  // 64 MiB: what libfabric and NCCL pin for their first buffers.
  const bool pins = requirements.gpus > 0;
  found.push_back(finding("locked memory", !pins || !is_below(health.locked_bytes, 64 * kMiB),
                          health.locked_bytes == kUnlimited
                              ? "unlimited"
                              : text_of_bytes(health.locked_bytes) + " at most",
                          "network cards read from locked memory: set ulimit -l unlimited "
                          "(limits.conf; docker: --ulimit memlock=-1)"));
  const auto gpus = static_cast<int64_t>(health.gpus.size());
  if (gpus > 0 || requirements.gpus > 0)
    found.push_back(finding("GPUs", gpus >= requirements.gpus,
                            gpus == 0
                                ? "none"
                                : fmt::format("{} x {}, driver {}", gpus, health.gpus.front(),
                                              health.driver.empty() ? "unknown" : health.driver),
                            fmt::format("{} are needed: check that the driver is loaded "
                                        "(nvidia-smi), and that the container has the GPUs",
                                        requirements.gpus)));
  for (HealthFinding& one : gpu_findings_of(health.gpu_health, requirements.these_gpus))
    found.push_back(std::move(one));
  return found;
}

// Told where there is something to tell alone: most hosts have no GPU.
std::vector<HealthFinding> gpu_findings_of(const GpuHealth& health, const std::vector<int>& gpus) {
  std::vector<HealthFinding> found;
  const auto tell = [&](const char* name, const std::vector<GpuNote>& notes, const char* fix,
                        bool optional) {
    std::vector<std::string> texts;
    for (const GpuNote& note : notes) {
      if (note.gpu < 0)
        texts.push_back(note.text);
      else if (gpus.empty() || std::find(gpus.begin(), gpus.end(), note.gpu) != gpus.end())
        texts.push_back(fmt::format("GPU {}: {}", note.gpu, note.text));
    }
    if (!texts.empty())
      found.push_back({name, false, fmt::format("{}", fmt::join(texts, "; ")), fix, optional});
  };
  tell("GPU errors", health.errors,
       "reset the GPU (nvidia-smi --gpu-reset) or the host, or leave the host out (--exclude); if "
       "the error comes again, replace the GPU",
       false);
  tell("GPU log", health.logged,
       "if the GPU was not reset since then: nvidia-smi --gpu-reset, or leave the host out "
       "(--exclude)",
       true);
  tell("GPUs in use", health.held_by,
       "wait until these processes end, or kill those that an earlier job left behind", false);
  return found;
}

}  // namespace smp::health
