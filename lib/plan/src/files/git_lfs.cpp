#include "smp/plan/files/git_lfs.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

// Source: the specification of Git LFS (spec.md of github.com/git-lfs/git-lfs).
namespace smp::files {
namespace {

constexpr std::string_view kVersion = "version https://git-lfs.github.com/spec/";
constexpr size_t kMostPointerBytes = 1024;  // of a pointer

}  // namespace

std::string git_lfs_complaint(std::string_view head) {
  if (!head.starts_with(kVersion)) return "";
  constexpr std::string_view kSize = "\nsize ";
  const size_t at = head.substr(0, kMostPointerBytes).find(kSize);
  std::string_view size = at == head.npos ? "" : head.substr(at + kSize.size());
  size = size.substr(0, std::min(size.find_first_not_of("0123456789"), size.size()));
  return fmt::format("this is a Git LFS pointer{}, not the file itself; run git lfs pull",
                     size.empty() ? "" : fmt::format(" to {} bytes", size));
}

std::string git_lfs_complaint_of(const std::string& path) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error || bytes > kMostPointerBytes) return "";
  std::ifstream file(path, std::ios::binary);
  std::string head(kMostPointerBytes, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(file.gcount()));
  return git_lfs_complaint(head);
}

}  // namespace smp::files
