#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <doctest/doctest.h>

#include <cmath>
#include <mutex>
#include <set>
#include <vector>

#include "kernels/dropout.h"
#include "runtime/layers_support.h"
#include "smp/comm/jobs/thread_group.h"
#include "tolerances.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::kernels;
using namespace smp::model;
using namespace smp::test;

namespace {

constexpr CallContext kTraining{.seed = 7, .step = 3, .first_sample = 4, .trains = true};

// Which of [rows, cols] elements are kept.
template <typename T = float>
std::vector<bool> kept(const Dropout& dropout, int64_t rows, int64_t cols) {
  const std::vector<T> ones(static_cast<size_t>(rows * cols), T(1));
  std::vector<T> y(ones.size());
  drop(dropout, rows, cols, ones.data(), y.data());
  std::vector<bool> result;
  for (const T value : y) result.push_back(static_cast<float>(value) != 0.0F);
  return result;
}

// Of the elements where a and b agree, the share.
double agreement(const std::vector<bool>& a, const std::vector<bool>& b) {
  double same = 0;
  for (size_t i = 0; i < a.size(); ++i) same += a[i] == b[i];
  return same / static_cast<double>(a.size());
}

ModelSpec with_dropout(ModelSpec model) {
  model.hidden_dropout = 0.2;
  model.attention_dropout = 0.3;
  return model;
}

}  // namespace

// Of n elements the share that goes is p, with a deviation of sqrt(p (1 - p) / n); the same
// elements of two masks that have nothing to do with each other agree with a share of p^2 + (1 -
// p)^2. Five deviations.
TEST_CASE("dropout: the share of elements that goes, in all and of each column, row and lane") {
  const int64_t rows = 1000, cols = 300;
  for (const double share : {0.001, 0.1, 0.5, 0.9}) {
    const auto mask =
        kept(dropout_of({share, 2, DropoutSite::kMlpOutput, 250}, kTraining), rows, cols);
    const auto check = [&](double goes, double n) {
      CHECK(std::abs(goes / n - share) < 5 * std::sqrt(share * (1 - share) / n));
    };
    std::vector<double> by_row(static_cast<size_t>(rows)), by_col(static_cast<size_t>(cols));
    double all = 0;
    for (int64_t i = 0; i < rows * cols; ++i) {
      const double goes = mask[static_cast<size_t>(i)] ? 0 : 1;
      by_row[static_cast<size_t>(i / cols)] += goes;
      by_col[static_cast<size_t>(i % cols)] += goes;
      all += goes;
    }
    check(all, static_cast<double>(rows * cols));
    for (const double goes : by_row) check(goes, static_cast<double>(cols));
    for (const double goes : by_col) check(goes, static_cast<double>(rows));
  }
}

TEST_CASE("dropout: each part of the key draws another mask") {
  const int64_t rows = 64, cols = 500;
  const double share = 0.5;
  const auto mask_of = [&](const CallContext& call, int64_t layer, DropoutSite site) {
    return kept(dropout_of({share, layer, site, rows}, call), rows, cols);
  };
  const DropoutSite site = DropoutSite::kMlpOutput;
  const auto mask = mask_of(kTraining, 2, site);
  CHECK(mask == mask_of(kTraining, 2, site));
  const double deviation = 5 * std::sqrt(0.25 / static_cast<double>(rows * cols));
  const auto is_another = [&](const std::vector<bool>& other) {
    return std::abs(agreement(mask, other) - 0.5) < deviation;
  };
  CallContext call = kTraining;
  call.seed = 8;
  CHECK(is_another(mask_of(call, 2, site)));
  call = kTraining;
  call.step = 4;
  CHECK(is_another(mask_of(call, 2, site)));
  call.step = kTraining.step + (int64_t{1} << 32);
  CHECK(is_another(mask_of(call, 2, site)));
  call = kTraining;
  call.first_sample = 5;
  CHECK(is_another(mask_of(call, 2, site)));
  CHECK(is_another(mask_of(kTraining, 3, site)));
  CHECK(is_another(mask_of(kTraining, 2, DropoutSite::kAttentionOutput)));
  // Neighbours within a mask: rows, and the halves of a word, which lie 16 columns apart.
  CHECK(is_another(kept(dropout_of({share, 2, site, rows}, kTraining), rows + 1, cols)) == false);
  for (const size_t apart : {size_t{1}, size_t{16}, size_t{32}, size_t{128}, size_t{500}}) {
    const std::vector<bool> shifted(mask.begin() + static_cast<int64_t>(apart), mask.end());
    CHECK(std::abs(agreement(shifted, mask) - 0.5) < deviation);
  }
}

