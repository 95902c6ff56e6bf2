#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gpu/device_collectives.h"

namespace smp::test {

// What joins the GPUs of host threads (host_gpu.h): a call is complete when all ranks have made it,
// and its result is there when the device is to see it, or the call is asked for.
class HostGpuNetwork {
 public:
  // One group.
  struct Board {
    std::mutex mutex;
    std::condition_variable changed;
    int joined = 0;
    std::string error;                  // what the library says of itself from now on
    int64_t last_to_start = INT64_MAX;  // of calls behind it the library never takes one up
    int64_t last_to_end = INT64_MAX;    // calls behind it never do
    std::map<int64_t, std::vector<std::optional<std::vector<std::byte>>>> calls;  // inputs by rank
  };

  int groups() {
    std::lock_guard guard(mutex_);
    return ids_;
  }
  gpu::DeviceGroupId fresh_id() {
    std::lock_guard guard(mutex_);
    gpu::DeviceGroupId id{};
    const std::string text = std::to_string(++ids_);
    std::copy(text.begin(), text.end(), id.begin());
    return id;
  }
  std::shared_ptr<Board> board(const gpu::DeviceGroupId& id) {
    std::lock_guard guard(mutex_);
    std::shared_ptr<Board>& board = boards_[id.data()];
    if (!board) board = std::make_shared<Board>();
    return board;
  }

 private:
  std::mutex mutex_;
  int ids_ = 0;
  std::map<std::string, std::shared_ptr<Board>> boards_;
};

class HostCollectives final : public gpu::DeviceCollectives {
 public:
  inline static thread_local bool uses_gpu = false;  // of the thread

  HostCollectives(std::shared_ptr<HostGpuNetwork::Board> board, int rank, int size)
      : board_(std::move(board)), rank_(rank), size_(size) {
    std::lock_guard guard(board_->mutex);
    ++board_->joined;
  }

  bool is_ready() override {
    const Asking asking(*this);
    std::lock_guard guard(board_->mutex);
    return board_->joined == size_ && calls_ <= board_->last_to_start;
  }
  device::CopyPtr until_now() override {
    const Asking asking(*this);
    return std::make_unique<HostCall>(board_, is_aborted_, calls_, size_, std::exchange(last_, {}));
  }
  void all_reduce(const void* in, void* out, int64_t count, DType dtype,
                  comm::ReduceOp op) override {
    start(in, count * bytes_of(dtype), [=](const Inputs& all) {
      reduce(all, static_cast<std::byte*>(out), 0, count, dtype, op);
    });
  }
  void all_gather(const void* in, void* out, int64_t count, DType dtype) override {
    const int64_t part = count * bytes_of(dtype);
    start(in, part, [=](const Inputs& all) {
      for (size_t rank = 0; rank < all.size(); ++rank)
        std::memcpy(static_cast<std::byte*>(out) + int64_t(rank) * part, all[rank]->data(),
                    size_t(part));
    });
  }
  void reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                      comm::ReduceOp op) override {
    start(in, count * bytes_of(dtype), [=, rank = rank_, size = size_](const Inputs& all) {
      reduce(all, static_cast<std::byte*>(out), rank * (count / size), count / size, dtype, op);
    });
  }
  void broadcast(void* buffer, int64_t count, DType dtype, int root) override {
    const int64_t bytes = count * bytes_of(dtype);
    start(buffer, bytes, [=](const Inputs& all) {
      std::memcpy(buffer, all[size_t(root)]->data(), size_t(bytes));
    });
  }
  std::string error() override {
    const Asking asking(*this);
    std::lock_guard guard(board_->mutex);
    return board_->error;
  }
  void abort() override {
    const Asking asking(*this);
    std::lock_guard guard(board_->mutex);
    is_aborted_->store(true);  // here alone, as NCCL's
    board_->changed.notify_all();
  }

 private:
  // While one thread asks no other may, nor one that has not said that it is the GPU's, nor anybody
  // once the group was aborted: a library has freed it then.
  class Asking {
   public:
    explicit Asking(HostCollectives& group) : group_(group) {
      if (group_.is_asked_.exchange(true)) throw std::logic_error("two threads ask at once");
      if (group_.is_aborted_->load()) throw std::logic_error("the group is gone");
      if (!uses_gpu) throw std::logic_error("the thread may be another GPU's");
      std::this_thread::sleep_for(std::chrono::microseconds(100));  // others may come
    }
    ~Asking() { group_.is_asked_.store(false); }

