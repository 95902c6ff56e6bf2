#include "smp/runtime/record/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include "smp/plan/files/atomic_file.h"
#include "smp/plan/text/json.h"

namespace smp::record {
namespace {

// 12345.6 -> "12,346", whatever the locale.
std::string grouped(double value) {
  std::string digits = fmt::format("{:.0f}", value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ',');
  }
  return digits;
}

std::string duration(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  if (whole < 100) return fmt::format("{} s", whole);
  if (whole < 100 * 60) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

// The first epoch of a single source is not shown.
std::string epochs_part(const std::vector<SourceEpoch>& epochs) {
  if (epochs.empty()) return "";
  const auto [least, most] = std::minmax_element(
      epochs.begin(), epochs.end(), [](const auto& a, const auto& b) { return a.epoch < b.epoch; });
  if (epochs.size() > 1) return fmt::format("  epochs {:.2f} to {:.2f}", least->epoch, most->epoch);
  return most->epoch > 1 ? fmt::format("  epoch {:.2f}", most->epoch) : "";
}

std::string memory(int64_t bytes) {
  const auto mib = static_cast<double>(bytes) / (1 << 20);
  return mib < 10240 ? fmt::format("{:.1f} MiB", mib) : fmt::format("{:.1f} GiB", mib / 1024);
}

text::OrderedJson experts_json(const StepMetrics& metrics) {
  const RouterSummary summary = summary_of(metrics.routers);
  text::OrderedJson json = {{"imbalance", summary.imbalance},
                            {"dropped", summary.dropped},
                            {"balance_loss", summary.balance_loss},
                            {"z_loss", summary.z_loss}};
  size_t numbers = 0;
  for (const RouterMetrics& router : metrics.routers) {
    json["imbalances"][router.layer] = imbalance(router);
    numbers += router.tokens.size();
  }
  if (numbers > kMostTokensPerExpert && metrics.step % kRareTokensPerExpert != 0) return json;
  for (const RouterMetrics& router : metrics.routers) json["tokens"][router.layer] = router.tokens;
  return json;
}

}  // namespace

std::string to_json(const StepMetrics& metrics) {
  // A value that is not finite becomes null, because JSON cannot express it.
  text::OrderedJson json = {{"step", metrics.step},
                            {"loss", metrics.loss},
                            {"grad_norm", metrics.grad_norm},
                            {"learning_rate", metrics.learning_rate}};
  if (!metrics.further_losses.empty()) json["mtp_losses"] = metrics.further_losses;
  if (metrics.loss_scale) {
    json["loss_scale"] = *metrics.loss_scale;
    json["skipped_steps"] = metrics.skipped_steps;
  }
  if (metrics.evaluation_loss) {
    json["evaluation_loss"] = *metrics.evaluation_loss;
    for (const SetLoss& of : metrics.evaluation_losses) {
      json["evaluation_losses"][of.set] = of.loss;
    }
    if (metrics.accuracy) {
      json["accuracy"] = *metrics.accuracy;
    } else {
      json["perplexity"] = std::exp(*metrics.evaluation_loss);
    }
  }
  json["tokens_seen"] = metrics.tokens_seen;
  for (const SourceEpoch& of : metrics.epochs) json["epochs"][of.source] = of.epoch;
  json["tokens_per_s"] = metrics.tokens_per_s;
  if (metrics.mfu) json["mfu"] = *metrics.mfu;
  json["step_s"] = metrics.step_s;
  json["exposed_s"] = metrics.exposed_s;
  json["memory_live_bytes"] = metrics.memory_live_bytes;
  json["memory_peak_bytes"] = metrics.memory_peak_bytes;
  if (metrics.cache_flushes) json["cache_flushes"] = *metrics.cache_flushes;
  if (!metrics.routers.empty()) json["experts"] = experts_json(metrics);
  return json.dump();
}

MetricsFile::MetricsFile(const std::string& path)
    : path_(path),
      fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0644)) {
  if (fd_ < 0) {
    throw std::runtime_error(fmt::format("cannot write {}: {}", path, std::strerror(errno)));
  }
}

MetricsFile::~MetricsFile() { ::close(fd_); }

