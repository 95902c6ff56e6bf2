#include "smp/plan/text_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "smp/plan/errors.h"
#include "smp/plan/git_lfs.h"

namespace smp {

std::string read_text_file(const std::string& path, std::string_view what) {
  constexpr size_t kMostBytes = size_t{256} << 20;
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) {
    throw ConfigError(fmt::format("{}: this is a folder; name the {} in it", path, what));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError(fmt::format("{}: {}", path, std::strerror(errno)));
  std::string text;
  char block[65536];
  while (file.read(block, sizeof block) || file.gcount() > 0) {
    text.append(block, static_cast<size_t>(file.gcount()));
    if (text.size() > kMostBytes) {
      throw ConfigError(fmt::format("{}: larger than 256 MiB; this is no {}", path, what));
    }
  }
  if (file.bad()) throw ConfigError(path + ": cannot be read");
  if (const std::string lfs = git_lfs_complaint(text); !lfs.empty()) {
    throw ConfigError(fmt::format("{}: {}", path, lfs));
  }
  return text;
}

}  // namespace smp
