#include "report_run.h"

#include <fmt/format.h>

#include "command_line.h"
#include "smp/launcher/request/usage_error.h"
#include "smp/plan/files/text_file.h"
#include "smp/planner/runpage/run_page.h"
#include "smp/planner/runs/run_record.h"

namespace smp {
namespace {

constexpr const char* kReportHelp =
    "Usage: smp-launch report RUN [--html FILE]\n\n"
    "Prints the measurements of a run beside the predictions of its plan: memory of each rank, "
    "time\n"
    "of a step, traffic, CPUs. RUN is the run's folder; the run may be running still.\n"
    "  --html FILE   write the report as one page with charts: memory by category, losses, step\n"
    "                times, one step of each rank, and CPUs, memory, GPUs and network over time\n";

}  // namespace

std::string report_run(const std::vector<std::string>& words) {
  std::string folder, page;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--help" || word == "-h") throw Information{kReportHelp};
    if (word.starts_with("--html=")) {
      page = word.substr(7);
    } else if (word == "--html") {
      if (++i == words.size())
        throw request::UsageError("report: --html needs a file, as in --html a.html");
      page = words[i];
    } else if (word.starts_with("-")) {
      throw request::UsageError(
          fmt::format("report: unknown option '{}': the only option is --html FILE", word));
    } else if (!folder.empty()) {
      throw request::UsageError(
          fmt::format("report: two run folders are given, '{}' and '{}': give one", folder, word));
    } else {
      folder = word;
    }
  }
  if (folder.empty())
    throw request::UsageError(
        "report: the run folder is missing: give it, as in smp-launch report runs/a");
  files::refuse_output(page, files::FileKind::kPage);
  const runs::RunRecord run = runs::read_run_record(folder);
  if (page.empty()) return runs::run_text(run);
  files::write_text_file(page, runpage::run_page(run));
  return fmt::format("wrote {}\n", page);
}

}  // namespace smp
