#include "smp/planner/search/solve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "search/job_search.h"
#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/model/layers.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/model/parameter_counts.h"
#include "smp/plan/rules/degree_rules.h"
#include "smp/plan/text/json.h"
#include "smp/plan/text/units.h"
#include "smp/planner/choice/legality.h"

namespace smp::search {
namespace {

// Values of a quantity in steps 1, 2, ...: the job with a value, the value in words, and why there
// is none beyond the last.
struct Ladder {
  std::function<JobSpec(int64_t)> job;
  std::function<std::string(int64_t)> words;
  int64_t unit = 1;  // of the value
  int64_t most = 0;  // steps
  std::string end;   // as in "is over training.max_tokens_per_batch, 4,194,304"
};

int64_t scaled(int64_t number, double factor, int64_t multiple) {
  const auto multiples =
      std::llround(static_cast<double>(number) * factor / static_cast<double>(multiple));
  return std::max<int64_t>(1, multiples) * multiple;
}

std::string end_by_tokens(const TrainingSpec& training) {
  return fmt::format("over the token limit of a step, training.max_tokens_per_batch: {}",
                     text::with_commas(training.max_tokens_per_batch));
}

constexpr int64_t kWidthMultiple =
    64;  // of FFN widths, as tensor cores and tensor parallelism like

JobSpec with_heads(const JobSpec& base, int64_t heads) {
  JobSpec job = base;
  ModelSpec& model = job.model;
  const double factor = static_cast<double>(heads) / static_cast<double>(model.num_heads);
  model.num_kv_heads = std::max<int64_t>(1, model.num_kv_heads * heads / model.num_heads);
  model.hidden_size = model.hidden_size * heads / model.num_heads;
  model.num_heads = heads;
  model.num_layers = scaled(model.num_layers, factor, 1);
  if (model.decoder_layers > 0) model.decoder_layers = scaled(model.decoder_layers, factor, 1);
  for (int64_t* width : {&model.ffn_hidden_size, &model.expert_ffn_hidden_size,
                         &model.shared_expert_ffn_hidden_size}) {
    if (*width > 0) *width = scaled(*width, factor, kWidthMultiple);
  }
  model.first_dense_layers = std::min(model.first_dense_layers, model.num_layers - 1);
  job.parallel.partition.clear();
  return job;
}

std::string model_words(const JobSpec& job) {
  return fmt::format("{} layers of width {} ({} heads): {} parameters",
                     model::block_count(job.model), text::with_commas(job.model.hidden_size),
                     job.model.num_heads,
                     text::human_count(static_cast<double>(model::parameter_count(job.model))));
}

Ladder model_ladder(const JobSpec& job) {
  // Heads in eights, so that tensor parallelism stays open, and whole groups of KV heads.
  const int64_t group = std::max<int64_t>(1, job.model.num_heads / job.model.num_kv_heads);
  const int64_t unit = std::lcm(group, int64_t{8});
  constexpr int64_t kMostHeads = 1024;
  Ladder ladder;
  ladder.job = [&job, unit](int64_t step) { return with_heads(job, unit * step); };
  ladder.words = [ladder](int64_t step) { return model_words(ladder.job(step)); };
  ladder.unit = unit;
  ladder.most = kMostHeads / unit;
  ladder.end = fmt::format("the search ends at {} heads", text::with_commas(kMostHeads));
  return ladder;
}

Ladder layers_ladder(const JobSpec& job) {
  constexpr int64_t kMostLayers = 1024;
  Ladder ladder;
  ladder.job = [&job](int64_t step) {
    JobSpec changed = job;
    changed.model.num_layers = step;
    changed.model.first_dense_layers = std::min(changed.model.first_dense_layers, step - 1);
    changed.parallel.partition.clear();
    return changed;
  };
  ladder.words = [ladder](int64_t step) { return model_words(ladder.job(step)); };
  ladder.most = kMostLayers;
  ladder.end = fmt::format("the search ends at {} layers", text::with_commas(kMostLayers));
  return ladder;
}

Ladder batch_ladder(const JobSpec& job) {
  const TrainingSpec& training = job.training;
  const int64_t most = training.max_tokens_per_batch / training.sequence_length;
  int64_t unit = rules::world_size(job.cluster);  // any data-parallel degree divides it
  while (unit > most && unit % 2 == 0) unit /= 2;
  Ladder ladder;
  ladder.job = [&job, unit](int64_t step) {
    JobSpec changed = job;
    changed.training.global_batch = unit * step;
    if (changed.training.micro_batch) changed.training.microbatches.reset();
    return changed;
  };
  ladder.words = [&job, unit](int64_t step) {
    return fmt::format("{} samples, {} tokens a step", text::with_commas(unit * step),
                       text::with_commas(unit * step * job.training.sequence_length));
  };
  ladder.unit = unit;
  ladder.most = most / unit;
  ladder.end = end_by_tokens(training);
  return ladder;
}

Ladder sequence_ladder(const JobSpec& job) {
  const int64_t unit = std::min<int64_t>(1024, job.training.sequence_length);
  Ladder ladder;
  ladder.job = [&job, unit](int64_t step) {
    JobSpec changed = job;
    changed.training.sequence_length = unit * step;
    changed.model.max_positions = std::max(changed.model.max_positions, unit * step);
    return changed;
  };
  ladder.words = [unit](int64_t step) {
    return fmt::format("{} tokens", text::with_commas(unit * step));
  };
  ladder.unit = unit;
  ladder.most = job.training.max_tokens_per_batch / job.training.global_batch.value_or(1) / unit;
  ladder.end = end_by_tokens(job.training);
  return ladder;
}

Ladder hosts_ladder(const JobSpec& job) {
  constexpr int64_t kMostHosts = 16384;
  Ladder ladder;
  ladder.job = [&job](int64_t step) {
    JobSpec changed = job;
    changed.cluster.hosts = step;
    return changed;
  };
  ladder.words = [](int64_t step) { return fmt::format("{} host{}", step, step == 1 ? "" : "s"); };
  ladder.most = kMostHosts;
  ladder.end = fmt::format("the search ends at {} hosts", text::with_commas(kMostHosts));
  return ladder;
}

Ladder ladder_of(const JobSpec& job, Quantity quantity) {
  switch (quantity) {
    case Quantity::kModel: return model_ladder(job);
    case Quantity::kLayers: return layers_ladder(job);
    case Quantity::kBatch: return batch_ladder(job);
    case Quantity::kSequence: return sequence_ladder(job);
    case Quantity::kHosts: return hosts_ladder(job);
  }
  check_failed(__FILE__, __LINE__, "unknown quantity");
}

// The searches of one solve, each step at most once more than needed.
class Solver {
 public:
  Solver(const JobSpec& job, const SolveRequest& request)
      : request_(request), ladder_(ladder_of(job, request.quantity)) {}

