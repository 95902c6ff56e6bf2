#include "cost/mamba_layer.h"

#include <algorithm>

#include "cost/rank_order.h"
#include "links/link_model.h"
#include "links/rate.h"
#include "smp/plan/model/hybrid.h"
#include "smp/planner/cost/call_bytes.h"

namespace smp::cost {
namespace {

// Share of the matmul rate that the scan's kernels reach: that of flash attention's backward, whose
// products are as small. No figures of the scan's kernels alone are published.
constexpr double kScanRate = 0.29;
// The backward makes the chunks' states again, and two gradients of each product
// (mamba_ssm/ops/triton/ssd_combined.py).
constexpr double kScanBackward = 3;
// Of a forward: sums of time steps, states of chunks, their passing on, scores, the scan.
constexpr double kScanKernels = 5;

struct MambaColumns {
  MambaColumns(const ModelSpec& model, double ranks)
      : inner(static_cast<double>(model::mamba_inner(model)) / ranks),
        convolved(static_cast<double>(model::mamba_convolved(model)) / ranks),
        projected(static_cast<double>(model::mamba_projected(model)) / ranks),
        // Of fp32 states, one for each chunk: by token.
        states(inner * static_cast<double>(model.mamba_state_dim) /
               static_cast<double>(model.mamba_chunk_size)) {}

  double inner, convolved, projected, states;
};

double ranks_of_heads(const PricedCall& call) {
  return call.job.parallel.tensor_parallel.attention ? call.t : 1;
}

}  // namespace

void mamba(LayerWork& work, const PricedCall& call) {
  const double ranks = ranks_of_heads(call);
  const MambaColumns columns(call.model, ranks);
  linear(work, call, call.tokens, call.h, columns.projected, false);

  passes(work.forward, call, 2 * call.tokens * columns.convolved, 1);
  passes(work.backward, call, 5 * call.tokens * columns.convolved, 2);

  const double rate =
      call.core_rates.flops_per_s * (call.core_rates.multiprocessors > 0 ? kScanRate : 1);
  const double scan = links::over(call.tokens * model::mamba_scan_flops(call.model) / ranks, rate);
  work.forward.matmul_s += scan;
  work.backward.matmul_s += kScanBackward * scan;
  // Three kernels read the stream, B and C; the gate and both outputs; states are written, passed
  // on and read.
  const double values =
      3 * columns.convolved + 3 * columns.inner + 4 * columns.states * kFp32Bytes / call.element;
  passes(work.forward, call, call.tokens * values, kScanKernels);
  passes(work.backward, call, kScanBackward * call.tokens * values, 2 * kScanKernels);

  norm(work, call, call.tokens, columns.inner);
  linear(work, call, call.tokens, columns.inner, call.h, false);
}

double mamba_exchange_s(const PricedCall& call, const choice::LayoutChoice& choice) {
  if (choice.context == 1) return 0;
  const MambaColumns columns(call.model, ranks_of_heads(call));
  const links::Placement group = context_placement(choice, call.job);
  const double row = call.element * call.tokens;
  return links::all_to_all_s(row * columns.projected, group, call.cluster) +
         links::all_to_all_s(row * columns.inner, group, call.cluster);
}

MambaBytes mamba_bytes(const ModelSpec& model, double tokens, double element, double ranks) {
  const MambaColumns columns(model, ranks);
  const double row = element * tokens;
  MambaBytes bytes;
  // The projection, the scan's output before the gate, and after it, which the norm reads.
  bytes.kept = row * (columns.projected + 2 * columns.inner) + kFp32Bytes * tokens;
  bytes.output_input = row * columns.inner;
  // The projection's gradient, the convolution again with its gradient, the gradient of the
  // output, and the states of chunks with theirs.
  bytes.backward = row * (columns.projected + 2 * columns.convolved + 2 * columns.inner) +
                   2 * kFp32Bytes * tokens * columns.states;
  return bytes;
}

}  // namespace smp::cost
