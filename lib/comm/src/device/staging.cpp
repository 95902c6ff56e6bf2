#include "device/staging.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "smp/plan/base/check.h"

namespace smp::device {

class Staging::Message final : public comm::Work {
 public:
  Message(std::shared_ptr<Staging> staging, Buffer& buffer, std::vector<Part> parts)
      : staging_(std::move(staging)), buffer_(buffer), called_(staging_->memory_.until_now()) {
    for (Part& part : parts) {
      Step step;
      for (int64_t row = 0; part.in.device != nullptr && row < part.in.rows; ++row)
        step.coming.push_back(staging_->memory_.start_to_host(
            buffer.memory.get() + part.in.offset + row * part.in.bytes,
            static_cast<const std::byte*>(part.in.device) + row * part.in.apart, part.in.bytes,
            *called_));
      step.start = std::move(part.start);
      step.out = part.out;
      steps_.push_back(std::move(step));
    }
    staging_->under_way_.push_back(this);
  }
  ~Message() override {
    if (is_over_) return;
    std::erase(staging_->under_way_, this);
    if (begun_ == 0) buffer_.is_taken = false;
    for (size_t i = landed_; i < begun_; ++i)
      if (steps_[i].work != nullptr) staging_->dropped_.push_back(std::move(steps_[i].work));
  }

  // Starts those whose bytes are here, in order; whether that was all of them.
  bool begin_due() {
    while (begun_ < steps_.size()) {
      for (const CopyPtr& copy : steps_[begun_].coming)
        if (!copy->done()) return false;
      begin_next();
    }
    return true;
  }
  void begin_all() {
    while (begun_ < steps_.size()) {
      begin_next();
      land();
    }
  }

  bool done() override {
    if (is_over_) return true;
    staging_->start_due();
    land();
    return is_through();
  }
  // While bytes are still to come it looks after all messages: peers may wait for one behind this.
  void wait() override {
    if (is_over_) return;
    try {
      for (staging_->advance(); !is_through(); staging_->advance())
        staging_->queue_.empty() ? steps_[landed_].work->wait() : std::this_thread::yield();
    } catch (...) {
      staging_->start_all();  // so that nothing stays queued when nobody comes any more
      throw;
    }
  }

  // Copies to the device what has come from the other ranks.
  void land() {
    try {
      for (; landed_ < begun_; ++landed_) {
        Step& step = steps_[landed_];
        if (error_ || !step.work->done()) return;
        const Piece& out = step.out;
        for (int64_t row = 0; out.device != nullptr && row < out.rows; ++row)
          leaving_ = staging_->memory_.start_to_device(
              static_cast<std::byte*>(out.device) + row * out.apart,
              buffer_.memory.get() + out.offset + row * out.bytes, out.bytes, *called_);
        step.work.reset();
      }
    } catch (...) {
      error_ = std::current_exception();
    }
  }

 private:
  struct Step {
    std::vector<CopyPtr> coming;
    Start start;
    Piece out;
    comm::WorkPtr work;  // once it has begun, until it has landed
  };

  // What goes wrong is for whoever waits for this message.
  void begin_next() {
    Step& step = steps_[begun_];
    try {
      for (const CopyPtr& copy : step.coming) copy->wait();
      if (!error_) step.work = step.start(buffer_.memory.get());
    } catch (...) {
      if (!error_) error_ = std::current_exception();
    }
    step.coming.clear();
    step.start = nullptr;
    ++begun_;
  }

  bool is_through() {
    if (error_) std::rethrow_exception(error_);
    if (landed_ < steps_.size()) return false;
    finish();
    return true;
  }

  void finish() {
    std::erase(staging_->under_way_, this);
    if (leaving_ != nullptr) leaving_->follow();
    buffer_.leaving = std::move(leaving_);
    buffer_.is_taken = false;
    is_over_ = true;
  }

  const std::shared_ptr<Staging> staging_;
  Buffer& buffer_;
  const CopyPtr called_;  // what the device was asked before makes `in`, and may still read `out`
  std::vector<Step> steps_;
  size_t begun_ = 0, landed_ = 0;
  CopyPtr leaving_;  // the last one: copies to the device end in their order
  std::exception_ptr error_;
  bool is_over_ = false;
};

Staging::~Staging() {
  for (Buffer& buffer : buffers_) {
    if (buffer.leaving != nullptr) buffer.leaving->wait();
    unpin(buffer);
  }
}

comm::WorkPtr Staging::queue(int64_t bytes, std::vector<Part> parts) {
  Buffer& buffer = take(bytes);
  queue_.push_back(std::make_shared<Message>(shared_from_this(), buffer, std::move(parts)));
  const comm::WorkPtr message = queue_.back();
  advance();
  return message;
}

void Staging::advance() {
  start_due();
  for (Message* const message : under_way_) message->land();
}

void Staging::start_due() {
  while (!queue_.empty() && queue_.front()->begin_due()) queue_.pop_front();
}

void Staging::start_all() {
  while (!queue_.empty()) {
    const std::shared_ptr<Message> next = std::move(queue_.front());
    queue_.pop_front();
    next->begin_all();
  }
}

void Staging::unpin(Buffer& buffer) {
  if (buffer.bytes == 0) return;
  memory_.unpin(buffer.memory.get());
  buffer.bytes = 0;
}

// Of those that are free the smallest that is large enough, unless it is far too large: a long
// message may be the next to come. Steps that send alike stop asking for more. Else the largest
// gives way to a larger one, so that there are, of about a size, no more than were ever taken at
// once, none larger than the longest message.
Staging::Buffer& Staging::take(int64_t bytes) {
  constexpr int64_t kFarTooLarge = 4;  // times as long as the message
  const auto worth = [bytes](const Buffer& buffer) {
    const bool is_enough = buffer.bytes >= bytes;
    return std::pair(is_enough, is_enough ? -buffer.bytes : buffer.bytes);
  };
  Buffer* best = nullptr;
  for (Buffer& buffer : buffers_) {
    if (buffer.is_taken || (buffer.leaving != nullptr && !buffer.leaving->done())) continue;
    if (buffer.bytes / kFarTooLarge >= bytes) continue;
    if (best == nullptr || worth(buffer) > worth(*best)) best = &buffer;
  }
  if (best == nullptr) best = &buffers_.emplace_back();
  best->leaving.reset();
  if (best->bytes < bytes) {
    unpin(*best);
    best->memory.reset();
    best->memory = allocate_(bytes);
    memory_.pin(best->memory.get(), bytes);
    best->bytes = bytes;
  }
  best->is_taken = true;
  return *best;
}

}  // namespace smp::device
