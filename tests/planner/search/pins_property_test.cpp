#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <functional>

#include "planner/random_jobs.h"
#include "search/exact_search.h"
#include "search/job_search.h"
#include "search/simplicity.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/spec/job_names.h"
#include "smp/planner/choice/choice_words.h"
#include "smp/planner/search/search.h"

// "Fastest" is the fastest: no key, pinned alone to any of its values, gives a plan that is faster
// than what the planner takes when the key is open.

using namespace smp;
using namespace smp::choice;
using namespace smp::jobfile;
using namespace smp::prediction;
using namespace smp::search;
using smp::test::Draw;
using smp::test::some_job;

namespace {

struct Pin {
  std::string words;
  std::function<void(JobSpec&)> set;
};

template <class Section, class Member, class Value>
void add_pins(std::vector<Pin>& pins, const JobSpec& job, Section JobSpec::*section, Member member,
              const char* name, std::initializer_list<Value> values) {
  if ((job.*section.*member).has_value()) return;  // pinned already
  for (const Value value : values) {
    pins.push_back(
        {fmt::format("{}={}", name, static_cast<int64_t>(value)),
         [section, member, value](JobSpec& pinned) { pinned.*section.*member = value; }});
  }
}

// Of every key of `parallel` and `training` that decides over the layout and not over what is
// trained.
std::vector<Pin> pins_of(const JobSpec& job) {
  std::vector<Pin> pins;
  const auto degree = [&](auto member, const char* name, std::initializer_list<int64_t> values) {
    add_pins(pins, job, &JobSpec::parallel, member, name, values);
  };
  const auto flag = [&](auto member, const char* name) {
    add_pins(pins, job, &JobSpec::parallel, member, name, {false, true});
  };
  using P = ParallelSpec;
  using T = TrainingSpec;
  degree(&P::tensor_parallel_degree, "tensor", {1, 2, 4, 7, 8});
  degree(&P::pipeline_parallel_degree, "pipeline degree", {1, 2, 3, 4, 6, 7, 8, 12, 24});
  // Ranks with fewer than 1,024 tokens of a sequence are had by name alone.
  for (const int64_t context : {1, 2, 4}) {
    if (context > 1 && job.training.sequence_length / context < 1024) break;
    degree(&P::context_parallel_degree, "context", {context});
  }
  degree(&P::virtual_pipeline_degree, "virtual", {1, 2, 3, 4, 6});
  degree(&P::sharded_data_parallel_degree, "z", {1, 2, 3, 4, 7, 8, 16, 32});
  // `recompute: full` is every layer.
  for (const int64_t layers : {1, 2, 3, 6, 12}) {
    if (job.parallel.recompute) break;
    pins.push_back({fmt::format("recompute_layers={}", layers), [layers](JobSpec& pinned) {
                      pinned.parallel.recompute = Recompute::kFull;
                      pinned.parallel.recompute_layers = layers;
                    }});
  }
  degree(&P::active_microbatches, "active_microbatches", {1, 2, 4, 8});
  add_pins(pins, job, &JobSpec::parallel, &P::pipeline, "pipeline",
           {PipelineKind::kSimple, PipelineKind::kInterleaved, PipelineKind::kVirtual,
            PipelineKind::kZbH1, PipelineKind::kZbV});
  add_pins(
      pins, job, &JobSpec::parallel, &P::sharding, "sharding",
      {Sharding::kNone, Sharding::kOptimizerState, Sharding::kGradients, Sharding::kParameters});
  // `selective` with flash attention is taken by name alone: on GPUs it was not measured.
  add_pins(pins, job, &JobSpec::parallel, &P::recompute, "recompute",
           {Recompute::kNone, Recompute::kFull});
  if (job.training.attention != AttentionKind::kFlash) {
    add_pins(pins, job, &JobSpec::parallel, &P::recompute, "recompute", {Recompute::kSelective});
  }
  flag(&P::activation_checkpointing, "activation_checkpointing");
  flag(&P::shard_optimizer_state, "shard_optimizer_state");
  flag(&P::sequence_parallel, "sequence_parallel");
  // A link whose rate nobody names costs nothing, and no time tells what it would.
  if (job.cluster.host_link_bytes_per_s > 0) {
    flag(&P::offload_activations, "offload_activations");
    flag(&P::offload_optimizer, "offload_optimizer");
    flag(&P::offload_parameters, "offload_parameters");
  }
  add_pins(pins, job, &JobSpec::training, &T::micro_batch, "micro_batch",
           {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{4}, int64_t{8}, int64_t{16}});
  add_pins(pins, job, &JobSpec::training, &T::microbatches, "microbatches",
           {int64_t{1}, int64_t{2}, int64_t{4}, int64_t{6}, int64_t{8}, int64_t{16}, int64_t{32},
            int64_t{64}, int64_t{128}});
  for (const char* method : {"uniform", "auto"}) {
    pins.push_back({fmt::format("partition_method={}", method),
                    [method](JobSpec& pinned) { pinned.parallel.partition_method = method; }});
  }
  // Those that keep the ranks of a layer together: others are taken by name alone.
  for (const char* placement : {"DPT", "PDT"}) {
    pins.push_back({fmt::format("placement_strategy={}", placement), [placement](JobSpec& pinned) {
                      pinned.parallel.placement_strategy = placement;
                    }});
  }
  return pins;
}

std::optional<Candidate> best_of(const JobSpec& job) {
  try {
    SearchOptions options;
    JobSearch search(job, options);
    return search.best_candidate();
  } catch (const ConfigError&) {
    return std::nullopt;  // a pin that this cluster cannot honour
  }
}

}  // namespace

