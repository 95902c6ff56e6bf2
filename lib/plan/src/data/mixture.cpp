#include "smp/plan/data/mixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>

#include "smp/plan/base/check.h"
#include "smp/plan/base/errors.h"
#include "text/scalar.h"

namespace smp::data {
namespace {

constexpr int64_t kKeptTurns = 8192;  // twice: what a step's microbatches go back to
// Limits of the sum of the weights and of the sources: numerators of fractions then fit 64 bits.
constexpr int64_t kMostWeight = int64_t{1} << 48;
constexpr size_t kMostSources = 4096;

template <typename T>
void push_least(std::vector<T>& heap, T value) {
  heap.push_back(value);
  std::push_heap(heap.begin(), heap.end(), std::greater<>());
}

template <typename T>
T pop_least(std::vector<T>& heap) {
  std::pop_heap(heap.begin(), heap.end(), std::greater<>());
  const T value = heap.back();
  heap.pop_back();
  return value;
}

// "0.3" and "3e-1" as digits and the power of ten that they are multiplied with.
std::pair<int64_t, int> decimal_of(double value) {
  std::string text = text::number_text(value);
  int power = 0;
  if (const size_t e = text.find('e'); e != std::string::npos) {
    power = std::stoi(text.substr(e + 1));
    text.resize(e);
  }
  if (const size_t point = text.find('.'); point != std::string::npos) {
    power -= static_cast<int>(text.size() - point - 1);
    text.erase(point, 1);
  }
  int64_t digits = std::stoll(text);
  while (digits % 10 == 0) {
    digits /= 10;
    ++power;
  }
  return {digits, power};
}

text::Int128 common_divisor(text::Int128 a, text::Int128 b) {
  while (b != 0) {
    const text::Int128 rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

}  // namespace

std::vector<int64_t> Mixture::whole_weights(const std::vector<double>& weights) {
  constexpr int kMostPowers = 20;  // with 17 digits before them 128 bits are enough
  int least = 400;
  for (const double weight : weights) least = std::min(least, decimal_of(weight).second);
  std::vector<text::Int128> scaled;
  text::Int128 divisor = 0, sum = 0;
  bool fits = true;
  for (const double weight : weights) {
    const auto [digits, power] = decimal_of(weight);
    fits = fits && power - least <= kMostPowers;
    text::Int128 value = digits;
    for (int i = least; i < power && fits; ++i) value *= 10;
    scaled.push_back(value);
    divisor = common_divisor(divisor, value);
    sum = std::min(sum + value, text::kWideMax);
  }
  if (!fits || sum / divisor > kMostWeight) {
    throw ConfigError(
        "training.data.sources: the weights have too many digits for exact shares: write fewer "
        "digits, as in 0.125");
  }
  std::vector<int64_t> whole;
  for (const text::Int128 value : scaled) whole.push_back(static_cast<int64_t>(value / divisor));
  return whole;
}

Mixture::Mixture(std::vector<int64_t> weights)
    : weights_(std::move(weights)),
      sum_(std::accumulate(weights_.begin(), weights_.end(), int64_t{0})),
      scale_(2 * (static_cast<int64_t>(weights_.size()) - 1)) {
  SMP_CHECK(!weights_.empty() && weights_.size() <= kMostSources && sum_ <= kMostWeight);
  restart();
}

// Turn m, from 1, of a source with share w / W may begin with sample n, from 1, where
// n w / W >= m - 1 + c and is due with the first one where n w / W > m - c, with c = 1 / (2
// (sources - 1)).
void Mixture::start_turns(uint32_t source) const {
  Next& next = next_[source];
  const int64_t weight = weights_[source];
  const text::Int128 step = text::Int128{sum_}, denominator = text::Int128{weight} * scale_;
  next.begin = static_cast<int64_t>(step / denominator);
  next.begin_rest = static_cast<int64_t>(step % denominator);
  const text::Int128 end = step * (scale_ - 1);
  next.end = static_cast<int64_t>(end / denominator);
  next.end_rest = static_cast<int64_t>(end % denominator);
  next.given = 0;
}

void Mixture::restart() const {
  next_sample_ = 0;
  next_.assign(weights_.size(), {});
  waiting_.clear();
  open_.clear();
  if (weights_.size() == 1) return;
  for (uint32_t source = 0; source < weights_.size(); ++source) {
    start_turns(source);
    const Next& next = next_[source];
    push_least(waiting_, Due{next.begin + (next.begin_rest > 0 ? 1 : 0), source});
  }
}

uint32_t Mixture::step() const {
  if (next_sample_ == sum_) restart();
  ++next_sample_;
  if (weights_.size() == 1) {
    ++next_[0].given;
    return 0;
  }
  while (!waiting_.empty() && waiting_.front().first <= next_sample_) {
    const uint32_t source = pop_least(waiting_).second;
    push_least(open_, Due{next_[source].end, source});
  }
  SMP_CHECK(!open_.empty());  // Tijdeman 1980, theorem 1
  const auto [due, source] = pop_least(open_);
  SMP_CHECK(next_sample_ <= due + 1);
  Next& next = next_[source];
  ++next.given;
  const int64_t weight = weights_[source], whole = sum_ / weight;
  const int64_t rest = sum_ % weight * scale_, denominator = weight * scale_;
  const auto advance = [&](int64_t& number, int64_t& fraction) {
    number += whole;
    fraction += rest;
    if (fraction >= denominator) {
      fraction -= denominator;
      ++number;
    }
  };
  advance(next.begin, next.begin_rest);
  advance(next.end, next.end_rest);
  push_least(waiting_, Due{next.begin + (next.begin_rest > 0 ? 1 : 0), source});
  return source;
}

// Keeps the turns up to `sample`, and those shortly before it.
void Mixture::fill(int64_t sample) const {
  const int64_t kept_end = kept_first_ + static_cast<int64_t>(kept_.size());
  const int64_t period = sample / sum_;
  const bool reads_on = sample >= kept_end && sample - kept_end <= sample % sum_;
  int64_t at = kept_end;
  if (!reads_on) {
    restart();
    kept_.clear();
    at = period * sum_;
    kept_first_ = at;
  }
  for (; at <= sample; ++at) {
    if (static_cast<int64_t>(kept_.size()) >= 2 * kKeptTurns) {
      kept_.erase(kept_.begin(), kept_.begin() + kKeptTurns);
      kept_first_ += kKeptTurns;
    }
    const uint32_t source = step();
    kept_.push_back({source, at / sum_ * weights_[source] + next_[source].given - 1});
  }
}

Mixture::Turn Mixture::at(int64_t sample) const {
  if (weights_.size() == 1) return {0, sample};
  const std::lock_guard lock(mutex_);
  const bool is_kept =
      sample >= kept_first_ && sample < kept_first_ + static_cast<int64_t>(kept_.size());
  if (!is_kept) fill(sample);
  return kept_[static_cast<size_t>(sample - kept_first_)];
}

std::vector<int64_t> Mixture::counts(int64_t samples) const {
  std::vector<int64_t> counts;
  for (const int64_t weight : weights_) counts.push_back(samples / sum_ * weight);
  for (int64_t sample = samples / sum_ * sum_; sample < samples; ++sample)
    ++counts[at(sample).source];
  return counts;
}

}  // namespace smp::data
