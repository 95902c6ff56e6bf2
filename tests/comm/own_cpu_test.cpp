#include "own_cpu.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <vector>

using namespace smp::shm;

namespace {

// Restores what this thread may run on.
class Affinity {
 public:
  Affinity() { REQUIRE(sched_getaffinity(0, sizeof(before_), &before_) == 0); }
  ~Affinity() { sched_setaffinity(0, sizeof(before_), &before_); }
  Affinity(const Affinity&) = delete;
  Affinity& operator=(const Affinity&) = delete;

  std::vector<int> cpus() const {
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &before_)) cpus.push_back(cpu);
    return cpus;
  }
  bool is_as_before() const {
    cpu_set_t now;
    return sched_getaffinity(0, sizeof(now), &now) == 0 && CPU_EQUAL(&now, &before_);
  }

 private:
  cpu_set_t before_;
};

}  // namespace

TEST_CASE("a thread leaves its CPU for one that is not taken, and may go on to any") {
  const Affinity affinity;
  if (affinity.cpus().size() < 2) {
    MESSAGE("skipped: this process may use one CPU");
    return;
  }
  std::vector<int> taken = affinity.cpus();
  taken.erase(taken.begin());  // the first is the only one that is free
  int there = 0;               // the kernel may move it on; it does so rarely
  for (int i = 0; i < 20; ++i) {
    cpu_set_t last;
    CPU_ZERO(&last);
    CPU_SET(taken.back(), &last);
    REQUIRE(sched_setaffinity(0, sizeof(last), &last) == 0);
    const Affinity bound;
    CHECK_FALSE(leave_cpu({}));  // it may run nowhere else
    CHECK(bound.is_as_before());
    CHECK(current_cpu() == taken.back());
    cpu_set_t all;
    CPU_ZERO(&all);
    for (const int cpu : affinity.cpus()) CPU_SET(cpu, &all);
    REQUIRE(sched_setaffinity(0, sizeof(all), &all) == 0);
    CHECK(leave_cpu(taken));
    there += current_cpu() == affinity.cpus().front();
    CHECK(affinity.is_as_before());
    CHECK_FALSE(leave_cpu(affinity.cpus()));
    CHECK(affinity.is_as_before());
  }
  CHECK(there >= 10);
}
