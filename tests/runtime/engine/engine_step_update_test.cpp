#include <ATen/core/Tensor.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/finite_check.h"
#include "engine/step_update.h"
#include "ledger/tensor_factories.h"
#include "parity/layouts.h"
#include "runtime/constant_samples.h"
#include "scratch_folder.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/layout/layout.h"
#include "smp/runtime/engine/engine.h"

namespace smp {
namespace {

// One bucket, whatever the precision: shards are the same elements.
Plan plan_of(const mesh::Degrees& degrees, Precision precision, const std::string& text) {
  Plan plan = parity::plan_of(parity::gpt2_model(), {"", degrees}, precision, text);
  plan.job.parallel.bucket_bytes = 64 << 20;
  return plan;
}

// A model without layers: what the end of a step works on.
parallel::ParallelModel states_of(const Plan& plan, comm::Communicator& world, DType dtype) {
  parallel::ParallelModel model;
  model.groups = std::make_unique<parallel::RankGroups>(plan, world);
  model.parameters =
      std::make_unique<parameters::FlatParameters>(layout::rank_layout(plan, world.rank()), dtype);
  model.parameters->initialise(3);
  model.optimizer =
      std::make_unique<optim::Optimizer>(plan.job.training.optimizer, *model.parameters);
  if (dtype == DType::kF16) model.loss_scale = optim::LossScale(plan.job.training.loss_scale);
  return model;
}

// The gradient of each element, `scale` times, as if all ranks had reduced them.
void set_gradients(parallel::ParallelModel& model, double scale) {
  const at::Tensor& gradients = model.parameters->gradients();
  float* const values = gradients.mutable_data_ptr<float>();
  for (int64_t i = 0; i < gradients.numel(); ++i) {
    values[i] = static_cast<float>(scale * std::sin(static_cast<double>(i)));
  }
}

std::vector<float> values_of(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kFloat).contiguous();
  return {wide.const_data_ptr<float>(), wide.const_data_ptr<float>() + wide.numel()};
}

}  // namespace

engine::StepResult run(engine::StepUpdate& update, const parallel::ParallelModel& model,
                       int64_t step, double loss, int64_t counted = 0) {
  update.begin(step, 1e-3);
  const engine::StepResult result = update.agree(loss, {}, counted);
  const auto buckets = static_cast<int64_t>(model.parameters->layout().buckets.size());
  for (int64_t bucket = 0; bucket < buckets; ++bucket) update.update(bucket);
  return result;
}

TEST_CASE("16-bit training updates fp32 master weights as fp32 training updates its weights") {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    const DType dtype = precision == Precision::kFp16 ? DType::kF16 : DType::kBF16;
    jobs::run_ranks(2, [&](comm::Communicator& world) {
      const Plan half = plan_of({.shard = 2}, precision, "");
      const Plan full = plan_of({.shard = 2}, Precision::kFp32, "");
      parallel::ParallelModel mixed = states_of(half, world, dtype);
      parallel::ParallelModel plain = states_of(full, world, DType::kF32);
      plain.parameters->weights().copy_(mixed.parameters->weights());
      engine::StepUpdate update_mixed(half, mixed), update_plain(full, plain);
      for (int64_t step = 0; step < 3; ++step) {
        const double scale = mixed.loss_scale.value();
        CHECK(scale == (precision == Precision::kFp16 ? 65536 : 1));
        set_gradients(mixed, scale);
        set_gradients(plain, 1);
        const engine::StepResult one = run(update_mixed, mixed, step, 1);
        const engine::StepResult other = run(update_plain, plain, step, 1);
        CHECK_FALSE(one.skipped);
        CHECK(one.grad_norm == doctest::Approx(other.grad_norm).epsilon(1e-12));
      }
      // A power of two scales gradients without rounding, so the masters are equal to the bit.
      const auto states = mixed.optimizer->states();
      REQUIRE(states.size() == 3);
      CHECK(std::string(states[2].name) == "master");
      const std::vector<float> master = values_of(*states[2].values);
      const std::vector<float> weights = values_of(mixed.parameters->weights());
      const std::vector<float> expected = values_of(plain.parameters->weights());
      const std::vector<float> rounded =
          values_of(plain.parameters->weights().to(mixed.parameters->weights().scalar_type()));
      int64_t other_masters = 0, other_weights = 0;
      for (const optim::Optimizer::OwnedRange& range : mixed.optimizer->owned()) {
        for (int64_t i = range.begin; i < range.end; ++i) {
          const auto at = static_cast<size_t>(i);
          other_masters +=
              master[static_cast<size_t>(range.state + i - range.begin)] != expected[at];
          other_weights += weights[at] != rounded[at];
        }
      }
      CHECK(other_masters == 0);
      CHECK(other_weights == 0);
    });
  }
}

