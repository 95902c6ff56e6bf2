#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "plan/list_samples.h"
#include "plan/small_models.h"
#include "smp/plan/program/build.h"
#include "smp/plan/program/fusions.h"
#include "smp/plan/program/liveness.h"
#include "smp/plan/program/verify.h"
#include "smp/plan/program/work.h"

using namespace smp;
using namespace smp::model;
using namespace smp::program;
using namespace smp::test;

namespace {

std::vector<ModelSpec> all_models() {
  std::vector<ModelSpec> models{small_gpt2(), small_llama(), small_t5(), small_t5_gated()};
  for (const ModelSpec& model : small_others()) models.push_back(model);
  for (const ModelSpec& model : small_attentions()) models.push_back(model);
  for (const ModelSpec& model : small_mixtures()) models.push_back(model);
  const size_t count = models.size();
  for (size_t i = 0; i < count; ++i) {
    ModelSpec drops = models[i];
    drops.name += ", dropout";
    drops.hidden_dropout = 0.1;
    drops.attention_dropout = 0.2;
    models.push_back(drops);
  }
  for (const ModelSpec& model : {small_list(), flat_list(), cut_list()}) models.push_back(model);
  return models;
}

std::vector<LayerCall> calls_of(const ModelSpec& model) {
  std::vector<LayerCall> calls;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    for (const int64_t degree : {1, 2}) {
      for (const bool split : {false, true}) {
        if (split && (degree == 1 || is_list(model))) continue;
        for (const bool shares : {true, false}) {
          LayerCall call{.micro_batch = 2,
                         .sequence_length = is_list(model) ? 1 : 70,
                         .tensor_degree = degree,
                         .tensor_rank = degree - 1,
                         .dtype = dtype,
                         .sequence_parallel = split};
          if (!shares) {
            if (degree == 1 || is_list(model)) continue;
            call.kinds = {.attention = false, .mlp = false, .embedding = false};
          }
          calls.push_back(call);
          call.expert_degree = 2;  // ranks that share experts
          if (shares && model.num_experts > 0 && model.num_experts % 2 == 0) calls.push_back(call);
        }
      }
    }
  }
  return calls;
}

}  // namespace

TEST_CASE("programs: every layer's is proved, fused or not") {
  for (const ModelSpec& model : all_models()) {
    for (const LayerCall& call : calls_of(model)) {
      LayerCall unfused = call;
      unfused.fusions = kUnfused;
      for (const LayerSpec& layer : layers_of(model)) {
        INFO(model.name, " ", layer.name, " degree ", call.tensor_degree, " split ",
             call.sequence_parallel, " shares ", call.kinds.mlp, " bytes ", bytes_of(call.dtype),
             " experts over ", call.expert_degree);
        CHECK(verify(build(model, layer, unfused)) == "");
        CHECK(verify(build(model, layer, call)) == "");
      }
    }
  }
}

namespace {

// "branch sum (2), ..." of a block on one rank.
std::string fusions_of(const ModelSpec& model, const Fusions& fusions) {
  std::string text;
  for (const AppliedFusion& fusion :
       build(model, layers_of(model)[1], {.sequence_length = 8, .fusions = fusions}).fusions) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", fusion.name, fusion.places);
  }
  return text;
}

}  // namespace

TEST_CASE("programs: a job leaves out each fusion by itself") {
  const ModelSpec gpt2 = small_gpt2(), llama = small_llama();
  CHECK(fusions_of(gpt2, {}) ==
        "bias and activation (1), bias and attention (1), branch sum (2), sum and norm (1)");
  CHECK(fusions_of(gpt2, {.bias_and_activation = false}) ==
        "bias and attention (1), branch sum (2), sum and norm (1)");
  CHECK(fusions_of(gpt2, {.bias_and_attention = false}) ==
        "bias and activation (1), branch sum (2), sum and norm (1)");
  // The bias is then added by itself, and the plain sum is followed by its norm all the same.
  CHECK(fusions_of(gpt2, {.branch_sum = false}) ==
        "bias and activation (1), bias and attention (1), sum and norm (1)");
  CHECK(fusions_of(gpt2, {.sum_and_norm = false}) ==
        "bias and activation (1), bias and attention (1), branch sum (2)");
  CHECK(fusions_of(gpt2, kUnfused) == "");
  CHECK(fusions_of(llama, {}) == "sum and norm (1)");  // it has no biases
  CHECK(fusions_of(llama, {.sum_and_norm = false}) == "");
}

TEST_CASE("programs: a sum whose norm does not come next stays by itself") {
  ModelSpec parallel = small_llama();
  parallel.parallel_residual = true;
  CHECK(fusions_of(parallel, {}) == "");
}

namespace {

// A block of GPT-2 on one of two tensor ranks, with something changed.
template <typename Change>
std::string changed(const Change& change) {
  const ModelSpec model = small_gpt2();
  LayerProgram program = build(model, layers_of(model)[1],
                               {.micro_batch = 2, .sequence_length = 8, .tensor_degree = 2});
  change(program);
  return verify(program);
}

std::vector<Operation>& of(LayerProgram& program, Section section) {
  return program.sections[static_cast<int>(section)];
}

// The first of its kind.
size_t place_of(const std::vector<Operation>& operations, OperationKind kind) {
  for (size_t i = 0; i < operations.size(); ++i) {
    if (operations[i].kind == kind) return i;
  }
  REQUIRE(false);
  return 0;
}

}  // namespace

