#include "segment/memory_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "smp/plan/system/control_groups.h"

namespace smp::segment {
namespace {

// The file names of a hierarchy: cgroup v2, and the memory hierarchy of v1.
struct Names {
  const char *most, *used, *most_swap, *used_swap, *inactive_files, *active_files;
};
constexpr Names kV2 = {"/memory.max",          "/memory.current", "/memory.swap.max",
                       "/memory.swap.current", "inactive_file",   "active_file"};
constexpr Names kV1 = {"/memory.limit_in_bytes",       "/memory.usage_in_bytes",
                       "/memory.memsw.limit_in_bytes", "/memory.memsw.usage_in_bytes",
                       "total_inactive_file",          "total_active_file"};

std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;  // "max" is not a number
}

// Memory that the kernel reclaims before it kills: cached files, and reclaimable memory of its own.
int64_t reclaimable(const std::string& group, const Names& names) {
  std::ifstream file(group + "/memory.stat");
  int64_t bytes = 0, value = 0;
  for (std::string key; file >> key >> value;)
    if (key == names.inactive_files || key == names.active_files || key == "slab_reclaimable")
      bytes += value;
  return bytes;
}

int64_t free_swap(const std::string& root) {
  std::ifstream file(root + "/proc/meminfo");
  std::string key, unit;
  for (int64_t kib = 0; file >> key >> kib; std::getline(file, unit))
    if (key == "SwapFree:") return kib << 10;
  return 0;
}

// The free swap of the machine, up to the limit of the group.
int64_t free_swap_of(const std::string& group, const Names& names, const std::string& root) {
  const auto most = number_in(group + names.most_swap), used = number_in(group + names.used_swap);
  const int64_t free = free_swap(root);
  return most && used ? std::clamp<int64_t>(*most - *used, 0, free) : free;
}

std::string mebibytes(int64_t bytes) {
  return fmt::format("{:.0f} MiB", double(bytes) / (1 << 20));
}

}  // namespace

std::optional<std::string> no_room_for(int64_t bytes, const std::string& root) {
  for (const system::ControlGroup& group : system::control_groups("memory", root)) {
    const std::string& folder = group.folder;
    const Names& names = group.is_v2 ? kV2 : kV1;
    const auto most = number_in(folder + names.most), used = number_in(folder + names.used);
    if (most && used &&
        *used - reclaimable(folder, names) - free_swap_of(folder, names, root) > *most - bytes)
      return fmt::format("{} are needed, but of the limit of {} of control group {}{}, {} are used",
                         mebibytes(bytes), mebibytes(*most), group.mount, group.path,
                         mebibytes(*used));
  }
  return std::nullopt;
}

}  // namespace smp::segment
