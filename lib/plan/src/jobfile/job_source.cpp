#include "smp/plan/jobfile/job_source.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "smp/plan/base/errors.h"
#include "smp/plan/files/git_lfs.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/text/yaml_tree.h"

namespace smp::jobfile {

JobSource load_job_source(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    throw ConfigError(fmt::format(
        "{}: {}", path,
        error && error != std::errc::no_such_file_or_directory ? error.message() : "no such file"));
  }
  if (std::filesystem::is_directory(status)) {
    throw ConfigError(path + ": this is a folder; name a job file in it");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw ConfigError(fmt::format("{}: {}", path, std::strerror(errno)));
  JobSource source{path, std::string(text::YamlLimits{}.bytes + 1, '\0')};
  file.read(source.text.data(), static_cast<std::streamsize>(source.text.size()));
  if (file.bad()) throw ConfigError(path + ": cannot be read");
  source.text.resize(static_cast<size_t>(file.gcount()));
  if (const std::string lfs = files::git_lfs_complaint(source.text); !lfs.empty()) {
    throw ConfigError(fmt::format("{}: {}", path, lfs));
  }
  if (source.text.size() > text::YamlLimits{}.bytes) {
    throw ConfigError(fmt::format("{}: the file is larger than {} bytes, the limit of a job file",
                                  path, text::YamlLimits{}.bytes));
  }
  files::remember_input(path);
  return source;
}

}  // namespace smp::jobfile
