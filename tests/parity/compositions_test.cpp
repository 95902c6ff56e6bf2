#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "parity/composition_run.h"
#include "parity/covering.h"
#include "scratch_folder.h"
#include "smp/plan/spec/job_names.h"
#include "smp/plan/text/json.h"

// Every three features that may meet, in some combination: scripts/check-compositions. It says
// what to run, and where to write a line of JSON for each, in the environment.
namespace smp::parity {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kSecondsEach = 2;  // on 2 cores
constexpr double kMinutes = 10;     // of a sample, if nothing is said

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Spread over the set, by number. Those that train the same follow each other.
std::vector<size_t> chosen(const std::vector<Combination>& combinations) {
  const size_t all = combinations.size();
  if (const std::string only = environment("SMP_COMPOSITION"); !only.empty()) {
    return {static_cast<size_t>(std::stoul(only)) % all};
  }
  const std::string minutes = environment("SMP_COMPOSITION_MINUTES");
  const double wanted = (minutes.empty() ? kMinutes : std::stod(minutes)) * 60 / kSecondsEach;
  const size_t count = std::clamp<size_t>(static_cast<size_t>(wanted), 1, all);
  std::vector<size_t> numbers;
  for (size_t i = 0; i < count; ++i) numbers.push_back(i * all / count);
  std::stable_sort(numbers.begin(), numbers.end(), [&](size_t a, size_t b) {
    return combinations[a].trained() < combinations[b].trained();
  });
  return numbers;
}

// The layout of the next combination that the model of this one may have, too.
Combination resuming(const std::vector<Combination>& combinations, size_t number,
                     const std::string& data_path) {
  const Combination& one = combinations[number];
  for (size_t i = 1; i < combinations.size(); ++i) {
    const Combination other = one.with_layout_of(combinations[(number + i) % combinations.size()]);
    if (other.choice != one.choice && is_legal(other, data_path)) return other;
  }
  return one;
}

text::Json factors_of(const Combination& combination) {
  text::Json factors = text::Json::object();
  for (size_t f = 0; f < kFactors; ++f) {
    const FactorNames& factor = factor_names()[f];
    factors[factor.name] = factor.values[static_cast<size_t>(combination.choice[f])];
  }
  return factors;
}

// Of each factor its values, the plain one first.
text::OrderedJson all_factors() {
  text::OrderedJson factors = text::OrderedJson::object();
  for (const FactorNames& factor : factor_names()) factors[factor.name] = factor.values;
  return factors;
}

text::Json result_of(CompositionRuns& runs, const Combination& one, const Combination& other) {
  text::Json result = {{"differences", text::Json::array()}, {"failed", text::Json::array()}};
  std::vector<Precision> precisions{Precision::kFp64};
  if (one.precision != Precision::kFp64) precisions.push_back(one.precision);
  for (const Precision precision : precisions) {
    const std::string name(name_of(precision));
    try {
      for (const Difference& found : runs.differences(one, other, precision)) {
        result["differences"].push_back({{"precision", name},
                                         {"what", found.what},
                                         {"value", found.value},
                                         {"allowed", found.allowed}});
        if (found.holds()) continue;
        result["failed"].push_back(fmt::format("{}: {} differs by {:.2e}, allowed are {:.2e}", name,
                                               found.what, found.value, found.allowed));
      }
    } catch (const std::exception& error) {
      result["failed"].push_back(fmt::format("{}: {}", name, error.what()));
    }
  }
  return result;
}

}  // namespace

TEST_CASE("compositions: every three features that may meet train as one rank does") {
  const ScratchFolder folder;
  const std::string data_path = write_data(folder.path());
  const Clock::time_point start = Clock::now();
  const CoveringSet set = covering_set({.strength = 3, .all_models = true}, data_path);
  const std::vector<size_t> numbers = chosen(set.combinations);
  MESSAGE(fmt::format(
      "{} combinations cover {} triples; {} met in no legal combination, {} of them were searched "
      "for; {} plans were checked in {:.0f} s; {} combinations are trained",
      set.combinations.size(), set.covered, set.illegal, set.searched, set.checks,
      seconds_since(start), numbers.size()));
  std::ofstream out(environment("SMP_COMPOSITION_FILE"));
  out << text::OrderedJson{{"combinations", set.combinations.size()},
                           {"covered", set.covered},
                           {"illegal", set.illegal},
                           {"searched", set.searched},
                           {"checks", set.checks},
                           {"factors", all_factors()}}
             .dump()
      << std::endl;
  CompositionRuns runs(data_path);
  for (const size_t number : numbers) {
    const Combination& one = set.combinations[number];
    const Combination other = resuming(set.combinations, number, data_path);
    const Clock::time_point begin = Clock::now();
    text::Json result = result_of(runs, one, other);
    result["number"] = number;
    result["name"] = one.layout.name;
    result["resumed_as"] = other.layout.name;
    result["factors"] = factors_of(one);
    result["seconds"] = seconds_since(begin);
    out << result.dump() << std::endl;
    INFO("combination " << number << ": " << one.layout.name << "; resumed as " << other.layout.name
                        << "; alone: scripts/check-compositions --only " << number);
    for (const text::Json& failed : result["failed"]) FAIL_CHECK(failed.get<std::string>());
  }
}

}  // namespace smp::parity
