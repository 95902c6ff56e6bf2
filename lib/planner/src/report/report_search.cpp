#include "report/report_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "smp/plan/text/units.h"
#include "smp/planner/choice/choice_words.h"

namespace smp::report {
namespace {

std::string sensitivities_text(const std::vector<search::Sensitivity>& sensitivities) {
  std::string text;
  for (const search::Sensitivity& sensitivity : sensitivities) {
    const double saved = sensitivity.step_s_before - sensitivity.step_s_after;
    text += fmt::format("{} +{}: ", text.empty() ? "gains   " : "        ", sensitivity.resource);
    text += saved > 0 ? fmt::format("{} less a step ({:.2f} %){}", text::human_time(saved),
                                    100 * saved / sensitivity.step_s_before,
                                    sensitivity.layout.empty() ? "" : " with " + sensitivity.layout)
                      : std::string("no change");
    text += "\n";
  }
  return text;
}

std::string difference_text(const search::StrategyDifference& difference,
                            choice::Strategy strategy) {
  const std::string_view other = name_of(difference.other);
  if (difference.layout.empty()) return fmt::format("{}: nothing fits\n", other);
  std::string text = fmt::format("{} takes {}\n", other, difference.layout);
  if (difference.seconds_per_token > 0 && difference.winner_seconds_per_token > 0) {
    const double ratio = difference.seconds_per_token / difference.winner_seconds_per_token;
    text +=
        fmt::format("         {} tokens/s, {} has {}: {:.1f} % {}\n",
                    text::human_count(1 / difference.seconds_per_token), name_of(strategy),
                    text::human_count(1 / difference.winner_seconds_per_token),
                    100 * (ratio > 1 ? ratio - 1 : 1 / ratio - 1), ratio > 1 ? "faster" : "slower");
  }
  if (!difference.differences.empty()) {
    text += fmt::format("         this plan: {}\n", fmt::join(difference.differences, ", "));
  }
  return text;
}

}  // namespace

std::string search_text(const search::SearchResult& result) {
  std::string text = sensitivities_text(result.sensitivities);
  if (result.difference) {
    text += "against  " + difference_text(*result.difference, result.strategy);
  } else if (result.bottleneck) {
    const bool practice = result.strategy == choice::Strategy::kBestPractice;
    text += fmt::format(
        "against  {} takes the same layout\n",
        name_of(practice ? choice::Strategy::kFastest : choice::Strategy::kBestPractice));
  }
  return text.empty() ? text : text + "\n";
}

std::string pareto_text(const search::SearchResult& result) {
  if (result.pareto.empty()) return "";
  std::string text =
      "front    Pareto front of time and memory: no other layout is both faster and smaller\n";
  const bool priced = result.pareto.front().cost_per_token > 0;
  for (const search::PricedLayout& point : result.pareto) {
    text += fmt::format(
        "  {:>10} a step  {:>8} tokens/s  {:>10} a rank", text::human_time(point.time.step_s),
        point.seconds_per_token > 0 ? text::human_count(1 / point.seconds_per_token) : "?",
        text::human_bytes(text::whole_bytes(point.memory.peak_bytes)));
    if (priced) text += fmt::format("  {:.4f} a Mtoken", point.cost_per_token * 1e6);
    text += fmt::format("  {}\n", choice::describe(point.choice));
  }
  return text;
}

}  // namespace smp::report
