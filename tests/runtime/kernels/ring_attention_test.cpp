#include <ATen/Context.h>
#include <doctest/doctest.h>

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cpu_functions.h"
#include "kernels/cpu_ring_attention.h"
#include "kernels/element_types.h"
#include "ledger/tensor_factories.h"
#include "runtime/layers_support.h"
#include "tolerances.h"
#include "worst.h"

// Ring attention of simulated ranks, one after the other, against attention over the whole samples:
// output, logarithms of sums, and all gradients.

namespace smp {
namespace {

using kernels::AttentionGradients;
using kernels::AttentionInputs;
using kernels::AttentionShape;
using test::relative_difference;

// What a test asks for, beside the shape of whole samples.
struct Asked {
  AttentionShape shape;
  int64_t ranks = 2;
  bool has_bias = false;
  bool has_sinks = false;
  int64_t mean_document = 0;  // tokens; 0: a sample is one document
};

// `ranks` ranks with two slices of `length` tokens each.
Asked ask(int64_t ranks, int64_t length) {
  Asked asked;
  asked.ranks = ranks;
  AttentionShape& shape = asked.shape;
  shape.batch = 2;
  shape.sequence = shape.keys = 2 * ranks * length;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = 6;
  shape.scale = 0.7;
  return asked;
}

// Uninitialised memory is NaN while this lives, so that what is never written shows if it counts.
class NanMemory {
 public:
  NanMemory() {
    at::globalContext().setDeterministicFillUninitializedMemory(true);
    at::globalContext().setDeterministicAlgorithms(true, true);
  }
  ~NanMemory() { at::globalContext().setDeterministicAlgorithms(false, false); }
  NanMemory(const NanMemory&) = delete;
  NanMemory& operator=(const NanMemory&) = delete;
};

class Numbers {
 public:
  explicit Numbers(at::ScalarType dtype) : dtype_(dtype) {}
  at::Tensor of(at::IntArrayRef shape, double mean = 0) {
    at::Tensor x = ledger::empty_tensor(shape, at::TensorOptions(at::kDouble));
    double* values = x.data_ptr<double>();
    std::normal_distribution<double> normal(mean, 0.5);
    for (int64_t i = 0; i < x.numel(); ++i) values[i] = normal(random_);
    return x.to(dtype_);
  }

