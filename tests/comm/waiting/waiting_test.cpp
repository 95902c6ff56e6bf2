#include <dirent.h>
#include <doctest/doctest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/processes.h"
#include "smp/comm/communicator.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::testing;

namespace {

// How often the other threads of this process have gone to sleep.
int64_t naps_of_others() {
  int64_t naps = 0;
  const std::string own = std::to_string(syscall(SYS_gettid)), all = "/proc/self/task/";
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(opendir(all.c_str()), closedir);
  while (const dirent* task = readdir(tasks.get())) {
    if (task->d_name[0] == '.' || task->d_name == own) continue;
    std::ifstream status(all + task->d_name + "/status");
    for (std::string word; status >> word;)
      if (int64_t count; word == "voluntary_ctxt_switches:" && status >> count) naps += count;
  }
  return naps;
}

}  // namespace

TEST_CASE("processes: calls that are waited for at once leave the engine's thread asleep") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int kCalls = 20000;  // which take seconds
#else
  constexpr int kCalls = 180000;
#endif
  // It looks once in a millisecond. Without that each call could wake it, when the peer's part of
  // the call comes between its being made and its being waited for: some 20 in a millisecond.
  constexpr double kMostNapsPerMs = 2;
  double least = INFINITY;
  for (int attempt = 0; attempt < 5 && least > kMostNapsPerMs; ++attempt) {
    const auto outcomes = run_processes(2, [](Communicator& comm) {
      std::vector<std::byte> in(2048), out(4096);
      const int64_t before = naps_of_others();
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kCalls; ++i) {
        memset(in.data(), i, in.size());  // so that now one, now the other is first
        comm.barrier("start")->wait();
        comm.all_gather(in.data(), out.data(), 2048, DType::kU8, "short")->wait();
      }
      const std::chrono::duration<double, std::milli> took =
          std::chrono::steady_clock::now() - start;
      return std::to_string(double(naps_of_others() - before) / took.count());
    });
    double most = 0;
    for (const Outcome& outcome : outcomes) most = std::max(most, std::stod(outcome.said));
    least = std::min(least, most);
  }
  CHECK(least <= kMostNapsPerMs);
}

// A rank alone has done all of a call when it has made it, which takes milliseconds.
TEST_CASE("processes: a long call that is waited for at once leaves the engine's thread asleep") {
  constexpr int kCalls = 40;
  constexpr int64_t kBytes = 16 << 20;
  int least = INT_MAX;
  for (int attempt = 0; attempt < 5 && least > kCalls / 2; ++attempt) {
    const auto outcomes = run_processes(1, [](Communicator& comm) {
      std::vector<std::byte> in(kBytes), out(kBytes);
      const int64_t before = naps_of_others();
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < kCalls; ++i)
        comm.all_gather(in.data(), out.data(), kBytes, DType::kU8, "long")->wait();
      const auto took = std::chrono::steady_clock::now() - start;
      const int64_t after = naps_of_others();
      std::this_thread::sleep_for(took);  // every thread looks now and then, ThreadSanitizer's too
      return std::to_string((after - before) - (naps_of_others() - after));
    });
    least = std::min(least, std::stoi(outcomes.at(0).said));
  }
  CHECK(least <= kCalls / 2);
}
