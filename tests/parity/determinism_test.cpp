#include <doctest/doctest.h>

#include <fstream>
#include <vector>

#include "parity/comparison.h"
#include "parity/layouts.h"
#include "scratch_folder.h"

// With training.deterministic the number of stages, their schedule and their partition change no
// bit of a tied model's losses, norms and weights: both uses of the tied table are summed apart
// everywhere, and norms are added layer by layer in the order of the model.
namespace smp::parity {
namespace {

constexpr int64_t kSteps = 3;

ModelSpec eight_blocks() {
  ModelSpec model = gpt2_model();
  model.num_layers = 8;
  return model;
}

LayoutCase staged(PipelineKind kind, int64_t stages, LayoutCase layout) {
  layout.degrees.pipeline = stages;
  layout.pipeline = kind;
  layout.virtual_stages = kind == PipelineKind::kVirtual || kind == PipelineKind::kZbV ? 2 : 1;
  layout.deterministic = true;
  layout.gradient_clipping = 0.1;  // every step is clipped
  return layout;
}

class Bench {
 public:
  explicit Bench(Precision precision) : precision_(precision) {
    std::ofstream(folder_ / "text.txt") << sample_text(20000);
  }
  Run run(const LayoutCase& layout) const {
    Plan plan = plan_of(eight_blocks(), layout, precision_, folder_ / "text.txt");
    // Shards of buckets cut layers alike only where no bucket has several.
    if (layout.sharding == Sharding::kOptimizerState && layout.degrees.shard > 1)
      plan.job.parallel.bucket_bytes = 1;
    Run one = parity::run(plan, kSteps);
    check_memory(plan, one.result);
    return one;
  }
  void check_equal(const LayoutCase& layout, const Run& reference) const {
    CAPTURE(layout.name);
    CAPTURE(layout.degrees.pipeline);
    CAPTURE(static_cast<int>(layout.pipeline));
    const Run other = run(layout);
    CHECK(other.result.losses == reference.result.losses);
    CHECK(other.result.grad_norms == reference.result.grad_norms);
    CHECK(other.weights == reference.weights);
  }

 private:
  ScratchFolder folder_;
  Precision precision_;
};

}  // namespace

TEST_CASE("a tied model trains to the same bits on 1, 2, 3 and 4 stages, under every schedule") {
  const Bench bench(Precision::kFp32);
  LayoutCase layout{"alone", {}};
  layout.microbatches = 12;
  const Run reference = bench.run(staged(PipelineKind::kInterleaved, 1, layout));
  for (const PipelineKind kind :
       {PipelineKind::kSimple, PipelineKind::kInterleaved, PipelineKind::kZbH1,
        PipelineKind::kVirtual, PipelineKind::kZbV}) {
    for (const int64_t stages : {2, 3, 4}) {
      bench.check_equal(staged(kind, stages, layout), reference);
    }
  }
  LayoutCase uneven = staged(PipelineKind::kInterleaved, 3, layout);
  for (const std::vector<int64_t>& partition : {std::vector<int64_t>{1, 5, 2}, {0, 8, 0}}) {
    uneven.partition = partition;  // also the embedding and the head alone
    bench.check_equal(uneven, reference);
  }
  LayoutCase chunks = staged(PipelineKind::kVirtual, 2, layout);
  chunks.partition = {0, 5, 3, 0};
  bench.check_equal(chunks, reference);
}

TEST_CASE("with tensor ranks or sharding of one degree the stages change no bit either") {
  struct Beside {
    const char* name;
    mesh::Degrees degrees;
    Sharding sharding;
  };
  const Bench bench(Precision::kBf16);
  for (const Beside& beside :
       {Beside{"t2", {.tensor = 2}, Sharding::kNone}, Beside{"d3", {.replica = 3}, Sharding::kNone},
        Beside{"z3 ZeRO-1", {.shard = 3}, Sharding::kOptimizerState},
        Beside{"z2 ZeRO-2", {.shard = 2}, Sharding::kGradients},
        Beside{"z3 ZeRO-3", {.shard = 3}, Sharding::kParameters}}) {
    LayoutCase layout{beside.name, beside.degrees};
    layout.sharding = beside.sharding;
    layout.microbatches = 2;
    const Run reference = bench.run(staged(PipelineKind::kInterleaved, 1, layout));
    bench.check_equal(staged(PipelineKind::kInterleaved, 2, layout), reference);
    bench.check_equal(staged(PipelineKind::kZbV, 2, layout), reference);
  }
}

}  // namespace smp::parity