namespace {

double unit_of(const std::string& word) {
  return word == "us" ? 1e-6 : word == "ms" ? 1e-3 : word == "K" ? 1e3 : word == "M" ? 1e6 : 1;
}

struct Printed {
  double number = 0;
  double rounding = 0;  // by how much it may be off what was printed
};

// The next number behind `mark` with its unit, from `at` on; moves `at` behind it.
std::optional<Printed> number_behind(const std::string& text, const std::string& mark, size_t& at) {
  while ((at = text.find(mark, at)) != text.npos) {
    at += mark.size();
    const size_t from = at;
    char* end = nullptr;
    const double number = std::strtod(text.c_str() + at, &end);
    if (end == text.c_str() + at) continue;  // other words
    at = static_cast<size_t>(end - text.c_str()) + 1;
    const std::string digits = text.substr(from, at - 1 - from);
    const size_t point = digits.find('.');
    const size_t decimals = point == digits.npos ? 0 : digits.size() - point - 1;
    const double unit = unit_of(text.substr(at, text.find(' ', at) - at));
    return Printed{number * unit, 0.51 * unit * std::pow(0.1, decimals)};
  }
  return std::nullopt;
}

// What the text says of another layout's speed is no faster than the choice, or says why the choice
// is another.
void check_no_faster(const std::string& text, double step_s, double tokens_per_s) {
  CAPTURE(text);
  const auto explained = [&](size_t at) {
    const std::string rest = text.substr(at, text.find(';', at) - at);
    return rest.find("count as equal") != rest.npos;
  };
  for (size_t at = 0; const auto other = number_behind(text, " takes ", at);) {
    CHECK((other->number + other->rounding >= step_s || explained(at)));
  }
  for (const char* mark : {" gives ", "at most "}) {
    for (size_t at = 0; const auto other = number_behind(text, mark, at);) {
      CHECK((other->number - other->rounding <= tokens_per_s || explained(at)));
    }
  }
}

}  // namespace

TEST_CASE("no reason names a faster layout without saying why it was not taken") {
  Draw draw(44);
  for (int i = 0; i < 60; ++i) {
    const JobSpec job = some_job(draw);
    SearchResult result;
    try {
      result = plan_job(job);
    } catch (const ConfigError&) {
      continue;
    }
    const Plan* plan = std::get_if<Plan>(&result.best);
    if (plan == nullptr) continue;
    CAPTURE(i);
    const double step_s = static_cast<double>(plan->predictions.step_ns) * 1e-9;
    const double rate = static_cast<double>(plan->predictions.tokens_per_step) / step_s;
    for (const std::string& reason : plan->reasons) {
      if (reason.starts_with("collectives") || reason.starts_with("fastest of")) continue;
      check_no_faster(reason, step_s, rate);
    }
    for (const FamilyVerdict& verdict : result.families) {
      if (verdict.outcome == FamilyVerdict::Outcome::kChosen || verdict.seconds_per_token == 0) {
        continue;
      }
      CAPTURE(verdict.reason);
      CHECK((1 / verdict.seconds_per_token <= rate * 1.0001 ||
             verdict.reason.find("count as equal") != std::string::npos));
    }
  }
}

TEST_CASE(
    "gpt2-1.5b on 8 GPUs with 4 stages: no schedule that is pinned is faster than the choice") {
  JobSpec job = read_job({load_job_source(SMP_SOURCE_DIR "/configs/models/gpt2-1.5b.yaml"),
                          load_job_source(SMP_SOURCE_DIR "/configs/clusters/p4d.24xlarge.yaml")},
                         {"cluster.hosts=1", "parallel.pipeline_parallel_degree=4"});
  const std::optional<Candidate> chosen = best_of(job);
  REQUIRE(chosen);
  for (const PipelineKind kind :
       {PipelineKind::kSimple, PipelineKind::kInterleaved, PipelineKind::kVirtual,
        PipelineKind::kZbH1, PipelineKind::kZbV}) {
    job.parallel.pipeline = kind;
    const std::optional<Candidate> pinned = best_of(job);
    REQUIRE(pinned);
    CAPTURE(describe(pinned->choice));
    CHECK(chosen->seconds_per_token <= kNoise * pinned->seconds_per_token);
  }
}

