#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "ledger/torch_dtype.h"
#include "plan/list_samples.h"
#include "runtime/central_differences.h"
#include "runtime/layers_support.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/model/layer_tensors.h"
#include "smp/plan/program/liveness.h"
#include "smp/runtime/layers/layer.h"
#include "smp/runtime/ledger/memory_ledger.h"
#include "tolerances.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::kernels;
using namespace smp::layers;
using namespace smp::ledger;
using namespace smp::model;
using namespace smp::program;
using namespace smp::test;

namespace {

at::Tensor arbitrary(std::vector<int64_t> sizes, at::ScalarType type) {
  at::Tensor tensor = at::empty(sizes, at::kDouble);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.data_ptr<double>()[i] = std::sin(1.7 * static_cast<double>(i * i % 97) + 0.3);
  }
  return tensor.to(type);
}

std::vector<at::Tensor> images_and_labels(const ModelSpec& model, int64_t batch,
                                          at::ScalarType type) {
  std::vector<at::Tensor> tensors = arbitrary_batch(model, batch, 1);
  tensors[0] = tensors[0].to(type);
  return tensors;
}

// What oneDNN blocks a product of fp32 or bf16 in, where it has few rows or columns.
constexpr int64_t kProductWorkspace = 132096;

bool is_peak(int64_t counted, int64_t expected, at::ScalarType type) {
  if (type == at::kDouble) return counted == expected;
  return counted >= expected && counted <= expected + kProductWorkspace;
}

}  // namespace

TEST_CASE("operators: gradients of lists are those of central differences") {
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  for (const ModelSpec& model : {small_list(), flat_list(), cut_list()}) {
    ModelOnRank rank(model, arbitrary_weights(model, at::kDouble), nullptr);
    const auto batch = images_and_labels(model, 3, at::kDouble);
    rank.set_context({.seed = 3, .step = 1, .first_sample = 4, .trains = true});  // dropout
    const GradientError largest = largest_gradient_error(rank, batch);
    INFO(largest.element);
    CHECK(largest.difference < tolerance::kCentralDifferenceOfLoss);
  }
}

// As for transformers (layers_gradient_test.cpp): each operator rounds what it makes once, a matrix
// twice, since its bias comes after the product, and so does its backward.
TEST_CASE("operators: bf16 and fp16 agree with fp32 on the same weights") {
  at::set_num_threads(1);
  for (const ModelSpec& model : {smooth_list(), flat_list()}) {
    const double roundings = 2 * 2 * static_cast<double>(model.operators.size());
    for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
      const double roundoff = type == at::kBFloat16 ? 0x1p-9 : 0x1p-11;
      NamedTensors narrow = arbitrary_weights(model, type), wide;
      for (const auto& [name, weight] : narrow) wide[name] = weight.to(at::kFloat);
      const auto batch = images_and_labels(model, 7, type);
      ModelOnRank exact(model, wide, nullptr), rounded(model, narrow, nullptr);
      for (ModelOnRank* rank : {&exact, &rounded}) rank->set_context({.seed = 3, .trains = true});
      const double loss = exact.run({batch[0].to(at::kFloat), batch[1]}, true);
      const double scale = type == at::kHalf ? 1024 : 1;
      INFO(std::string(at::toString(type)));
      CHECK(std::abs(rounded.run(batch, true, scale) - loss) <= roundings * roundoff * loss);
      double worst = 0;
      for (const auto& [name, gradient] : exact.gradients()) {
        INFO(name);
        const at::Tensor found = rounded.gradients().at(name);
        CHECK((found.scalar_type() == at::kFloat));
        const double error = found.div(scale).sub(gradient).norm().item().toDouble() /
                             gradient.norm().item().toDouble();
        CHECK(error <= roundings * roundoff);
        worst = std::max(worst, error / roundoff);
      }
      MESSAGE(std::string(at::toString(type)), ": ", worst, " roundoffs of ", roundings);
    }
  }
}

