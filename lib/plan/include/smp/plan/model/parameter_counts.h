#pragma once

#include <cstdint>

#include "smp/plan/spec/job_spec.h"

// Parameters of each kind of layer by arithmetic alone, for a search that counts millions of times.
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

struct ParameterCounts {
  ParameterSum embedding;    // tokens, learned or relative positions, token types, a vision tower
  ParameterSum vocabulary;   // the token matrix alone: what a tied head copies with p > 1
  ParameterSum block;        // dense; of a hybrid the mean of its layers without experts
  ParameterSum moe_block;    // router and shared expert; not its experts
  ParameterSum expert;       // one expert
  ParameterSum cross_block;  // of the decoder of an encoder_decoder
  ParameterSum mtp_block;    // predicts a further token; not its experts
  ParameterSum head;         // final norms, projection unless tied
  int64_t blocks = 0;        // how many of each in the model
  int64_t moe_blocks = 0;
  int64_t cross_blocks = 0;
  int64_t mtp_blocks = 0;
  int64_t experts = 0;           // of each block that has them
  bool mtp_has_experts = false;  // as the last block

  double total() const;
  double active() const;  // with only the experts that one token passes through
  int64_t experts_per_token = 0;
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
