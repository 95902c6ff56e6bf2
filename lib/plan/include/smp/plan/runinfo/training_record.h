#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "smp/plan/files/file_identity.h"
#include "smp/plan/spec/job_spec.h"

// What a checkpoint is a part of: the whole job and the data, so that a run goes on from it with
// the same training or not at all. Pure, but for identify_data().
namespace smp::runinfo {

struct TrainingRecord {
  // Path of each key that means something in the job, and its value as a job file has it; of
  // training.evaluation.samples those that are held out, with evaluation or without; of
  // training.data.sources the weights.
  std::vector<std::pair<std::string, std::string>> job;
  std::vector<files::FileIdentity> data;  // in the order in which they are read
};

// The files that a job trains on. Throws as TokenData and look_at_files() do.
std::vector<files::FileIdentity> identify_data(const JobSpec& job);

TrainingRecord record_training(const JobSpec& job, std::vector<files::FileIdentity> data);

// A key, or a whole section ("parallel"), that a job may change when it goes on from a checkpoint.
// All others are the training, those of later versions too.
struct ChangeableKey {
  std::string_view path;
  std::string_view reason;
};
std::span<const ChangeableKey> changeable_keys();

// What differs and may not, a line each, with both values: "model.num_heads: 2 in the checkpoint, 1
// in this job". Empty: the training is the same. A key that one side does not say has its default.
std::vector<std::string> training_changes(const TrainingRecord& checkpoint,
                                          const TrainingRecord& job);

// Throws ConfigError with all training_changes(); `checkpoint_path` names the one to go on from.
void check_same_training(const std::string& checkpoint_path, const TrainingRecord& checkpoint,
                         const TrainingRecord& job);

}  // namespace smp::runinfo
