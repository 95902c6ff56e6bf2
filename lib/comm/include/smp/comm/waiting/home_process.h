#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace smp::waiting {

// Remembers the process in which it was made. A forked child has copies of that process's objects
// but none of its threads, and shares its memory, sockets and network. So in a child nothing may be
// called that those threads serve, and nothing may be ended that is still in use at home. is_here()
// costs one load; any thread. A child made by clone(2), not by fork(), is taken for its parent.
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

  static inline std::atomic<uint32_t> forks{0};  // forks from the first process down to this one
  const uint32_t forks_;
};

// Deletes the object only in the process that made it; in a forked child it is left alone.
struct DeleteAtHome {
  HomeProcess home;

  template <class T>
  void operator()(T* object) const {
    if (home.is_here()) delete object;
  }
};
template <class T>
using OwnedAtHome = std::unique_ptr<T, DeleteAtHome>;

}  // namespace smp::waiting
