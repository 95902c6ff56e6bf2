#pragma once

#include <deque>
#include <map>
#include <tuple>
#include <vector>

#include "choice/resolve.h"
#include "search/exact.h"
#include "search/pricer.h"
#include "search/search_space.h"

namespace smp::search {

// The exact tier of the strategy fastest: prices the layouts near the best by simulation. The most
// promising layout comes first. The search ends when no layout left can be faster than the best by
// more than kLeftOut. The ratio of simulation to closed form in one layout predicts the ratio in
// others of its form: it orders them and excludes none. Exact prices alone contain what the choice
// of collectives saves, so that is estimated before a layout is left out. A layout whose exact
// memory is too much is replaced by those that recompute a little more. One thread.
class ExactSearch {
 public:
  // `candidates`: all layouts that fit, by ascending time. All four must outlive it.
  ExactSearch(const choice::JobWithDefaults& defaulted, const SearchSpace& space, Pricer& pricer,
              const std::vector<Candidate>& candidates);

  // False when nothing fits by its exact price.
  bool run();
  // Seconds a token of the fastest that was priced; after run().
  double best() const { return best_; }
  // Of what takes no more than kNoise times the fastest: the simplest. After run().
  ExactLayout take_winner();
  // Everything else that was priced exactly and fits, fastest first; after take_winner().
  std::vector<ExactLayout> take_others() { return std::move(priced_); }

  // No layout that was left out is faster than the fastest by more than this.
  static constexpr double kLeftOut = 0.01;

 private:
  // Layouts whose simulations are off their closed forms alike.
  using Form = std::tuple<int32_t, PipelineKind, int32_t, bool, int32_t, int32_t,
                          choice::PlacementStrategy, Sharding>;
  static Form form_of(const choice::LayoutChoice& choice);
  // Layouts for which collectives save alike.
  using Traffic = std::tuple<int32_t, int32_t, int32_t, int32_t, int32_t, int32_t, Sharding, bool,
                             bool, int32_t, int32_t, Recompute>;
  static Traffic traffic_of(const choice::LayoutChoice& choice);
  double expected(const Candidate& candidate) const;
  bool is_refused(const Candidate& candidate) const;
  bool may_win(const Candidate& candidate);
  // The step with the collectives that are chosen, over that of the closed form.
  double collectives_ratio(const choice::LayoutChoice& choice);
  // The same layout with the fewest layers recomputed more that fit in closed form.
  const Candidate* leaner(const choice::LayoutChoice& choice);
  double simulate(const Candidate& candidate);
  // Null when it does not fit.
  const ExactLayout* price(const Candidate& candidate);
  size_t fastest() const;

  const choice::JobWithDefaults& defaulted_;
  const SearchSpace& space_;
  Pricer& pricer_;
  const std::vector<Candidate>& candidates_;
  std::deque<Candidate> leaner_;
  std::map<Form, double> ratios_;  // simulated over closed form
  std::map<Traffic, double> collectives_ratios_;
  std::vector<ExactLayout> priced_;
  double best_;  // seconds a token of the fastest that was priced
  size_t simulated_ = 0;
  std::vector<Candidate> refused_;  // beyond their memory by the exact price
};

}  // namespace smp::search
