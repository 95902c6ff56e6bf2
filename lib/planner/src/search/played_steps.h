#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "cost/layer_costs.h"
#include "smp/plan/spec/plan.h"
#include "smp/planner/choice/layout_choice.h"
#include "smp/planner/time/time_model.h"

namespace smp::search {

// Times of a job's plans, as predict_time() says them. A search comes to the same one several
// times: it simulates a layout to compare it, prices it exactly, and explains it. One thread.
class PlayedSteps {
 public:
  // `plan` is one of the choice: it adds no more than how blocks are dealt, and collectives.
  // `costs`: of its layers. The reference stays valid.
  const time::TimePrediction& of(const choice::LayoutChoice& choice, const Plan& plan,
                                 const cost::LayerCosts& costs);

 private:
  struct Played {
    choice::LayoutChoice choice;
    std::vector<int64_t> blocks;  // of each chunk
    std::array<CollectivesKind, 5> collectives{};
    time::TimePrediction time = {};

    bool is_alike(const Played& other) const {
      return choice == other.choice && blocks == other.blocks && collectives == other.collectives;
    }
  };

  std::deque<Played> played_;
};

}  // namespace smp::search
