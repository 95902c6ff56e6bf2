#include "smp/plan/system/host_cache.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "smp/plan/env/environment.h"
#include "smp/plan/env/environment_reader.h"
#include "smp/plan/files/atomic_file.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/text/json.h"
#include "smp/plan/text/lower_case.h"

namespace smp::system {
namespace {

constexpr int kFormat = 1;
// torch's kernels, oneDNN's under both of its names, MKL's.
constexpr const char* kSettings[] = {"ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA",
                                     "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR"};

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

int64_t cpus_of_process() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

// "Intel(R) Xeon(R)" -> "intel-r-xeon-r".
std::string as_file_name(const std::string& text) {
  constexpr size_t kLongest = 100;
  std::string name;
  for (const char c : text::lower_case(text)) {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      name += c;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  name.resize(std::min(name.size(), kLongest));
  return name;
}

text::OrderedJson head_of(const HostKey& key, const std::string& date) {
  return {{"smp_" + key.what, kFormat}, {"cpu", key.cpu},           {"cpus", key.cpus},
          {"build", key.build},         {"settings", key.settings}, {"date", date}};
}

}  // namespace

HostKey this_host(const std::string& what, const std::string& build) {
  HostKey key{what, cpu_model(), cpus_of_process(), build, ""};
  for (const char* name : kSettings) {
    const std::string value = env::optional(name);
    if (!value.empty())
      key.settings += fmt::format("{}{}={}", key.settings.empty() ? "" : " ", name, value);
  }
  return key;
}

bool refuses_measuring() {
  const std::string value = env::optional(env::kNoMeasure);
  return !value.empty() && value != "0";
}

std::string today() {
  return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::chrono::system_clock::now()));
}

std::string cache_file(const HostKey& key) {
  std::filesystem::path folder = env::optional("XDG_CACHE_HOME");
  if (!folder.is_absolute()) {
    folder = env::optional("HOME");
    if (!folder.is_absolute()) return "";
    folder /= ".cache";
  }
  const std::string settings = key.settings.empty() ? "" : "-" + as_file_name(key.settings);
  return folder / "smp" /
         fmt::format("{}-{}-{}-cpus-{}{}.json", key.what, as_file_name(key.cpu), key.cpus,
                     key.build, settings);
}

std::optional<StoredMeasurement> read_stored(const std::string& path, const HostKey& key,
                                             std::string& note) {
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return std::nullopt;
  try {
    std::string text = files::read_text_file(path, "measurement");
    const size_t end = std::min(text.find('\n'), text.size());
    const text::Json head = text::Json::parse(text.substr(0, end));
    const std::string date = head.at("date").get<std::string>();
    if (head != text::Json(head_of(key, date))) {
      note = "it is of another CPU or build";
      return std::nullopt;
    }
    return StoredMeasurement{date, text.substr(std::min(end + 1, text.size()))};
  } catch (const text::Json::exception&) {
    note = "it holds no measurement";
  } catch (const std::exception& error) {
    note = error.what();
  }
  return std::nullopt;
}

void store(const std::string& path, const HostKey& key, const StoredMeasurement& measurement) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  files::write_file_atomically(path,
                               head_of(key, measurement.date).dump() + "\n" + measurement.lines);
}

}  // namespace smp::system
