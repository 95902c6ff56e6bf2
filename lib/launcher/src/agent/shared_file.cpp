#include "smp/launcher/agent/shared_file.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <filesystem>

#include "agent/file_messages.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"

namespace smp::agent {
namespace {

constexpr const char* kAdvice =
    "the ranks of a plan share the run folder: give a --run-dir in a file system that all hosts "
    "mount; data and weights can be there too, or be sent with --push";

}  // namespace

SharedFile shared_with_content(const std::string& path) {
  return {path, sum_with(0, files::read_text_file(path, "plan file"))};
}

std::string why_not_shared(const std::vector<SharedFile>& files) {
  for (const SharedFile& file : files) {
    if (access(file.path.c_str(), R_OK) != 0)
      return fmt::format("it cannot read '{}' of the launching host ({}): {}", file.path,
                         strerror(errno), kAdvice);
    try {
      std::error_code error;
      if (file.sum != 0 && !std::filesystem::is_regular_file(file.path, error))
        return fmt::format("'{}' is not a regular file on this host: {}", file.path, kAdvice);
      if (file.sum != 0 && shared_with_content(file.path).sum != file.sum)
        return fmt::format("'{}' differs on this host: {}", file.path, kAdvice);
    } catch (const ConfigError& error) {
      return error.what();
    }
  }
  return "";
}

}  // namespace smp::agent
