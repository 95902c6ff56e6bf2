#include "smp/launcher/health/gpu_health.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "health/nvml.h"
#include "health/xid.h"
#include "smp/launcher/health/bytes_text.h"
#include "smp/launcher/hosts/duration.h"
#include "smp/plan/system/file_descriptor.h"
#include "smp/plan/system/signals_blocked.h"

namespace smp::health {
namespace {

constexpr int kUncorrectable = 1, kSinceLoaded = 0;
// Those that are the fault of the GPU, its memory or its links, not of a program (NVIDIA, "Xid
// Errors": double-bit ECC, failed row remapping, NVLink, off the bus, contained and uncontained
// ECC, GSP). Not 63, a row that was remapped: that has mended it.
constexpr std::array kOfHardware = {48, 64, 74, 79, 94, 95, 119, 120};

bool is_of_hardware(const Xid& xid) {
  return std::find(kOfHardware.begin(), kOfHardware.end(), xid.number) != kOfHardware.end();
}

// The third field: microseconds since the machine was started.
double logged_at_s(const std::string& line) {
  int64_t microseconds = 0;
  const size_t second = line.find(',', line.find(',') + 1);
  if (second != line.npos)
    std::from_chars(line.data() + second + 1, line.data() + line.size(), microseconds);
  return static_cast<double>(microseconds) / 1e6;
}

// None where /proc tells the time since a container was started.
std::string text_of_age(double seconds) {
  if (seconds < 0) return "";
  if (seconds < 3600) return fmt::format(", {} min ago", static_cast<int>(seconds / 60));
  if (seconds < 48 * 3600) return fmt::format(", {} h ago", static_cast<int>(seconds / 3600));
  return fmt::format(", {} days ago", static_cast<int>(seconds / 86400));
}

// Each read of /dev/kmsg gives one message; an error is the end, or a message that was overwritten.
std::vector<GpuNote> logged_xids(const std::string& root) {
  const std::string path = root + "/dev/kmsg";
  const system::FileDescriptor log(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  std::map<std::string, std::pair<Xid, double>> last;  // when each was logged
  std::array<char, 8192> bytes;
  for (ssize_t size = 0; log && ((size = read(log.number(), bytes.data(), bytes.size())) > 0 ||
                                 (size < 0 && errno == EPIPE));) {
    if (size < 0) continue;
    const std::string line(bytes.data(), static_cast<size_t>(size));
    const std::optional<Xid> xid = xid_in(line);
    if (xid && is_of_hardware(*xid)) last[xid->text] = {*xid, logged_at_s(line)};
  }
  double now_s = 0;
  std::ifstream(root + "/proc/uptime") >> now_s;
  std::vector<GpuNote> notes;
  for (const auto& [text, logged] : last)
    notes.push_back({gpu_of(logged.first, root), text + text_of_age(now_s - logged.second)});
  return notes;
}

std::string text_of_process(const GpuProcess& process) {
  const std::string folder = fmt::format("/proc/{}", process.pid);
  std::string name, owner;
  std::ifstream(folder + "/comm") >> name;
  struct stat status {};
  if (stat(folder.c_str(), &status) == 0) {
    const passwd* const user = getpwuid(status.st_uid);
    owner = user == nullptr ? fmt::format("user {}", status.st_uid) : user->pw_name;
  }
  return fmt::format(
      "process {}{}{}, {}", process.pid, name.empty() ? "" : fmt::format(" ({})", name),
      owner.empty() ? "" : fmt::format(" of {}", owner), text_of_bytes(process.memory_bytes));
}

GpuHealth told_by(const Nvml& nvml) {
  GpuHealth health;
  unsigned count = 0;
  if (nvml.init() != Nvml::kSuccess || nvml.count(&count) != Nvml::kSuccess) return health;
  for (unsigned i = 0; i < count; ++i) {
    Nvml::Device device = nullptr;
    if (nvml.device(i, &device) != Nvml::kSuccess) continue;
    const int gpu = static_cast<int>(i);
    unsigned long long wrong = 0;
    if (nvml.ecc_errors(device, kUncorrectable, kSinceLoaded, &wrong) == Nvml::kSuccess &&
        wrong > 0)
      health.errors.push_back(
          {gpu, fmt::format("{} uncorrectable memory error{} since the driver was loaded", wrong,
                            wrong == 1 ? "" : "s")});
    for (const GpuProcess& process : processes_on(nvml, device))
      health.held_by.push_back({gpu, text_of_process(process)});
  }
  return health;
}

// None: no answer came in time.
std::optional<GpuHealth> ask_nvml(std::chrono::milliseconds patience) {
  Nvml nvml;
  if (!nvml.load()) return GpuHealth{};
  const auto promise = std::make_shared<std::promise<GpuHealth>>();
  auto answer = promise->get_future();
  system::start_without_signals([promise, nvml] { promise->set_value(told_by(nvml)); }).detach();
  if (answer.wait_for(patience) != std::future_status::ready) return std::nullopt;
  return answer.get();
}

}  // namespace

GpuHealth own_gpu_health(const std::string& root, std::chrono::milliseconds patience) {
  std::optional<GpuHealth> told = ask_nvml(patience);
  GpuHealth health = told.value_or(GpuHealth{});
  if (!told)
    health.errors.push_back(
        {-1, fmt::format("NVML does not answer in {}", hosts::duration_text(patience))});
  health.logged = logged_xids(root);
  return health;
}

}  // namespace smp::health
