#include "schedule/receive_plan.h"

#include <algorithm>
#include <limits>

#include "smp/plan/base/check.h"

// simple and interleaved start a receive just before the pass that precedes its use computes: the
// transfer hides behind one computation, and no more than one receive buffer exists ahead of its
// use. There a stage's passes follow each other as its messages arrive.
//
// In the other schedules a message may be used long after later messages of its channel, which
// belong to another chunk or the other direction. There a receive starts when its sender is ready,
// on a timeline with textbook durations of passes and messages without duration. No action waits
// for a later one on this timeline, so there is no deadlock. The receives of a channel start in the
// order of its sends.
namespace smp::schedule {
namespace {

using Orders = std::vector<std::vector<Pass>>;

Neighbour neighbour_at(const ScheduleShape& shape, int64_t stage, int64_t position) {
  if (position < 0 || position >= shape.stages * shape.chunks()) return {};
  const ChunkPlace place = place_of_chunk(shape, position);
  return {place.stage != stage, place};
}

// Start times of all passes, per stage.
class Timeline {
 public:
  Timeline(const ScheduleShape& shape, const Orders& orders)
      : shape_(shape),
        orders_(orders),
        backward_length_(defers_weight_gradients(shape.kind) ? 1 : 2),
        last_position_(shape.stages * shape.chunks() - 1),
        starts_(orders.size()),
        clock_(orders.size(), 0) {
    const auto slots = static_cast<size_t>(shape.stages * shape.chunks() * shape.microbatches);
    forward_end_.assign(slots, kNever);
    backward_end_.assign(slots, kNever);
    for (size_t stage = 0; stage < orders.size(); ++stage) {
      starts_[stage].reserve(orders[stage].size());
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < orders.size(); ++stage) {
        while (starts_[stage].size() < orders[stage].size() && run(stage)) moved = true;
      }
    }
    for (size_t stage = 0; stage < orders.size(); ++stage) {
      SMP_CHECK_EQ(starts_[stage].size(), orders[stage].size());
    }
  }

  const std::vector<int32_t>& starts(int64_t stage) const {
    return starts_[static_cast<size_t>(stage)];
  }
  int32_t end(int64_t stage, size_t pass) const {
    return starts(stage)[pass] + length(orders_[static_cast<size_t>(stage)][pass]);
  }

 private:
  static constexpr int32_t kNever = std::numeric_limits<int32_t>::max();

  int32_t length(const Pass& pass) const {
    return pass.kind == PassKind::kBackward ? backward_length_ : 1;
  }
  size_t slot(int64_t position, const Pass& pass) const {
    return static_cast<size_t>(position * shape_.microbatches + pass.microbatch);
  }

  // Runs the next pass of the stage; false = its input does not exist yet.
  bool run(size_t stage) {
    const Pass& pass = orders_[stage][starts_[stage].size()];
    const int64_t position =
        position_of_chunk(shape_, {static_cast<int64_t>(stage), int64_t{pass.chunk}});
    int32_t begin = clock_[stage];
    std::vector<int32_t>* ends = nullptr;
    if (pass.kind == PassKind::kForward) {
      ends = &forward_end_;
      if (position > 0) begin = std::max(begin, (*ends)[slot(position - 1, pass)]);
    } else if (pass.kind == PassKind::kBackward) {
      ends = &backward_end_;
      if (position < last_position_) {
        begin = std::max(begin, (*ends)[slot(position + 1, pass)]);
      }
    }
    if (begin == kNever) return false;
    starts_[stage].push_back(begin);
    clock_[stage] = begin + length(pass);
    if (ends != nullptr) (*ends)[slot(position, pass)] = clock_[stage];
    return true;
  }

  const ScheduleShape& shape_;
  const Orders& orders_;
  const int32_t backward_length_;
  const int64_t last_position_;
  std::vector<std::vector<int32_t>> starts_;
  std::vector<int32_t> clock_;
  std::vector<int32_t> forward_end_, backward_end_;  // by position and microbatch
};

std::vector<StartReceive> just_in_time(const ScheduleShape& shape, int64_t stage,
                                       const std::vector<Pass>& order) {
  const Neighbours neighbours(shape, stage);
  std::vector<StartReceive> receives;
  receives.reserve(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const Neighbour& source = neighbours.source_of(order[i]);
    const auto pass = static_cast<int64_t>(i);
    if (source.exists) receives.push_back({pass - 1, pass, source.place.stage});
  }
  return receives;
}

// The pass of each stage that uses a received message: its index, by payload, chunk and microbatch.
class Uses {
 public:
  Uses(const ScheduleShape& shape, const std::vector<Pass>& order)
      : shape_(shape),
        index_(static_cast<size_t>(2 * shape.chunks() * shape.microbatches), int32_t{-1}) {
    for (size_t i = 0; i < order.size(); ++i) {
      if (order[i].kind != PassKind::kWeight) index_[slot(order[i])] = static_cast<int32_t>(i);
    }
  }
  int64_t of(const Pass& pass) const { return index_[slot(pass)]; }