 private:
  at::ScalarType dtype_;
  std::mt19937 random_{7};
};

AttentionInputs some_inputs(const Asked& asked, Numbers& numbers) {
  const AttentionShape& shape = asked.shape;
  AttentionInputs inputs;
  inputs.packed = numbers.of({shape.batch * shape.sequence, shape.packed_cols()});
  if (asked.has_bias) inputs.bias = numbers.of({shape.packed_cols()});
  if (asked.has_sinks) inputs.sinks = numbers.of({shape.heads}, 1);
  if (shape.has_head_norms) {
    inputs.q_weight = numbers.of({shape.head_dim}, 1);
    inputs.k_weight = numbers.of({shape.head_dim}, 1);
    if (shape.centered_norms) {
      inputs.q_bias = numbers.of({shape.head_dim});
      inputs.k_bias = numbers.of({shape.head_dim});
    }
  }
  return inputs;
}

AttentionGradients zero_gradients(const Asked& asked, const at::TensorOptions& wide) {
  const AttentionShape& shape = asked.shape;
  AttentionGradients gradients;
  if (shape.has_head_norms) {
    gradients.norms = ledger::zero_tensor({shape.centered_norms ? 4 : 2, shape.head_dim}, wide);
  }
  if (asked.has_sinks) gradients.sinks = ledger::zero_tensor({shape.heads}, wide);
  return gradients;
}

std::vector<int64_t> some_documents(const Asked& asked) {
  std::mt19937 random(11);
  std::vector<int64_t> starts;
  for (int64_t b = 0; b < asked.shape.batch && asked.mean_document > 0; ++b) {
    int64_t start = 0;
    for (int64_t i = 0; i < asked.shape.sequence; ++i) {
      if (random() % static_cast<uint32_t>(asked.mean_document) == 0) start = i;
      starts.push_back(start);
    }
  }
  return starts;
}

struct Attended {
  at::Tensor output, log_sums, packed_gradient;
  AttentionGradients small;
};

Attended attend_whole(const Asked& asked, AttentionInputs inputs,
                      const at::Tensor& output_gradient) {
  AttentionShape shape = asked.shape;
  const std::vector<int64_t> documents = some_documents(asked);
  if (!documents.empty()) shape.documents = shape.documents_on_host = documents.data();
  const at::TensorOptions wide = kernels::wide_options(inputs.packed);
  Attended got{.output = ledger::empty_tensor_like(output_gradient),
               .log_sums = ledger::empty_tensor({shape.batch, shape.heads, shape.sequence}, wide),
               .packed_gradient = inputs.packed.clone(),
               .small = zero_gradients(asked, wide)};
  inputs.packed = got.packed_gradient;
  cpu_attention_forward(shape, inputs, got.output, got.log_sums);
  cpu_attention_backward(shape, inputs, got.output, output_gradient, got.log_sums, got.small);
  return got;
}

// One rank's part of the samples, and of the work.
class Rank {
 public:
  Rank(const Asked& asked, int64_t rank, const AttentionInputs& inputs,
       const at::Tensor& output_gradient)
      : shape_(asked.shape), inputs_(inputs) {
    shape_.context_degree = asked.ranks;
    shape_.slices = model::token_slices(shape_.sequence, {.ring = asked.ranks, .ring_rank = rank});
    shape_.sequence /= asked.ranks;
    shape_.dropout.sample_rows = shape_.sequence;
    const std::vector<int64_t> documents = some_documents(asked);
    tokens_ = ledger::empty_tensor({shape_.sequence}, at::TensorOptions(at::kLong));
    for (int64_t i = 0; i < shape_.sequence; ++i) {
      tokens_.data_ptr<int64_t>()[i] = shape_.slices.position(i);
    }
    for (int64_t b = 0; b < shape_.batch && !documents.empty(); ++b) {
      for (int64_t i = 0; i < shape_.sequence; ++i) {
        const int64_t token = b * shape_.keys + shape_.slices.position(i);
        documents_.push_back(documents[static_cast<size_t>(token)]);
      }
    }
    if (!documents.empty()) shape_.documents = shape_.documents_on_host = documents_.data();
    inputs_.packed = own_rows(inputs.packed);
    output_gradient_ = own_rows(output_gradient);
    const int64_t rows = shape_.batch * shape_.sequence;
    const at::TensorOptions wide = kernels::wide_options(inputs_.packed);
    block_ = ledger::empty_tensor({rows, shape_.kv_cols()}, inputs_.packed.options());
    sums_ = ledger::empty_tensor({rows, shape_.output_cols()}, wide);
    log_sums_ = ledger::empty_tensor({shape_.batch, shape_.heads, shape_.sequence}, wide);
    d_queries_ = ledger::zero_tensor({rows, shape_.query_cols()}, wide);
    d_block_ = ledger::zero_tensor({rows, shape_.kv_cols()}, wide);
    small_ = zero_gradients(asked, wide);
    cpu_ring_keys(shape_, inputs_, block_);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void forward(const Rank& owner) {
    cpu_ring_forward(shape_, inputs_, owner.block_, owner.shape_.slices, this == &owner, sums_,
                     log_sums_);
  }
  void backward(const Rank& owner) {
    const int64_t pairs = all_pairs(shape_).end;
    for (const auto& part : {kernels::AttentionPart{0, pairs / 2}, {pairs / 2, pairs}}) {
      cpu_ring_backward(shape_, inputs_, owner.block_, owner.shape_.slices, this == &owner, part,
                        sums_.to(block_.scalar_type()), output_gradient_, log_sums_, d_queries_,
                        owner.d_block_, small_);
    }
  }
  void turn_back() { cpu_ring_turn_back(shape_, inputs_, d_queries_, d_block_, small_); }

  // Puts this rank's results among those of all.
  void give(const Attended& all) const {
    const int64_t batch = shape_.batch, s = shape_.keys;
    const auto put = [&](const at::Tensor& to, const at::Tensor& own) {
      to.view({batch, s, -1}).index_copy_(1, tokens_, own.view({batch, shape_.sequence, -1}));
    };
    put(all.output, sums_.to(block_.scalar_type()));
    put(all.packed_gradient, inputs_.packed);
    all.log_sums.index_copy_(2, tokens_, log_sums_);
    if (small_.norms.defined()) all.small.norms.add_(small_.norms);
    if (small_.sinks.defined()) all.small.sinks.add_(small_.sinks);
  }

  at::Tensor& block() { return block_; }
  const at::Tensor& sums() const { return sums_; }
  const at::Tensor& log_sums() const { return log_sums_; }

 private:
  at::Tensor own_rows(const at::Tensor& all) const {
    return all.view({shape_.batch, shape_.keys, -1})
        .index_select(1, tokens_)
        .reshape({shape_.batch * shape_.sequence, -1});
  }

  AttentionShape shape_;
  AttentionInputs inputs_;
  std::vector<int64_t> documents_;
  at::Tensor tokens_, output_gradient_, block_, sums_, log_sums_, d_queries_;
  mutable at::Tensor d_block_;
  AttentionGradients small_;
};

std::vector<std::unique_ptr<Rank>> make_ranks(const Asked& asked, const AttentionInputs& inputs,
                                              const at::Tensor& output_gradient) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int64_t rank = 0; rank < asked.ranks; ++rank) {
    ranks.push_back(std::make_unique<Rank>(asked, rank, inputs, output_gradient));
  }
  return ranks;
}

Attended attend_in_ring(const Asked& asked, const AttentionInputs& inputs,
                        const at::Tensor& output_gradient) {
  const auto ranks = make_ranks(asked, inputs, output_gradient);
  // Each rank's own block, then that of the rank before, and so on.
  const auto for_blocks = [&](const auto& body) {
    for (size_t step = 0; step < ranks.size(); ++step) {
      for (size_t rank = 0; rank < ranks.size(); ++rank) {
        body(*ranks[rank], *ranks[(rank + ranks.size() - step) % ranks.size()]);
      }
    }
  };
  for_blocks([](Rank& rank, const Rank& owner) { rank.forward(owner); });
  for_blocks([](Rank& rank, const Rank& owner) { rank.backward(owner); });
  const at::TensorOptions wide = kernels::wide_options(inputs.packed);
  const AttentionShape& shape = asked.shape;
  Attended all{.output = ledger::empty_tensor_like(output_gradient),
               .log_sums = ledger::empty_tensor({shape.batch, shape.heads, shape.sequence}, wide),
               .packed_gradient = ledger::empty_tensor_like(inputs.packed),
               .small = zero_gradients(asked, wide)};
  for (const auto& rank : ranks) {
    rank->turn_back();
    rank->give(all);
  }
  return all;
}

// The largest of the relative differences.
double difference_of(const Asked& asked, at::ScalarType dtype) {
  const NanMemory nan_memory;
  Numbers numbers(dtype);
  const AttentionInputs inputs = some_inputs(asked, numbers);
  const int64_t tokens = asked.shape.batch * asked.shape.sequence;
  const at::Tensor output_gradient = numbers.of({tokens, asked.shape.output_cols()});
  const Attended expected = attend_whole(asked, inputs, output_gradient);
  const Attended got = attend_in_ring(asked, inputs, output_gradient);
  double worst = 0;
  const auto take = [&](const at::Tensor& a, const at::Tensor& b) {
    worst = testing::worst_of(relative_difference(a, b), worst);
  };
  take(got.output, expected.output);
  take(got.log_sums, expected.log_sums);
  // Queries, keys and values apart: each has a size of its own.
  const AttentionShape& shape = asked.shape;
  const auto take_columns = [&](int64_t begin, int64_t count) {
    take(got.packed_gradient.narrow(1, begin, count),
         expected.packed_gradient.narrow(1, begin, count));
  };
  take_columns(0, shape.query_cols());
  take_columns(shape.query_cols(), shape.key_cols());
  take_columns(shape.query_cols() + shape.key_cols(), shape.kv_cols() - shape.key_cols());
  if (shape.has_head_norms) take(got.small.norms, expected.small.norms);
  if (asked.has_sinks) take(got.small.sinks, expected.small.sinks);
  return worst;
}

void check_wide(const Asked& asked) {
  CHECK(difference_of(asked, at::kDouble) < tolerance::kRingAttentionF64);
  CHECK(difference_of(asked, at::kFloat) < tolerance::kRingAttentionF32);
}
void check_all(const Asked& asked) {
  check_wide(asked);
  CHECK(difference_of(asked, at::kBFloat16) < tolerance::kRingAttentionBf16);
  CHECK(difference_of(asked, at::kHalf) < tolerance::kRingAttentionFp16);
}

program::RotaryAttributes rotary_of(RopeScaling scaling) {
  program::RotaryAttributes rotary;
  rotary.dim = 4;
  rotary.theta = 100;  // so that some pairs turn far over the samples, and others little
  rotary.scaling = scaling;
  if (scaling == RopeScaling::kNone) return rotary;
  rotary.factor = 4;
  rotary.original_positions = 32;
  if (scaling == RopeScaling::kYarn) rotary.attention_factor = 1.1;
  return rotary;
}

}  // namespace

