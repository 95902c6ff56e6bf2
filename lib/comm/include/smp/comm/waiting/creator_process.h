#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace smp::waiting {

// Remembers the process that created it, and so detects a forked child. A child has copies of its
// parent's objects but none of its threads, and it shares the parent's memory, sockets and network.
// A child must therefore not call functions that those threads serve, nor destroy objects that the
// parent still uses. is_here() costs one load; any thread. A child made by clone(2), not by fork(),
// is taken for its parent.
class CreatorProcess {
 public:
  CreatorProcess();  // throws std::system_error without memory

  bool is_here() const { return forks_ == forks.load(std::memory_order_relaxed); }
  // Throws CommError (kAborted) in a forked child: "this process was forked from rank 1's: it has
  // no part in its groups".
  void check(int rank) const {
    if (!is_here()) refuse(rank);
  }

 private:
  [[noreturn]] static void refuse(int rank);
  static void note_fork();

  static inline std::atomic<uint32_t> forks{0};  // forks from the first process down to this one
  const uint32_t forks_;
};

// Deletes the object only in the process that created it. A forked child leaves it alone.
struct DeleteInCreator {
  CreatorProcess home;

  template <class T>
  void operator()(T* object) const {
    if (home.is_here()) delete object;
  }
};
template <class T>
using OwnedByCreator = std::unique_ptr<T, DeleteInCreator>;

}  // namespace smp::waiting
