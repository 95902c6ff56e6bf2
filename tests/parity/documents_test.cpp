#include <c10/util/Logging.h>  // its CHECK comes before doctest's
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "parity/engine_run.h"
#include "runtime/host_gpu.h"
#include "smp/plan/data/data_files.h"
#include "smp/plan/mesh/mesh.h"
#include "smp/planner/memory/memory_model.h"

// Documents in a sample (training.data.pack): every layout trains as if each document had a row of
// its own. The reference has no packing: one rank, one document a sample, of its own length.
namespace smp::parity {
namespace {

constexpr int64_t kSamples = 12, kLength = 32;

struct Piece {
  int64_t begin = 0, end = 0;
  bool is_padding = false;
};

// Of one token, of a few, of a whole sample; some samples end in padding, one is nothing else.
std::vector<Piece> pieces_of(int64_t step, int64_t sample) {
  static const std::vector<std::vector<int64_t>> kEnds = {
      {32}, {1, 2, 32}, {8, 16, 24, 32}, {31, 32}, {5, 6, 7, 20, 32}, {17}, {}, {3, 30}};
  const std::vector<int64_t>& ends =
      kEnds[static_cast<size_t>((sample + 3 * step) % static_cast<int64_t>(kEnds.size()))];
  std::vector<Piece> pieces;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    pieces.push_back({begin, end});
    begin = end;
  }
  if (begin < kLength) pieces.push_back({begin, kLength, true});
  return pieces;
}

int64_t token_of(int64_t step, int64_t sample, int64_t place) {
  return (place * place * 11 + 5 * place + 29 * sample + 37 * step + sample * place) % 97;
}

// Every fourth target is masked out as well.
bool counts(const Piece& piece, int64_t sample, int64_t place) {
  return !piece.is_padding && place + 1 < piece.end && (sample % 3 != 0 || place >= 4);
}

engine::ReadSamples packed_samples() {
  return [](int64_t step, int64_t first, int64_t count, const engine::SampleBuffers& out) {
    const auto put = [&](model::BatchField field, int64_t at, int64_t value) {
      if (out.integers(field) != nullptr) out.integers(field)[at] = value;
    };
    for (int64_t k = 0; k < count; ++k) {
      for (const Piece& piece : pieces_of(step, first + k)) {
        for (int64_t place = piece.begin; place < piece.end; ++place) {
          const int64_t at = k * kLength + place;
          put(model::BatchField::kTokens, at,
              piece.is_padding ? 0 : token_of(step, first + k, place));
          put(model::BatchField::kTargets, at,
              counts(piece, first + k, place) ? token_of(step, first + k, place + 1)
                                              : data::kNoTarget);
          put(model::BatchField::kDocumentStarts, at, piece.begin);
        }
      }
    }
  };
}

Plan packed_plan(const ModelSpec& model, const LayoutCase& layout,
                 Precision precision = Precision::kFp64) {
  Plan plan = plan_of(model, layout, precision, "");
  plan.job.training.data_pack = Packing::kDocuments;
  return plan;
}

std::vector<LayoutCase> packed_layouts() {
  const auto one_f_one_b = PipelineKind::kInterleaved;
  const auto one = Sharding::kOptimizerState, two = Sharding::kGradients,
             three = Sharding::kParameters;
  std::vector<LayoutCase> layouts{
      {"one rank", {}},
      {"d4 ZeRO-1", {.shard = 4}},
      {"d2 ZeRO-2", {.shard = 2}, one_f_one_b, two},
      {"p3", {.pipeline = 3}},
      {"t2p2d2 ZeRO-3", {.pipeline = 2, .tensor = 2, .shard = 2}, one_f_one_b, three},
      {"p2 zb_h1", {.pipeline = 2}, PipelineKind::kZbH1},
      {"p2d2 ZeRO-3 zb_v", {.pipeline = 2, .shard = 2}, PipelineKind::kZbV, three, 2},
      {"p2 recompute", {.pipeline = 2}, one_f_one_b, one, 1, Recompute::kFull},
      {"t2 selective", {.tensor = 2}, one_f_one_b, one, 1, Recompute::kSelective},
  };
  LayoutCase grouped{"one rank, checkpoints of two layers", {}};
  grouped.recompute = Recompute::kFull;
  grouped.strategy = "group_2";
  layouts.push_back(grouped);
  LayoutCase split{"t2p2 virtual, split sequences, offloaded", {.pipeline = 2, .tensor = 2}};
  split.pipeline = PipelineKind::kVirtual;
  split.virtual_stages = 2;
  split.microbatches = 4;
  split.sequence_parallel = split.offload_activations = true;
  layouts.push_back(split);
  LayoutCase many{"d2, 6 microbatches", {.replica = 2}};
  many.microbatches = 6;
  layouts.push_back(many);
  return layouts;
}

// What a rank has read of its batches, where its memory is fullest: to the byte.
void check_data_bytes(const Plan& plan, const training::RunResult& result) {
  const mesh::Mesh mesh(plan.degrees, plan.job.parallel.placement_strategy);
  for (const record::RankMeasurements& rank : result.ranks) {
    INFO("rank " << rank.rank);
    const mesh::Coord coord = mesh.coord_of(rank.rank);
    int64_t predicted = 0;
    for (const MemoryTerm& term :
         memory::predict_memory(plan, coord.pipeline, coord.tensor).terms) {
      // The samples of these runs are read on the spot.
      if (term.name == "tokens and targets") predicted += term.bytes;
    }
    CHECK(rank.peak.by_category[static_cast<size_t>(MemoryCategory::kData)] == predicted);
  }
}

ModelSpec windowed_model() {
  ModelSpec model = llama_model();
  model.name = "mistral";
  model.sliding_window = 5;
  return model;
}

// Further tokens end with their document.
ModelSpec further_model() {
  ModelSpec model = llama_model();
  model.name = "two further tokens";
  model.num_mtp_layers = 2;
  return model;
}

}  // namespace