TEST_CASE("ring attention: with any heads and windows it is attention over whole samples") {
  for (const int64_t ranks : {1, 2, 4}) {
    for (const int64_t length : {1, 5, 7, 20, 33}) {
      for (const int64_t kv_heads : {1, 2, 4}) {
        for (const int64_t window : {int64_t{0}, int64_t{1}, int64_t{3}, length - 1, length + 2,
                                     3 * length, 3 * length + 4}) {
          INFO("ranks ", ranks, " length ", length, " kv heads ", kv_heads, " window ", window);
          Asked asked = ask(ranks, length);
          asked.shape.kv_heads = kv_heads;
          asked.shape.window = window;
          check_wide(asked);
        }
      }
    }
  }
}

TEST_CASE("ring attention: documents may cross slices") {
  for (const int64_t ranks : {2, 4}) {
    for (const int64_t length : {5, 20, 70}) {
      for (const int64_t mean_document : {int64_t{2}, int64_t{9}, length, 3 * length}) {
        for (const int64_t window : {int64_t{0}, int64_t{6}, length + 2}) {
          INFO("ranks ", ranks, " length ", length, " document ", mean_document, " window ",
               window);
          Asked asked = ask(ranks, length);
          asked.shape.window = window;
          asked.shape.rotary = rotary_of(RopeScaling::kNone);
          asked.mean_document = mean_document;
          check_wide(asked);
        }
      }
    }
  }
}

