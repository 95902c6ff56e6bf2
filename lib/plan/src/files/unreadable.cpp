#include "smp/plan/files/unreadable.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "smp/plan/base/errors.h"

namespace smp::files {
namespace {

bool is_named_wrongly(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case EACCES:
    case EPERM:
    case ELOOP:
    case ENAMETOOLONG:
    case EINVAL: return true;
    default: return false;
  }
}

}  // namespace

void throw_unreadable(const std::string& what, int error) {
  if (is_named_wrongly(error)) throw ConfigError(fmt::format("{}: {}", what, std::strerror(error)));
  throw std::system_error(error, std::generic_category(), what);
}

}  // namespace smp::files
