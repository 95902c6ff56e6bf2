#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

// What lies where in a run's folder, for the launcher and the ranks alike. Nothing is written here;
// safe from any thread.
namespace smp::runinfo {

inline constexpr const char* kPlanFile = "plan.yaml";
// The plan of a start whose ranks have not agreed to go on yet; rank 0 renames it to kPlanFile.
inline constexpr const char* kPlanToStart = "plan.yaml.new";
// Timelines of the steps of training.trace: of all ranks, or where the run failed of each rank.
inline constexpr const char* kTraceFile = "trace.json";
inline constexpr const char* kTraceFolder = "trace";
inline constexpr const char* kCheckpointsFolder = "checkpoints";
inline constexpr const char* kManifestFile = "manifest.json";  // makes a folder a whole checkpoint
// In checkpoints/, the name of the one to go on from.
inline constexpr const char* kLatestFile = "latest";
// ... and of the one with the lowest evaluation loss, with training.evaluation.keep_best.
inline constexpr const char* kBestFile = "best";
inline constexpr const char* kTensorBoardFolder = "tensorboard";  // event files, one of each start
// Says which step's weights are in weights/, written when they are whole.
inline constexpr const char* kWeightsState = "weights/trainer_state.json";

// "step-00000100" or "step-00000100-2", the second save of that step: 100; nothing for other names.
std::optional<int64_t> step_of_checkpoint(const std::string& name);

// Names of the whole checkpoints in a folder of checkpoints, in the order of their steps, whatever
// the clocks said.
std::vector<std::string> whole_checkpoints(const std::string& folder);

// The one to go on from: that which `latest` names or, where a job was killed before it wrote one,
// the whole one of the highest step. Nothing: there is none. Throws ConfigError when `latest` is
// there and names none, for nobody can tell then what was meant.
std::optional<std::string> checkpoint_to_go_on_from(const std::string& folder);

// That which `best` names; nothing where it names no whole checkpoint, or is not there.
std::optional<std::string> best_checkpoint(const std::string& folder);

}  // namespace smp::runinfo