TEST_CASE("norms that are taken as buckets are reduced are those of all at once, once") {
  jobs::run_ranks(2, [](comm::Communicator& world) {
    Plan plan = plan_of({.replica = 2}, Precision::kFp32, "");
    plan.job.parallel.bucket_bytes = 1;
    parallel::ParallelModel model = states_of(plan, world, DType::kF32);
    const auto buckets = static_cast<int64_t>(model.parameters->layout().buckets.size());
    REQUIRE(buckets > 3);
    set_gradients(model, 1);
    engine::StepUpdate at_once(plan, model), as_they_come(plan, model);
    at_once.begin(0, 0);
    const double norm = at_once.agree(1, {}, 0).grad_norm;
    for (int64_t step = 0; step < 2; ++step) {
      as_they_come.begin(step, 0);
      for (int64_t bucket = 0; bucket + 2 < buckets; ++bucket) as_they_come.start_norms(bucket);
      if (step > 0) as_they_come.start_norms(0);
      CHECK(as_they_come.agree(1, {}, 0).grad_norm == norm);
    }
  });
}

TEST_CASE("gradients, norm and loss are those of the mean over the targets that count") {
  for (const Precision precision : {Precision::kFp32, Precision::kFp16}) {
    for (const OptimizerKind kind : {OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
      jobs::run_ranks(2, [&](comm::Communicator& world) {
        Plan masked = plan_of({.shard = 2}, precision, "");
        masked.job.training.optimizer.kind = kind;
        Plan plain = masked;
        masked.job.training.data_loss_mask = true;
        const DType dtype = precision == Precision::kFp16 ? DType::kF16 : DType::kF32;
        parallel::ParallelModel some = states_of(masked, world, dtype),
                                all = states_of(plain, world, dtype);
        engine::StepUpdate update_some(masked, some), update_all(plain, all);
        // A quarter of 12 * 32 targets, all on one rank: four times the loss and the gradients.
        set_gradients(some, some.loss_scale.value());
        set_gradients(all, 4 * all.loss_scale.value());
        const engine::StepResult one = run(update_some, some, 0, 0.25, world.rank() == 1 ? 96 : 0);
        const engine::StepResult other = run(update_all, all, 0, 1);
        CHECK(one.loss == other.loss);
        CHECK(one.grad_norm == other.grad_norm);
        CHECK(values_of(some.parameters->weights()) == values_of(all.parameters->weights()));
        CHECK_THROWS_AS(run(update_some, some, 1, 0, 0), engine::NoTargetCounts);
      });
    }
  }
}

TEST_CASE("an overflow on one rank makes all ranks skip the step and lower the scale") {
  jobs::run_ranks(2, [](comm::Communicator& world) {
    const Plan plan = plan_of({.shard = 2}, Precision::kFp16, "");
    parallel::ParallelModel model = states_of(plan, world, DType::kF16);
    engine::StepUpdate update(plan, model);
    set_gradients(model, 65536);
    const std::vector<float> before = values_of(model.parameters->weights());
    if (world.rank() == 1) {
      const int64_t owned = model.optimizer->owned().front().begin;
      model.parameters->gradients().mutable_data_ptr<float>()[owned] =
          std::numeric_limits<float>::infinity();
    }
    const engine::StepResult result = run(update, model, 0, 1.25);  // of each of two ranks
    CHECK(result.skipped);
    CHECK(result.loss_scale == 65536);
    CHECK(result.loss == 2.5);
    CHECK(values_of(model.parameters->weights()) == before);
    CHECK(model.optimizer->steps_done() == 0);
    CHECK(model.loss_scale.value() == 32768);
    CHECK(model.loss_scale.state().skipped_steps == 1);
    set_gradients(model, 32768);
    CHECK_FALSE(run(update, model, 1, 2.5).skipped);
    CHECK(values_of(model.parameters->weights()) != before);
    // A loss that is no number is nothing that a lower scale helps against.
    CHECK_THROWS_AS(run(update, model, 2, std::nan("")), engine::NotFinite);
  });
}

TEST_CASE("training that is not finite names what had it first, on all ranks alike") {
  const ScratchFolder folder;
  std::ofstream(folder / "text.txt") << parity::sample_text(8000);
  const auto stopped = [&](const std::function<void(parallel::ParallelModel&)>& spoil) {
    std::vector<std::string> texts(2);
    jobs::run_ranks(2, [&](comm::Communicator& world) {
      const Plan plan = plan_of({.pipeline = 2}, Precision::kFp32, folder / "text.txt");
      ledger::MemoryLedger ledger(world.rank(), 0);
      const ledger::LedgerScope scope(ledger);
      parallel::ParallelModel model = parallel::apply_parallelism(plan, world, ledger);
      engine::Engine engine(plan, model, ledger,
                            constant_samples(plan.job.training.sequence_length));
      engine.step(0, 1e-3);
      if (world.rank() == 1) spoil(model);
      try {
        engine.step(1, 1e-3);
      } catch (const optim::TrainingError& error) {
        texts[static_cast<size_t>(world.rank())] = error.what();
      }
    });
    CHECK(texts[0] == texts[1]);
    CHECK(texts[0].starts_with("step 2: the loss is "));
    const size_t begin = texts[0].find("first non-finite value");
    const size_t end = texts[0].find(". Lower training.optimizer.learning_rate (now 0.001)");
    if (begin == std::string::npos || end == std::string::npos) return texts[0];
    return texts[0].substr(begin, end - begin);
  };
  const auto weight = [](parallel::ParallelModel& model, const std::string& name) {
    const auto& parameters = model.parameters->layout().parameters;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].spec.name == name) {
        return model.parameters->weight(static_cast<int64_t>(i));
      }
    }
    FAIL("no parameter " << name);
    return at::Tensor();
  };
  const std::string weights = stopped([](parallel::ParallelModel& model) {
    model.parameters->weight(2).fill_(std::numeric_limits<float>::quiet_NaN());
  });
  CHECK(weights ==
        "first non-finite value: the weights of layers.3.attention.q.weight on rank 1, before this "
        "step");
  // Weights that are finite, and products that are not.
  const std::string forward = stopped([&](parallel::ParallelModel& model) {
    const auto& layout = model.parameters->layout();
    for (const layout::PlacedParameter& parameter : layout.parameters) {
      if (parameter.layer == layout.layers[1].index && !parameter.spec.is_vector) {
        weight(model, parameter.spec.name).fill_(3e38F);
      }
    }
  });
  CHECK(forward ==
        "first non-finite value: the forward output of layer 5 (layers.4) on rank 1, microbatch 0");
}

