#pragma once

#include <coroutine>
#include <cstddef>
#include <exception>
#include <new>
#include <utility>

namespace smp::progress {

// Memory for the coroutine frame of one program, so that a short call allocates nothing.
class FrameRoom {
 public:
  // Returns `bytes` of memory: in the room, or on the heap if the room is taken or too small.
  void* allocate(size_t bytes) {
    const bool fits = !std::exchange(is_taken_, true) && bytes + kHead <= sizeof(bytes_);
    auto* at = fits ? bytes_ : static_cast<std::byte*>(::operator new(bytes + kHead));
    new (at) bool(fits);
    return at + kHead;
  }
  static void free(void* frame) {
    std::byte* const at = static_cast<std::byte*>(frame) - kHead;
    if (!*std::launder(reinterpret_cast<bool*>(at))) ::operator delete(at);
  }

 private:
  // Whether the frame lies in the room.
  static constexpr size_t kHead = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
  bool is_taken_ = false;
  alignas(kHead) std::byte bytes_[512];
};

// The part of one rank in one call, as a coroutine. It is suspended until a peer's counter has
// reached the value that it needs. Resumed under the engine's lock.
class Program {
 public:
  struct promise_type {
    std::exception_ptr error;
    // The frame lies in the operation, which is the program's first argument and outlives it.
    template <class Self, class Operation, class... Rest>
    static void* operator new(size_t bytes, Self&, Operation& op, Rest&&...) {
      return op.frame_room.allocate(bytes);
    }
    static void operator delete(void* frame) { FrameRoom::free(frame); }
    Program get_return_object() {
      return Program(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }
  };

  Program() = default;
  Program(Program&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Program& operator=(Program&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Program() {
    if (handle_) handle_.destroy();
  }

  explicit operator bool() const { return handle_ != nullptr; }
  void resume() { handle_.resume(); }
  bool done() const { return handle_.done(); }
  std::exception_ptr error() const { return handle_.promise().error; }

 private:
  explicit Program(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

}  // namespace smp::progress
