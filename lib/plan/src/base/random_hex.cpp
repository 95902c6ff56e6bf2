#include "smp/plan/base/random_hex.h"

#include <errno.h>
#include <fmt/format.h>
#include <unistd.h>

#include <system_error>
#include <vector>

namespace smp {

std::string random_hex(int bytes) {
  std::vector<unsigned char> random(static_cast<size_t>(bytes));
  if (getentropy(random.data(), random.size()) != 0)
    throw std::system_error(errno, std::generic_category(), "getentropy");
  return fmt::format("{:02x}", fmt::join(random, ""));
}

}  // namespace smp
