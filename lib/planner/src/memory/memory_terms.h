#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cost/activation_walk.h"
#include "smp/plan/layout/layout.h"
#include "smp/plan/spec/plan.h"

// The named terms of a rank's memory, each with its formula and source, from its layout and the
// fullest instant of its stage's walk. Pure.
namespace smp::memory {

// The terms of one rank class, collected in the order in which the report shows them.
class Terms {
 public:
  void add(std::string name, MemoryCategory category, int64_t bytes, std::string formula,
           std::string source) {
    if (bytes != 0) {
      list_.push_back({std::move(name), category, bytes, std::move(formula), std::move(source)});
    }
  }
  int64_t total() const {
    int64_t sum = 0;
    for (const MemoryTerm& term : list_) sum += term.bytes;
    return sum;
  }
  const std::vector<MemoryTerm>& list() const { return list_; }
  std::vector<MemoryTerm> take() { return std::move(list_); }

 private:
  std::vector<MemoryTerm> list_;
};

// Weights, gradients and optimizer state of the rank, which live through the whole step: on the
// device, and what is offloaded, with the buffers of its update, on the host.
void add_states(Terms& device, Terms& host, const Plan& plan, const layout::RankLayout& layout);
// The buffers that sharded gradients and weights need besides their shards; they are never given
// back.
void add_working_set(Terms& terms, const Plan& plan, const layout::RankLayout& layout);
void add_activations(Terms& terms, const Plan& plan, const cost::ActivationBytes& now,
                     bool forward);
// The batch that a rank reads while it computes the one before, on the host.
void add_read_ahead(Terms& terms, const Plan& plan, const layout::RankLayout& layout);
// What does not change during the step. `blocks`: transformer layers of the stage.
void add_constants(Terms& terms, const Plan& plan, int64_t rank, int64_t blocks);

bool on_cpu(const Plan& plan);
bool offloads(const Plan& plan);
// Bytes of one boundary tensor, [micro batch, sequence, hidden].
int64_t boundary_bytes(const Plan& plan);

}  // namespace smp::memory