void MetricsFile::append(const StepMetrics& metrics) {
  const std::string line = to_json(metrics) + "\n";
  ssize_t wrote = 0;
  do {
    wrote = ::write(fd_, line.data(), line.size());
  } while (wrote < 0 && errno == EINTR);
  if (wrote != static_cast<ssize_t>(line.size())) {
    throw std::runtime_error(
        fmt::format("cannot write {}: {}", path_, std::strerror(wrote < 0 ? errno : ENOSPC)));
  }
}

void cut_metrics(const std::string& path, int64_t step) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return;  // reading a FIFO would block
  std::ifstream in(path);
  if (!in) return;
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const auto json = text::Json::parse(line, nullptr, false);
    if (json.is_object() && json.value("step", step + 1) <= step) kept += line + "\n";
  }
  files::write_file_atomically(path, kept);
}

std::string step_line(const StepMetrics& metrics, int64_t steps, double seconds_left) {
  const std::string last = std::to_string(steps);
  const std::string left =
      metrics.step < steps ? fmt::format("  {} left", duration(seconds_left)) : "";
  const std::string scale =
      metrics.loss_scale
          ? fmt::format("  loss scale {}, {} skipped", *metrics.loss_scale, metrics.skipped_steps)
          : "";
  const std::string held_out =
      metrics.accuracy ? fmt::format("  held out {:.4f}, accuracy {:.1f} %",
                                     *metrics.evaluation_loss, 100 * *metrics.accuracy)
      : metrics.evaluation_loss
          ? fmt::format("  held out {:.4f}, perplexity {:.4g}", *metrics.evaluation_loss,
                        std::exp(*metrics.evaluation_loss))
          : "";
  const std::string mfu = metrics.mfu ? fmt::format("  MFU {:.1f} %", 100 * *metrics.mfu) : "";
  const double exposure = metrics.step_s > 0 ? metrics.exposed_s / metrics.step_s : 0;
  const std::string exposed =
      exposure >= StepLine::kShownExposure ? fmt::format("  {:.0f} % exposed", 100 * exposure) : "";
  const std::string use = fmt::format("  memory {}", memory(metrics.memory_peak_bytes));
  const std::string epochs = epochs_part(metrics.epochs);
  std::array<const std::string*, 5> parts = {&epochs, &mfu, &exposed, &use, &left};
  std::string line = fmt::format("step {:>{}}/{}  loss {:.4f}  grad norm {:.3g}{}{}  {} tokens/s",
                                 metrics.step, last.size(), last, metrics.loss, metrics.grad_norm,
                                 scale, held_out, grouped(metrics.tokens_per_s));
  // Least important first.
  size_t length = line.size();
  for (const std::string* part : parts) length += part->size();
  for (const std::string* least : {&use, &exposed, &epochs, &mfu, &left}) {
    if (length <= StepLine::kMostColumns) break;
    length -= least->size();
    std::replace(parts.begin(), parts.end(), least, static_cast<const std::string*>(nullptr));
  }
  for (const std::string* part : parts) line += part == nullptr ? "" : *part;
  return line;
}

StepLine::StepLine(std::FILE* out, int64_t steps, int64_t every, int columns)
    : out_(out), steps_(steps), every_(every), columns_(columns) {}

StepLine::~StepLine() {
  if (open_) std::fputc('\n', out_);
  std::fflush(out_);
}

void StepLine::show(const StepMetrics& metrics) {
  // A moving average over about ten steps, because step times vary a little.
  mean_step_s_ = mean_step_s_ == 0 ? metrics.step_s : 0.9 * mean_step_s_ + 0.1 * metrics.step_s;
  silent_s_ += metrics.step_s;
  const bool last = metrics.step >= steps_;
  const bool rewrites = columns_ > 0;
  const bool due = metrics.step == 1 || metrics.evaluation_loss || metrics.step % every_ == 0 ||
                   silent_s_ >= kLongestSilenceS;
  if (!rewrites && !due && !last) return;
  silent_s_ = 0;
  const double left = mean_step_s_ * static_cast<double>(steps_ - metrics.step);
  std::string line = step_line(metrics, steps_, left);
  if (rewrites) {  // a line that fills the last column would wrap
    const auto width = static_cast<size_t>(columns_ - 1);
    line = fmt::format("\r{:<{}}", line.substr(0, width), width);
  }
  if (!rewrites || last) line += '\n';
  open_ = rewrites && !last;
  std::fputs(line.c_str(), out_);
  std::fflush(out_);
}

}  // namespace smp::record
