#include "cost/adapter_work.h"

#include "cost/rank_order.h"
#include "links/link_model.h"
#include "smp/plan/model/adapters.h"

namespace smp::cost {
namespace {

// Dropout reads, writes and marks each element of an adapter's input.
constexpr double kDropoutPasses = 2.5;

std::vector<model::AdaptedMatrix> matrices_of(const PricedCall& call, model::LayerKind block) {
  return model::adapted_matrices(call.model, block, call.training.lora.targets,
                                 call.job.parallel.tensor_parallel);
}

}  // namespace

void adapters(LayerWork& work, const PricedCall& call, model::LayerKind block,
              const ExpertRows& experts) {
  const LoraSpec& lora = call.training.lora;
  if (lora.rank == 0) return;
  const auto rank = static_cast<double>(lora.rank);
  for (const model::AdaptedMatrix& matrix : matrices_of(call, block)) {
    const double copies = matrix.is_expert ? experts.own : 1;
    const double rows = matrix.is_expert ? experts.each : call.tokens;
    const auto width = [&](const model::ParameterSum& sum) {
      return matrix.is_expert ? sum.of_rank(static_cast<int64_t>(experts.tensor), 1)
                              : sum.of_rank(static_cast<int64_t>(call.t), call.model.num_kv_heads);
    };
    const double in = width(matrix.in), out = width(matrix.out);
    const auto product = [&](double m, double n, double k) {
      return matmul_s(call.core_rates, copies, m, n, k);
    };
    // A x and B of it; backward the gradients of B, of A x, of A and of x.
    work.forward.matmul_s += product(rows, rank, in) + product(rows, out, rank);
    work.backward.matmul_s += product(out, rank, rows) + product(rows, rank, out) +
                              product(rank, in, rows) + product(rows, in, rank);
    work.forward.kernels += 2;
    work.backward.kernels += 4;
    // Scaled, and added to the frozen matrix's output; backward scaled, and added to the gradient
    // of the input.
    passes(work.forward, call, copies * rows * (2 + 3) * out, 2);
    passes(work.backward, call, copies * rows * (2 * out + 3 * in), 2);
    if (lora.dropout == 0) continue;
    passes(work.forward, call, kDropoutPasses * copies * rows * in, 1);
    passes(work.backward, call, kDropoutPasses * copies * rows * in, 1);
  }
}

AdapterMessages adapter_messages(const PricedCall& call, const choice::LayoutChoice& choice,
                                 model::LayerKind block) {
  AdapterMessages messages;
  const LoraSpec& lora = call.training.lora;
  if (lora.rank == 0 || choice.tensor == 1) return messages;
  const links::Placement group = tensor_placement(choice, call.job);
  const links::CollectiveBackend how = links::exchange_of(call.job, mesh::Axis::kTensor);
  const double bytes = call.element * call.tokens * static_cast<double>(lora.rank);
  const double each = links::all_reduce_s(bytes, group, call.cluster, how);
  for (const model::AdaptedMatrix& matrix : matrices_of(call, block)) {
    if (matrix.is_expert) continue;  // expert tensor ranks gather tokens instead
    if (matrix.in.cut > 0) messages.forward += each;
    if (matrix.out.cut + matrix.out.kv > 0) messages.backward += each;
  }
  return messages;
}

}  // namespace smp::cost
