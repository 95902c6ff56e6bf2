#include "staging.h"

#include "smp/plan/check.h"

namespace smp {

class StagedCommunicator::Staging::Message final : public Work {
 public:
  Message(std::shared_ptr<Staging> staging, Buffer& buffer, const Piece& in, const Piece& out,
          Start start)
      : staging_(std::move(staging)), buffer_(buffer), out_(out), start_(std::move(start)) {
    if (in.device != nullptr) {
      coming_ =
          staging_->memory_.start_to_host(buffer.memory.get() + in.offset, in.device, in.bytes);
    }
  }
  ~Message() override {
    if (is_over_) return;
    if (work_ != nullptr) {
      staging_->dropped_.push_back(std::move(work_));
    } else {
      buffer_.is_taken = false;
    }
  }

  bool is_due() const { return coming_ == nullptr || coming_->done(); }
  void begin() {
    try {
      if (coming_ != nullptr) coming_->wait();
      work_ = start_(buffer_.memory.get());
    } catch (...) {
      error_ = std::current_exception();  // for whoever waits for this one
    }
    coming_.reset();
    start_ = nullptr;
  }

  bool done() override {
    if (is_over_) return true;
    staging_->start_due();
    if (error_) std::rethrow_exception(error_);
    if (work_ == nullptr || !work_->done()) return false;
    finish();
    return true;
  }
  void wait() override {
    if (is_over_) return;
    staging_->start_all();
    if (error_) std::rethrow_exception(error_);
    work_->wait();
    finish();
  }

 private:
  void finish() {
    if (out_.device != nullptr) {
      buffer_.leaving = staging_->memory_.start_to_device(
          out_.device, buffer_.memory.get() + out_.offset, out_.bytes);
    }
    buffer_.is_taken = false;
    work_.reset();
    is_over_ = true;
  }

  const std::shared_ptr<Staging> staging_;
  Buffer& buffer_;
  const Piece out_;
  Start start_;
  CopyPtr coming_;
  WorkPtr work_;  // once it has started
  std::exception_ptr error_;
  bool is_over_ = false;
};

StagedCommunicator::Staging::~Staging() {
  for (Buffer& buffer : buffers_) {
    if (buffer.leaving != nullptr) buffer.leaving->wait();
    memory_.unpin(buffer.memory.get());
  }
}

WorkPtr StagedCommunicator::Staging::queue(int64_t bytes, const Piece& in, const Piece& out,
                                           Start start) {
  Buffer& buffer = take(bytes);
  queue_.push_back(
      std::make_shared<Message>(shared_from_this(), buffer, in, out, std::move(start)));
  const WorkPtr message = queue_.back();
  start_due();
  return message;
}

void StagedCommunicator::Staging::start_due() {
  while (!queue_.empty() && queue_.front()->is_due()) {
    const std::shared_ptr<Message> next = std::move(queue_.front());
    queue_.pop_front();
    next->begin();
  }
}

void StagedCommunicator::Staging::start_all() {
  while (!queue_.empty()) {
    const std::shared_ptr<Message> next = std::move(queue_.front());
    queue_.pop_front();
    next->begin();
  }
}

// The smallest that is free and large enough: steps that send alike stop asking for more.
StagedCommunicator::Staging::Buffer& StagedCommunicator::Staging::take(int64_t bytes) {
  Buffer* best = nullptr;
  for (Buffer& buffer : buffers_) {
    if (buffer.is_taken || buffer.bytes < bytes) continue;
    if (buffer.leaving != nullptr && !buffer.leaving->done()) continue;
    if (best == nullptr || buffer.bytes < best->bytes) best = &buffer;
  }
  if (best == nullptr) {
    const ItemScope item("buffers of messages");
    Buffer made;
    made.charge = MemoryCharge(MemoryCategory::kCommunication, bytes);
    made.memory = owner_.allocate_symmetric(bytes);
    made.bytes = bytes;
    memory_.pin(made.memory.get(), bytes);
    best = &buffers_.emplace_back(std::move(made));
  }
  best->leaving.reset();
  best->is_taken = true;
  return *best;
}

}  // namespace smp
