#include "smp/planner/time/pipeline_estimate.h"

#include <algorithm>

#include "smp/plan/base/check.h"

// A step takes as long as its longest chain of passes and messages. The busiest stage works without
// a pause but for the *ramp*: the part of the chain that lies on other stages, less what the
// busiest stage can do meanwhile. A chain is written as how often it has each kind of pass (of an
// average stage) and message, beyond the busiest stage's own passes. The chains below were found by
// changing one duration at a time in the event simulation (pipeline_time.h) of equal stages, with
// forward 1, backward 0.6 to 2.6, weight 0.5 to 1.4 and messages up to 0.3.
//
// A *loop* is a part of a chain that goes from a backward over the next forward of its stage down
// some stages and back up. Where a cap lets no more microbatches in, loops set the pace.
namespace smp::time {
namespace {

using Work = PipelineShape::Work;

double total(const Work& work) { return work.forward_s + work.backward_s + work.weight_s; }

Work plus(const Work& a, const Work& b) {
  return {a.forward_s + b.forward_s, a.backward_s + b.backward_s, a.weight_s + b.weight_s};
}

struct Chain {
  double forwards = 0, backwards = 0, weights = 0, activations = 0, gradients = 0;
};

// What the chains of a shape are made of.
struct Pace {
  double p, m;
  double q;       // p - 1
  double work;    // of the busiest stage, in the whole step
  Work busiest;   // one microbatch
  Work other;     // average of the other stages
  Work first;     // first stage
  double sf, sb;  // messages

  explicit Pace(const PipelineShape& shape)
      : p(static_cast<double>(shape.stages)),
        m(static_cast<double>(shape.microbatches)),
        q(p - 1),
        first(plus(shape.stage, shape.first)),
        sf(shape.send_activation_s),
        sb(shape.send_gradient_s) {
    Work last = plus(shape.stage, shape.last);
    const bool ends_together = shape.stages == 1 || shape.kind == PipelineKind::kZbV;
    if (ends_together) first = last = plus(first, shape.last);
    busiest = total(last) > total(first) ? last : first;
    const bool has_middle = shape.stages > (ends_together ? 1 : 2);
    if (has_middle && total(shape.stage) > total(busiest)) busiest = shape.stage;
    work = m * total(busiest);
    if (shape.stages == 1) return;
    const auto rest = [&](double Work::*part) {
      const double all = p * (shape.stage.*part) + shape.first.*part + shape.last.*part;
      return (all - busiest.*part) / q;
    };
    other = {rest(&Work::forward_s), rest(&Work::backward_s), rest(&Work::weight_s)};
  }