TEST_CASE("operators: convolutions and poolings are torch's") {
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  const at::Tensor x = arbitrary({3, 2, 11, 9}, at::kDouble);
  // A list whose first layer is the operator. A pooling stands behind a convolution that changes
  // nothing, since a layer begins with a matrix.
  const at::Tensor weight = arbitrary({4, 18}, at::kDouble), bias = arbitrary({4}, at::kDouble);
  const auto run = [&](const OperatorSpec& spec) {
    const bool is_convolution = spec.kind == OperatorKind::kConv2d;
    std::vector<OperatorSpec> operators{spec};
    if (!is_convolution) {
      operators.insert(operators.begin(),
                       {.kind = OperatorKind::kConv2d, .out = 2, .kernel = 1, .stride = 1});
    }
    operators.push_back({.kind = OperatorKind::kFlatten});
    operators.push_back({.kind = OperatorKind::kLinear, .out = 2});
    const ModelSpec model = list_model({2, 11, 9}, operators);
    const at::Tensor identity = at::zeros({2, 2}, at::kDouble).fill_diagonal_(1);
    const at::Tensor matrix = is_convolution ? weight : identity;
    const at::Tensor vector = is_convolution ? bias : at::zeros({2}, at::kDouble);
    const at::Tensor flat = at::empty({matrix.numel() + vector.numel()}, at::kDouble);
    const at::Tensor gradient = at::empty({flat.numel()}, at::kDouble);
    const auto views = [&](const at::Tensor& buffer) {
      return std::vector<at::Tensor>{buffer.narrow(0, 0, matrix.numel()).view(matrix.sizes()),
                                     buffer.narrow(0, matrix.numel(), vector.numel())};
    };
    views(flat)[0].copy_(matrix);
    views(flat)[1].copy_(vector);
    const auto layer = make_layer(layers_of(model).front(), {views(flat), views(gradient)}, {},
                                  make_program_cache(model));
    return layer->forward({x}, {}, nullptr).at(0);
  };
  const auto difference_to = [&](const OperatorSpec& spec, const at::Tensor& expected) {
    return relative_difference(run(spec), expected.reshape({x.size(0), -1}));
  };
  for (const int64_t stride : {1, 2, 3}) {
    for (const int64_t padding : {0, 1, 2}) {
      CHECK(difference_to({.kind = OperatorKind::kConv2d,
                           .out = 4,
                           .kernel = 3,
                           .stride = stride,
                           .padding = padding},
                          at::conv2d(x, weight.view({4, 2, 3, 3}), bias, stride, padding)) < 1e-14);
    }
    CHECK(difference_to(
              {.kind = OperatorKind::kMaxPool2d, .kernel = 3, .stride = stride, .padding = 1},
              at::max_pool2d(x, 3, stride, 1)) == 0);
    CHECK(difference_to({.kind = OperatorKind::kAvgPool2d, .kernel = 3, .stride = stride},
                        at::avg_pool2d(x, 3, stride)) < 1e-15);
  }
  for (const int64_t out : {1, 2, 5, 13}) {
    CHECK(difference_to({.kind = OperatorKind::kAdaptiveAvgPool2d, .out = out},
                        at::adaptive_avg_pool2d(x, {out, out})) < 1e-15);
  }
}

namespace {

// Of every layer of a list on one of `degree` tensor ranks.
void check_memory(const ModelSpec& model, int degree, at::ScalarType type, int64_t batch_size) {
  install_counting_allocator();
  std::mutex mutex;
  run_ranks(degree, [&](Communicator& comm) {
    at::set_num_threads(1);
    MemoryLedger ledger(comm.rank(), 0);
    const LedgerScope scope(ledger);
    ModelOnRank rank(model, arbitrary_weights(model, type), &comm);
    const auto batch = images_and_labels(model, batch_size, type);
    const LayerCall call{.micro_batch = batch_size,
                         .sequence_length = 1,
                         .tensor_degree = degree,
                         .tensor_rank = comm.rank(),
                         .dtype = dtype_of(type)};
    const auto live = [&] { return ledger.live().bytes; };
    at::Tensor x = batch[0];
    const auto layers = layers_of(model);
    for (size_t i = 0; i < layers.size(); ++i) {
      Layer& layer = *rank.layers()[i];
      const LayerMemory expected = memory_of(model, layers[i], call);
      std::vector<at::Tensor> inputs{x};
      if (makes_loss(layers[i].kind)) inputs.push_back(batch[1]);
      at::Tensor next;
      for (const bool deferred : {false, true}) {
        next.reset();
        ledger.reset_peak();
        const int64_t before = live();
        Saved saved;
        at::Tensor y = layer.forward(inputs, {.trains = true}, &saved)[0];
        const int64_t kept = live(), forward_peak = ledger.peak().bytes;
        const auto output_bytes = static_cast<int64_t>(y.nbytes());
        std::vector<at::Tensor> gradients;
        gradients.push_back(at::ones_like(y));
        ledger.reset_peak();
        const int64_t ahead = live();
        DeferredWeightGradients work;
        std::vector<at::Tensor> dx = layer.backward(std::move(saved), std::move(gradients),
                                                    {.trains = true}, deferred ? &work : nullptr);
        const int64_t backward_peak = ledger.peak().bytes;
        next = std::move(y);
        const int64_t behind = live() - before - output_bytes;
        dx.clear();
        const int64_t held = live();
        ledger.reset_peak();
        work.run();
        const int64_t weight_peak = ledger.peak().bytes;
        // A matrix that reads the layer's input holds it, as this test does.
        const int64_t input = i > 0 ? static_cast<int64_t>(x.nbytes()) : 0;

        const std::lock_guard lock(mutex);  // doctest's checks come one at a time
        INFO(layers[i].name, " batch ", batch_size, " element bytes ", bytes_of(call.dtype),
             " rank ", comm.rank(), " of ", degree);
        CHECK(output_bytes == expected.output_bytes);
        CHECK(kept - before == expected.saved_bytes);
        CHECK(is_peak(forward_peak - before, expected.forward_peak_bytes, type));
        CHECK(is_peak(
            backward_peak - ahead,
            deferred ? expected.deferred_backward_peak_bytes : expected.backward_peak_bytes, type));
        if (!deferred) CHECK(behind == expected.input_gradient_bytes);
        if (deferred && !makes_loss(layers[i].kind)) {
          CHECK(held - before - output_bytes == expected.deferred_bytes - input);
          CHECK(is_peak(weight_peak - held, expected.weight_peak_bytes, type));
        }
        CHECK(live() - before == output_bytes);
      }
      x = std::move(next);
    }
  });
}

}  // namespace

TEST_CASE("operators: counted bytes of every layer of a list are those of memory_of, to the byte") {
  for (const ModelSpec& model : {small_list(), flat_list(), cut_list()}) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      for (const int64_t batch_size : {1, 5, 70}) check_memory(model, 1, type, batch_size);
      for (const int degree : {2, 3}) check_memory(model, degree, type, 5);
    }
  }
}