TEST_CASE("the first finding of all ranks is told: forward before backward, early layers first") {
  jobs::run_ranks(2, [](comm::Communicator& world) {
    const Plan plan = plan_of({.pipeline = 2}, Precision::kFp32, "");
    parallel::ParallelModel model = states_of(plan, world, DType::kF32);
    const std::vector<at::Tensor> good = {ledger::full_tensor({3}, 1, at::kFloat)};
    const std::vector<at::Tensor> bad = {ledger::full_tensor({3}, 1, at::kFloat),
                                         ledger::full_tensor({2}, std::nan(""), at::kFloat)};
    const auto rank = static_cast<size_t>(world.rank());
    engine::FiniteCheck finite(plan, model);
    finite.forward(0, 0, good);
    CHECK(finite.first_of_all() ==
          "all values were finite on all ranks when the step was repeated");
    engine::FiniteCheck backward(plan, model);
    if (rank == 0) backward.backward(1, 2, bad);
    if (rank == 1) backward.backward(1, 4, bad);
    CHECK(backward.first_of_all() ==
          "first non-finite value: the backward output of layer 4 (layers.3) on rank 1, microbatch "
          "1");
    if (rank == 0) backward.forward(2, 1, bad);
    CHECK(
        backward.first_of_all() ==
        "first non-finite value: the forward output of layer 1 (layers.0) on rank 0, microbatch 2");
    engine::FiniteCheck gradients(plan, model);
    if (rank == 0) model.parameters->gradient(0).fill_(std::nan(""));
    gradients.gradients();
    CHECK(gradients.first_of_all() == "first non-finite value: the gradient of " +
                                          layout::rank_layout(plan, 0).parameters[0].spec.name +
                                          " on rank 0");
  });
}

}  // namespace smp