TEST_CASE("dropout: any part of the rows and columns has the mask of the whole, in every dtype") {
  const int64_t samples = 3, sequence = 10, cols = 300;
  const Dropout whole = dropout_of({0.3, 1, DropoutSite::kOutput, sequence}, kTraining);
  const auto mask = kept(whole, samples * sequence, cols);
  CHECK(kept<double>(whole, samples * sequence, cols) == mask);
  CHECK(kept<c10::BFloat16>(whole, samples * sequence, cols) == mask);
  CHECK(kept<c10::Half>(whole, samples * sequence, cols) == mask);
  const auto at = [&](int64_t sample, int64_t token, int64_t col) {
    return mask[static_cast<size_t>((sample * sequence + token) * cols + col)];
  };
  // The second sample alone, as a microbatch of one.
  CallContext call = kTraining;
  call.first_sample += 1;
  const Dropout one = dropout_of({0.3, 1, DropoutSite::kOutput, sequence}, call);
  // Tokens [4, 10) and columns [130, 200) of each sample.
  Dropout part = whole;
  part.sample_rows = 6;
  part.first_row = 4;
  part.first_col = 130;
  const auto alone = kept(one, sequence, cols), cut = kept(part, samples * 6, 70);
  bool same = true;
  for (int64_t token = 0; token < sequence; ++token) {
    for (int64_t col = 0; col < cols; ++col) {
      same &= alone[static_cast<size_t>(token * cols + col)] == at(1, token, col);
    }
  }
  for (int64_t row = 0; row < samples * 6; ++row) {
    for (int64_t col = 0; col < 70; ++col) {
      same &= cut[static_cast<size_t>(row * 70 + col)] == at(row / 6, row % 6 + 4, col + 130);
    }
  }
  CHECK(same);
}

TEST_CASE(
    "dropout: what is kept is scaled so that the mean stays, and nothing goes in evaluation") {
  const Dropout dropout = dropout_of({0.25, 1, DropoutSite::kOutput, 4}, kTraining);
  std::vector<double> x(4 * 200, 3.0), y(x.size(), 5.0), bias(200, 1.0);
  drop(dropout, 4, 200, x.data(), x.data());
  CHECK((std::set<double>(x.begin(), x.end()) == std::set<double>{0.0, 4.0}));
  const std::vector<double> residual(x.size(), 1.0);
  add_residual_dropped(dropout, 4, 200, residual.data(), bias.data(), y.data());
  for (size_t i = 0; i < x.size(); ++i) CHECK(y[i] == (x[i] == 0.0 ? 1.0 : 9.0));
  CHECK_FALSE(dropout_of({0.25, 1, DropoutSite::kOutput, 4}, {.seed = 7}).is_on());
  CHECK_FALSE(dropout_of({0, 1, DropoutSite::kOutput, 4}, kTraining).is_on());
}

