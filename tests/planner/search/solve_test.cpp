#include "smp/planner/search/solve.h"

#include <doctest/doctest.h>

#include "smp/plan/jobfile/cluster_catalog.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/text/units.h"
#include "smp/planner/search/cases.h"
#include "smp/planner/search/check_plan.h"

using namespace smp;
using namespace smp::jobfile;
using namespace smp::model;
using namespace smp::search;
using namespace smp::text;

namespace {

constexpr const char* kModel =
    "model: {name: lm, family: llama, num_layers: 8, hidden_size: 1024, num_heads: 16, "
    "num_kv_heads: 4, ffn_hidden_size: 2816, vocab_size: 32000, max_positions: 8192}\n"
    "training: {sequence_length: 2048}\n";

JobSpec small_job(const std::vector<std::string>& overrides = {}) {
  return read_job({{"job.yaml", kModel}, cluster_source("p4d.24xlarge")}, overrides);
}

// The answer passes its check, and the value after it is not one.
void check_both_sides(const SolveResult& result) {
  REQUIRE(result.found);
  CHECK(check(result.plan).empty());
  CHECK(!result.next_problem.empty());
}

}  // namespace

TEST_CASE("the largest model keeps the shape of the job's, and the next larger does not fit") {
  const SolveResult result = solve(small_job(), {.quantity = Quantity::kModel});
  check_both_sides(result);
  const ModelSpec& model = result.plan.job.model;
  CHECK(model.num_heads % 8 == 0);
  CHECK(model.hidden_size == 64 * model.num_heads);
  CHECK(model.num_heads == 4 * model.num_kv_heads);
  CHECK(parameter_count(model) > 10 * parameter_count(small_job().model));
  CHECK(result.next_problem.find(" needs ") != std::string::npos);
}

TEST_CASE("more memory never makes the answer smaller: pinned offloading never makes it larger") {
  const SolveRequest request{.quantity = Quantity::kLayers};
  const std::vector<std::string> plain = {
      "parallel.offload_optimizer=false", "parallel.offload_parameters=false",
      "parallel.pipeline_parallel_degree=1", "training.global_batch=64"};
  std::vector<std::string> less = plain;
  less.push_back("cluster.memory_per_process=30GiB");
  const int64_t open =
      solve(small_job({"parallel.pipeline_parallel_degree=1", "training.global_batch=64"}), request)
          .value;
  const int64_t pinned = solve(small_job(plain), request).value;
  CHECK(pinned <= open);
  CHECK(solve(small_job(less), request).value <= pinned);
}

TEST_CASE("the fewest hosts that reach a step time: one host fewer does not") {
  const SolveResult any = solve(small_job({"training.global_batch=512"}), {Quantity::kHosts});
  REQUIRE(any.found);
  CHECK(any.value == 1);
  const double one_s = static_cast<double>(any.plan.predictions.step_ns) * 1e-9;
  const SolveResult faster =
      solve(small_job({"training.global_batch=512"}), {Quantity::kHosts, one_s / 3});
  check_both_sides(faster);
  CHECK(faster.value >= 3);
  CHECK(static_cast<double>(faster.plan.predictions.step_ns) * 1e-9 <= one_s / 3);
  CHECK(faster.next_problem.find("a step takes ") == 0);
}

TEST_CASE("the largest batch and the longest sequence stay under the token limit and a step time") {
  const SolveResult batch = solve(small_job(), {Quantity::kBatch, 0.5});
  check_both_sides(batch);
  CHECK(batch.plan.job.training.global_batch == batch.value);
  const SolveResult sequence =
      solve(small_job({"training.global_batch=8"}), {Quantity::kSequence, 1.0});
  check_both_sides(sequence);
  CHECK(sequence.value % 1024 == 0);
}

TEST_CASE("what-if: one row a value, and a value that does not fit says why") {
  std::vector<NamedJob> jobs;
  for (const char* degree : {"1", "2", "8"}) {
    jobs.push_back(
        {degree, small_job({std::string("parallel.tensor_parallel_degree=").append(degree)})});
  }
  const std::vector<PlannedCase> cases = planned_cases(jobs, {});
  REQUIRE(cases.size() == 3);
  for (const PlannedCase& one : cases) CHECK(one.problem.empty());
  CHECK(cases_text("tensor", cases).find("tensor 8, pipeline 1") != std::string::npos);

  JobSpec tiny = small_job();
  tiny.cluster.memory_per_process_bytes = int64_t{3} << 30;
  tiny.cluster.host_link_bytes_per_s = 0;
  tiny.model.num_layers = 200;
  tiny.training.global_batch = 64;
  const PlannedCase none = planned_case({"tiny", tiny}, {});
  CHECK(none.problem.find("the closest layout (") == 0);
  const std::vector<PlannedCase> ranked = ranked_by_time({none, cases[0], cases[1]});
  CHECK(ranked.back().name == "tiny");
  CHECK(ranked[0].tokens_per_s >= ranked[1].tokens_per_s);
}

TEST_CASE("a solution that the token limit or the end of the search bounds says so") {
  const auto next_of = [](const std::vector<std::string>& overrides, Quantity quantity) {
    return solve(small_job(overrides), {quantity}).next_problem;
  };
  const std::string limit = "over the token limit of a step, training.max_tokens_per_batch: ";
  CHECK(next_of({"training.max_tokens_per_batch=65536"}, Quantity::kBatch) == limit + "65,536");
  CHECK(next_of({"training.max_tokens_per_batch=65536", "training.global_batch=8"},
                Quantity::kSequence) == limit + "65,536");
  const SolveResult none = solve(
      small_job({"training.max_tokens_per_batch=2048", "cluster.hosts=3"}), {Quantity::kBatch});
  CHECK(!none.found);
  CHECK(none.next_problem == limit + "2,048");
  CHECK(solve_text({Quantity::kBatch}, none) ==
        "largest batch: none\n  3 samples, 6,144 tokens a step: " + limit + "2,048\n");
}

TEST_CASE("a time that is too short for its unit is not said to be none") {
  CHECK(human_time(0) == "0.0 us");
  CHECK(human_time(1e-9) == "0.001 us");
  CHECK(human_time(1e-12) == "1e-06 us");
  CHECK(human_time(4e-6) == "4.0 us");
}
