#include "smp/launcher/launch/programs.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "smp/plan/base/errors.h"

namespace smp::launch {
namespace {

bool is_executable(const std::string& path) {
  struct stat status;
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::string own_program() {
  std::error_code error;
  std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error)
    throw std::runtime_error(
        fmt::format("/proc/self/exe: {}: smp-launch finds its program file and the processes of "
                    "its ranks in /proc: mount /proc, as in mount -t proc proc /proc",
                    error.message()));
  return program.string();
}

std::string own_folder() { return std::filesystem::path(own_program()).parent_path().string(); }

std::string found_in_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/bin:/usr/bin" : path;
  while (true) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    const std::string file = fmt::format("{}/{}", folder.empty() ? "." : folder, program);
    if (is_executable(file)) return file;
    if (folder.size() == rest.size()) return "";
    rest.remove_prefix(folder.size() + 1);
  }
}

std::string find_program(const std::string& program) {
  if (program.find('/') != std::string::npos) {
    if (is_executable(program)) return program;
    throw ConfigError(fmt::format("'{}' is not an executable file", program));
  }
  const std::string file = found_in_path(program);
  if (file.empty()) throw ConfigError(fmt::format("'{}' was not found in PATH", program));
  return file;
}

std::string find_worker(const std::string& worker) {
  if (!is_executable(worker))
    throw ConfigError(
        fmt::format("'{}' does not exist: smp-launch needs smp-worker in its own folder; build "
                    "smp-worker with -DSMP_RUNTIME=ON (scripts/build)",
                    worker));
  return worker;
}

}  // namespace smp::launch
