#include <fmt/format.h>

#include "smp/plan/jobfile/job_format.h"
#include "smp/plan/text/units.h"
#include "smp/planner/calibration/calibrate.h"

namespace smp::calibration {
namespace {

std::string percent(double share) { return fmt::format("{:+.1f} %", share * 100); }

std::vector<std::string> lines_of(const Calibration& calibration) {
  std::vector<std::string> lines;
  for (const FittedConstant& constant : calibration.fitted) {
    lines.push_back(
        fmt::format("{}: {:.4g}, was {:.4g}", constant.key, constant.after, constant.before));
  }
  for (const CalibrationResidual& run : calibration.residuals) {
    std::string memory;
    if (run.memory_error) memory = fmt::format("; peak {}", percent(*run.memory_error));
    lines.push_back(fmt::format("{}: {} measured, {} predicted ({}, before {}){}", run.name,
                                text::human_time(run.measured_s), text::human_time(run.after_s),
                                percent(run.after_s / run.measured_s - 1),
                                percent(run.before_s / run.measured_s - 1), memory));
  }
  for (const std::string& left : calibration.left) {
    lines.push_back(fmt::format("not fitted: {}", left));
  }
  return lines;
}

// The lines of one section of a job file.
std::string section(const std::string& yaml, const std::string& name) {
  const size_t begin = yaml.rfind(name + ":\n", 0) == 0 ? 0 : yaml.find("\n" + name + ":\n") + 1;
  size_t end = yaml.find('\n', begin) + 1;
  while (end < yaml.size() && (yaml[end] == ' ' || yaml[end] == '\n')) {
    end = yaml.find('\n', end) + 1;
  }
  return yaml.substr(begin, end - begin);
}

}  // namespace

std::string calibration_text(const Calibration& calibration) {
  std::string text;
  for (const std::string& line : lines_of(calibration)) text += line + "\n";
  return text;
}

std::string calibration_yaml(const Calibration& calibration, const std::string& date) {
  JobSpec job;
  job.cluster = calibration.cluster;
  std::string text =
      fmt::format("# {}, fitted to {} measured runs by smp-plan calibrate on {}.\n",
                  calibration.cluster.name.empty() ? "A cluster" : calibration.cluster.name,
                  calibration.residuals.size(), date);
  for (const std::string& line : lines_of(calibration)) text += fmt::format("#   {}\n", line);
  return text + section(jobfile::write_job_yaml(job), "cluster");
}

}  // namespace smp::calibration
