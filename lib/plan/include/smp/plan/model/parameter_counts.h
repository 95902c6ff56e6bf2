#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/model/layers.h"
#include "smp/plan/spec/job_spec.h"

// Parameters of each kind of layer by arithmetic alone, for sizes that nobody could make a list of.
// They equal the sums over parameters_of() (layers.h); a test compares them. They are doubles:
// exact below 2^53, and no product of a job file's sizes overflows. Pure; safe from any thread.
namespace smp::model {

// Parameters of a layer by how tensor parallelism shares them.
struct ParameterSum {
  double cut = 0;    // 1/t on each of t ranks
  double kv = 0;     // by KV head: 1/min(t, KV heads)
  double whole = 0;  // every rank has all

  double all() const { return cut + kv + whole; }
  double of_rank(int64_t tensor, int64_t kv_heads) const {
    return cut / static_cast<double>(tensor) +
           kv / static_cast<double>(tensor < kv_heads ? tensor : kv_heads) + whole;
  }
  ParameterSum operator+(const ParameterSum& other) const {
    return {cut + other.cut, kv + other.kv, whole + other.whole};
  }
};

// Of one layer; of a block with experts all but these.
ParameterSum parameters_of_layer(const ModelSpec& model, const LayerSpec& layer,
                                 const TensorKinds& kinds = {});

// The blocks of a model that have as many parameters.
struct BlockParameters {
  LayerKind kind = LayerKind::kBlock;
  ParameterSum each;  // not their experts
  int64_t count = 0;
  bool has_experts = false;
};

struct ParameterCounts {
  ParameterSum embedding;   // tokens, learned or relative positions, token types, a vision tower
  ParameterSum vocabulary;  // the token matrix alone: what a tied head copies with p > 1
  std::vector<BlockParameters> blocks;  // by kind; of a hybrid by letter, of a list by layer
  ParameterSum expert;                  // one expert
  ParameterSum head;                    // final norms, projection unless tied
  int64_t experts = 0;                  // of each block that has them
  int64_t experts_per_token = 0;

  const BlockParameters& of(LayerKind kind) const;  // the first of its kind, which the model has
  double total() const;
  double active() const;  // with only the experts that one token passes through
};
ParameterCounts parameter_counts(const ModelSpec& model, const TensorKinds& kinds = {});

// Blocks in the sequence that a pipeline cuts: encoder's and decoder's. The mtp layers are not
// counted: they stay with the head.
int64_t block_count(const ModelSpec& model);

// Whether block 0 <= block < num_layers has experts. In a hybrid its letter says so. Else the first
// `first_dense_layers` have none. Of the rest every `moe_layer_period`-th has them, beginning with
// the first (Megatron's
// --moe-layer-freq).
bool has_experts(const ModelSpec& model, int64_t block);
// Of a layer: what predicts a further token has a block as the last one.
bool has_experts(const ModelSpec& model, const LayerSpec& layer);

// Rows of the vocabulary matrices: vocab_size padded to a multiple of vocab_multiple_of x
// tensor_degree (Megatron's --make-vocab-size-divisible-by). Not padded if vocab_multiple_of is 1.
int64_t padded_vocab_rows(const ModelSpec& model, int64_t tensor_degree = 1);

// Buckets of relative positions (T5), each with a bias for every head.
inline constexpr int64_t kRelativeBuckets = 32;
inline constexpr int64_t kRelativeDistance = 128;  // from which on all share a bucket
// Kinds of token of an encoder: first and second sentence (BERT).
inline constexpr int64_t kTokenTypes = 2;

// A job with more than this is refused: such sizes are typing errors.
inline constexpr double kMostParameters = 1e15;

}  // namespace smp::model
