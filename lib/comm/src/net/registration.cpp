#include "net/registration.h"

#include <fmt/format.h>
#include <sys/resource.h>

namespace smp::net {

std::string registration_refused(const std::string& provider, size_t bytes,
                                 const std::string& why) {
  rlimit limit{};
  std::string limits = "this process may lock any amount of memory";
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    limits = fmt::format(
        "this process may lock {} bytes in all (RLIMIT_MEMLOCK: ulimit -l, LimitMEMLOCK= of "
        "systemd, --ulimit memlock=-1 of docker)",
        limit.rlim_cur);
  return fmt::format("provider {} refuses to register {} bytes of memory (fi_mr_reg: {}); {}",
                     provider, bytes, why, limits);
}

}  // namespace smp::net