 private:
  size_t slot(const Pass& pass) const {
    const int64_t half = pass.kind == PassKind::kBackward ? shape_.chunks() : 0;
    return static_cast<size_t>((half + pass.chunk) * shape_.microbatches + pass.microbatch);
  }
  const ScheduleShape& shape_;
  std::vector<int32_t> index_;
};

class WhenReady {
 public:
  WhenReady(const ScheduleShape& shape, const Orders& orders)
      : shape_(shape), orders_(orders), timeline_(shape, orders) {
    for (int64_t stage = 0; stage < shape.stages; ++stage) neighbours_.emplace_back(shape, stage);
  }

  std::vector<StartReceive> of(int64_t stage) const {
    const Uses uses(shape_, orders_[static_cast<size_t>(stage)]);
    std::vector<StartReceive> receives;
    std::vector<int64_t> peers;
    for (const int64_t peer : {stage - 1, stage + 1, int64_t{0}, shape_.stages - 1}) {
      const bool known = std::find(peers.begin(), peers.end(), peer) != peers.end();
      if (peer < 0 || peer >= shape_.stages || peer == stage || known) continue;
      peers.push_back(peer);
      if (!neighbours_[static_cast<size_t>(peer)].send_to(stage)) continue;
      const auto others = static_cast<std::ptrdiff_t>(receives.size());
      add_channel(peer, stage, uses, receives);
      std::inplace_merge(receives.begin(), receives.begin() + others, receives.end(),
                         [](const StartReceive& a, const StartReceive& b) {
                           return a.before_pass < b.before_pass;
                         });
    }
    return receives;
  }

 private:
  // In the order of `before_pass`.
  void add_channel(int64_t from, int64_t to, const Uses& uses,
                   std::vector<StartReceive>& receives) const {
    const std::vector<Pass>& sending = orders_[static_cast<size_t>(from)];
    const Neighbours& neighbours = neighbours_[static_cast<size_t>(from)];
    const std::vector<int32_t>& starts = timeline_.starts(to);
    const size_t begin = receives.size();
    int64_t running = -1;  // pass of the receiver
    for (size_t i = 0; i < sending.size(); ++i) {
      const Neighbour& target = neighbours.target_of(sending[i]);
      if (!target.exists || target.place.stage != to) continue;
      const int32_t sent = timeline_.end(from, i);
      while (running + 1 < static_cast<int64_t>(starts.size()) &&
             starts[static_cast<size_t>(running + 1)] <= sent) {
        ++running;
      }
      Pass received = sending[i];
      received.chunk = static_cast<int16_t>(target.place.chunk);
      const int64_t use = uses.of(received);
      receives.push_back({std::min(use - 1, running), use, from});
    }
    for (size_t i = receives.size(); i-- > begin + 1;) {
      receives[i - 1].before_pass = std::min(receives[i - 1].before_pass, receives[i].before_pass);
    }
  }

  const ScheduleShape& shape_;
  const Orders& orders_;
  const Timeline timeline_;
  std::vector<Neighbours> neighbours_;  // by stage
};

}  // namespace

Neighbours::Neighbours(const ScheduleShape& shape, int64_t stage) {
  for (int64_t chunk = 0; chunk < shape.chunks(); ++chunk) {
    const int64_t position = position_of_chunk(shape, {stage, chunk});
    of_chunk_.push_back(
        {neighbour_at(shape, stage, position - 1), neighbour_at(shape, stage, position + 1)});
  }
}

bool Neighbours::send_to(int64_t stage) const {
  return std::any_of(of_chunk_.begin(), of_chunk_.end(), [&](const Sides& sides) {
    const auto is_of = [&](const Neighbour& one) { return one.exists && one.place.stage == stage; };
    return is_of(sides.before) || is_of(sides.after);
  });
}

std::vector<std::vector<StartReceive>> plan_receives(const ScheduleShape& shape,
                                                     const Orders& orders) {
  std::vector<std::vector<StartReceive>> receives;
  if (shape.kind == PipelineKind::kSimple || shape.kind == PipelineKind::kInterleaved) {
    for (int64_t stage = 0; stage < shape.stages; ++stage) {
      receives.push_back(just_in_time(shape, stage, orders[static_cast<size_t>(stage)]));
    }
    return receives;
  }
  const WhenReady ready(shape, orders);
  for (int64_t stage = 0; stage < shape.stages; ++stage) receives.push_back(ready.of(stage));
  return receives;
}

}  // namespace smp::schedule
