#include <algorithm>

#include "layers/operations/kernels_of.h"
#include "smp/plan/base/check.h"

namespace smp::layers {
namespace {

// The row of the token at `position` among those for which the batch has the begins of documents.
int64_t attended_row(const model::TokenSlices& slices, int64_t position) {
  if (slices.are_whole()) return position;
  const bool is_early = position < slices.early + slices.length;
  return is_early ? position - slices.early : slices.length + position - slices.late;
}

// Calls body(n, position, rows) for the runs of positions that follow each other, of the tokens
// [first, first + count) of samples of which the rank has `sequence` each: a sample, or a document
// of one, counts from 0. n counts from `first`.
template <typename Body>
void for_each_run(const program::RowsAttributes& rows, int64_t count,
                  const kernels::CallContext& call, const Body& body) {
  const int64_t* const starts = call.document_starts_on_host != nullptr
                                    ? call.document_starts_on_host->const_data_ptr<int64_t>()
                                    : nullptr;
  const int64_t slice = rows.slices.are_whole() ? rows.sequence : rows.slices.length;
  for (int64_t n = 0, run = 0; n < count; n += run) {
    const int64_t token = rows.first_id + n, sample = token / rows.sequence;
    const int64_t place = token % rows.sequence, position = rows.slices.position(place);
    run = std::min(slice - place % slice, count - n);
    int64_t start = 0;
    if (starts != nullptr) {
      const int64_t* const from =
          starts + sample * rows.attended_tokens + attended_row(rows.attended, position);
      start = *from;
      run = std::upper_bound(from, from + run, start) - from;
    }
    body(n, position - start, run);
  }
}

}  // namespace

void run_take_rows(Frame& frame) {
  const auto& rows = frame.as<program::RowsAttributes>();
  const at::Tensor& y = frame.make(0);
  kernels::functions_of(y).take_rows(frame.in(0).narrow(0, rows.first_id, y.size(0)),
                                     rows.table_begin, frame.in(1), y);
}

void run_add_rows(Frame& frame) {
  const auto& rows = frame.as<program::RowsAttributes>();
  const at::Tensor& dy = frame.in(1);
  kernels::functions_of(dy).add_rows(frame.in(0).narrow(0, rows.first_id, dy.size(0)),
                                     rows.table_begin, dy, frame.gradient(0));
}

void run_add_positions(Frame& frame) {
  const auto& rows = frame.as<program::RowsAttributes>();
  const at::Tensor& x = frame.in(0);
  const at::Tensor& positions = frame.in(1);
  SMP_CHECK(rows.sequence <= positions.size(0));
  for_each_run(rows, x.size(0), frame.call(), [&](int64_t n, int64_t position, int64_t run) {
    kernels::functions_of(x).add_residual(positions.narrow(0, position, run), {},
                                          x.narrow(0, n, run), {});
  });
  frame.set_over(0, x);
}

void run_position_gradient(Frame& frame) {
  const at::Tensor& dy = frame.in(0);
  for_each_run(frame.as<program::RowsAttributes>(), dy.size(0), frame.call(),
               [&](int64_t n, int64_t position, int64_t run) {
                 kernels::functions_of(dy).accumulate(dy.narrow(0, n, run),
                                                      frame.gradient(0).narrow(0, position, run));
               });
}

}  // namespace smp::layers
