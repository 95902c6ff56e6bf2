#include "smp/planner/search/cases.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/plan/base/errors.h"
#include "smp/plan/text/json.h"
#include "smp/plan/text/units.h"
#include "smp/planner/choice/choice_words.h"
#include "smp/planner/search/search.h"

namespace smp::search {

PlannedCase planned_case(const NamedJob& job, const SearchOptions& options) {
  PlannedCase made;
  made.name = job.name;
  try {
    SearchOptions plain = options;
    plain.top = 1;
    plain.pareto = plain.explain = false;
    const SearchResult result = plan_job(job.job, plain);
    const Plan* plan = std::get_if<Plan>(&result.best);
    if (plan == nullptr) {
      made.problem = std::get<Infeasible>(result.best).problem;
      return made;
    }
    made.layout = choice::describe(result.best_priced->choice);
    made.fit = result.fit;
    made.step_s = static_cast<double>(plan->predictions.step_ns) * 1e-9;
    if (made.step_s > 0) {
      made.tokens_per_s = static_cast<double>(plan->predictions.tokens_per_step) / made.step_s;
    }
    for (const RankPrediction& rank : plan->predictions.ranks) {
      made.peak_bytes = std::max(made.peak_bytes, static_cast<double>(rank.peak_bytes));
    }
    const ClusterSpec& cluster = plan->job.cluster;
    if (made.tokens_per_s > 0) {
      made.cost_per_million_tokens = cluster.price_per_host_hour *
                                     static_cast<double>(cluster.hosts) / 3600 / made.tokens_per_s *
                                     1e6;
    }
  } catch (const ConfigError& error) {
    made.problem = error.what();
  }
  return made;
}

std::vector<PlannedCase> planned_cases(const std::vector<NamedJob>& jobs,
                                       const SearchOptions& options) {
  std::vector<PlannedCase> cases;
  for (const NamedJob& job : jobs) cases.push_back(planned_case(job, options));
  return cases;
}

std::vector<PlannedCase> ranked_by_time(std::vector<PlannedCase> cases) {
  std::stable_sort(cases.begin(), cases.end(), [](const PlannedCase& a, const PlannedCase& b) {
    if (a.problem.empty() != b.problem.empty()) return a.problem.empty();
    return a.tokens_per_s > b.tokens_per_s;
  });
  return cases;
}

std::string cases_text(const std::string& head, const std::vector<PlannedCase>& cases) {
  size_t width = head.size();
  bool priced = false;
  for (const PlannedCase& one : cases) {
    width = std::max(width, one.name.size());
    priced |= one.cost_per_million_tokens > 0;
  }
  std::string text = fmt::format("{:<{}}  {:>10}  {:>10}  {:>11}{}  layout\n", head, width, "step",
                                 "tokens/s", "peak", priced ? "  per Mtoken" : "");
  for (const PlannedCase& one : cases) {
    if (!one.problem.empty()) {
      text += fmt::format("{:<{}}  no plan: {}\n", one.name, width, one.problem);
      continue;
    }
    text += fmt::format("{:<{}}  {:>10}  {:>10}  {:>11}", one.name, width,
                        one.step_s > 0 ? text::human_time(one.step_s) : "?",
                        one.step_s > 0 ? text::human_count(one.tokens_per_s) : "?",
                        text::human_bytes(static_cast<int64_t>(one.peak_bytes)));
    if (priced) {
      text += fmt::format("  {:>10}", one.cost_per_million_tokens > 0
                                          ? fmt::format("{:.4f}", one.cost_per_million_tokens)
                                          : "-");
    }
    text +=
        fmt::format("  {}{}\n", one.fit == prediction::Fit::kTight ? "tight: " : "", one.layout);
  }
  return text;
}

std::string cost_order_text(const std::vector<PlannedCase>& cases) {
  std::vector<const PlannedCase*> priced;
  for (const PlannedCase& one : cases) {
    if (one.problem.empty() && one.cost_per_million_tokens > 0) priced.push_back(&one);
  }
  if (priced.size() < 2) return "";
  std::ranges::stable_sort(priced, {}, &PlannedCase::cost_per_million_tokens);
  std::string text = "by cost a token: ";
  for (const PlannedCase* one : priced) {
    text += fmt::format("{}{} ({:.4f} a Mtoken)", one == priced.front() ? "" : ", ", one->name,
                        one->cost_per_million_tokens);
  }
  return text + "\n";
}

std::string cases_json(const std::vector<PlannedCase>& cases) {
  text::OrderedJson json = text::OrderedJson::array();
  for (const PlannedCase& one : cases) {
    if (!one.problem.empty()) {
      json.push_back({{"name", one.name}, {"fits", "no"}, {"problem", one.problem}});
      continue;
    }
    json.push_back({{"name", one.name},
                    {"fits", name_of(one.fit)},
                    {"layout", one.layout},
                    {"step_s", one.step_s},
                    {"tokens_per_s", one.tokens_per_s},
                    {"peak_bytes", static_cast<int64_t>(one.peak_bytes)},
                    {"cost_per_million_tokens", one.cost_per_million_tokens}});
  }
  return json.dump(2) + "\n";
}

}  // namespace smp::search
