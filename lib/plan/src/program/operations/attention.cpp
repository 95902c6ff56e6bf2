#include <algorithm>

#include "program/operations/rules.h"
#include "smp/plan/program/attention_scratch.h"

// Attention over rows of [q heads | k heads | v heads], or of [q heads] and [k heads | v heads].
// Bias, norms of queries and keys and rotary positions are applied while a head is copied. A head's
// sink is a score that joins the softmax of each query, and has no value.
namespace smp::program {
namespace {

// Pairs of a query and a key that it sees, of all heads.
double seen_pairs(const AttentionAttributes& a) {
  const auto keys = static_cast<double>(a.keys), queries = static_cast<double>(a.sequence);
  const double window = a.window > 0 ? static_cast<double>(a.window) : keys;
  // Of a rank of a ring its share of the whole sample's.
  const double of_keys = window * (window + 1) / 2 + (keys - window) * window;
  const double of_sample = a.causal ? of_keys * queries / keys : queries * keys;
  return static_cast<double>(a.batch * a.heads) * of_sample;
}

// Scores and their product with the values; backward those of the scores again and of four
// gradients.
double forward_flops(const PlacedOperation& p) {
  const auto& a = p.operation.as<AttentionAttributes>();
  return 2 * static_cast<double>(a.head_dim + a.value_width()) * seen_pairs(a);
}
double backward_flops(const PlacedOperation& p) {
  const auto& a = p.operation.as<AttentionAttributes>();
  return 2 * static_cast<double>(3 * a.head_dim + 2 * a.value_width()) * seen_pairs(a);
}

// Of ring attention: the block that is here and the one that comes, and backward their gradients:
// two that are summed and one that comes, the own block's, and that of the queries. Results in fp32
// where they have 16 bits.
int64_t ring_forward_bytes(const AttentionAttributes& a, DType dtype) {
  const int64_t tokens = a.batch * a.sequence;
  const int64_t blocks = 2 * tokens * a.kv_heads * (a.head_dim + a.value_width());
  const int64_t sums = is_narrow(dtype) ? tokens * a.heads * a.value_width() : 0;
  return bytes_of(dtype) * blocks + wide_bytes(dtype) * (sums + ring_attention_forward_scratch(a));
}
int64_t ring_backward_bytes(const AttentionAttributes& a, DType dtype) {
  const int64_t tokens = a.batch * a.sequence;
  const int64_t block = tokens * a.kv_heads * (a.head_dim + a.value_width());
  const int64_t scratch = std::max(ring_attention_forward_scratch(a),
                                   ring_attention_backward_scratch(a, is_narrow(dtype)));
  return bytes_of(dtype) * 2 * block +
         wide_bytes(dtype) * (4 * block + tokens * a.heads * a.head_dim + scratch);
}

int64_t forward_bytes(const PlacedOperation& p) {
  const DType dtype = p.dtype(p.operation.in(0));
  const auto& a = p.operation.as<AttentionAttributes>();
  if (a.context_degree > 1) return ring_forward_bytes(a, dtype);
  return wide_bytes(dtype) *
         attention_forward_scratch(p.operation.as<AttentionAttributes>(), is_narrow(dtype));
}
int64_t backward_bytes(const PlacedOperation& p) {
  const DType dtype = p.dtype(p.operation.in(0));
  const auto& a = p.operation.as<AttentionAttributes>();
  if (a.context_degree > 1) return ring_backward_bytes(a, dtype);
  return wide_bytes(dtype) *
         attention_backward_scratch(p.operation.as<AttentionAttributes>(), is_narrow(dtype));
}

int64_t padded_row(const AttentionAttributes& a) {
  return (a.keys + kAttentionRowMultiple - 1) / kAttentionRowMultiple * kAttentionRowMultiple;
}
int64_t rotations(const AttentionAttributes& a) {
  return std::max(a.sequence, a.keys) * a.rotary.dim;
}
int64_t head_stats(const AttentionAttributes& a) {
  return a.has_head_norms ? 2 * std::max(a.sequence, a.keys) : 0;
}
// Numbers by distance, of relative positions.
int64_t diagonals(const AttentionAttributes& a) {
  return a.relative_buckets > 0 ? a.heads * (a.sequence + a.keys - 1) : 0;
}
// Backward's copies of heads, and the scores of a block of queries.
int64_t heads_of_backward(const AttentionAttributes& a, bool narrow) {
  const int64_t of_queries = a.sequence * a.head_dim, of_keys = a.keys * a.head_dim;
  const int64_t of_values = a.keys * a.value_width(), of_output = a.sequence * a.value_width();
  return std::max({of_queries, of_keys, of_values}) + of_keys + (narrow ? 2 : 1) * of_output +
         (a.head_dim + a.value_width() + 2 * kAttentionQueryBlock) * padded_row(a) + rotations(a) +
         head_stats(a) + kAttentionOverread;
}

AttentionAttributes of_one_block(AttentionAttributes a) {
  a.keys = a.sequence;
  a.relative_buckets = 0;
  return a;
}

}  // namespace

int64_t attention_forward_scratch(const AttentionAttributes& a, bool narrow) {
  const int64_t either = std::max(a.sequence, a.keys) * a.head_dim;
  const int64_t of_values = a.keys * a.value_width();
  return either + of_values + a.head_dim * padded_row(a) + kAttentionStrip * padded_row(a) +
         rotations(a) + head_stats(a) + (narrow ? kAttentionStrip * a.value_width() : 0) +
         diagonals(a) + kAttentionOverread;
}

int64_t attention_backward_scratch(const AttentionAttributes& a, bool narrow) {
  int64_t elements = heads_of_backward(a, narrow) + head_stats(a) + 2 * diagonals(a);
  // Where elements are 16-bit or heads have norms, the gradients of q, k and v stand beside them.
  if (narrow || a.has_head_norms) {
    elements += (a.sequence + a.keys) * a.head_dim + a.keys * a.value_width();
  }
  return elements;
}

// A strip of its output always waits until it is merged, as does that of narrow tensors.
int64_t ring_attention_forward_scratch(const AttentionAttributes& a) {
  return attention_forward_scratch(of_one_block(a), true);
}

// Its gradients are added to those of the calls before.
int64_t ring_attention_backward_scratch(const AttentionAttributes& a, bool narrow) {
  return heads_of_backward(of_one_block(a), narrow);
}

const OperationRules kAttentionRules = {
    .name = "attention",
    .kernel = KernelClass::kAttention,
    .inputs =
        "qkv kv? bias? q_norm.weight? q_norm.bias? k_norm.weight? k_norm.bias? table? "
        "sinks? normed?",
    .outputs = "result log_sums",
    .flops = forward_flops,
    .scratch_bytes = forward_bytes};
const OperationRules kAttentionBackwardRules = {
    .name = "attention backward",
    .kernel = KernelClass::kAttention,
    .inputs =
        "qkv kv? bias? q_norm.weight? q_norm.bias? k_norm.weight? k_norm.bias? table? sinks? "
        "result d_result log_sums normed?",
    .outputs = "d_qkv d_kv? d_table? d_norms? d_sinks?",
    .flops = backward_flops,
    .scratch_bytes = backward_bytes};

// Queries, and keys and values without position, by head; the rotating part of the keys, which all
// heads share -> the rows of attention. In each head what rotates comes first, its even elements
// before its odd ones: pairs are neighbours in the projections, as in DeepSeek's own code, and half
// the part apart in attention.
const OperationRules kLatentHeadsRules = {
    .name = "latent heads", .inputs = "q kv k_rotary", .outputs = "qkv"};
// The gradients of the three; the heads' of k_rotary are summed.
const OperationRules kLatentHeadsBackwardRules = {
    .name = "latent heads backward", .inputs = "d_qkv", .outputs = "d_q d_kv d_k_rotary"};
// [rows, a | b] -> [rows, a] and [rows, b], and back.
const OperationRules kSplitColumnsRules = {
    .name = "split columns", .inputs = "x", .outputs = "a b"};
const OperationRules kJoinColumnsRules = {.name = "join columns", .inputs = "a b", .outputs = "x"};
// Some columns of a wider matrix: with zeros beside them, and back.
const OperationRules kPlaceColumnsRules = {.name = "place columns", .inputs = "x", .outputs = "y"};
const OperationRules kTakeColumnsRules = {.name = "take columns", .inputs = "y", .outputs = "x"};

}  // namespace smp::program
