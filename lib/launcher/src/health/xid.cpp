#include "health/xid.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <utility>

#include "smp/launcher/process/descendants.h"

namespace smp::health {
namespace {

constexpr std::string_view kDriver = "NVRM: ", kMark = "NVRM: Xid ", kPid = "pid=";
constexpr size_t kMostTold = 5;
constexpr std::string_view kMachinesOwnPids = "pid:[4026531836]";  // PROC_PID_INIT_INO in Linux
constexpr int kMostAncestors = 1000;

template <typename Number>
Number number_at(const std::string& text, size_t at) {
  Number number = 0;
  std::from_chars(text.data() + at, text.data() + text.size(), number);
  return number;
}

bool has_machines_pids(const std::string& root) {
  std::error_code error;
  return std::filesystem::read_symlink(root + "/proc/self/ns/pid", error) == kMachinesOwnPids;
}

}  // namespace

std::optional<Xid> xid_in(const std::string& line) {
  const size_t at = line.find(kMark);
  const size_t before_number = at == line.npos ? at : line.find("): ", at);
  if (before_number == line.npos) return std::nullopt;
  Xid xid;
  xid.number = number_at<int>(line, before_number + 3);
  const size_t text_at = at + kDriver.size();
  xid.text = line.substr(text_at, line.find('\n', at) - text_at);
  if (const size_t pid_at = xid.text.find(kPid); pid_at != xid.text.npos)
    xid.pid = number_at<pid_t>(xid.text, pid_at + kPid.size());
  return xid;
}

// nvidia-smi numbers GPUs in the order of their places on the PCI bus.
int gpu_of(const Xid& xid, const std::string& root) {
  std::vector<std::string> places;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(root + "/proc/driver/nvidia/gpus", error))
    places.push_back(entry.path().filename().string());
  std::sort(places.begin(), places.end());
  for (size_t gpu = 0; gpu < places.size(); ++gpu) {
    const std::string place = places[gpu].substr(0, places[gpu].find('.'));
    if (xid.text.find(fmt::format("(PCI:{})", place)) != xid.text.npos)
      return static_cast<int>(gpu);
  }
  return -1;
}

XidWatch::XidWatch(std::string root)
    : root_(std::move(root)),
      log_(open((root_ + "/dev/kmsg").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)),
      knows_processes_(has_machines_pids(root_)) {
  if (log_) lseek(log_.number(), 0, SEEK_END);
}

// Each read of /dev/kmsg gives one message; EPIPE is one that was overwritten.
void XidWatch::read_on() {
  std::array<char, 8192> bytes;
  while (log_) {
    const ssize_t size = read(log_.number(), bytes.data(), bytes.size());
    if (size < 0 && errno == EPIPE) continue;
    if (size <= 0) return;
    if (auto xid = xid_in(std::string(bytes.data(), static_cast<size_t>(size)))) {
      const pid_t rank = rank_of(xid->pid);
      seen_.push_back({std::move(*xid), rank});
    }
  }
}

// A rank leads a session, which outlives the parents in it; torchrun's workers lead their own.
pid_t XidWatch::rank_of(pid_t process) const {
  for (int i = 0; process > 1 && i < kMostAncestors; ++i) {
    if (ranks_.count(process) != 0) return process;
    const process::Kin kin = process::kin_of(fmt::format("{}/proc/{}", root_, process));
    if (ranks_.count(kin.session) != 0) return kin.session;
    process = kin.parent;
  }
  return 0;
}

std::vector<std::string> XidWatch::about(pid_t rank) {
  read_on();
  std::vector<std::string> told;
  for (auto seen = seen_.rbegin(); seen != seen_.rend() && told.size() < kMostTold; ++seen) {
    if (knows_processes_ ? seen->rank != 0 && seen->rank != rank : seen->xid.pid != 0) continue;
    const int gpu = gpu_of(seen->xid, root_);
    told.push_back(gpu < 0 ? seen->xid.text : fmt::format("GPU {}: {}", gpu, seen->xid.text));
  }
  std::reverse(told.begin(), told.end());
  return told;
}

}  // namespace smp::health
