#include "smp/plan/system/process_limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <stdexcept>

namespace smp::system {

void check_limits(const LeastLimits& least) {
  rlimit now{};
  const auto is_less = [&](auto resource, int64_t needed) {
    return getrlimit(resource, &now) == 0 && now.rlim_cur != RLIM_INFINITY &&
           now.rlim_cur < static_cast<rlim_t>(needed);
  };
  if (is_less(RLIMIT_STACK, least.stack_bytes)) {
    throw std::runtime_error(
        fmt::format("the limit of the stack is {} KiB (ulimit -s), but at least {} KiB are needed: "
                    "raise it, as in ulimit -s 8192",
                    now.rlim_cur >> 10, least.stack_bytes >> 10));
  }
  if (is_less(RLIMIT_NOFILE, least.open_files)) {
    throw std::runtime_error(
        fmt::format("the limit of open files is {} (ulimit -n), but at least {} are needed: raise "
                    "it, as in ulimit -n 1024",
                    now.rlim_cur, least.open_files));
  }
}

}  // namespace smp::system
