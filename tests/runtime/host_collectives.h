#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device_collectives.h"

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
    std::string error;                // what the library says of itself from now on
    int64_t last_to_end = INT64_MAX;  // calls behind it never do
    std::map<int64_t, std::vector<std::optional<std::vector<std::byte>>>> calls;  // inputs by rank
  };

  int groups() {
    std::lock_guard guard(mutex_);
    return ids_;
  }
  DeviceGroupId fresh_id() {
    std::lock_guard guard(mutex_);
    DeviceGroupId id{};
    const std::string text = std::to_string(++ids_);
    std::copy(text.begin(), text.end(), id.begin());
    return id;
  }
  std::shared_ptr<Board> board(const DeviceGroupId& id) {
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

class HostCollectives final : public DeviceCollectives {
 public:
  HostCollectives(std::shared_ptr<HostGpuNetwork::Board> board, int rank, int size)
      : board_(std::move(board)), rank_(rank), size_(size) {
    std::lock_guard guard(board_->mutex);
    ++board_->joined;
  }

  bool is_ready() override {
    std::lock_guard guard(board_->mutex);
    return board_->joined == size_;
  }
  CopyPtr all_reduce(const void* in, void* out, int64_t count, DType dtype, ReduceOp op) override {
    return start(in, count * bytes_of(dtype), [=](const Inputs& all) {
      reduce(all, static_cast<std::byte*>(out), 0, count, dtype, op);
    });
  }
  CopyPtr all_gather(const void* in, void* out, int64_t count, DType dtype) override {
    const int64_t part = count * bytes_of(dtype);
    return start(in, part, [=](const Inputs& all) {
      for (size_t rank = 0; rank < all.size(); ++rank)
        std::memcpy(static_cast<std::byte*>(out) + int64_t(rank) * part, all[rank]->data(),
                    size_t(part));
    });
  }
  CopyPtr reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                         ReduceOp op) override {
    return start(in, count * bytes_of(dtype), [=, rank = rank_, size = size_](const Inputs& all) {
      reduce(all, static_cast<std::byte*>(out), rank * (count / size), count / size, dtype, op);
    });
  }
  CopyPtr broadcast(void* buffer, int64_t count, DType dtype, int root) override {
    const int64_t bytes = count * bytes_of(dtype);
    return start(buffer, bytes, [=](const Inputs& all) {
      std::memcpy(buffer, all[size_t(root)]->data(), size_t(bytes));
    });
  }
  std::string error() override {
    std::lock_guard guard(board_->mutex);
    return board_->error;
  }
  void abort() override {
    std::lock_guard guard(board_->mutex);
    is_aborted_->store(true);  // here alone, as NCCL's
    board_->changed.notify_all();
  }

 private:
  using Inputs = std::vector<std::optional<std::vector<std::byte>>>;
  using Finish = std::function<void(const Inputs&)>;

  template <class T>
  static void reduce_as(const Inputs& all, std::byte* out, int64_t begin, int64_t count,
                        ReduceOp op) {
    T* const to = reinterpret_cast<T*>(out);
    for (int64_t i = 0; i < count; ++i) {
      T sum = reinterpret_cast<const T*>(all[0]->data())[begin + i];
      for (size_t rank = 1; rank < all.size(); ++rank) {
        const T next = reinterpret_cast<const T*>(all[rank]->data())[begin + i];
        sum = op == ReduceOp::kMax ? std::max(sum, next) : sum + next;
      }
      to[i] = op == ReduceOp::kAverage ? sum / T(all.size()) : sum;
    }
  }
  static void reduce(const Inputs& all, std::byte* out, int64_t begin, int64_t count, DType dtype,
                     ReduceOp op) {
    switch (dtype) {
      case DType::kF32: return reduce_as<float>(all, out, begin, count, op);
      case DType::kF64: return reduce_as<double>(all, out, begin, count, op);
      case DType::kI64: return reduce_as<int64_t>(all, out, begin, count, op);
      default: throw std::runtime_error("a type that these GPUs do not reduce");
    }
  }

  class HostCall final : public Copy {
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
      return number_ <= board_->last_to_end &&
             std::count_if(inputs.begin(), inputs.end(),
                           [](const auto& input) { return input.has_value(); }) == size_;
    }
    const std::shared_ptr<HostGpuNetwork::Board> board_;
    const std::shared_ptr<std::atomic<bool>> is_aborted_;
    const int64_t number_;
    const int size_;
    Finish finish_;
  };

  CopyPtr start(const void* in, int64_t bytes, Finish finish) {
    std::lock_guard guard(board_->mutex);
    if (is_aborted_->load()) throw std::runtime_error("the group was aborted");
    Inputs& inputs = board_->calls[++calls_];
    inputs.resize(size_t(size_));
    const auto* const from = static_cast<const std::byte*>(in);
    inputs[size_t(rank_)] = std::vector<std::byte>(from, from + bytes);
    board_->changed.notify_all();
    return std::make_unique<HostCall>(board_, is_aborted_, calls_, size_, std::move(finish));
  }

  const std::shared_ptr<HostGpuNetwork::Board> board_;
  const int rank_, size_;
  const std::shared_ptr<std::atomic<bool>> is_aborted_ = std::make_shared<std::atomic<bool>>(false);
  int64_t calls_ = 0;
};

class HostCollectivesLibrary final : public DeviceCollectivesLibrary {
 public:
  explicit HostCollectivesLibrary(HostGpuNetwork& network) : network_(network) {}
  DeviceGroupId fresh_id() override { return network_.fresh_id(); }
  std::unique_ptr<DeviceCollectives> join(const DeviceGroupId& id, int rank, int size) override {
    return std::make_unique<HostCollectives>(network_.board(id), rank, size);
  }

 private:
  HostGpuNetwork& network_;
};

}  // namespace smp::test
