#include "smp/launcher/launch/resume_command.h"

#include <fmt/format.h>

#include "smp/launcher/hosts/shell_words.h"
#include "smp/launcher/request/job_shape.h"
#include "smp/launcher/run/run_folder.h"
#include "smp/plan/base/errors.h"

namespace smp::launch {

std::string complete_text(const request::PreparedJob& job) {
  const int64_t steps = job.plan->job.training.steps;
  return fmt::format(
      "the run in '{}' is complete: {} of {} steps are done and the weights are saved; to train "
      "further, plan with a larger training.steps",
      job.run_dir, steps, steps);
}

std::string resume_command(const request::PreparedJob& job) {
  std::vector<std::string> words = {"smp-launch"};
  bool resumes = false;
  for (const request::SaidOption& option : job.request.said) {
    if (option.name == "--run-dir") continue;
    const bool is_resume = option.name == "--resume";
    // --resume=if-any is kept, for it resumes by itself. --resume=STEP is dropped, since the job
    // has passed that step.
    if (is_resume && !job.goes_on_if_any) continue;
    resumes = resumes || is_resume;
    const std::vector<std::string> more = words_of(option);
    words.insert(words.end(), more.begin(), more.end());
  }
  if (!resumes) words.emplace_back("--resume");
  words.insert(words.end(), {"--run-dir", job.run_dir, job.request.plan});
  return hosts::command_text(words);
}

std::string go_on_text(const request::PreparedJob& job, const run::RunFolder& folder,
                       bool has_started) {
  try {
    const std::string name = folder.checkpoint();
    if (!name.empty())
      return fmt::format("smp-launch: to resume from {}: {}\n", name, resume_command(job));
    if (!has_started) return "";
    return fmt::format("smp-launch: no checkpoint was saved in {}, so the job cannot be resumed\n",
                       job.run_dir);
  } catch (const ConfigError& error) {
    return fmt::format("smp-launch: {}\n", error.what());
  }
}

}  // namespace smp::launch
