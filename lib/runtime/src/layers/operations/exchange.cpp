#include "layers/operations/kernels_of.h"
#include "ledger/torch_dtype.h"
#include "smp/plan/base/check.h"

namespace smp::layers {
namespace {

using program::ExchangeAttributes;

// Copies between rows of all heads, [rows, columns], and what goes to or comes from each rank,
// [degree, rows, columns / degree], where each side's columns are a part of its own.
void copy_columns(const ExchangeAttributes& exchange, const at::Tensor& rows,
                  const at::Tensor& by_rank, bool from_rows) {
  int64_t first = 0, first_part = 0;
  for (const int64_t columns : exchange.columns) {
    if (columns == 0) continue;
    const int64_t part = columns / exchange.degree;
    const at::Tensor side =
        rows.narrow(1, first, columns).view({rows.size(0), exchange.degree, part}).transpose(0, 1);
    const at::Tensor parts = by_rank.narrow(2, first_part, part);
    if (from_rows) {
      parts.copy_(side);
    } else {
      side.copy_(parts);
    }
    first += columns;
    first_part += part;
  }
}

// Tokens of all ranks in the order of the sample, as what each rank has of them: of each of its two
// slices the ranks' parts follow each other.
at::Tensor tokens_by_rank(const ExchangeAttributes& exchange, const at::Tensor& rows) {
  const int64_t slices = 2 * exchange.batch;
  const int64_t length = rows.size(0) / (slices * exchange.degree);
  return rows.view({slices, exchange.degree, length, rows.size(1)}).transpose(0, 1);
}

}  // namespace

void run_exchange(Frame& frame) {
  const auto& exchange = frame.as<ExchangeAttributes>();
  comm::Communicator& group = *frame.context().exchange;
  SMP_CHECK_EQ(group.size(), exchange.degree);
  const at::Tensor& x = frame.in(0);
  const at::Tensor& y = frame.make(0);
  const at::Tensor& rows = exchange.to_heads ? x : y;  // of this rank's tokens
  const at::Tensor& heads = exchange.to_heads ? y : x;
  const int64_t part = rows.size(1) / exchange.degree;
  const at::Tensor sent = ledger::empty_tensor({exchange.degree, rows.size(0), part}, x.options());
  const at::Tensor come = ledger::empty_tensor(sent.sizes(), x.options());
  const at::Tensor by_rank = tokens_by_rank(exchange, heads);
  if (exchange.to_heads) {
    copy_columns(exchange, rows, sent, true);
  } else {
    sent.view(by_rank.sizes()).copy_(by_rank);
  }
  group
      .all_to_all(sent.const_data_ptr(), come.mutable_data_ptr(), sent.numel() / exchange.degree,
                  ledger::dtype_of(x.scalar_type()), exchange.label)
      ->wait();
  if (exchange.to_heads) {
    by_rank.copy_(come.view(by_rank.sizes()));
  } else {
    copy_columns(exchange, rows, come, false);
  }
}

}  // namespace smp::layers
