#pragma once

#include <algorithm>
#include <vector>

#include "smp/planner/prediction/fit.h"

// What is said of a job whose framework nobody names, from the predictions for each framework that
// it may be (possible_jobs.h). Pure; any thread.
namespace smp::prediction {

// The middle one by `value`; of two, the lower. Sorts them: a reference to an earlier median then
// names another one.
template <class T, class Value>
const T& median_of(std::vector<T>& possible, const Value& value) {
  std::ranges::stable_sort(possible, {}, value);
  return possible[(possible.size() - 1) / 2];
}

// kFits or kNo if it is so in each framework, else kTight.
template <class T, class FitOf>
Fit fit_in_all(const std::vector<T>& possible, const FitOf& fit_of) {
  const auto all_are = [&](Fit fit) {
    return std::ranges::all_of(
        possible, [fit](Fit one) { return one == fit; }, fit_of);
  };
  return all_are(Fit::kFits) ? Fit::kFits : all_are(Fit::kNo) ? Fit::kNo : Fit::kTight;
}

}  // namespace smp::prediction
