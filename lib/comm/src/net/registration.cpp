#include "net/registration.h"

#include <fmt/format.h>
#include <sys/resource.h>

namespace smp::net {

std::string registration_refused(const std::string& provider, size_t bytes,
                                 const std::string& why) {
  rlimit limit{};
  std::string limits = "the process has no limit of locked memory";
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    limits = fmt::format(
        "the process can lock at most {} bytes in all: raise RLIMIT_MEMLOCK (ulimit -l, "
        "LimitMEMLOCK= of systemd, --ulimit memlock=-1 of docker)",
        limit.rlim_cur);
  return fmt::format("provider {} cannot register {} bytes of memory (fi_mr_reg: {}); {}", provider,
                     bytes, why, limits);
}

}  // namespace smp::net
