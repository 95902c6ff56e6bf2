#include <doctest/doctest.h>

#include <algorithm>

#include "planner/random_jobs.h"
#include "search/fastest.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/planfile/plan_file.h"
#include "smp/planner/choice/choice_words.h"
#include "smp/planner/memory/memory_model.h"
#include "smp/planner/search/check_plan.h"
#include "smp/planner/search/search.h"

using namespace smp;
using namespace smp::choice;
using namespace smp::memory;
using namespace smp::planfile;
using namespace smp::search;
using smp::test::Draw;
using smp::test::some_job;

TEST_CASE("every chosen plan of random jobs passes check, and needs no more than is allowed") {
  Draw draw(20240);
  int chosen = 0;
  for (int i = 0; i < 320; ++i) {
    const JobSpec job = some_job(draw);
    CAPTURE(i);
    SearchOptions options;
    options.strategy = i % 4 == 3 ? Strategy::kBestPractice : Strategy::kFastest;
    SearchResult result;
    try {
      result = plan_job(job, options);
    } catch (const ConfigError&) {
      continue;  // a pin that this cluster cannot honour
    }
    const Plan* plan = std::get_if<Plan>(&result.best);
    if (plan == nullptr) continue;
    ++chosen;
    CAPTURE(describe(result.best_priced->choice));
    const std::vector<std::string> problems = check(*plan);
    CHECK_MESSAGE(problems.empty(), problems.front());
    for (const RankPrediction& rank : plan->predictions.ranks) {
      CHECK(rank.peak_bytes <= allowed_bytes(plan->job.cluster));
    }
    const std::string written = write_plan(*plan);
    CHECK(write_plan(parse_plan("plan.yaml", written)) == written);
  }
  CHECK(chosen >= 200);
}

TEST_CASE("what the bounds leave out is never faster: with and without them the best is the same") {
  Draw draw(7);
  for (int i = 0; i < 12; ++i) {
    JobSpec job = some_job(draw);
    job.parallel.forbid.clear();
    job.parallel.pipeline_parallel_degree.reset();
    const JobWithDefaults defaulted = with_defaults(job, Strategy::kFastest);
    const SearchSpace space(defaulted);
    Pricer bounded(defaulted.job);
    Pricer whole(defaulted.job);
    const auto best_of = [](const FastestResult& result) {
      double best = std::numeric_limits<double>::infinity();
      for (const SplitResult& split : result.splits) {
        if (split.fits.fastest() != nullptr &&
            split.fits.fastest()->choice.first_stage_layers == 0) {
          best = std::min(best, split.fits.fastest()->seconds_per_token);
        }
      }
      return best;
    };
    const double without = best_of(search_fastest(whole, space, true));
    CHECK(best_of(search_fastest(bounded, space, false)) <= without);
  }
}

TEST_CASE("a front holds no layout that another beats in both time and memory") {
  Draw draw(11);
  for (int i = 0; i < 8; ++i) {
    const JobWithDefaults defaulted = with_defaults(some_job(draw), Strategy::kFastest);
    const SearchSpace space(defaulted);
    Pricer pricer(defaulted.job);
    const std::vector<Candidate> front = search_fastest(pricer, space, true).pareto;
    for (size_t k = 1; k < front.size(); ++k) {
      CHECK(front[k].seconds_per_token > front[k - 1].seconds_per_token);
      CHECK(front[k].peak_bytes < front[k - 1].peak_bytes);
    }
  }
}

TEST_CASE("forbidden layouts are not chosen") {
  Draw draw(3);
  for (int i = 0; i < 10; ++i) {
    JobSpec job = some_job(draw);
    job.parallel.pipeline_parallel_degree.reset();
    job.parallel.forbid = {"tensor_parallel_degree>1", "pipeline=virtual|zb_h1|zb_v"};
    const SearchResult result = plan_job(job);
    if (!result.best_priced) continue;
    CHECK(result.best_priced->choice.tensor == 1);
    CHECK(result.best_priced->choice.virtual_stages == 1);
  }
}
