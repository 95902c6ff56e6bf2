#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

namespace smp {
namespace {

constexpr const char* kLabel = "bench";

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool cuts(CollectiveOp op) {  // the full buffer holds a part of each rank
  switch (op) {
    case CollectiveOp::kAllGather:
    case CollectiveOp::kReduceScatter:
    case CollectiveOp::kGather:
    case CollectiveOp::kScatter:
    case CollectiveOp::kAllToAll: return true;
    default: return false;
  }
}

class Bench {
 public:
  Bench(Communicator& comm, const BenchCase& what, const BenchOptions& options)
      : comm_(comm), what_(what), options_(options), element_(bytes_of(what.dtype)) {
    count_ = what.bytes / element_;
    if (cuts(what.op)) count_ = count_ / comm.size() * comm.size();
    in_ = buffer();
    out_ = buffer();
  }

  BenchResult run() {
    BenchResult result{what_, count_, {}, {}};
    if (what_.op != CollectiveOp::kBroadcast) result.out_of_place_s = time(in_.get(), out_.get());
    switch (what_.op) {
      case CollectiveOp::kAllToAll:
      case CollectiveOp::kSend: break;
      default: result.in_place_s = time(in_.get(), in_.get());
    }
    return result;
  }

 private:
  std::shared_ptr<std::byte[]> buffer() {
    const int64_t bytes = std::max<int64_t>(1, count_ * element_);
    if (options_.is_symmetric) return comm_.allocate_symmetric(bytes);
    return std::make_shared<std::byte[]>(size_t(bytes));
  }

  // Zeros: sums in place must not overflow over thousands of calls.
  void call(std::byte* in, std::byte* out) {
    const int size = comm_.size(), rank = comm_.rank();
    const int64_t part = count_ / size, own = rank * part * element_;
    const bool in_place = in == out;
    std::byte* const own_in = in_place ? in + own : in;
    std::byte* const own_out = in_place ? out + own : out;
    switch (what_.op) {
      case CollectiveOp::kAllReduce:
        comm_.all_reduce(in, out, count_, what_.dtype, what_.reduction, kLabel)->wait();
        return;
      case CollectiveOp::kAllGather:
        comm_.all_gather(own_in, out, part, what_.dtype, kLabel)->wait();
        return;
      case CollectiveOp::kReduceScatter:
        comm_.reduce_scatter(in, own_out, count_, what_.dtype, what_.reduction, kLabel)->wait();
        return;
      case CollectiveOp::kBroadcast:
        comm_.broadcast(in, count_, what_.dtype, 0, kLabel)->wait();
        return;
      case CollectiveOp::kReduce:
        comm_.reduce(in, out, count_, what_.dtype, what_.reduction, 0, kLabel)->wait();
        return;
      case CollectiveOp::kGather:
        comm_.gather(own_in, out, part, what_.dtype, 0, kLabel)->wait();
        return;
      case CollectiveOp::kScatter:
        comm_.scatter(in, own_out, part, what_.dtype, 0, kLabel)->wait();
        return;
      case CollectiveOp::kAllToAll:
        comm_.all_to_all(in, out, part, what_.dtype, kLabel)->wait();
        return;
      case CollectiveOp::kSend: {
        if (size == 1) return;
        const WorkPtr sent = comm_.send(in, count_, what_.dtype, (rank + 1) % size, kLabel);
        comm_.recv(out, count_, what_.dtype, (rank + size - 1) % size, kLabel)->wait();
        sent->wait();
        return;
      }
      default: comm_.barrier(kLabel)->wait();
    }
  }

  double slowest(double mine) {
    comm_.all_reduce(&mine, &mine, 1, DType::kF64, ReduceOp::kMax, "bench.times")->wait();
    return mine;
  }

  // Of `calls` calls; what comes before each is not counted.
  double seconds_of(int calls, std::byte* in, std::byte* out) {
    if (!options_.is_dirty) {
      comm_.barrier("bench.start")->wait();
      const double start = now_s();
      for (int i = 0; i < calls; ++i) call(in, out);
      return slowest(now_s() - start);
    }
    double sum = 0;
    for (int i = 0; i < calls; ++i) {
      memset(in, 0, size_t(count_ * element_));
      comm_.barrier("bench.start")->wait();
      const double start = now_s();
      call(in, out);
      sum += slowest(now_s() - start);
    }
    return sum;
  }

  double time(std::byte* in, std::byte* out) {
    call(in, out);
    const double one = seconds_of(3, in, out) / 3;  // the same on all ranks
    const int calls = std::clamp(int(options_.sample_s / one), 1, 1000);
    std::vector<double> samples;
    for (int i = 0; i < options_.samples; ++i)
      samples.push_back(seconds_of(calls, in, out) / calls);
    std::sort(samples.begin(), samples.end());
    return samples[samples.size() / 2];
  }

  Communicator& comm_;
  const BenchCase what_;
  const BenchOptions options_;
  const int64_t element_;
  int64_t count_ = 0;
  std::shared_ptr<std::byte[]> in_, out_;
};

}  // namespace

bool has_reduction(CollectiveOp op) {
  return op == CollectiveOp::kAllReduce || op == CollectiveOp::kReduceScatter ||
         op == CollectiveOp::kReduce;
}

BenchResult measure(Communicator& comm, const BenchCase& what, const BenchOptions& options) {
  return Bench(comm, what, options).run();
}

double algorithm_bytes_per_s(const BenchResult& result, double seconds) {
  return double(result.count * bytes_of(result.measured.dtype)) / seconds;
}

double bus_factor(CollectiveOp op, int ranks) {
  const double others = double(ranks - 1) / ranks;
  if (op == CollectiveOp::kAllReduce) return 2 * others;
  return cuts(op) ? others : 1;
}

}  // namespace smp
