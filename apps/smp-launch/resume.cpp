#include "resume.h"

#include <fmt/format.h>

#include "job_shape.h"
#include "smp/launcher/hosts/shell_words.h"
#include "smp/launcher/process/plain_file.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/runinfo/run_files.h"
#include "smp/plan/runinfo/training_record.h"
#include "smp/plan/text/json.h"
#include "smp/tensorfiles/checkpoint/checkpoint_reader.h"
#include "smp/tensorfiles/checkpoint/checkpoint_store.h"

namespace smp {
namespace {

// Whose weights are whole in the folder; -1: nobody's.
int64_t step_of_weights(const std::string& run_dir) {
  constexpr size_t kMostBytes = 64 << 10;
  const text::Json json = text::Json::parse(
      process::read_plain_file(run_dir + "/" + runinfo::kWeightsState, kMostBytes), nullptr, false);
  const bool tells =
      json.is_object() && json.contains("global_step") && json["global_step"].is_number_integer();
  return tells ? json["global_step"].get<int64_t>() : -1;
}

}  // namespace

ResumePoint resume_point(const PreparedJob& job) {
  try {
    const checkpoint::CheckpointStore store(job.run_dir + "/" + runinfo::kCheckpointsFolder);
    const std::string& resume = job.request.resume;
    const std::string path =
        store.folder() + "/" +
        (resume == "latest" ? store.latest() : store.of_step(std::stoll(resume)));
    const checkpoint::CheckpointReader reader(path);
    const JobSpec& spec = job.plan->job;
    runinfo::check_same_training(path, reader.training(),
                                 runinfo::record_training(spec, runinfo::identify_data(spec)));
    if (reader.step() > spec.training.steps)
      throw ConfigError(
          fmt::format("{}: it is of step {}, and training.steps is {}: plan with as many or more",
                      path, reader.step(), spec.training.steps));
    return {reader.step(),
            reader.step() == spec.training.steps && step_of_weights(job.run_dir) == reader.step()};
  } catch (const checkpoint::CheckpointError& error) {
    throw ConfigError(error.what());
  }
}

std::string complete_text(const PreparedJob& job) {
  const int64_t steps = job.plan->job.training.steps;
  return fmt::format(
      "the run in '{}' is complete: {} of {} steps are done and its weights are saved; to train it "
      "further, plan with a larger training.steps",
      job.run_dir, steps, steps);
}

std::string resume_command(const PreparedJob& job) {
  std::vector<std::string> words = {"smp-launch"};
  bool resumes = false;
  for (const SaidOption& option : job.request.said) {
    if (option.name == "--run-dir") continue;
    const bool is_resume = option.name == "--resume";
    // if-any goes on by itself; a step that the user chose once is not where the job is now.
    if (is_resume && !job.goes_on_if_any) continue;
    resumes = resumes || is_resume;
    const std::vector<std::string> more = words_of(option);
    words.insert(words.end(), more.begin(), more.end());
  }
  if (!resumes) words.emplace_back("--resume");
  words.insert(words.end(), {"--run-dir", job.run_dir, job.request.plan});
  return hosts::command_text(words);
}

std::string go_on_text(const PreparedJob& job, const run::RunFolder& folder, bool has_started) {
  try {
    const std::string name = folder.checkpoint();
    if (!name.empty())
      return fmt::format("smp-launch: to go on from {}: {}\n", name, resume_command(job));
    if (!has_started) return "";
    return fmt::format(
        "smp-launch: no checkpoint was saved in {}: there is nothing to go on from\n", job.run_dir);
  } catch (const ConfigError& error) {
    return fmt::format("smp-launch: {}\n", error.what());
  }
}

}  // namespace smp
