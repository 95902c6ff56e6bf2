#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// The names of the files in a run's folder, for the launcher and the ranks alike. Nothing is
// written here; safe from any thread.
namespace smp::runinfo {

inline constexpr const char* kPlanFile = "plan.yaml";
// The plan of a start whose ranks have not yet agreed to continue; rank 0 renames it to kPlanFile.
inline constexpr const char* kPlanToStart = "plan.yaml.new";
// Timelines of the steps of training.trace: one file of all ranks, or one of each rank if the run
// failed.
inline constexpr const char* kTraceFile = "trace.json";
inline constexpr const char* kTraceFolder = "trace";
inline constexpr const char* kCheckpointsFolder = "checkpoints";
inline constexpr const char* kManifestFile = "manifest.json";  // makes a folder a whole checkpoint
// In checkpoints/, the name of the one to resume from.
inline constexpr const char* kLatestFile = "latest";
// ... and of the one with the lowest evaluation loss, with training.evaluation.keep_best.
inline constexpr const char* kBestFile = "best";
inline constexpr const char* kTensorBoardFolder = "tensorboard";  // event files, one of each start
// Says which step's weights are in weights/, written when they are whole.
inline constexpr const char* kWeightsState = "weights/trainer_state.json";

// "step-00000100" or "step-00000100-2", the second save of that step: 100; nothing for other names.
std::optional<int64_t> step_of_checkpoint(const std::string& name);

// Names of the whole checkpoints in a folder of checkpoints, in the order of their steps, not of
// their clocks.
std::vector<std::string> whole_checkpoints(const std::string& folder);

// The checkpoint to resume from: the one that `latest` names. If a job was killed before it wrote
// `latest`, the whole one of the highest step. Nothing if there is none. Throws ConfigError if
// `latest` exists and names none, for then nobody can tell which was meant.
std::optional<std::string> checkpoint_to_go_on_from(const std::string& folder);

// The checkpoint that `best` names; nothing if `best` is missing or names no whole checkpoint.
std::optional<std::string> best_checkpoint(const std::string& folder);

}  // namespace smp::runinfo