  SolveResult run() { return request_.quantity == Quantity::kHosts ? fewest() : largest(); }

 private:
  struct Reached {
    std::optional<Plan> plan;
    std::string problem;
  };

  Reached reach(int64_t step) {
    ++result_.searches;
    Reached reached;
    try {
      const JobSpec job = ladder_.job(step);
      const SearchOptions options{.strategy = request_.strategy};
      JobSearch search(job, options);
      reached.plan = search.best_plan();
      if (!reached.plan) reached.problem = search.problem();
    } catch (const ConfigError& error) {
      reached.problem = error.what();
    }
    if (!reached.plan || request_.step_s == 0) return reached;
    const double step_s = static_cast<double>(reached.plan->predictions.step_ns) * 1e-9;
    if (step_s <= request_.step_s) return reached;
    reached.plan.reset();
    reached.problem = fmt::format("a step takes {}, {} wanted", text::human_time(step_s),
                                  text::human_time(request_.step_s));
    return reached;
  }

  void take(int64_t step, Reached& reached) {
    result_.found = true;
    result_.value = step * ladder_.unit;
    result_.words = ladder_.words(step);
    result_.plan = std::move(*reached.plan);
  }
  void take_next(int64_t step, const Reached& reached) {
    result_.next_words = ladder_.words(step);
    result_.next_problem = reached.problem;
  }

