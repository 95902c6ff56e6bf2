#include "smp/planner/calibration/calibrate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "smp/plan/base/errors.h"
#include "smp/plan/text/suggest.h"
#include "smp/planner/memory/memory_model.h"
#include "smp/planner/time/time_model.h"

namespace smp::calibration {
namespace {

struct Constant {
  const char* key;
  double ClusterSpec::*value;
  double largest;  // 0 = none
};
// In the order in which they are taken up: what most runs depend on first.
constexpr std::array kConstants = {
    Constant{"matmul_efficiency", &ClusterSpec::matmul_efficiency, 1},
    Constant{"fp32_flops_per_s", &ClusterSpec::fp32_flops_per_s, 0},
    Constant{"inter_host_bytes_per_s", &ClusterSpec::inter_host_bytes_per_s, 0},
    Constant{"intra_host_bytes_per_s", &ClusterSpec::intra_host_bytes_per_s, 0},
    Constant{"memory_bytes_per_s", &ClusterSpec::memory_bytes_per_s, 0},
    Constant{"host_link_bytes_per_s", &ClusterSpec::host_link_bytes_per_s, 0},
    Constant{"intra_host_latency_s", &ClusterSpec::intra_host_latency_s, 0},
    Constant{"inter_host_latency_s", &ClusterSpec::inter_host_latency_s, 0},
    Constant{"kernel_launch_s", &ClusterSpec::kernel_launch_s, 0},
};

constexpr double kStep = 0.02;       // of a logarithm, for derivatives
constexpr double kExercised = 0.02;  // a constant moves some run by this share of its change
constexpr double kToldApart = 0.02;  // of what it moves, that no other constant does
constexpr double kFarthest = 4.0;    // in logarithms: a constant moves by a factor of 55 at most
constexpr int kIterations = 40;

using Vector = std::vector<double>;

double predicted_s(const CalibrationRun& run, const ClusterSpec& cluster) {
  Plan plan = run.plan;
  const ClusterSpec& own = run.plan.job.cluster;
  plan.job.cluster = cluster;
  plan.job.cluster.hosts = own.hosts;
  plan.job.cluster.processes_per_host = own.processes_per_host;
  plan.job.cluster.memory_per_process_bytes = own.memory_per_process_bytes;
  return double(time::predict_time(plan).step_ns) * 1e-9;
}

Vector residuals(const std::vector<CalibrationRun>& runs, const ClusterSpec& cluster) {
  Vector logs;
  for (const CalibrationRun& run : runs)
    logs.push_back(std::log(predicted_s(run, cluster) / run.step_s));
  return logs;
}

double squares(const Vector& values) {
  double sum = 0;
  for (double value : values) sum += value * value;
  return sum;
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double largest(const Vector& values) {
  double most = 0;
  for (double value : values) most = std::max(most, std::abs(value));
  return most;
}

ClusterSpec moved(ClusterSpec cluster, const Constant& constant, double log_factor) {
  double& value = cluster.*constant.value;
  value *= std::exp(log_factor);
  if (constant.largest > 0) value = std::min(value, constant.largest);
  return cluster;
}

// How the logarithm of each run's step time moves with that of the constant.
Vector sensitivity(const std::vector<CalibrationRun>& runs, const ClusterSpec& cluster,
                   const Constant& constant) {
  const Vector low = residuals(runs, moved(cluster, constant, -kStep));
  Vector column = residuals(runs, moved(cluster, constant, -2 * kStep));
  for (size_t i = 0; i < column.size(); ++i) column[i] = (low[i] - column[i]) / kStep;
  return column;
}

// What is left of `column` beside the span of orthonormal `basis`.
Vector beside(const Vector& column, const std::vector<Vector>& basis) {
  Vector rest = column;
  for (const Vector& axis : basis) {
    const double along = dot(rest, axis);
    for (size_t i = 0; i < rest.size(); ++i) rest[i] -= along * axis[i];
  }
  return rest;
}

const Constant& constant_named(const std::string& key) {
  for (const Constant& constant : kConstants) {
    if (key == constant.key) return constant;
  }
  const auto near = text::nearest(key, calibration_keys());
  throw ConfigError(fmt::format("--fit: unknown constant '{}'{}; known constants are {}", key,
                                near ? fmt::format(", did you mean '{}'?", *near) : "",
                                fmt::join(calibration_keys(), ", ")));
}

// Which constants the runs determine.
class Selection {
 public:
  Selection(const std::vector<CalibrationRun>& runs, const ClusterSpec& base)
      : runs_(runs), base_(base) {}

  // Why the runs do not determine it beside those taken; empty = taken.
  std::string take(const Constant& constant) {
    if (base_.*constant.value <= 0) return "the cluster file does not give it";
    const Vector column = sensitivity(runs_, base_, constant);
    if (largest(column) < kExercised) return "no run depends on it";
    Vector rest = beside(column, basis_);
    if (std::sqrt(squares(rest)) < kToldApart * std::sqrt(double(runs_.size())) ||
        largest(rest) < kExercised) {
      return fmt::format("the runs do not separate it from {}", fmt::join(names(), ", "));
    }
    const double length = std::sqrt(squares(rest));
    for (double& value : rest) value /= length;
    basis_.push_back(std::move(rest));
    taken_.push_back(&constant);
    return "";
  }
  const std::vector<const Constant*>& taken() const { return taken_; }

 private:
  std::vector<std::string> names() const {
    std::vector<std::string> keys;
    for (const Constant* constant : taken_) keys.emplace_back(constant->key);
    return keys;
  }
  const std::vector<CalibrationRun>& runs_;
  const ClusterSpec& base_;
  std::vector<Vector> basis_;
  std::vector<const Constant*> taken_;
};

// (A + damping diag A) x = b, by elimination with pivots; A is small.
Vector solve(std::vector<Vector> a, Vector b, double damping) {
  const size_t n = b.size();
  for (size_t i = 0; i < n; ++i) a[i][i] *= 1 + damping;
  for (size_t i = 0; i < n; ++i) {
    size_t pivot = i;
    for (size_t k = i + 1; k < n; ++k) {
      if (std::abs(a[k][i]) > std::abs(a[pivot][i])) pivot = k;
    }
    std::swap(a[i], a[pivot]);
    std::swap(b[i], b[pivot]);
    if (a[i][i] == 0) return Vector(n, 0);
    for (size_t k = i + 1; k < n; ++k) {
      const double factor = a[k][i] / a[i][i];
      for (size_t j = i; j < n; ++j) a[k][j] -= factor * a[i][j];
      b[k] -= factor * b[i];
    }
  }
  Vector x(n, 0);
  for (size_t i = n; i-- > 0;) {
    double sum = b[i];
    for (size_t j = i + 1; j < n; ++j) sum -= a[i][j] * x[j];
    x[i] = sum / a[i][i];
  }
  return x;
}

// Levenberg-Marquardt on the logarithms of the constants.
ClusterSpec fit(const ClusterSpec& base, const std::vector<CalibrationRun>& runs,
                const std::vector<const Constant*>& constants) {
  ClusterSpec best = base;
  Vector errors = residuals(runs, best);
  double damping = 1e-3;
  for (int i = 0; i < kIterations && damping < 1e6; ++i) {
    std::vector<Vector> columns;
    for (const Constant* constant : constants)
      columns.push_back(sensitivity(runs, best, *constant));
    const size_t n = constants.size();
    std::vector<Vector> normal(n, Vector(n, 0));
    Vector right(n, 0);
    for (size_t a = 0; a < n; ++a) {
      right[a] = -dot(columns[a], errors);
      for (size_t b = 0; b < n; ++b) normal[a][b] = dot(columns[a], columns[b]);
      normal[a][a] += 1e-9;
    }
    const Vector step = solve(normal, right, damping);
    ClusterSpec next = best;
    for (size_t a = 0; a < n; ++a) {
      const double far = std::log(next.*constants[a]->value / (base.*constants[a]->value));
      const double log_factor = std::clamp(far + step[a], -kFarthest, kFarthest) - far;
      next = moved(next, *constants[a], log_factor);
    }
    const Vector after = residuals(runs, next);
    if (squares(after) < squares(errors)) {
      const bool done = squares(errors) - squares(after) < 1e-10;
      best = next;
      errors = after;
      damping = std::max(damping / 5, 1e-6);
      if (done) break;
    } else {
      damping *= 5;
    }
  }
  return best;
}

// Nine of ten lie within it.
double ninth_of_ten(Vector values) {
  std::sort(values.begin(), values.end());
  const double rank = std::ceil(0.9 * double(values.size()));
  return values[static_cast<size_t>(std::max(1.0, rank)) - 1];
}

constexpr double kSmallestError = 0.005;  // 0 would mean what is shipped

void compare_memory(const std::vector<CalibrationRun>& runs, Calibration& calibration) {
  Vector errors;
  int64_t reserved = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    int64_t predicted = 0;
    for (const RankPrediction& rank : memory::predict_memory(runs[i].plan)) {
      predicted = std::max(predicted, rank.peak_bytes);
    }
    if (runs[i].peak_bytes) {
      const double error = double(predicted) / double(*runs[i].peak_bytes) - 1;
      calibration.residuals[i].memory_error = error;
      errors.push_back(std::abs(error));
    }
    if (runs[i].device_bytes) {
      const int64_t counted = runs[i].peak_bytes.value_or(predicted);
      reserved = std::max(reserved, *runs[i].device_bytes - counted);
    }
  }
  if (!errors.empty()) {
    calibration.cluster.memory_error = std::max(kSmallestError, ninth_of_ten(errors));
  }
  if (reserved > 0) {
    calibration.fitted.push_back(
        {"reserved_memory", double(calibration.cluster.reserved_bytes), double(reserved)});
    calibration.cluster.reserved_bytes = reserved;
  }
}

}  // namespace

std::vector<std::string> calibration_keys() {
  std::vector<std::string> keys;
  for (const Constant& constant : kConstants) keys.emplace_back(constant.key);
  return keys;
}

Calibration calibrate(const ClusterSpec& base, const std::vector<CalibrationRun>& runs,
                      const std::vector<std::string>& keys) {
  for (const CalibrationRun& run : runs) {
    if (run.plan.job.cluster.device != base.device) {
      throw ConfigError(
          fmt::format("{}: the run and the cluster have different kinds of devices", run.name));
    }
  }
  if (keys.size() > runs.size()) {
    throw ConfigError(fmt::format("{} constants cannot be fitted to {} run{}", keys.size(),
                                  runs.size(), runs.size() == 1 ? "" : "s"));
  }
  Calibration calibration;
  Selection selection(runs, base);
  if (keys.empty()) {
    if (runs.size() < 2) {
      throw ConfigError(
          "a fit needs 2 or more runs: one run does not separate a constant from noise");
    }
    for (const Constant& constant : kConstants) {
      // A CPU slot's peak is no datasheet's number, and a share of it could only fall short.
      if (base.device == DeviceKind::kCpu && constant.largest > 0) continue;
      const std::string reason =
          selection.taken().size() + 1 >= runs.size() ? "too few runs" : selection.take(constant);
      if (!reason.empty()) calibration.left.push_back(fmt::format("{}: {}", constant.key, reason));
    }
    if (selection.taken().empty()) {
      throw ConfigError("no constant can be fitted: no run depends on any");
    }
  }
  for (const std::string& key : keys) {
    const std::string reason = selection.take(constant_named(key));
    if (!reason.empty()) throw ConfigError(fmt::format("{} cannot be fitted: {}", key, reason));
  }
  calibration.cluster = fit(base, runs, selection.taken());
  for (const Constant* constant : selection.taken()) {
    calibration.fitted.push_back(
        {constant->key, base.*constant->value, calibration.cluster.*constant->value});
  }
  Vector errors;
  for (const CalibrationRun& run : runs) {
    const double before = predicted_s(run, base);
    const double after = predicted_s(run, calibration.cluster);
    calibration.residuals.push_back({run.name, run.step_s, before, after, std::nullopt});
    errors.push_back(std::abs(after / run.step_s - 1));
  }
  calibration.cluster.time_error = std::max(kSmallestError, ninth_of_ten(errors));
  compare_memory(runs, calibration);
  return calibration;
}

}  // namespace smp::calibration
