#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace smp {

// The process in which it was made. One that it forks has copies of its objects but none of its
// threads, and shares its memory, sockets and network: there nothing may be called that they serve,
// and nothing ended that is still in use at home. Costs one load; any thread. A child made by
// clone(2) itself, not by fork(), is not told from its parent.
class HomeProcess {
 public:
  HomeProcess();  // throws std::system_error without memory

  bool is_here() const { return forks_ == forks.load(std::memory_order_relaxed); }
  // Throws CommError (kAborted) elsewhere: "this process was forked from rank 1's: it has no part
  // in its groups".
  void check(int rank) const {
    if (!is_here()) refuse(rank);
  }

 private:
  [[noreturn]] static void refuse(int rank);
  static void note_fork();

  static inline std::atomic<uint32_t> forks{0};  // between the first process and this one
  const uint32_t forks_;
};

// Leaves the object alone in children that are forked: what is inherited there is not ended.
struct DeleteAtHome {
  HomeProcess home;

  template <class T>
  void operator()(T* object) const {
    if (home.is_here()) delete object;
  }
};
template <class T>
using OwnedAtHome = std::unique_ptr<T, DeleteAtHome>;

}  // namespace smp
