#include "reduce/copy.h"
#include "reduce/reduce.h"
#include "timed_processes.h"

// What direct calls of more ranks than CPUs are made of: two processes, each bound to a CPU, do the
// copies of an all_gather and the sums of a reduce_scatter of fp32 for half of the ranks each, in
// the pieces of lib/comm, and do not meet inside a call. The sums also non-temporally, and with a
// pass over the result after them, as an optimizer's.
//
//   smp_bare_calls RANKS BYTES ...
namespace smp::bench {
namespace {

constexpr int kProcesses = 2;
constexpr int64_t kPiece = 128 << 10;
constexpr int64_t kShortPart = 256 << 10, kShortPiece = 32 << 10;  // of an all_gather

// The buffers of all ranks lie one after the other.
struct Buffers {
  int ranks;
  int64_t bytes;  // of all parts together
  std::byte *in, *out;

  int64_t part() const { return bytes / ranks; }
  std::byte* of(std::byte* first, int rank) const { return first + rank * bytes; }
};

void gather(const Buffers& all, int rank) {
  const int64_t piece = all.part() <= kShortPart ? kShortPiece : kPiece;
  for (int64_t at = 0; at < all.part(); at += piece)
    for (int step = 0; step < all.ranks; ++step) {
      const int p = (rank + step) % all.ranks;
      reduce::copy_bytes(all.of(all.out, p) + all.part() * rank + at, all.of(all.in, rank) + at,
                         std::min(piece, all.part() - at));
    }
}

template <bool kStream>
void sum(const Buffers& all, int rank) {
  std::vector<const std::byte*> from(static_cast<size_t>(all.ranks));
  for (int64_t at = 0; at < all.part(); at += kPiece) {
    for (int p = 0; p < all.ranks; ++p)
      from[size_t(p)] = all.of(all.in, p) + all.part() * rank + at;
    reduce::reduce_inputs(all.of(all.out, rank) + at, from.data(), all.ranks,
                          std::min(kPiece, all.part() - at) / int64_t(sizeof(float)), DType::kF32,
                          comm::ReduceOp::kSum, all.ranks, kStream);
  }
}

// The result makes what the next call reads.
template <bool kStream>
void sum_and_use(const Buffers& all, int rank) {
  sum<kStream>(all, rank);
  const auto* const result = reinterpret_cast<const float*>(all.of(all.out, rank));
  auto* const next = reinterpret_cast<float*>(all.of(all.in, rank) + all.part() * rank);
  for (int64_t i = 0; i < all.part() / int64_t(sizeof(float)); ++i) next[i] = result[i] * 1e-3f + 1;
}

int run(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 0;
  std::vector<int64_t> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(std::atoll(argv[i]));
  const int64_t unit = int64_t(ranks) * int64_t(sizeof(float));
  if (ranks < kProcesses || ranks % kProcesses != 0 || ranks > kMostProcesses || sizes.empty() ||
      std::any_of(sizes.begin(), sizes.end(), [&](int64_t n) { return n < unit || n % unit != 0; }))
    throw std::invalid_argument(fmt::format(
        "arguments: RANKS BYTES ...: an even number of ranks, at most {}, and so many floats or a "
        "multiple",
        kMostProcesses));
  const int64_t most = *std::max_element(sizes.begin(), sizes.end());
  const auto all_bytes = size_t(most * ranks);
  auto* const in = static_cast<std::byte*>(shared_memory(all_bytes));
  auto* const out = static_cast<std::byte*>(shared_memory(all_bytes));
  fmt::print("{:>12} {:>15} {:>19} {:>13} {:>14} {:>13}\n", "bytes", "all_gather, us",
             "reduce_scatter, us", "non-temporal", "and used, us", "non-temporal");
  fflush(stdout);
  const bool is_good =
      TimedProcesses::run(kProcesses, false, [&](TimedProcesses& all, int process) {
        pin_to(process);
        for (const int64_t bytes : sizes) {
          const Buffers buffers{ranks, bytes, in, out};
          const auto microseconds = [&](void (*call)(const Buffers&, int)) {
            const auto share = [&] {
              for (int rank = process; rank < ranks; rank += kProcesses) call(buffers, rank);
            };
            return 1e6 * all.median_of(share, [&] {
              for (int rank = process; rank < ranks; rank += kProcesses)
                memset(buffers.of(in, rank), kTimedByte, size_t(bytes));
            });
          };
          const double gathered = microseconds(gather), summed = microseconds(sum<false>),
                       non_temporal = microseconds(sum<true>),
                       used = microseconds(sum_and_use<false>),
                       used_around = microseconds(sum_and_use<true>);
          if (process == 0)
            fmt::print("{:>12} {:>15.2f} {:>19.2f} {:>13.2f} {:>14.2f} {:>13.2f}\n", bytes,
                       gathered, summed, non_temporal, used, used_around);
          fflush(stdout);
        }
      });
  return is_good ? 0 : 1;
}

}  // namespace
}  // namespace smp::bench

int main(int argc, char** argv) {
  return smp::bench::run_program("smp_bare_calls", smp::bench::run, argc, argv);
}
