#include "local_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "screen.h"
#include "smp/plan/base/build_id.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/system/host_cache.h"
#include "smp/plan/system/program_output.h"

namespace smp {
namespace {

using system::HostKey;
using system::StoredMeasurement;

constexpr std::chrono::seconds kMeasureTime{60};

void say(const std::string& text) { print(stderr, fmt::format("cluster local: {}\n", text)); }

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

// What smp-bench prints of this host. Throws std::runtime_error with the reason.
std::string measured_lines() {
  const std::string bench = system::program_beside("smp-bench");
  if (bench.empty()) throw std::runtime_error("no smp-bench beside smp-plan");
  const system::ProgramOutput output = system::output_of({bench, "host"}, kMeasureTime);
  if (output.code != 0) {
    const std::string why = last_line(output.err);
    throw std::runtime_error(
        fmt::format("smp-bench host ended with {}{}{}", output.code, why.empty() ? "" : ": ", why));
  }
  return output.out;
}

std::string words_of(const HostKey& key) {
  return fmt::format("{}, {} CPU{}{}", key.cpu, key.cpus, key.cpus == 1 ? "" : "s",
                     key.settings.empty() ? "" : ", " + key.settings);
}

std::string rates_text(const calibration::HostMeasurement& measurement) {
  const calibration::HostSteps& steps = measurement.steps.back();
  return fmt::format("{:.0f} Gflop/s and {:.1f} GB/s a CPU, {:.1f} ms a microbatch at width {}",
                     measurement.matmul_flops_per_s * 1e-9, measurement.memory_bytes_per_s * 1e-9,
                     steps.microbatch_s * 1e3, steps.hidden_size);
}

// Returns what becomes of the file, for the line that says what was measured.
std::string stored(const std::string& path, const HostKey& key, const StoredMeasurement& measured) {
  if (path.empty()) return "not stored: neither XDG_CACHE_HOME nor HOME is an absolute path";
  try {
    system::store(path, key, measured);
    return "stored in " + path;
  } catch (const std::exception& error) {
    return fmt::format("not stored: {}", error.what());
  }
}

}  // namespace

LocalRates::LocalRates(bool measures) : measures_(measures && !system::refuses_measuring()) {}

const calibration::HostMeasurement* LocalRates::measurement() {
  if (is_known_) return measurement_ ? &*measurement_ : nullptr;
  is_known_ = true;
  const HostKey key = system::this_host("host", own_build_id().substr(0, 12));
  const std::string path = system::cache_file(key);
  std::string note;
  if (const auto known = path.empty() ? std::nullopt : system::read_stored(path, key, note)) {
    try {
      measurement_ = calibration::read_host_measurement(known->lines);
      origin_ = fmt::format("measured on {}, {}", known->date, words_of(key));
      return &*measurement_;
    } catch (const ConfigError& error) {
      note = error.what();
    }
  }
  if (!note.empty()) say(fmt::format("{} is ignored: {}", path, note));
  try {
    const auto start = std::chrono::steady_clock::now();
    const StoredMeasurement measured{system::today(), measured_lines()};
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    measurement_ = calibration::read_host_measurement(measured.lines);
    origin_ = fmt::format("measured on {}, {}", measured.date, words_of(key));
    say(fmt::format("measured this host in {:.1f} s: {}; {}", seconds.count(),
                    rates_text(*measurement_), stored(path, key, measured)));
    return &*measurement_;
  } catch (const std::exception& error) {
    origin_ = fmt::format("not measured: {}; its numbers are the job's own", error.what());
    say(fmt::format("warning: {}", origin_));
  }
  return nullptr;
}

void LocalRates::apply(JobSpec& job, const std::vector<std::string>& overrides) {
  reason_.clear();
  ClusterSpec& cluster = job.cluster;
  if (cluster.name != "local" || cluster.device != DeviceKind::kCpu) return;
  if (!measures_) {
    reason_ = "cluster local: not measured, as asked; its numbers are the job's own";
    return;
  }
  const ClusterSpec own = cluster;
  if (const calibration::HostMeasurement* measured = measurement())
    calibration::set_host_rates(cluster, job.model, *measured);
  reason_ = "cluster local: " + origin_;
  const auto is_set = [&](const std::string& key) {
    return std::any_of(overrides.begin(), overrides.end(),
                       [&](const std::string& one) { return one.starts_with(key + "="); });
  };
  for (const calibration::HostRate& rate : calibration::host_rates()) {
    if (is_set(rate.key)) cluster.*rate.value = own.*rate.value;
  }
}

}  // namespace smp