  double s() const { return sf + sb; }
  // Of passes through half a stage.
  double of_chunks(const Chain& chain) const {
    return of({chain.forwards / 2, chain.backwards / 2, chain.weights / 2, chain.activations,
               chain.gradients});
  }
  double of(const Chain& chain) const {
    return chain.forwards * other.forward_s + chain.backwards * other.backward_s +
           chain.weights * other.weight_s + chain.activations * sf + chain.gradients * sb;
  }
};

int64_t ceiling(int64_t a, int64_t b) { return (a + b - 1) / b; }

// GPipe: rounds of all forwards down and all backwards up; a round begins when the one before has
// come back. Forwards and backwards may have their slowest stage in different places.
double simple_seconds(const PipelineShape& shape, const Pace& pace) {
  const int64_t m = shape.microbatches;
  const int64_t cap = shape.active_microbatches > 0 ? std::min(shape.active_microbatches, m) : m;
  const auto rounds = static_cast<double>(ceiling(m, cap));
  const Work last = plus(shape.stage, shape.last);
  double forward = std::max(pace.first.forward_s, last.forward_s);
  double backward =
      std::max(pace.first.backward_s + pace.first.weight_s, last.backward_s + last.weight_s);
  if (shape.stages == 1) {
    forward = pace.first.forward_s;
    backward = pace.first.backward_s + pace.first.weight_s;
  } else if (shape.stages > 2) {
    forward = std::max(forward, shape.stage.forward_s);
    backward = std::max(backward, shape.stage.backward_s + shape.stage.weight_s);
  }
  const double once = total(pace.busiest) + pace.q * (total(pace.other) + pace.s());
  return rounds * once + (pace.m - rounds) * (forward + backward);
}

// A loop through the first `hops` + 1 stages, beyond the busiest stage's own work.
double loop_beyond_busiest(const PipelineShape& shape, const Pace& pace, int64_t hops) {
  const Work& stage = shape.stage;
  double loop = total(pace.first) - total(pace.busiest);
  const bool defers = shape.kind == PipelineKind::kZbH1;
  const double c = defers ? stage.forward_s + stage.backward_s : total(stage);
  loop += static_cast<double>(hops) * (c + pace.s());
  if (hops + 1 == shape.stages) loop += total(shape.last);
  return loop;
}

// A stage's live microbatches are one more than those of the next stage, so a loop of h stages
// below its first advances by h + 1 microbatches: it costs no more than the stages' own work, but
// for its messages. With a cap the first p - cap + 1 stages hold equally many, and a loop through
// them all advances by one.
double one_forward_one_backward_ramp(const PipelineShape& shape, const Pace& pace) {
  const int64_t p = shape.stages;
  const int64_t m = shape.microbatches;
  const double c = total(pace.busiest);
  const double once = pace.q * (total(pace.other) + pace.s());
  const int64_t cap = shape.active_microbatches > 0 ? std::min(shape.active_microbatches, p) : p;
  // A busy first stage alternates only while there are forwards left: its last p - 1 backwards
  // come at the pace of the others.
  const double others = p > 2 ? std::max(total(shape.stage), total(shape.stage) + total(shape.last))
                              : total(shape.stage) + total(shape.last);
  const double ending = std::max(others, pace.first.backward_s + pace.first.weight_s);
  const auto last_ones = static_cast<double>(std::min(m, cap) - 1);
  const double lost = last_ones * std::max(0.0, c - ending);
  const double slack = c - (c + pace.q * total(pace.other)) / pace.p;
  if (cap == p || m <= cap) {
    const auto loops = static_cast<double>(ceiling(m - 1, p));
    const double messages = (pace.m - 1 - loops) * pace.s();
    return once + std::max(-lost, messages - (pace.m - 1) * slack);
  }
  const double loop = loop_beyond_busiest(shape, pace, p - cap);
  return once + static_cast<double>(m - cap) * std::max(0.0, loop) +
         std::max(-lost, std::max(0.0, last_ones - 1) * pace.s() - last_ones * slack);
}

// What the ends of the model add where a stage has several chunks, beyond `least` of each stage.
// The first stage's extra holds up the first group of p microbatches; later it hides in the waiting
// for the last stage, whose extra comes with every microbatch. Alone, it comes with all but one
// group.
double ends_of_virtual(const PipelineShape& shape, const Pace& pace, double least) {
  const double first = std::max(0.0, total(pace.first) - least);
  const double last = std::max(0.0, total(shape.stage) + total(shape.last) - least);
  const double chunk = least / static_cast<double>(shape.virtual_stages);
  return std::max(pace.m * last + pace.p * first,
                  (pace.m - pace.p) * first + pace.p * last - chunk);
}

// Narayanan et al. 2021: the ramp takes one chunk of each other stage. Each chunk but the last is
// on its way once before the stages are full; later its messages hide behind a pass of another
// chunk, unless they take longer.
double virtual_seconds(const PipelineShape& shape, const Pace& pace) {
  const int64_t p = shape.stages;
  const int64_t v = shape.virtual_stages;
  const auto chunks = static_cast<double>(v);
  const double stage = total(shape.stage);
  const double last_c = stage + total(shape.last);
  const double least = p > 2 ? stage : std::min(total(pace.first), last_c);
  const double f = shape.stage.forward_s / chunks;
  const double c = least / chunks;
  const double once = pace.m * least + pace.q * c + (pace.p * chunks - 1) * pace.s();
  const double ends = ends_of_virtual(shape, pace, least);
  const int64_t units = shape.microbatches * v;
  const int64_t own = 2 * (p - 1) + (v - 1) * p + 1;
  const int64_t held = shape.active_microbatches > 0 ? shape.active_microbatches * v : own;
  if (held >= std::min(own, units)) {
    const auto turns = static_cast<double>(units - p * v) / 2;
    return once + ends + turns * std::max({0.0, pace.sb - f, pace.sf - (c - f)});
  }
  // Stages whose own count the cap lowers hold equally many: a loop through them advances by one.
  const int64_t odd = (own - held) % 2;
  const int64_t equal = (own - held) / 2 + 1;
  const auto below = static_cast<double>(std::max<int64_t>(0, p - equal - odd));
  const double detour = below * std::max({-2 * f, -2 * (c - f), pace.s() - c});
  const auto turns = static_cast<double>(units - held);
  if (equal == 1) {  // a loop of one hop advances by two
    const double half = turns / 2;
    const double longer = half + pace.p - 2;
    return once + ends +
           std::max({0.0, detour + half * pace.s(), (half - 2) * pace.s() - 2 * c,
                     (half - 2) * pace.sf + longer * pace.sb - pace.p * f,
                     longer * pace.sf + (half - 2) * pace.sb - pace.p * (c - f)});
  }
  // The first stage is in every loop, the last one only where all hold equally many.
  const double first = std::max(0.0, total(pace.first) - least);
  const double last = std::max(0.0, last_c - least);
  const double loops = turns * static_cast<double>(equal - 1) * (c + pace.s()) + pace.m * first +
                       (equal == p ? pace.m : 1) * last;
  return once + static_cast<double>(odd) * pace.s() + detour + std::max(ends, loops);
}

// Qi et al. 2023. Stages hold alike, so a cap below p makes loops of p - cap hops.
double zb_h1_ramp(const PipelineShape& shape, const Pace& pace) {
  const int64_t p = shape.stages;
  const int64_t m = shape.microbatches;
  int64_t held = std::min(p, m);
  if (shape.active_microbatches > 0) held = std::min(held, shape.active_microbatches);
  const double q = pace.q;
  const auto more = static_cast<double>(held - 1);
  const double late = std::min(more, static_cast<double>(std::max<int64_t>(0, m - 2)));
  double ramp = std::max({pace.of({q, q, -more, q + late, q + late}),
                          pace.of({q - more, q, 0, q, q}), pace.of({q, 0, 0, q + late, late})});
  const auto loops = static_cast<double>(m - 1 - ceiling(m - 1, p));
  if (held == p && loops > q) {
    ramp = std::max(ramp, pace.of({q, q, -loops, q + loops, q + loops}));
  }
  if (held == p) return ramp;
  return ramp +
         static_cast<double>(m - held) * std::max(0.0, loop_beyond_busiest(shape, pace, p - held));
}

// Qi et al. 2024. e is by how many microbatches there are more than stages; from 2p - 1 on the
// stages are full. Passes are those of half a stage.
double zb_v_ramp(const Pace& pace) {
  const double q = pace.q;
  const double e = std::clamp(pace.m - pace.p, 0.0, q);
  const double g = std::max(0.0, e - 1);
  double ramp = 0;
  const auto consider = [&](const Chain& chain) { ramp = std::max(ramp, pace.of_chunks(chain)); };
  consider({0, 2 * q, -2 * e, 2 * q, 2 * q + 2 * g});
  consider({g, 2 * q - g, -2 * e, 2 * q + g, 2 * q + g});
  if (e < 1) {
    const double missing = std::max(0.0, pace.p - pace.m);
    consider({2 * missing, 2 * q, 0, 2 * q, 2 * q});
    consider({q + missing, q + missing, 0, q + missing, q + missing});
    return ramp;
  }
  const double odd = -2 * e - 1;
  consider({0, q, 0, 2 * q, q + 2 * e - 2});
  consider({0, 2 * q - 2 * e, 0, 2 * q, 2 * q - 2 * e});
  consider({0, 2 * q - e, -e, 2 * q, 2 * q});
  consider({0, 2 * q - e, e - q, 2 * q, 2 * q - 2 + e});
  consider({0, 2 * q, odd, 2 * q, 2 * q + 2 * e});
  consider({0, q - g, g, 2 * q, q});
  consider({e, 2 * q - e, odd, 2 * q + e, 2 * q + e});
  consider({e, 2 * q - 2 * e, -e, 2 * q + e, 2 * q - e});
  consider({g, q - g, 0, 2 * q + g, q + g});
  consider({q + e, q - e, odd, q + e, q + e});
  consider({q + e, q - 2 * e, -e, q + e, q - e});
  consider({q + g, q - g, -2 * e, q + g, q + g});
  consider({q + g, -g, 0, q + g, g});
  if (e < q) return ramp;
  consider({2 * q, -q, -1, 2 * q, q});
  consider({q, 0, -1, 3 * q, 2 * q});
  return ramp;
}

// Both ends of the model lie on stage 0. How many microbatches' extra lengthens the step: all but a
// few where the stages are full, and what hides behind the turn of the first ones where they are
// not; between, in proportion. Fitted on simulations of 4 to 14 stages whose ends take up to a
// third more.
double zb_v_seconds(const PipelineShape& shape, const Pace& pace) {
  const double p = pace.p;
  const double full = std::clamp((pace.m - p) / p, 0.0, 1.0);
  const double beyond = std::max(0.0, pace.m - 2 * p);
  const double firsts = beyond + (1 - full) * std::min(pace.m, p) / 3 + full * 1.2 * p;
  const double lasts = beyond + (1 - full) + full * (2 * p - 2);
  const double others = pace.m * total(pace.other) + zb_v_ramp(pace);
  return std::max(pace.work, others + firsts * std::max(0.0, total(shape.first)) +
                                 lasts * std::max(0.0, total(shape.last)));
}

}  // namespace

double pipeline_seconds(const PipelineShape& shape) {
  SMP_CHECK(shape.stages >= 1 && shape.microbatches >= 1 && shape.virtual_stages >= 1);
  const Pace pace(shape);
  if (shape.kind == PipelineKind::kSimple) return simple_seconds(shape, pace);
  if (shape.stages == 1) return pace.work;
  switch (shape.kind) {
    case PipelineKind::kSimple: break;
    case PipelineKind::kInterleaved: return pace.work + one_forward_one_backward_ramp(shape, pace);
    case PipelineKind::kVirtual: return virtual_seconds(shape, pace);
    case PipelineKind::kZbH1: return pace.work + zb_h1_ramp(shape, pace);
    case PipelineKind::kZbV: return zb_v_seconds(shape, pace);
  }
  check_failed(__FILE__, __LINE__, "unknown schedule");
}

double least_pipeline_seconds(const PipelineShape& shape) {
  const auto m = static_cast<double>(shape.microbatches);
  const Work first = plus(shape.stage, shape.first);
  const bool ends_together = shape.stages == 1 || shape.kind == PipelineKind::kZbV;
  const Work ends = ends_together ? plus(first, shape.last) : first;
  double least = m * total(ends);
  if (shape.stages == 1) return least;
  const double chunks = shape.kind == PipelineKind::kZbV
                            ? 2
                            : static_cast<double>(std::max<int64_t>(1, shape.virtual_stages));
  const bool comes_back = shape.kind != PipelineKind::kZbH1 && shape.kind != PipelineKind::kZbV;
  // To a stage behind `others` average ones and the first, and back.
  const auto way = [&](double others) {
    const double forward = std::max(0.0, first.forward_s) + others * shape.stage.forward_s;
    const double backward = std::max(0.0, first.backward_s + first.weight_s) +
                            others * (shape.stage.backward_s + shape.stage.weight_s);
    return (forward + (comes_back ? backward : 0)) / chunks +
           (others + 1) * (shape.send_activation_s + (comes_back ? shape.send_gradient_s : 0));
  };
  const auto stages = static_cast<double>(shape.stages);
  if (ends_together) return std::max(least, m * total(shape.stage) + way(stages - 2));
  if (shape.stages > 2) least = std::max(least, m * total(shape.stage) + way(stages - 3));
  return std::max(least, m * total(plus(shape.stage, shape.last)) + way(stages - 2));
}

}  // namespace smp::time
