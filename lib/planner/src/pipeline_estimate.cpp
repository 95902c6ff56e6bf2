#include "smp/planner/pipeline_estimate.h"

#include <algorithm>

#include "smp/plan/check.h"

// Words: c is the time of one microbatch on a stage (forward, backward, weight); s a message there
// and one back. A *loop* is a chain that goes from a backward over the next forward of its stage
// down some stages and back up; where loops take longer than the stages' own work, they set the
// pace.
namespace smp {
namespace {

double total(const PipelineShape::Work& work) {
  return work.forward_s + work.backward_s + work.weight_s;
}

struct Times {
  double p, m, v;
  double f, b, w;  // of an average stage
  double sum;      // of c over the stages
  double busiest;  // largest c
  double s;        // there and back
  double first_c;  // c of the first stage

  explicit Times(const PipelineShape& shape)
      : p(static_cast<double>(shape.stages)),
        m(static_cast<double>(shape.microbatches)),
        v(static_cast<double>(shape.virtual_stages)),
        f(shape.stage.forward_s),
        b(shape.stage.backward_s),
        w(shape.stage.weight_s),
        s(shape.send_activation_s + shape.send_gradient_s) {
    const double c = total(shape.stage);
    const double first = total(shape.first);
    const double last = total(shape.last);
    sum = p * c + first + last;
    first_c = c + first;
    const bool ends_together = shape.stages == 1 || shape.kind == PipelineKind::kZbV;
    busiest = ends_together ? c + first + last : std::max(first_c, c + last);
    if (shape.stages > 2) busiest = std::max(busiest, c);
  }
};

// GPipe: rounds of all forwards down and all backwards up; a round begins when the one before has
// come back.
double simple_seconds(const PipelineShape& shape, const Times& t) {
  const int64_t m = shape.microbatches;
  const int64_t cap = shape.active_microbatches > 0 ? std::min(shape.active_microbatches, m) : m;
  const auto rounds = static_cast<double>((m + cap - 1) / cap);
  const double c = total(shape.stage);
  double forward = std::max(shape.first.forward_s, shape.last.forward_s);
  double backward = std::max(total(shape.first) - shape.first.forward_s,
                             total(shape.last) - shape.last.forward_s);
  if (shape.stages == 1) {
    forward = shape.first.forward_s + shape.last.forward_s;
    backward = total(shape.first) + total(shape.last) - forward;
  } else if (shape.stages > 2) {
    forward = std::max(forward, 0.0);
    backward = std::max(backward, 0.0);
  }
  return rounds * (t.sum + (t.p - 1) * t.s) + (t.m - rounds) * (c + forward + backward);
}

double one_forward_one_backward_seconds(const PipelineShape& shape, const Times& t) {
  const int64_t p = shape.stages;
  const int64_t m = shape.microbatches;
  const double once = t.sum + (t.p - 1) * t.s;  // one microbatch down and up
  const double even = t.sum / t.p;
  const int64_t cap = shape.active_microbatches > 0 ? std::min(shape.active_microbatches, p) : p;
  if (cap == p || m <= cap) {
    // A loop of h stages below its first advances by h + 1 microbatches and waits for h messages
    // there and back; the fewest loops wait longest.
    const auto loops = static_cast<double>((m - 1 + p - 1) / p);
    return once + std::max((t.m - 1) * t.busiest, (t.m - 1) * even + (t.m - 1 - loops) * t.s);
  }
  // The first p - cap + 1 stages hold equally many: each new microbatch must go down all of them
  // and up again before the next one may enter.
  const auto stages = static_cast<double>(p - cap + 1);
  const double loop =
      cap == 1 ? t.sum + (stages - 1) * t.s : (stages - 1) * even + t.first_c + (stages - 1) * t.s;
  const auto rest = static_cast<double>(cap - 1);
  return once + static_cast<double>(m - cap) * std::max(loop, t.busiest) +
         std::max(rest * t.busiest, rest * even + std::max(0.0, rest - 1) * t.s);
}

// Narayanan et al. 2021: the ramps last one chunk a stage. Messages delay each of the v ways round
// all stages that the first microbatch takes before the stages are full.
double virtual_seconds(const PipelineShape&, const Times& t) {
  const double ramp = (t.sum - t.busiest) / t.v + (t.p - 1) * t.s;
  return t.m * t.busiest + std::max(0.0, ramp + (t.v - 1) * t.p * t.s);
}

// Qi et al. 2023: stages wait only for the first forward to come down and its gradient to come up,
// less the weight gradients that are put off meanwhile.
double zb_h1_seconds(const PipelineShape&, const Times& t) {
  const double ramp = (t.p - 1) * std::max(t.f, t.f + t.b - t.w);
  return t.m * t.busiest + ramp + (t.p - 1) * t.s;
}

double zb_v_seconds(const PipelineShape&, const Times& t) {
  const double ramp = (t.p - 1) * t.f / 2;
  return t.m * t.busiest + ramp + 2 * (t.p - 1) * t.s;
}

}  // namespace

double pipeline_seconds(const PipelineShape& shape) {
  SMP_CHECK(shape.stages >= 1 && shape.microbatches >= 1 && shape.virtual_stages >= 1);
  const Times times(shape);
  switch (shape.kind) {
    case PipelineKind::kSimple: return simple_seconds(shape, times);
    case PipelineKind::kInterleaved: return one_forward_one_backward_seconds(shape, times);
    case PipelineKind::kVirtual: return virtual_seconds(shape, times);
    case PipelineKind::kZbH1: return zb_h1_seconds(shape, times);
    case PipelineKind::kZbV: return zb_v_seconds(shape, times);
  }
  check_failed(__FILE__, __LINE__, "unknown schedule");
}

}  // namespace smp
