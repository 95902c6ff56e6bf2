#include "search/unknown_framework.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "choice/resolve.h"
#include "files_and_errors.h"
#include "prediction/possible_jobs.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/jobfile/cluster_catalog.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/plan/rules/engine_rules.h"
#include "smp/planner/search/check_plan.h"
#include "smp/planner/search/search.h"

namespace smp::search {
namespace {

const std::vector<std::string> kPins = {"training.global_batch=64",
                                        "training.micro_batch=1",
                                        "parallel.pipeline_parallel_degree=1",
                                        "parallel.tensor_parallel_degree=2",
                                        "parallel.sharding=optimizer_state",
                                        "parallel.sharded_data_parallel_degree=4",
                                        "parallel.sequence_parallel=false",
                                        "parallel.recompute=full"};

JobSpec llama(const std::string& framework, std::vector<std::string> settings) {
  settings.push_back("parallel.framework=" + framework);
  return jobfile::read_job(
      {jobfile::load_job_source(SMP_SOURCE_DIR "/configs/models/llama2-7b.yaml"),
       jobfile::cluster_source("p4de.24xlarge")},
      settings);
}

SearchResult planned(const std::string& framework, std::vector<std::string> more = {}) {
  std::vector<std::string> settings = kPins;
  settings.insert(settings.end(), more.begin(), more.end());
  return plan_job(llama(framework, settings));
}

}  // namespace

TEST_CASE(
    "an unknown framework is the median of those that offer the layout, and ranges over all") {
  const SearchResult unknown = planned("unknown");
  const Plan& plan = std::get<Plan>(unknown.best);
  CHECK(unknown.fit == prediction::Fit::kFits);
  std::vector<double> peaks, steps;
  double low = 1e30, high = 0;
  for (const JobSpec& job : prediction::possible_jobs(plan.job, choice::choice_of(plan))) {
    const std::string& name = job.parallel.framework.name;
    CAPTURE(name);
    CHECK_FALSE(name.starts_with("smp"));
    CHECK_FALSE(name == "fsdp2");  // has no sharding of the optimizer's state alone
    const SearchResult own = planned(name);
    const PricedLayout& priced = *own.best_priced;
    peaks.push_back(priced.memory.peak_bytes);
    steps.push_back(priced.time.step_s);
    const auto range =
        prediction::memory_range(std::get<Plan>(own.best).job, priced.choice, priced.memory);
    low = std::min(low, range.low);
    high = std::max(high, range.high);
  }
  CHECK(peaks.size() >= 5);
  std::sort(peaks.begin(), peaks.end());
  std::sort(steps.begin(), steps.end());
  const PricedLayout& priced = *unknown.best_priced;
  CHECK(priced.memory.peak_bytes == doctest::Approx(peaks[(peaks.size() - 1) / 2]));
  CHECK(priced.time.step_s == doctest::Approx(steps[(steps.size() - 1) / 2]));
  const auto range = prediction::memory_range(plan.job, priced.choice, priced.memory);
  CHECK(range.low == doctest::Approx(low).epsilon(0.01));  // closed form, not exact
  CHECK(range.high == doctest::Approx(high).epsilon(0.01));
}

TEST_CASE("recomputed modules are priced only as frameworks that have the list") {
  JobSpec job = llama("unknown", kPins);
  job.parallel.recompute_modules = {"mlp"};
  std::vector<std::string> names;
  for (const JobSpec& possible : prediction::possible_jobs(job, {})) {
    names.push_back(possible.parallel.framework.name);
  }
  CHECK(names == std::vector<std::string>{"megatron-core", "megatron-core-local", "nemo"});
}

TEST_CASE("a layout that fits in some frameworks alone is tight where none is named") {
  const auto peak = [](const char* framework) {
    return static_cast<int64_t>(planned(framework).best_priced->memory.peak_bytes);
  };
  const int64_t least = std::min(peak("megatron-core"), peak("deepspeed"));
  const int64_t most = std::max(peak("megatron-core"), peak("deepspeed"));
  REQUIRE(least < most);
  const std::string between =
      "cluster.memory_per_process=" +
      std::to_string((least + most) / 2 + llama("smp", {}).cluster.reserved_bytes);
  CHECK(planned("unknown", {between}).fit == prediction::Fit::kTight);
  const SearchResult none = planned("unknown", {"cluster.memory_per_process=8GiB"});
  CHECK(std::holds_alternative<Infeasible>(none.best));
}

TEST_CASE("a plan of an unknown framework reads back, is proved again, and is not run") {
  const Plan plan = std::get<Plan>(planned("unknown").best);
  const std::string text = planfile::write_plan(plan);
  const Plan back = planfile::parse_plan("plan.yaml", text);
  CHECK(planfile::write_plan(back) == text);
  CHECK(check(back).empty());
  const std::vector<std::string> lacks = rules::what_engine_lacks(back);
  CHECK(std::count_if(lacks.begin(), lacks.end(), [](const std::string& line) {
          return line.starts_with("parallel.framework: other than smp");
        }) == 1);
  CHECK(error_of([&] { framework::framework_of(back.job); }) ==
        "parallel.framework: unknown prices one layout as each framework; name a framework to ask "
        "for more than the plan of a layout");
}

TEST_CASE("an unknown framework prices a pinned layout that a shipped framework offers") {
  CHECK(error_of([] {
          plan_job(llama("unknown", {"training.micro_batch=1", "parallel.recompute=none"}));
        }) ==
        "parallel.framework: unknown prices one layout as each framework, but "
        "parallel.pipeline_parallel_degree, parallel.tensor_parallel_degree, parallel.sharding, "
        "parallel.sharded_data_parallel_degree are auto: set them, or name a framework, whose "
        "layouts can be searched");
  CHECK(error_of([] {
          plan_job(llama("unknown",
                         {"training.micro_batch=1", "parallel.recompute=none",
                          "parallel.pipeline_parallel_degree=2", "parallel.pipeline=zb_h1",
                          "parallel.tensor_parallel_degree=1", "parallel.sharding=optimizer_state",
                          "parallel.sharded_data_parallel_degree=4"}));
        }) ==
        "parallel.framework: unknown, but no shipped framework offers the pinned layout: name a "
        "framework, or the path of a framework file");
  choice::LayoutChoice layout;
  layout.pipeline = 2;
  layout.schedule = PipelineKind::kZbH1;
  layout.sharding = Sharding::kOptimizerState;
  CHECK(error_of([&] {
          prediction::possible_jobs(llama("unknown", {}), layout);
        }).starts_with("parallel.framework: unknown, but no shipped framework offers the layout "));
}

}  // namespace smp::search