// T5's: the norms at the end of its stacks have dropout behind them, a decoder's alone has not.
TEST_CASE(
    "layers: the final norms of an encoder and a decoder have dropout, a decoder's has none") {
  at::set_num_threads(1);
  for (const ModelSpec& plain : {small_gpt2(), small_t5(), small_t5_gated()}) {
    INFO(plain.name);
    const ModelSpec model = with_dropout(plain);
    const bool is_t5 = model.stack == Stack::kEncoderDecoder;
    ModelOnRank rank(model, arbitrary_weights(model, at::kDouble), nullptr);
    const auto batch = arbitrary_batch(model, 4, 9);
    const at::Tensor x = rank.layers()[0]->forward({batch[0]}, {}, nullptr)[0];
    const auto loss = [&](const CallContext& call) {
      return rank.layers().back()->forward({x, batch[1]}, call, nullptr)[0].item().toDouble();
    };
    CHECK((loss(kTraining) != loss({})) == is_t5);
    if (!is_t5) continue;
    // Of the first decoder block the second result is the memory.
    const size_t opens = static_cast<size_t>(model.num_layers) + 1;
    if (model.decoder_layers == 1) continue;  // it hands none on
    std::vector<at::Tensor> inputs = rank.layers()[0]->forward({batch[0]}, {}, nullptr);
    for (size_t i = 1; i < opens; ++i) inputs = rank.layers()[i]->forward(inputs, {}, nullptr);
    const at::Tensor whole = rank.layers()[opens]->forward(inputs, {}, nullptr)[1];
    const at::Tensor kept_of = rank.layers()[opens]->forward(inputs, kTraining, nullptr)[1];
    const Dropout drops = dropout_of(
        {0.2, static_cast<int64_t>(opens), DropoutSite::kOutput, whole.size(1)}, kTraining);
    const at::Tensor expected = whole.view({-1, whole.size(2)});
    functions_of(expected).drop(drops, expected, expected);
    CHECK(relative_difference(expected, kept_of.view({-1, whole.size(2)})) == 0);
  }
}

TEST_CASE("layers: with dropout microbatches and tensor ranks compute what one rank does") {
  at::set_num_threads(1);
  for (const ModelSpec& plain : {small_gpt2(), small_llama(), small_t5()}) {
    const ModelSpec model = with_dropout(plain);
    const bool is_t5 = model.stack == Stack::kEncoderDecoder;
    const NamedTensors weights = arbitrary_weights(model, at::kDouble);
    const auto batch = arbitrary_batch(model, 4, 9);
    ModelOnRank whole(model, weights, nullptr), evaluated(model, weights, nullptr);
    whole.set_context(kTraining);
    const double loss = whole.run(batch, true);
    CHECK(std::abs(evaluated.run(batch, false) - loss) > 1e-6);

    ModelOnRank halves(model, weights, nullptr);
    double mean = 0;
    for (int64_t half = 0; half < 2; ++half) {
      CallContext call = kTraining;
      call.first_sample += 2 * half;
      halves.set_context(call);
      // An encoder's tokens, then a decoder's.
      mean += 0.5 * halves.run({batch[0].narrow(is_t5 ? 1 : 0, 2 * half, 2).contiguous(),
                                batch[1].narrow(0, 2 * half, 2).contiguous()},
                               true, 0.5);
    }
    CHECK(std::abs(mean - loss) < tolerance::kMicrobatchLoss * loss);
    for (const auto& [name, gradient] : whole.gradients()) {
      INFO(name);
      if (name.ends_with("k.bias")) continue;
      CHECK(relative_difference(halves.gradients().at(name), gradient) <
            tolerance::kMicrobatchGradient);
    }

    std::mutex mutex;
    run_ranks(2, [&](Communicator& comm) {
      at::set_num_threads(1);
      ModelOnRank part(model, weights, &comm);
      part.set_context(kTraining);
      const double split_loss = part.run(batch, true);
      const std::lock_guard lock(mutex);  // doctest's checks come one at a time
      CHECK(std::abs(split_loss - loss) <= tolerance::kTensorParallel * loss);
      for (const LayerSpec& layer : layers_of(model)) {
        for (const ParameterSpec& spec : parameters_of(model, layer)) {
          INFO(spec.name);
          if (spec.name.ends_with("k.bias")) continue;
          CHECK(relative_difference(part.gradients().at(spec.name),
                                    box_of(model, spec, whole.gradients().at(spec.name), 2,
                                           comm.rank())) <= tolerance::kTensorParallel);
        }
      }
    });
  }
}
