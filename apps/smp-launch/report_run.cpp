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
    "Sets what a run measured beside what its plan predicted: memory of each rank, time of a "
    "step,\n"
    "traffic, CPUs. RUN is the run's folder; the run may still go on.\n"
    "  --html FILE   write it as one page with pictures: memory by category, losses, step times,\n"
    "                a step of each rank, CPUs, memory, GPUs and network over time\n";

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
          fmt::format("report: unknown option '{}': it takes --html FILE", word));
    } else if (!folder.empty()) {
      throw request::UsageError(
          fmt::format("report: '{}' and '{}': one run at a time", folder, word));
    } else {
      folder = word;
    }
  }
  if (folder.empty())
    throw request::UsageError("report: which run? Its folder, as in smp-launch report runs/a");
  files::refuse_output(page, files::FileKind::kPage);
  const runs::RunRecord run = runs::read_run_record(folder);
  if (page.empty()) return runs::run_text(run);
  files::write_text_file(page, runpage::run_page(run));
  return fmt::format("wrote {}\n", page);
}

}  // namespace smp
