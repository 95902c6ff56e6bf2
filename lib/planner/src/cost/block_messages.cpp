#include "cost/block_messages.h"

#include <algorithm>

#include "cost/rank_order.h"
#include "links/link_model.h"

namespace smp::cost {

Messages tensor_messages(const PricedCall& call, const choice::LayoutChoice& choice, double parts,
                         double pairs, double memories) {
  if (choice.tensor == 1) return {};
  const links::Placement group = tensor_placement(choice, call.job);
  const links::CollectiveBackend how = links::exchange_of(call.job, mesh::Axis::kTensor);
  const double bytes = call.element * call.tokens * call.h;
  const double over = call.framework.tensor_crossing_s * static_cast<double>(group.hosts - 1);
  if (!choice.sequence_parallel) {
    const double each = links::all_reduce_s(bytes, group, call.cluster, how) + over;
    return {pairs * each, pairs * each};
  }
  // The input of each cut matrix is gathered once more for its weight's gradient, while that of the
  // input is computed.
  const double gather = links::all_gather_s(bytes, group, call.cluster, how) + over;
  const double scatter = links::reduce_scatter_s(bytes, group, call.cluster, how) + over;
  const double shown = 1 - call.framework.tensor_hidden;
  const double seconds = shown * (parts * gather + pairs * scatter);
  // A memory is gathered for keys and values, and again for the gradient of their weights; its own
  // gradient is scattered. Of whole sequences that is summed once for all blocks.
  return {seconds + memories * gather, seconds + memories * (gather + scatter)};
}

Messages context_messages(const PricedCall& call, const choice::LayoutChoice& choice,
                          const LayerWork& work) {
  if (choice.context == 1) return {};
  const links::Placement group = context_placement(choice, call.job);
  const double bytes = call.element * call.tokens * call.kv_heads * (call.key_dim + call.value_dim);
  const double hops = static_cast<double>(choice.context - 1);
  const double hop = links::send_s(bytes, group.hosts == 1, call.cluster);
  const double computing = work.attention_core.matmul_s / static_cast<double>(choice.context);
  const double first = hop;  // nothing to compute beside it
  const double forward = first + (hops - 1) * std::max(0.0, hop - computing);
  const double backward = 2 * first + (hops - 1) * std::max(0.0, 2 * hop - 2 * computing);
  return {forward, backward};
}

Messages with_adapters(Messages tensor, const AdapterMessages& adapters) {
  return {tensor.forward + adapters.forward, tensor.backward + adapters.backward};
}

}  // namespace smp::cost