TEST_CASE("programs: a proof names the operation that is wrong") {
  CHECK(changed([](LayerProgram&) {}) == "");
  CHECK(changed([](LayerProgram& program) {
          std::swap(of(program, Section::kForward)[0], of(program, Section::kForward)[1]);
        }) == "forward, operation 1 (product): attention norm is read, and is not there");
  CHECK(changed([](LayerProgram& program) {
          std::vector<Operation>& forward = of(program, Section::kForward);
          forward.insert(forward.begin() + 1, forward.front());
        }) == "forward, operation 2 (norm): attention norm is written twice");
  CHECK(changed([](LayerProgram& program) {
          of(program, Section::kForward)[0].inputs.pop_back();
          of(program, Section::kForward)[0].inputs.pop_back();
        }) == "forward, operation 1 (norm): there is no weight");
  CHECK(changed([](LayerProgram& program) {
          of(program, Section::kForward)[1].inputs.push_back(0);
        }) == "forward, operation 2 (product): 3 operands, where 2 have names");
  // What attention's backward has overwritten.
  CHECK(changed([](LayerProgram& program) {
          std::vector<Operation>& backward = of(program, Section::kBackward);
          const size_t attention = place_of(backward, OperationKind::kAttentionBackward);
          const ValueId packed = backward[attention].in(0);
          for (size_t i = attention + 1; i < backward.size(); ++i) {
            for (ValueId& id : backward[i].inputs) {
              if (id == backward[attention].out(0)) id = packed;
            }
          }
        }).find("attention qkv is read, and is not there") != std::string::npos);
  CHECK(changed([](LayerProgram& program) {
          std::vector<Operation>& backward = of(program, Section::kBackward);
          backward.push_back(backward[place_of(backward, OperationKind::kWeightGradient)]);
        }).find("is added to 2 times, and the forward reads") != std::string::npos);
  CHECK(changed([](LayerProgram& program) {
          std::vector<Operation>& backward = of(program, Section::kBackward);
          const size_t place = place_of(backward, OperationKind::kBiasGradient);
          backward.insert(backward.begin() + static_cast<std::ptrdiff_t>(place), backward[place]);
        }).find("is added to 2 times, and the forward reads") != std::string::npos);
  CHECK(changed([](LayerProgram& program) {
          std::erase_if(of(program, Section::kWeights), [](const Operation&) { return true; });
        }).find("is added to 0 times, and the forward reads") != std::string::npos);
  CHECK(changed([](LayerProgram& program) {
          program.saved.pop_back();
        }).find("is read, and is not there") != std::string::npos);
  CHECK(changed([](LayerProgram& program) { program.saved.push_back(program.outputs[0]); }) ==
        "x + mlp is saved, and no backward reads it");
  CHECK(changed([](LayerProgram& program) {
          of(program, Section::kRematerialize).pop_back();
        }).find("up was dropped, and is not made again") != std::string::npos);
}

TEST_CASE("programs: a sum under way is not read, and is waited for") {
  const auto message = [](LayerProgram& program) -> Operation& {
    std::vector<Operation>& forward = of(program, Section::kForward);
    return forward[place_of(forward, OperationKind::kAllReduce)];
  };
  CHECK(changed([&](LayerProgram& program) {
          std::get<MessageAttributes>(message(program).attributes).waits = false;
        }).find("attention output summed is read while its message is under way") !=
        std::string::npos);
  CHECK(changed([](LayerProgram& program) {
          // The last wait of the backward goes, and with it what reads its result.
          std::vector<Operation>& backward = of(program, Section::kBackward);
          while (backward.back().kind != OperationKind::kWait) backward.pop_back();
          backward.pop_back();
        }).find("nothing waits for") != std::string::npos);
}

TEST_CASE("programs: the products of a forward are two operations a weight and token") {
  for (const ModelSpec& model : {small_gpt2(), small_llama()}) {
    const LayerCall call{.micro_batch = 2, .sequence_length = 70};
    for (const LayerSpec& layer : layers_of(model)) {
      if (layer.kind != LayerKind::kBlock) continue;
      double weights = 0;
      for (const ParameterSpec& parameter : parameters_of(model, layer)) {
        if (!parameter.is_vector) weights += static_cast<double>(parameter.size());
      }
      // Scores and values of the pairs of a query and a key before it.
      const double pairs = 2 * 70 * 71 / 2.0 * static_cast<double>(model.num_heads);
      const double attention = 4 * pairs * static_cast<double>(model.head_dim);
      const LayerProgram program = build(model, layer, call);
      CHECK(work_of(program, Section::kForward).flops ==
            doctest::Approx(2 * 140 * weights + attention));
      CHECK(work_of(program, Section::kBackward).flops ==
            doctest::Approx(4 * 140 * weights + 2.5 * attention));
    }
  }
}
