#include "smp/plan/random_hex.h"

#include <errno.h>
#include <fmt/format.h>
#include <sys/random.h>

#include <system_error>

namespace smp {

std::string random_hex(int bytes) {
  std::string hex;
  for (int i = 0; i < bytes; ++i) {
    unsigned char byte = 0;
    if (getrandom(&byte, 1, 0) != 1)
      throw std::system_error(errno, std::generic_category(), "getrandom");
    hex += fmt::format("{:02x}", byte);
  }
  return hex;
}

}  // namespace smp
