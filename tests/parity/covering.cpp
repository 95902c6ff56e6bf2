#include "parity/covering.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "parity/random.h"
#include "smp/planner/search/check_plan.h"

namespace smp::parity {
namespace {

using Sizes = std::array<int, kFactors>;

Sizes sizes_of(const Covered& wanted) {
  Sizes sizes{};
  for (size_t f = 0; f < kFactors; ++f) {
    sizes[f] = static_cast<int>(factor_names()[f].values.size());
  }
  if (!wanted.all_models) {
    sizes[kFamily] = 3;
    sizes[kDocuments] = sizes[kMasked] = sizes[kClipping] = 1;
  }
  return sizes;
}

// Some values of a choice; -1 = open.
constexpr int kOpen = -1;

// A state of every set of `size` values of different factors.
class ValueSets {
 public:
  enum State : uint8_t { kUnknown, kCovered, kIllegal };

  ValueSets(int size, const Sizes& sizes) : size_(size), sizes_(sizes) {
    for (size_t f = 0; f < kFactors; ++f) {
      places_[f] = values_;
      values_ += static_cast<size_t>(sizes_[f]);
    }
    size_t states = 1;
    for (int i = 0; i < size; ++i) states *= values_;
    states_.resize(states);
  }

  // The sets within a choice.
  template <class Visit>
  void each_in(const Choice& choice, const Visit& visit) const {
    each_in(choice, visit, 0, size_, 0);
  }

  // Every set there is, as a choice that is open elsewhere.
  template <class Visit>
  void each(const Visit& visit) const {
    Choice choice;
    choice.fill(kOpen);
    each(visit, choice, 0, size_, 0);
  }

  State operator[](size_t set) const { return states_[set]; }
  void put(size_t set, State state) { states_[set] = state; }
  int64_t count(State state) const {
    int64_t found = 0;
    each([&](size_t set, const Choice&) { found += states_[set] == state ? 1 : 0; });
    return found;
  }

 private:
  template <class Visit>
  void each_in(const Choice& choice, const Visit& visit, int factor, int left, size_t set) const {
    if (left == 0) return visit(set);
    for (int f = factor; f + left <= kFactors; ++f) {
      const int value = choice[static_cast<size_t>(f)];
      if (value == kOpen) continue;
      const size_t place = places_[static_cast<size_t>(f)] + static_cast<size_t>(value);
      each_in(choice, visit, f + 1, left - 1, set * values_ + place);
    }
  }

  template <class Visit>
  void each(const Visit& visit, Choice& choice, int factor, int left, size_t set) const {
    if (left == 0) return visit(set, std::as_const(choice));
    for (int f = factor; f + left <= kFactors; ++f) {
      int& value = choice[static_cast<size_t>(f)];
      for (value = 0; value < sizes_[static_cast<size_t>(f)]; ++value) {
        const size_t place = places_[static_cast<size_t>(f)] + static_cast<size_t>(value);
        each(visit, choice, f + 1, left - 1, set * values_ + place);
      }
      value = kOpen;
    }
  }

  int size_;
  Sizes sizes_;
  size_t values_ = 0;                      // of all factors
  std::array<size_t, kFactors> places_{};  // of each factor's first among them
  std::vector<State> states_;
};

class Drawing {
 public:
  Drawing(const Covered& wanted, const std::string& data_path)
      : wanted_(wanted), sizes_(sizes_of(wanted)), data_path_(data_path) {
    Choice choice{};
    find_sensible(choice, 0);
  }

  // From single values up, so that what excludes two values excludes all sets with both at once.
  CoveringSet draw() {
    for (int size = 1; size <= wanted_.strength; ++size) cover(size);
    while (set_.combinations.size() < wanted_.least) add_any();
    return std::move(set_);
  }

 private:
  static constexpr int kChecks = 400;     // that find no legal combination of some values
  static constexpr int kDraws = 8;        // legal ones, of which the best is taken
  static constexpr int kBeginnings = 30;  // drawn for each of these

  // Every sensible choice of the factors that is_sensible() reads.
  void find_sensible(Choice& choice, size_t depth) {
    if (depth == kSensed.size()) {
      if (is_sensible(choice)) sensible_.push_back(choice);
      return;
    }
    int& value = choice[kSensed[depth]];
    for (value = 0; value < sizes_[kSensed[depth]]; ++value) find_sensible(choice, depth + 1);
    value = 0;
  }

  void cover(int size) {
    begin(size);
    const bool is_last = size == wanted_.strength;
    for (const auto& [choice, passes] : legal_) {
      if (passes && !is_last) note(choice);
    }
    for (const Choice& values : unknown_sets()) {
      if (gain(values) == 0) continue;  // covered meanwhile
      if (const auto best = best_with(values, is_last ? kDraws : 1)) {
        note(*best);
        set_.combinations.emplace_back(*best);
      } else {
        put_all(values, ValueSets::kIllegal);
      }
    }
    set_.covered = sets_->count(ValueSets::kCovered);
    set_.illegal = sets_->count(ValueSets::kIllegal);
  }

