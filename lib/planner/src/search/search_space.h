#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "choice/batch.h"
#include "choice/forbid.h"
#include "choice/resolve.h"
#include "cost/layer_cost_table.h"

namespace smp::search {

// Kinds of offloading that are used together.
struct Offload {
  bool activations = false;
  bool optimizer = false;
  bool parameters = false;
};

// What the pins, the framework, the engine and `forbid` leave open, dimension by
// dimension. Values stand in the order in which a search tries them, the cheapest in time first.
// Immutable.
class SearchSpace {
 public:
  explicit SearchSpace(const choice::JobWithDefaults& defaulted);

  // Degrees that split the model; shard and replica are left 1.
  struct Split {
    int32_t tensor = 1, pipeline = 1, context = 1, exchange = 1, expert = 1, expert_tensor = 1;
    int64_t data = 1;
    // As LayoutChoice has them; of zb_v, whose first stage has both ends of the model.
    struct Ends {
      int32_t first = 0, last = 0;
    } ends, ends_together;
  };
  const std::vector<Split>& splits() const { return splits_; }

  // Schedules of a split at a batch. Where stages may be uneven each comes a second time, even:
  // what is slower may fit where the faster does not.
  struct ScheduleChoice {
    PipelineKind kind = PipelineKind::kInterleaved;
    int32_t virtual_stages = 1;
    bool even = false;  // stages as even as possible, whatever partition_method finds faster
  };
  // Why no schedule of the split is legal with any of the batches; empty where one is.
  std::string schedules_problem(const Split& split,
                                const std::vector<choice::BatchShape>& batches) const;
  std::vector<ScheduleChoice> schedules(const Split& split, const choice::BatchShape& batch) const;

  struct ShardingChoice {
    Sharding kind = Sharding::kNone;
    int32_t degree = 1;
  };
  // By ascending degree; within one none, optimizer_state, gradients, parameters.
  std::vector<ShardingChoice> shardings(const Split& split) const;

  // Sets both, and the ends of the partition that the closed form is to know.
  void set_schedule(const Split& split, const ScheduleChoice& schedule,
                    choice::LayoutChoice& choice) const;

  // What is the fastest in few jobs, and so is tried last: all forward, then all backward; few
  // tokens a context rank; many a microbatch; stages apart with several ranks a layer; chunks of
  // unequal size.
  bool is_rare(const choice::LayoutChoice& choice) const;

  std::vector<bool> sequence_parallel(const Split& split) const;
  std::vector<choice::PlacementStrategy> placements(const Split& split) const;
  const std::vector<Recompute>& recomputes() const { return recomputes_; }
  // Whether a part of the stage's layers may be recomputed.
  bool recompute_layers_open() const { return recompute_layers_open_; }
  const std::vector<Offload>& offloads() const { return offloads_; }
  const choice::Forbidden& forbidden() const { return forbidden_; }
  const JobSpec& job() const { return job_; }

  // A choice with what is pinned or has no alternative.
  choice::LayoutChoice first_choice(const Split& split, const choice::BatchShape& batch) const;

 private:
  bool engine_runs(void (*change)(ParallelSpec&)) const;
  bool offers_parameters() const;
  void open_splits();
  bool deals_to_chunks() const;
  schedule::ScheduleShape shape_of(const Split& split, const choice::BatchShape& batch,
                                   PipelineKind kind, int64_t chunks) const;
  Split::Ends ends_of(const Split& split, PipelineKind kind, cost::LayerCostTable& costs) const;

  const JobSpec& job_;
  bool balances_ = false;                  // stages may be uneven to be as fast
  bool deals_to_chunks_ = false;           // blocks need not be as many in each chunk
  bool engine_ = false;                    // what is chosen must run on the engine
  std::vector<std::string> engine_lacks_;  // whatever is chosen
  choice::Forbidden forbidden_;
  std::vector<Split> splits_;
  std::vector<Sharding> kinds_;
  std::vector<PipelineKind> schedules_;
  std::vector<Recompute> recomputes_;
  bool recompute_layers_open_ = false;
  std::vector<Offload> offloads_;
  bool sequence_parallel_open_ = false;
  bool spread_open_ = false;
};

}  // namespace smp::search
