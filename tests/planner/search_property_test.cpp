#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "fastest.h"
#include "plan/model_samples.h"
#include "smp/plan/errors.h"
#include "smp/planner/check_plan.h"
#include "smp/planner/memory_model.h"
#include "smp/planner/search.h"

using namespace smp;

namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : engine_(seed) {}
  int64_t of(std::initializer_list<int64_t> values) {
    return *(values.begin() + static_cast<std::ptrdiff_t>(engine_() % values.size()));
  }
  bool coin() { return engine_() % 2 == 0; }

 private:
  std::mt19937_64 engine_;
};

ModelSpec some_model(Draw& draw) {
  ModelSpec model = draw.coin() ? llama2_7b() : gpt2_124m();
  model.num_layers = draw.of({1, 2, 3, 6, 7, 12, 24, 40});
  model.num_heads = draw.of({4, 8, 12, 16});
  model.num_kv_heads = model.family == ModelFamily::kLlama && draw.coin() ? 4 : model.num_heads;
  model.head_dim = 64;
  model.hidden_size = model.head_dim * model.num_heads;
  model.ffn_hidden_size = 4 * model.hidden_size;
  model.vocab_size = draw.of({1000, 32000});
  model.max_positions = 16384;
  return model;
}

// Jobs of every kind that finish quickly: 1 to 64 accelerators, small and large memories.
JobSpec some_job(Draw& draw) {
  JobSpec job;
  job.name = "random";
  job.model = some_model(draw);
  ClusterSpec& cluster = job.cluster;
  cluster.name = "random";
  cluster.hosts = draw.of({1, 1, 2, 3, 8});
  cluster.processes_per_host = draw.of({1, 2, 4, 7, 8});
  cluster.device = DeviceKind::kCuda;
  cluster.memory_per_process_bytes = draw.of({4, 8, 16, 40, 80}) << 30;
  cluster.reserved_bytes = int64_t{1} << 30;
  cluster.host_memory_bytes = draw.of({0, 64, 512}) << 30;
  cluster.has_bf16 = cluster.has_fp16 = true;
  cluster.half_flops_per_s = 312e12;
  cluster.fp32_flops_per_s = 19.5e12;
  cluster.memory_bytes_per_s = 1.5e12;
  cluster.host_link_bytes_per_s = draw.coin() ? 12e9 : 0;
  cluster.intra_host_bytes_per_s = 200e9;
  cluster.inter_host_bytes_per_s = 5e9;
  job.training.sequence_length = draw.of({512, 2048, 8192});
  if (draw.coin()) job.training.global_batch = draw.of({8, 48, 64, 96});
  if (draw.coin()) job.parallel.recompute = static_cast<Recompute>(draw.of({0, 2}));
  if (draw.of({0, 1, 2}) == 0) job.parallel.pipeline_parallel_degree = draw.of({1, 2});
  if (draw.of({0, 1, 2}) == 0) job.parallel.forbid = {"sharding=parameters", "micro_batch>4"};
  if (draw.of({0, 1, 2, 3}) == 0) job.training.attention = AttentionKind::kUnfused;
  return job;
}

}  // namespace

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
    const SettledJob settled = settle(job, Strategy::kFastest);
    const SearchSpace space(settled);
    Pricer bounded(settled.job);
    Pricer whole(settled.job);
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
    const SettledJob settled = settle(some_job(draw), Strategy::kFastest);
    const SearchSpace space(settled);
    Pricer pricer(settled.job);
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