  // Sets of so many values, of which those with an illegal part are known.
  void begin(int size) {
    const std::optional<ValueSets> smaller = std::exchange(sets_, ValueSets(size, sizes_));
    set_.combinations.clear();
    set_.searched = 0;
    if (!smaller) return;
    sets_->each([&](size_t set, const Choice& values) {
      smaller->each_in(values, [&](size_t part) {
        if ((*smaller)[part] == ValueSets::kIllegal) sets_->put(set, ValueSets::kIllegal);
      });
    });
  }

  // In an order of chance: what is left at the end then has less in common.
  std::vector<Choice> unknown_sets() {
    std::vector<Choice> unknown;
    sets_->each([&](size_t set, const Choice& values) {
      if ((*sets_)[set] == ValueSets::kUnknown) unknown.push_back(values);
    });
    for (size_t i = unknown.size(); i > 1; --i) {
      std::swap(unknown[i - 1], unknown[static_cast<size_t>(random_.below(static_cast<int>(i)))]);
    }
    return unknown;
  }

  void note(const Choice& choice) { put_all(choice, ValueSets::kCovered); }
  void put_all(const Choice& choice, ValueSets::State state) {
    sets_->each_in(choice, [&](size_t set) { sets_->put(set, state); });
  }

  // Sets that a choice would newly cover; negative if one of its sets is illegal.
  int64_t gain(const Choice& choice) const {
    int64_t found = 0;
    sets_->each_in(choice, [&](size_t set) {
      const ValueSets::State state = (*sets_)[set];
      found += state == ValueSets::kUnknown ? 1 : state == ValueSets::kIllegal ? -10000 : 0;
    });
    return found;
  }

  // The best of `draws` legal choices with these values. Nothing if no tried one is legal.
  std::optional<Choice> best_with(const Choice& values, int draws) {
    std::vector<const Choice*> beginnings;
    for (const Choice& choice : sensible_) {
      const auto fits = [&](Factor f) { return values[f] == kOpen || values[f] == choice[f]; };
      if (std::all_of(kSensed.begin(), kSensed.end(), fits)) beginnings.push_back(&choice);
    }
    if (beginnings.empty()) return std::nullopt;
    std::optional<Choice> best;
    int64_t most = -1;
    int found = 0;
    for (int i = 0; i < kChecks && found < draws; ++i) {
      const Choice choice = complete(values, beginnings, i % 2 == 1);
      const int64_t gained = gain(choice);
      if (gained < 0) continue;
      if (gained <= most) {
        ++found;
        continue;
      }
      if (!legal(choice)) continue;
      ++found;
      most = gained;
      best = choice;
    }
    if (!best) ++set_.searched;
    return best;
  }

  // One that covers much: of some drawn beginnings the best, each value then exchanged for the
  // best. Or with plain values wherever it may, which collide least.
  Choice complete(const Choice& values, const std::vector<const Choice*>& beginnings, bool plain) {
    Choice best{};
    int64_t most = std::numeric_limits<int64_t>::min();
    for (int i = 0; i < kBeginnings; ++i) {
      Choice choice =
          *beginnings[static_cast<size_t>(random_.below(static_cast<int>(beginnings.size())))];
      for (size_t f = 0; f < kFactors; ++f) {
        if (values[f] != kOpen) {
          choice[f] = values[f];
        } else if (!is_sensed(f)) {
          choice[f] = plain && random_.below(4) > 0 ? 0 : random_.below(sizes_[f]);
        }
      }
      if (const int64_t gained = gain(choice); gained > most) {
        most = gained;
        best = choice;
      }
      if (plain && most > 0) return best;  // what covers most is what is least known to be legal
    }
    if (!plain) climb(best, values, most);
    return best;
  }

  void climb(Choice& choice, const Choice& values, int64_t most) const {
    for (size_t f = 0; f < kFactors; ++f) {
      if (values[f] != kOpen || is_sensed(f)) continue;
      Choice other = choice;
      for (other[f] = 0; other[f] < sizes_[f]; ++other[f]) {
        if (const int64_t gained = gain(other); gained > most) {
          most = gained;
          choice = other;
        }
      }
    }
  }

  void add_any() {
    Choice values;
    values.fill(kOpen);
    if (const auto choice = best_with(values, 1)) set_.combinations.emplace_back(*choice);
  }

  static bool is_sensed(size_t factor) {
    return std::find(kSensed.begin(), kSensed.end(), static_cast<Factor>(factor)) != kSensed.end();
  }

  bool legal(const Choice& choice) {
    const auto [it, is_new] = legal_.try_emplace(choice, false);
    if (!is_new) return it->second;
    ++set_.checks;
    return it->second = is_legal(Combination(choice), data_path_);
  }

  Covered wanted_;
  Sizes sizes_;
  std::string data_path_;
  Random random_;
  std::vector<Choice> sensible_;
  std::map<Choice, bool> legal_;
  std::optional<ValueSets> sets_;
  CoveringSet set_;
};

}  // namespace

bool is_legal(const Combination& combination, const std::string& data_path) {
  if (!is_sensible(combination.choice)) return false;
  try {
    return search::check(combination.plan_of(combination.layout, combination.precision, data_path))
        .empty();
  } catch (const std::exception&) {  // no plan at all
    return false;
  }
}

CoveringSet covering_set(const Covered& wanted, const std::string& data_path) {
  return Drawing(wanted, data_path).draw();
}

}  // namespace smp::parity
