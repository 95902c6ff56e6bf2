#pragma once

#include <vector>

#include "search/pricer.h"

// Of times that are equal within the noise of measuring, the simpler layout is the better one.
namespace smp::search {

// Predicted times that differ by less say nothing: the same plan measured twice differs by 3 to 6
// %.
inline constexpr double kNoise = 1.03;

// How much a layout asks of those who run it, in points: each doubling of a degree that splits the
// model 8 (of experts 4), of z and of the microbatches 1; ZeRO 1, 2, 3 add 2, 3, 4; recomputing the
// core of attention 1, whole layers 2, a part of them 3; virtual stages 4, zero-bubble 6;
// offloading activations 6, optimizer 8, parameters 10; uneven stages 3; spread placement 2.
int complexity(const choice::LayoutChoice& choice);

// Whether `a` is faster, or as fast and takes less: whole sequences, then memory.
bool is_better(const Candidate& a, const Candidate& b);

// The Pareto front of complexity and time: candidates that no simpler one beats in time, by
// ascending complexity.
class SimplicityFront {
 public:
  void offer(const Candidate& candidate);
  // The simplest within `noise` of the fastest; null when nothing was offered.
  const Candidate* choose(double noise = kNoise) const;
  const Candidate* fastest() const { return steps_.empty() ? nullptr : &steps_.back().candidate; }
  bool empty() const { return steps_.empty(); }

 private:
  struct Step {
    int complexity = 0;
    Candidate candidate;
  };
  std::vector<Step> steps_;
};

}  // namespace smp::search