TEST_CASE("documents in a sample: loss and gradients of documents in rows of their own") {
  for (const ModelSpec& model : {gpt2_model(), windowed_model(), phi_model(), further_model()}) {
    const Weights initial = initial_weights(model);
    TargetSums sums;
    int64_t targets = 0;
    for (int64_t sample = 0; sample < kSamples; ++sample) {
      for (const Piece& piece : pieces_of(0, sample)) {
        std::vector<int64_t> tokens, rights;
        int64_t first = 0;  // of those that count, which follow each other
        for (int64_t place = piece.begin; place + 1 < piece.end && !piece.is_padding; ++place) {
          tokens.push_back(token_of(0, sample, place));
          rights.push_back(token_of(0, sample, place + 1));
          if (counts(piece, sample, place)) {
            ++targets;
          } else {
            ++first;
          }
        }
        if (first < static_cast<int64_t>(tokens.size())) {
          sums.add(sums_of_targets(model, initial, tokens, rights, first));
        }
      }
    }
    TargetSums mean;
    mean.add(sums, 1.0 / static_cast<double>(targets));
    for (const LayoutCase& layout : packed_layouts()) {
      INFO(model.name << ", " << layout.name);
      Plan plan = packed_plan(model, layout);
      take_plain_steps(plan);
      Run run;
      const Weights gradients = gradients_of(plan, initial, packed_samples(), &run);
      CHECK(gradient_difference(gradients, mean.gradients) <= 1e-12);
      CHECK(run.result.losses.front() == doctest::Approx(mean.loss).epsilon(1e-12));
    }
  }
}

TEST_CASE("fp64, 4 steps: with documents every layout trains as one rank does, in counted bytes") {
  for (const ModelSpec& model : {gpt2_model(), windowed_model(), further_model()}) {
    const auto plan_for = [&](const LayoutCase& layout) {
      Plan plan = packed_plan(model, layout);
      plan.job.training.optimizer.kind = OptimizerKind::kSgd;
      plan.job.training.optimizer.learning_rate = 0.1;
      return plan;
    };
    const Run reference = run_engine(plan_for({"one rank", {}}), packed_samples(), 4);
    for (const LayoutCase& layout : packed_layouts()) {
      INFO(model.name << ", " << layout.name);
      const Plan plan = plan_for(layout);
      const Run run = run_engine(plan, packed_samples(), 4);
      const EngineDifference worst = engine_difference(run, reference);
      CHECK(worst.loss <= 1e-12);
      CHECK(worst.grad_norm <= 1e-12);
      CHECK(worst.weight <= 1e-12);
      check_wire(plan, run.result);
      check_memory(plan, run.result);
      check_data_bytes(plan, run.result);
    }
  }
}

TEST_CASE("16-bit training with documents stays near fp32's") {
  const Run reference =
      run_engine(packed_plan(llama_model(), {"", {}}, Precision::kFp32), packed_samples(), 4);
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    const Run run = run_engine(packed_plan(llama_model(), {"t2", {.tensor = 2}}, precision),
                               packed_samples(), 4);
    check_narrow(run, reference, 0.02);
  }
}

TEST_CASE("documents in a sample: a GPU trains as the CPU does") {
  for (const ModelSpec& model : {gpt2_model(), windowed_model()}) {
    INFO(model.name);
    Plan plan = packed_plan(model, {"", {}});
    const Run reference = run_engine(plan, packed_samples(), 3);
    plan.job.cluster.device = DeviceKind::kCuda;
    test::HostGpus gpus;
    const EngineDifference worst =
        engine_difference(run_engine(plan, packed_samples(), 3, gpus.open()), reference);
    CHECK(worst.loss <= 1e-12);
    CHECK(worst.grad_norm <= 1e-12);
  }
}

}  // namespace smp::parity
