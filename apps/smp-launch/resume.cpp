#include "resume.h"

#include <fmt/format.h>

#include "smp/launcher/process/plain_file.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/runinfo/run_files.h"
#include "smp/plan/runinfo/training_record.h"
#include "smp/plan/text/json.h"
#include "smp/tensorfiles/checkpoint/checkpoint_reader.h"
#include "smp/tensorfiles/checkpoint/checkpoint_store.h"

namespace smp {
namespace {

// The step whose weights are complete in the folder; -1: none.
int64_t step_of_weights(const std::string& run_dir) {
  constexpr size_t kMostBytes = 64 << 10;
  const text::Json json = text::Json::parse(
      process::read_plain_file(run_dir + "/" + runinfo::kWeightsState, kMostBytes), nullptr, false);
  const bool tells =
      json.is_object() && json.contains("global_step") && json["global_step"].is_number_integer();
  return tells ? json["global_step"].get<int64_t>() : -1;
}

}  // namespace

ResumePoint resume_point(const request::PreparedJob& job) {
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
          fmt::format("{}: the checkpoint is of step {}, but training.steps is {}: plan with at "
                      "least as many steps",
                      path, reader.step(), spec.training.steps));
    return {reader.step(),
            reader.step() == spec.training.steps && step_of_weights(job.run_dir) == reader.step()};
  } catch (const checkpoint::CheckpointError& error) {
    throw ConfigError(error.what());
  }
}

}  // namespace smp