  // The last step that can be reached; steps up to it can.
  SolveResult largest() { return bisect(true); }
  // The first step that can be reached; steps from it on can.
  SolveResult fewest() { return bisect(false); }

  // Doubles from the first step until the answer changes from `reached_first`, then halves the gap.
  SolveResult bisect(bool reached_first) {
    int64_t before = 0;  // the last step known to be as the first ones
    int64_t after = reached_first ? ladder_.most + 1 : 0;  // the first step known to be otherwise
    const auto try_step = [&](int64_t step) {
      Reached reached = reach(step);
      const bool is_reached = reached.plan.has_value();
      (is_reached == reached_first ? before : after) = step;
      if (is_reached) {
        take(step, reached);
      } else {
        take_next(step, reached);
      }
      return is_reached == reached_first;
    };
    for (int64_t step = 1; step <= ladder_.most && try_step(step);) step *= 2;
    while (after - before > 1) try_step(before + (after - before) / 2);
    if (reached_first && after > ladder_.most) take_next(ladder_.most + 1, {{}, ladder_.end});
    return std::move(result_);
  }

  const SolveRequest& request_;
  Ladder ladder_;
  SolveResult result_;
};

constexpr Quantity kQuantities[] = {Quantity::kModel, Quantity::kLayers, Quantity::kBatch,
                                    Quantity::kSequence, Quantity::kHosts};

const char* superlative(Quantity quantity) {
  switch (quantity) {
    case Quantity::kModel: return "largest model";
    case Quantity::kLayers: return "deepest model";
    case Quantity::kBatch: return "largest batch";
    case Quantity::kSequence: return "longest sequence";
    case Quantity::kHosts: return "fewest hosts";
  }
  check_failed(__FILE__, __LINE__, "unknown quantity");
}

}  // namespace

std::string_view name_of(Quantity quantity) {
  switch (quantity) {
    case Quantity::kModel: return "model";
    case Quantity::kLayers: return "layers";
    case Quantity::kBatch: return "batch";
    case Quantity::kSequence: return "sequence";
    case Quantity::kHosts: return "hosts";
  }
  check_failed(__FILE__, __LINE__, "unknown quantity");
}

std::optional<Quantity> quantity_of(std::string_view name) {
  for (const Quantity quantity : kQuantities) {
    if (name_of(quantity) == name) return quantity;
  }
  return std::nullopt;
}

SolveResult solve(const JobSpec& job, const SolveRequest& request) {
  const bool resizes = request.quantity != Quantity::kBatch && request.quantity != Quantity::kHosts;
  if (model::is_list(job.model) && resizes) {
    throw ConfigError(
        fmt::format("solve {}: the size of a list of layers is fixed: expected batch or hosts",
                    name_of(request.quantity)));
  }
  return Solver(job, request).run();
}

std::string solve_text(const SolveRequest& request, const SolveResult& result) {
  const std::string goal = request.step_s > 0 ? fmt::format(" with a step of at most {}",
                                                            text::human_time(request.step_s))
                                              : std::string();
  if (!result.found) {
    return fmt::format("{}{}: none\n  {}: {}\n", superlative(request.quantity), goal,
                       result.next_words, result.next_problem);
  }
  std::string text = fmt::format("{}{}: {}\n", superlative(request.quantity), goal, result.words);
  if (!result.next_problem.empty()) {
    text += fmt::format("  {}: {}\n", result.next_words, result.next_problem);
  }
  return text + fmt::format("  {} search{}\n", result.searches, result.searches == 1 ? "" : "es");
}

std::string solve_json(const SolveRequest& request, const SolveResult& result) {
  text::OrderedJson json = {{"solve", name_of(request.quantity)},
                            {"found", result.found},
                            {"value", result.value},
                            {"words", result.words},
                            {"next", result.next_words},
                            {"next_problem", result.next_problem},
                            {"searches", result.searches}};
  if (result.found) {
    json["parameters"] = model::parameter_count(result.plan.job.model);
    json["num_layers"] = result.plan.job.model.num_layers;
    json["hidden_size"] = result.plan.job.model.hidden_size;
    json["step_ns"] = result.plan.predictions.step_ns;
  }
  return json.dump(2) + "\n";
}

}  // namespace smp::search