   private:
    HostCollectives& group_;
  };

  using Inputs = std::vector<std::optional<std::vector<std::byte>>>;
  using Finish = std::function<void(const Inputs&)>;

  template <class T>
  static void reduce_as(const Inputs& all, std::byte* out, int64_t begin, int64_t count,
                        comm::ReduceOp op) {
    T* const to = reinterpret_cast<T*>(out);
    for (int64_t i = 0; i < count; ++i) {
      T sum = reinterpret_cast<const T*>(all[0]->data())[begin + i];
      for (size_t rank = 1; rank < all.size(); ++rank) {
        const T next = reinterpret_cast<const T*>(all[rank]->data())[begin + i];
        sum = op == comm::ReduceOp::kMax ? std::max(sum, next) : sum + next;
      }
      to[i] = op == comm::ReduceOp::kAverage ? sum / T(all.size()) : sum;
    }
  }
  static void reduce(const Inputs& all, std::byte* out, int64_t begin, int64_t count, DType dtype,
                     comm::ReduceOp op) {
    switch (dtype) {
      case DType::kF32: return reduce_as<float>(all, out, begin, count, op);
      case DType::kF64: return reduce_as<double>(all, out, begin, count, op);
      case DType::kI64: return reduce_as<int64_t>(all, out, begin, count, op);
      default: throw std::runtime_error("a type that these GPUs do not reduce");
    }
  }

  class HostCall final : public device::Copy {
   public:
    HostCall(std::shared_ptr<HostGpuNetwork::Board> board,
             std::shared_ptr<std::atomic<bool>> is_aborted, int64_t number, int size, Finish finish)
        : board_(std::move(board)),
          is_aborted_(std::move(is_aborted)),
          number_(number),
          size_(size),
          finish_(std::move(finish)) {}
    bool done() override {
      std::lock_guard guard(board_->mutex);
      return is_aborted_->load() || is_complete();
    }
    void wait() override { follow(); }
    void follow() override {
      std::unique_lock lock(board_->mutex);
      board_->changed.wait(lock, [&] { return is_aborted_->load() || is_complete(); });
      if (!is_aborted_->load() && finish_) finish_(board_->calls[number_]);
      finish_ = nullptr;
    }

   private:
    bool is_complete() {
      const Inputs& inputs = board_->calls[number_];
      const auto made = std::count_if(inputs.begin(), inputs.end(),
                                      [](const auto& input) { return input.has_value(); });
      return number_ == 0 || (number_ <= board_->last_to_end && made == size_);
    }
    const std::shared_ptr<HostGpuNetwork::Board> board_;
    const std::shared_ptr<std::atomic<bool>> is_aborted_;
    const int64_t number_;
    const int size_;
    Finish finish_;
  };

  void start(const void* in, int64_t bytes, Finish finish) {
    const Asking asking(*this);
    std::lock_guard guard(board_->mutex);
    Inputs& inputs = board_->calls[++calls_];
    inputs.resize(size_t(size_));
    const auto* const from = static_cast<const std::byte*>(in);
    inputs[size_t(rank_)] = std::vector<std::byte>(from, from + bytes);
    last_ = std::move(finish);
    board_->changed.notify_all();
  }

  const std::shared_ptr<HostGpuNetwork::Board> board_;
  const int rank_, size_;
  const std::shared_ptr<std::atomic<bool>> is_aborted_ = std::make_shared<std::atomic<bool>>(false);
  std::atomic<bool> is_asked_{false};
  int64_t calls_ = 0;
  Finish last_;  // until it has an end
};

class HostCollectivesLibrary final : public gpu::DeviceCollectivesLibrary {
 public:
  explicit HostCollectivesLibrary(HostGpuNetwork& network) : network_(network) {}
  gpu::DeviceGroupId fresh_id() override { return network_.fresh_id(); }
  std::unique_ptr<gpu::DeviceCollectives> join(const gpu::DeviceGroupId& id, int rank,
                                               int size) override {
    use_on_this_thread();
    return std::make_unique<HostCollectives>(network_.board(id), rank, size);
  }
  void use_on_this_thread() override { HostCollectives::uses_gpu = true; }

 private:
  HostGpuNetwork& network_;
};

}  // namespace smp::test
