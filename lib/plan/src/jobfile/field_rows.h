#pragma once

#include <string_view>
#include <vector>

#include "jobfile/field_table.h"

// The rows of the table of keys, section by section, and the functions that they share. Only the
// table's own sources include this. Immutable.
namespace smp::jobfile {

// Bounds that no real job reaches and whose products stay within 64 bits.
inline constexpr double kMostLayers = 1 << 16;
inline constexpr double kMostElements = 1e15;
inline constexpr double kMostChunks = 1024;    // of a pipeline's rank
inline constexpr double kMostWidth = 1 << 20;  // hidden sizes, heads, ranks
inline constexpr double kMostInner = 1 << 22;  // 4 x kMostWidth, the default of gpt2
inline constexpr double kMostExperts = 1 << 14;
inline constexpr double kMostRows = 1 << 28;    // vocabulary, positions
inline constexpr double kMostPixels = 1 << 16;  // along one side of an image
inline constexpr double kMostSamples = 1 << 28;
inline constexpr double kMostBytes = int64_t{1} << 60;
inline constexpr double kMostLatency = 1000;  // seconds
inline constexpr double kMostSteps = 1e12;
inline constexpr double kMostMinutes = 1e6;  // two years
inline constexpr double kMostCheckpoints = 1e6;
inline constexpr double kMostScale = 1e30;  // of a loss
inline constexpr auto kLlama = ModelFamily::kLlama;
inline constexpr auto kTransformer = ModelFamily::kTransformer;

inline constexpr std::string_view kModel = "model";
inline constexpr std::string_view kInput = "model.input";
inline constexpr std::string_view kCluster = "cluster";
inline constexpr std::string_view kTraining = "training";
inline constexpr std::string_view kFusions = "training.fusions";
inline constexpr std::string_view kOptimizer = "training.optimizer";
inline constexpr std::string_view kLossScale = "training.loss_scale";
inline constexpr std::string_view kLora = "training.lora";
inline constexpr std::string_view kData = "training.data";
inline constexpr std::string_view kImageFile = "training.data.images";
inline constexpr std::string_view kCheckpoint = "training.checkpoint";
inline constexpr std::string_view kEvaluation = "training.evaluation";
inline constexpr std::string_view kTrace = "training.trace";
inline constexpr std::string_view kParallel = "parallel";
inline constexpr std::string_view kTensorParallel = "parallel.tensor_parallel";
inline constexpr std::string_view kCollectives = "parallel.collectives";

// Limits a key to transformers, or to models that are a list of layers.
extern const Condition kTransformerModel, kLayerList;

// Models with experts.
inline bool is_mixture(const JobSpec& job) { return job.model.num_experts > 0; }

void add_model_fields(std::vector<Field>& out);
// Of the model, too.
void add_expert_fields(std::vector<Field>& out);
void add_latent_fields(std::vector<Field>& out);
void add_hybrid_fields(std::vector<Field>& out);
void add_cluster_fields(std::vector<Field>& out);
void add_training_fields(std::vector<Field>& out);
void add_optimizer_fields(std::vector<Field>& out);
void add_fine_tuning_fields(std::vector<Field>& out);
void add_parallel_fields(std::vector<Field>& out);

}  // namespace smp::jobfile

// The member of a JobSpec that a key sets.
#define SMP_AT(member) \
  [](JobSpec & spec) -> auto& { return spec.member; }
