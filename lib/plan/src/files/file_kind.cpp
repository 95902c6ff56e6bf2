#include "smp/plan/files/file_kind.h"

#include <strings.h>

#include <filesystem>
#include <fstream>

namespace smp::files {
namespace {

constexpr size_t kHeadBytes = 1024;

// HTML is written in either case.
bool begins_as(std::string_view text, std::string_view word) {
  return text.size() >= word.size() && strncasecmp(text.data(), word.data(), word.size()) == 0;
}

}  // namespace

std::string_view name_of(FileKind kind) {
  switch (kind) {
    case FileKind::kPlan: return "a plan";
    case FileKind::kPage: return "a page (HTML)";
    case FileKind::kJson: return "JSON";
    case FileKind::kMetrics: return "metrics for Prometheus";
    case FileKind::kOther: break;
  }
  return "another text";
}

FileKind kind_of_text(std::string_view text) {
  // Job files have no such key.
  if (text.starts_with("smp_plan:") || text.find("\nsmp_plan:") != text.npos)
    return FileKind::kPlan;
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos) return FileKind::kOther;
  text.remove_prefix(first);
  if (begins_as(text, "<!doctype html") || begins_as(text, "<html")) return FileKind::kPage;
  if (text.front() == '{' || text.front() == '[') return FileKind::kJson;
  if (text.starts_with("# HELP ") || text.starts_with("# TYPE ")) return FileKind::kMetrics;
  return FileKind::kOther;
}

bool is_plan_file(const std::string& path) {
  return kind_of_text(head_of_file(path)) == FileKind::kPlan;
}

std::string head_of_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return "";
  std::ifstream file(path, std::ios::binary);
  std::string head(kHeadBytes, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(file.gcount()));
  return head;
}

}  // namespace smp::files
