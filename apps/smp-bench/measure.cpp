#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <new>

#include "pattern.h"
#include "sample_calls.h"

namespace smp {
namespace {

constexpr const char* kLabel = "bench";
// Of a sample. What comes before each dirty call takes longer than a short one.
constexpr int kMostCalls = 100'000, kMostDirtyCalls = 10'000;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double upper_median(std::vector<double> values) {
  const auto middle = values.begin() + int64_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double most_of_all(comm::Communicator& comm, double mine) {
  comm.all_reduce(&mine, &mine, 1, DType::kF64, comm::ReduceOp::kMax, "bench.times")->wait();
  return mine;
}

bool cuts(mesh::CollectiveOp op) {  // the full buffer holds a part of each rank
  switch (op) {
    case mesh::CollectiveOp::kAllGather:
    case mesh::CollectiveOp::kReduceScatter:
    case mesh::CollectiveOp::kGather:
    case mesh::CollectiveOp::kScatter:
    case mesh::CollectiveOp::kAllToAll: return true;
    default: return false;
  }
}

// Aligned as PyTorch's tensors are.
std::shared_ptr<std::byte[]> private_memory(int64_t bytes) {
  constexpr std::align_val_t kLine{64};
  return {new (kLine) std::byte[size_t(bytes)](),
          [](std::byte* memory) { ::operator delete[](memory, kLine); }};
}

class Bench {
 public:
  Bench(comm::Communicator& comm, const BenchCase& what, const BenchOptions& options,
        BenchBuffers& buffers)
      : comm_(comm), what_(what), options_(options), element_(bytes_of(what.dtype)) {
    count_ = what.bytes / element_;
    if (cuts(what.op)) count_ = count_ / comm.size() * comm.size();
    buffers.hold(count_ * element_, count_ * element_ * what.peers);
    in_ = buffers.in();
    out_ = buffers.out();
  }

  BenchResult run() {
    BenchResult result{what_, count_, {}, {}};
    if (what_.op != mesh::CollectiveOp::kBroadcast) result.out_of_place = time(in_, out_);
    switch (what_.op) {
      case mesh::CollectiveOp::kAllToAll:
      case mesh::CollectiveOp::kSend: break;
      default:
        if (!result.out_of_place || !options_.is_out_of_place_alone)
          result.in_place = time(in_, in_);
    }
    return result;
  }

 private:
  void call(std::byte* in, std::byte* out) {
    const int size = comm_.size(), rank = comm_.rank();
    const int64_t part = count_ / size, own = rank * part * element_;
    const bool in_place = in == out;
    std::byte* const own_in = in_place ? in + own : in;
    std::byte* const own_out = in_place ? out + own : out;
    switch (what_.op) {
      case mesh::CollectiveOp::kAllReduce:
        comm_.all_reduce(in, out, count_, what_.dtype, what_.reduction, kLabel)->wait();
        return;
      case mesh::CollectiveOp::kAllGather:
        comm_.all_gather(own_in, out, part, what_.dtype, kLabel)->wait();
        return;
      case mesh::CollectiveOp::kReduceScatter:
        comm_.reduce_scatter(in, own_out, count_, what_.dtype, what_.reduction, kLabel)->wait();
        return;
      case mesh::CollectiveOp::kBroadcast:
        comm_.broadcast(in, count_, what_.dtype, 0, kLabel)->wait();
        return;
      case mesh::CollectiveOp::kReduce:
        comm_.reduce(in, out, count_, what_.dtype, what_.reduction, 0, kLabel)->wait();
        return;
      case mesh::CollectiveOp::kGather:
        comm_.gather(own_in, out, part, what_.dtype, 0, kLabel)->wait();
        return;
      case mesh::CollectiveOp::kScatter:
        comm_.scatter(in, own_out, part, what_.dtype, 0, kLabel)->wait();
        return;
      case mesh::CollectiveOp::kAllToAll:
        comm_.all_to_all(in, out, part, what_.dtype, kLabel)->wait();
        return;
      case mesh::CollectiveOp::kSend: {
        if (size == 1) return;
        works_.clear();
        for (int step = 1; step <= what_.peers; ++step) {
          works_.push_back(comm_.send(in, count_, what_.dtype, (rank + step) % size, kLabel));
          works_.push_back(comm_.recv(out + (step - 1) * count_ * element_, count_, what_.dtype,
                                      sender(step), kLabel));
        }
        for (auto work = works_.rbegin(); work != works_.rend(); ++work) (*work)->wait();
        return;
      }
      default: comm_.barrier(kLabel)->wait();
    }
  }

  int sender(int step) const { return (comm_.rank() + comm_.size() - step) % comm_.size(); }

  // Of `calls` calls; what comes before each is not counted.
  double seconds_of(int calls, std::byte* in, std::byte* out) {
    if (!options_.is_dirty) {
      comm_.barrier("bench.start")->wait();
      const double start = now_s();
      for (int i = 0; i < calls; ++i) call(in, out);
      return most_of_all(comm_, now_s() - start);
    }
    double sum = 0;
    for (int i = 0; i < calls; ++i) {
      memset(in, kTimedByte, size_t(count_ * element_));
      comm_.barrier("bench.start")->wait();
      const double start = now_s();
      call(in, out);
      sum += most_of_all(comm_, now_s() - start);
    }
    return sum;
  }

  // Elements that one call leaves wrong on all ranks together.
  int64_t wrong(std::byte* in, std::byte* out) {
    const int size = comm_.size(), rank = comm_.rank();
    const int64_t part = count_ / size, own = rank * part;
    const bool in_place = in == out;
    const Pattern pattern(what_.dtype,
                          has_reduction(what_.op) ? what_.reduction : comm::ReduceOp::kSum, size);
    const bool gives_part =
        what_.op == mesh::CollectiveOp::kAllGather || what_.op == mesh::CollectiveOp::kGather;
    std::byte* const given = gives_part && in_place ? in + own * element_ : in;
    for (int64_t i = 0; i < (gives_part ? part : count_); ++i)
      pattern.write(given, i, pattern.given(rank, i));
    call(in, out);
    int64_t count = 0;
    // `elements` of a buffer from element `begin` on.
    const auto check = [&](const std::byte* buffer, int64_t begin, int64_t elements,
                           auto expected) {
      for (int64_t i = 0; i < elements; ++i)
        count += pattern.is(buffer, begin + i, expected(i)) ? 0 : 1;
    };
    const auto of_rank = [&](int64_t i) { return pattern.given(int(i / part), i % part); };
    const auto sum = [&](int64_t i) { return pattern.reduced(i); };
    const int64_t at = in_place ? own : 0;
    switch (what_.op) {
      case mesh::CollectiveOp::kAllReduce: check(out, 0, count_, sum); break;
      case mesh::CollectiveOp::kReduce: check(out, 0, rank == 0 ? count_ : 0, sum); break;
      case mesh::CollectiveOp::kAllGather: check(out, 0, count_, of_rank); break;
      case mesh::CollectiveOp::kGather: check(out, 0, rank == 0 ? count_ : 0, of_rank); break;
      case mesh::CollectiveOp::kReduceScatter:
        check(out, at, part, [&](int64_t i) { return sum(own + i); });
        break;
      case mesh::CollectiveOp::kBroadcast:
        check(in, 0, count_, [&](int64_t i) { return pattern.given(0, i); });
        break;
      case mesh::CollectiveOp::kScatter:
        check(out, at, part, [&](int64_t i) { return pattern.given(0, own + i); });
        break;
      case mesh::CollectiveOp::kAllToAll:
        check(out, 0, count_,
              [&](int64_t i) { return pattern.given(int(i / part), own + i % part); });
        break;
      case mesh::CollectiveOp::kSend:
        for (int step = 1; size > 1 && step <= what_.peers; ++step)
          check(out, (step - 1) * count_, count_,
                [&](int64_t i) { return pattern.given(sender(step), i); });
        break;
      default: break;
    }
    comm_.all_reduce(&count, &count, 1, DType::kI64, comm::ReduceOp::kSum, "bench.wrong")->wait();
    return count;
  }

  BenchTime time(std::byte* in, std::byte* out) {
    memset(in, kTimedByte, size_t(count_ * element_));
    call(in, out);
    BenchTime time{median_of_samples(options_.samples, options_.sample_s,
                                     options_.is_dirty ? kMostDirtyCalls : kMostCalls,
                                     [&](int n) { return seconds_of(n, in, out); }),
                   {}};
    if (options_.is_checked) time.wrong = wrong(in, out);
    return time;
  }

  comm::Communicator& comm_;
  const BenchCase what_;
  const BenchOptions options_;
  const int64_t element_;
  int64_t count_ = 0;
  std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
  std::vector<comm::WorkPtr> works_;
};

}  // namespace

bool has_reduction(mesh::CollectiveOp op) {
  return op == mesh::CollectiveOp::kAllReduce || op == mesh::CollectiveOp::kReduceScatter ||
         op == mesh::CollectiveOp::kReduce;
}

void BenchBuffers::hold(int64_t in_bytes, int64_t out_bytes) {
  hold(in_, in_bytes);
  hold(out_, out_bytes);
}

void BenchBuffers::hold(Buffer& buffer, int64_t bytes) {
  if (buffer.memory && buffer.bytes >= bytes) return;
  buffer.memory = nullptr;  // before there is more
  buffer.bytes = std::max<int64_t>(1, bytes);
  buffer.memory =
      is_symmetric_ ? comm_.allocate_symmetric(buffer.bytes) : private_memory(buffer.bytes);
}

void settle(comm::Communicator& comm) {
  let_settle([&comm](double mine) { return most_of_all(comm, mine); });
}

BenchResult measure(comm::Communicator& comm, const BenchCase& what, const BenchOptions& options,
                    BenchBuffers& buffers) {
  return Bench(comm, what, options, buffers).run();
}

BenchResult median_of(const std::vector<std::vector<BenchResult>>& rounds, size_t at) {
  BenchResult result = rounds.at(0).at(at);
  for (auto place : {&BenchResult::out_of_place, &BenchResult::in_place}) {
    if (!(result.*place)) continue;
    std::vector<double> seconds;
    std::optional<int64_t> wrong;
    for (const std::vector<BenchResult>& round : rounds) {
      const BenchTime& time = *(round.at(at).*place);
      seconds.push_back(time.seconds);
      if (time.wrong) wrong = wrong.value_or(0) + *time.wrong;
    }
    result.*place = BenchTime{upper_median(std::move(seconds)), wrong};
  }
  return result;
}

double algorithm_bytes_per_s(const BenchResult& result, double seconds) {
  return double(result.count * bytes_of(result.measured.dtype)) / seconds;
}

double bus_factor(mesh::CollectiveOp op, int ranks) {
  const double others = double(ranks - 1) / ranks;
  if (op == mesh::CollectiveOp::kAllReduce) return 2 * others;
  return cuts(op) ? others : 1;
}

}  // namespace smp
