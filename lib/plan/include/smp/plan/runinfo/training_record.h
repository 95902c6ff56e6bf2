#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "smp/plan/files/file_identity.h"
#include "smp/plan/spec/job_spec.h"

// The record of a training that a checkpoint keeps: the whole job and the identity of its data. A
// run resumes with the same training or not at all. Pure except identify_data().
namespace smp::runinfo {

struct TrainingRecord {
  // Path of each key that has a meaning in this job, and its value as a job file writes it.
  // training.evaluation.samples counts the samples held out, with evaluation or without.
  // training.data.sources has the weights.
  std::vector<std::pair<std::string, std::string>> job;
  std::vector<files::FileIdentity> data;  // in the order in which they are read
};

// The files that a job trains on. Throws as TokenData and look_at_files() do.
std::vector<files::FileIdentity> identify_data(const JobSpec& job);

TrainingRecord record_training(const JobSpec& job, std::vector<files::FileIdentity> data);

// A key, or a whole section ("parallel"), that a job may change when it resumes from a checkpoint.
// All other keys, those of later versions too, define the training.
struct ChangeableKey {
  std::string_view path;
  std::string_view reason;
};
std::span<const ChangeableKey> changeable_keys();

// Forbidden differences, one a line, with both values: "model.num_heads: 2 in the checkpoint, 1 in
// this job". Empty if the training is the same. A key that one side lacks has its default.
std::vector<std::string> training_changes(const TrainingRecord& checkpoint,
                                          const TrainingRecord& job);

// Throws ConfigError with all training_changes(); `checkpoint_path` is the checkpoint to resume
// from.
void check_same_training(const std::string& checkpoint_path, const TrainingRecord& checkpoint,
                         const TrainingRecord& job);

}  // namespace smp::runinfo