TEST_CASE("ring attention: keys are rotated, and normed, by their owner") {
  for (const int64_t mean_document : {0, 25}) {
    for (const RopeScaling scaling :
         {RopeScaling::kNone, RopeScaling::kLlama3, RopeScaling::kYarn}) {
      for (const int norms : {0, 1, 2}) {
        INFO("document ", mean_document, " scaling ", static_cast<int>(scaling), " norms ", norms);
        Asked asked = ask(4, 7);
        asked.mean_document = mean_document;
        asked.has_bias = norms != 1;
        asked.shape.rotary = rotary_of(scaling);
        asked.shape.has_head_norms = norms > 0;
        asked.shape.centered_norms = norms == 2;
        asked.shape.norm_epsilon = 1e-5;
        check_all(asked);
      }
    }
  }
}

TEST_CASE("ring attention: norms without positions") {
  Asked asked = ask(2, 20);
  asked.shape.has_head_norms = true;
  asked.shape.norm_epsilon = 1e-5;
  check_all(asked);
}

TEST_CASE("ring attention: sinks, values of another width, and any number of samples") {
  for (const int64_t ranks : {2, 4}) {
    for (const int64_t batch : {1, 3}) {
      for (const int64_t value_dim : {1, 4, 9}) {
        for (const int64_t window : {0, 4}) {
          INFO("ranks ", ranks, " batch ", batch, " values ", value_dim, " window ", window);
          Asked asked = ask(ranks, 20);
          asked.shape.batch = batch;
          asked.shape.value_dim = value_dim;
          asked.shape.window = window;
          asked.has_sinks = true;
          check_all(asked);
        }
      }
    }
  }
}

TEST_CASE("ring attention: dropout draws the masks of whole samples") {
  // Groups of kDropoutColumns keys begin in slices, end in them, and hold several of them.
  for (const int64_t ranks : {2, 4}) {
    for (const int64_t length : {7, 70, 128, 150}) {
      for (const int64_t window : {0, 90}) {
        INFO("ranks ", ranks, " length ", length, " window ", window);
        Asked asked = ask(ranks, length);
        asked.shape.window = window;
        asked.shape.batch = 1;
        asked.shape.first_head = 4;
        asked.shape.dropout = {.key = {3, 5},
                               .threshold = 20000,
                               .first_sample = 6,
                               .sample_rows = asked.shape.sequence};
        check_wide(asked);
      }
    }
  }
}

TEST_CASE("ring attention: a query that sees nothing of a block keeps its results") {
  Asked asked = ask(2, 7);
  asked.shape.batch = 1;
  Numbers numbers(at::kFloat);
  const AttentionInputs inputs = some_inputs(asked, numbers);
  const at::Tensor output_gradient = numbers.of({28, asked.shape.output_cols()});
  const auto ranks = make_ranks(asked, inputs, output_gradient);
  Rank& first = *ranks[0];
  first.forward(first);
  const at::Tensor sums = first.sums().clone(), log_sums = first.log_sums().clone();
  ranks[1]->block().fill_(std::nan(""));
  first.forward(*ranks[1]);
  // Its early slice is before all of the other rank's keys, its late slice behind.
  CHECK(first.sums().narrow(0, 0, 7).equal(sums.narrow(0, 0, 7)));
  CHECK(first.log_sums().narrow(2, 0, 7).equal(log_sums.narrow(2, 0, 7)));
  CHECK(first.sums().narrow(0, 7, 7).isnan().all().item().toBool());
}

}  // namespace smp