TEST_CASE("a layout that its collectives make the fastest is not left out before they are chosen") {
  JobSpec job =
      read_job({load_job_source(SMP_SOURCE_DIR "/configs/models/llama3-8b.yaml"),
                load_job_source(SMP_SOURCE_DIR "/configs/clusters/jean-zay-v100-4x.yaml")},
               {"cluster.hosts=8"});
  const std::optional<Candidate> chosen = best_of(job);
  job.parallel.pipeline_parallel_degree = 1;
  job.parallel.sharding = Sharding::kParameters;
  const std::optional<Candidate> pinned = best_of(job);
  REQUIRE((chosen && pinned));
  CAPTURE(describe(pinned->choice));
  CHECK(chosen->seconds_per_token <= kNoise * pinned->seconds_per_token);
}

TEST_CASE(
    "in the place of what does not fit by its exact price comes what recomputes a little more") {
  JobSpec job = read_job(
      {load_job_source(SMP_SOURCE_DIR "/configs/models/qwen3-30b-a3b.yaml"),
       load_job_source(SMP_SOURCE_DIR "/configs/clusters/h800-8x.yaml")},
      {"cluster.hosts=2", "training.sequence_length=8192", "parallel.expert_parallel_degree=1"});
  const std::optional<Candidate> chosen = best_of(job);
  job.parallel.pipeline_parallel_degree = 2;
  job.parallel.virtual_pipeline_degree = 4;
  const std::optional<Candidate> pinned = best_of(job);
  REQUIRE((chosen && pinned));
  CAPTURE(describe(pinned->choice));
  CHECK(chosen->seconds_per_token <= kNoise * pinned->seconds_per_token);
}

// A margin for the prediction's error once came as recompute: full of 0 layers, which no plan
// takes.
TEST_CASE("what recomputes a little more than nothing recomputes a layer at least") {
  const JobSpec job = read_job({{"job.yaml", "model: nemotron3-nano-30b-a3b\ncluster: dgx-h100\n"}},
                               {"cluster.hosts=4", "parallel.framework=megatron-core"});
  const std::optional<Candidate> chosen = best_of(job);
  REQUIRE(chosen);
  CHECK(chosen->choice.recompute_layers != 0);
}

// Of 28 layers on two stages of 14 chunks one had 15, for balance, and the other 14 still.
TEST_CASE("two uneven stages of many chunks hold the model's layers and no more") {
  const JobSpec job = read_job({{"job.yaml", "model: qwen2-1.5b\ncluster: p4d.24xlarge\n"}},
                               {"cluster.hosts=64", "parallel.pipeline_parallel_degree=2",
                                "parallel.virtual_pipeline_degree=14"});
  const std::optional<Candidate> chosen = best_of(job);
  REQUIRE(chosen);
  const choice::LayoutChoice& choice = chosen->choice;
  CHECK(choice::stage_layers(choice, 28, 0) + choice::stage_layers(choice, 28, 1) == 28);
}

TEST_CASE("no pin of any key gives a faster plan than the one that is chosen without it") {
  Draw draw(43);
  // One in three of a job's pins, others in the next job: a third of the time. All of them with
  // SMP_EVERY_PIN=1 in the environment, those of one job alone with SMP_PINS_OF=17.
  constexpr size_t kShare = 3;
#ifdef __SANITIZE_ADDRESS__  // which makes a search ten times as slow
  constexpr int kJobs = 30;
#else
  constexpr int kJobs = 300;
#endif
  const bool every = std::getenv("SMP_EVERY_PIN") != nullptr;
  const char* one = std::getenv("SMP_PINS_OF");
  int compared = 0;
  for (int i = 0; i < kJobs; ++i) {
    const JobSpec job = some_job(draw);
    if (one != nullptr && i != std::atoi(one)) continue;
    const std::optional<Candidate> chosen = best_of(job);
    if (!chosen) continue;
    const std::vector<Pin> pins = pins_of(job);
    for (size_t k = 0; k < pins.size(); ++k) {
      if (!every && one == nullptr && (k + static_cast<size_t>(i)) % kShare != 0) continue;
      const Pin& pin = pins[k];
      JobSpec pinned = job;
      pin.set(pinned);
      const std::optional<Candidate> rival = best_of(pinned);
      if (!rival || (rival->fit == Fit::kTight && chosen->fit != Fit::kTight)) continue;
      ++compared;
      const double ratio = rival->seconds_per_token / chosen->seconds_per_token;
      // Of times within kNoise the simplest is taken, and what the search leaves out is not faster
      // than the fastest by more than kLeftOut.
      const double least = 1 / kNoise - ExactSearch::kLeftOut;
      CHECK_MESSAGE(ratio >= least, i << ": " << pin.words << " takes " << ratio << ": "
                                      << describe(rival->choice) << " instead of "
                                      << describe(chosen->choice));
    }
  }
  MESSAGE(compared << " pins");
  CHECK((one != nullptr || compared > 10 * kJobs));
}
