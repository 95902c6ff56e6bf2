#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "copy.h"

// How fast slots go from a thread on one CPU, which copies to them, to one on another, which reads
// them: written through the cache and around it, in turn, for as long as asked for. Rounds are told
// apart by whether copies to slots are slow through the cache, as slot_writes.h has it.
//
//   smp_slots SECONDS
namespace smp::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kBytes = 256 << 10;
constexpr double kSlow = 3.2;  // GB/s
constexpr int kSlots = 4, kSources = 16, kTimes = 60;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct alignas(4096) Block {
  std::byte bytes[kBytes];
};
struct alignas(64) Count {
  std::atomic<int> value{0};
};

// GB/s of all, of what the writer took for its copies, and of what the reader took for its own.
struct Rates {
  double all, written, read;
};

void pin_to(int place) {
  cpu_set_t allowed, own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && seen++ == place) CPU_SET(cpu, &own);
  if (CPU_COUNT(&own) == 1) pthread_setaffinity_np(pthread_self(), sizeof(own), &own);
}

Rates rates_of(bool around, std::vector<Block>& slots, std::vector<Block>& from,
               std::vector<Block>& to) {
  Count written, read;
  double writing = 0, reading = 0, whole = 0;
  std::thread writer([&] {
    pin_to(0);
    for (int i = 0; i < kTimes; ++i) {
      while (i - read.value.load(std::memory_order_acquire) >= kSlots) {
      }
      const auto start = Clock::now();
      shm::copy_bytes(slots[size_t(i % kSlots)].bytes, from[size_t(i % kSources)].bytes, kBytes,
                      around);
      writing += seconds_since(start);
      written.value.store(i + 1, std::memory_order_release);
    }
  });
  std::thread reader([&] {
    pin_to(1);
    const auto begin = Clock::now();
    for (int i = 0; i < kTimes; ++i) {
      while (written.value.load(std::memory_order_acquire) <= i) {
      }
      const auto start = Clock::now();
      shm::copy_bytes(to[size_t(i % kSources)].bytes, slots[size_t(i % kSlots)].bytes, kBytes);
      reading += seconds_since(start);
      read.value.store(i + 1, std::memory_order_release);
    }
    whole = seconds_since(begin);
  });
  writer.join();
  reader.join();
  const double bytes = double(kTimes) * double(kBytes) / 1e9;
  return {bytes / whole, bytes / writing, bytes / reading};
}

double median(std::vector<Rates> rounds, double Rates::*rate) {
  std::sort(rounds.begin(), rounds.end(), [&](auto& a, auto& b) { return a.*rate < b.*rate; });
  return rounds[rounds.size() / 2].*rate;
}

void print(const char* which, const std::vector<Rates>& cached, const std::vector<Rates>& around) {
  fmt::print("{} in {} rounds\n", which, cached.size());
  if (cached.empty()) return;
  for (const auto& [way, rounds] : {std::pair{"through", &cached}, {"around", &around}})
    fmt::print("  {:<8}{:6.1f} GB/s, copies to slots {:6.1f}, from slots {:6.1f}\n", way,
               median(*rounds, &Rates::all), median(*rounds, &Rates::written),
               median(*rounds, &Rates::read));
}

}  // namespace
}  // namespace smp::bench

int main(int argc, char** argv) {
  using namespace smp::bench;
  const double seconds = argc == 2 ? atof(argv[1]) : 0;
  if (seconds <= 0) {
    fmt::print(stderr, "usage: smp_slots SECONDS\n");
    return 2;
  }
  std::vector<Block> slots(kSlots), from(kSources), to(kSources);
  std::vector<Rates> cached[2], around[2];
  for (const auto begin = Clock::now(); seconds_since(begin) < seconds;) {
    const Rates through = rates_of(false, slots, from, to), past = rates_of(true, slots, from, to);
    const bool is_slow = through.written < kSlow;
    cached[is_slow].push_back(through);
    around[is_slow].push_back(past);
  }
  print("copies through the cache are quick", cached[0], around[0]);
  print("copies through the cache are slow", cached[1], around[1]);
}
