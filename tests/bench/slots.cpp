#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "reduce/copy.h"

// How fast slots go from a thread on one CPU, which copies to them, to one on another, which reads
// them: written through the cache and around it, in turn, for as long as asked for. Rounds are told
// apart by whether copies to slots are slow through the cache, as slot_writes.h has it.
//
// KIB and PLACES: of a slot, and how many of them are written in turn (256 and 4).
//
//   smp_slots SECONDS [KIB PLACES]
namespace smp::bench {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kSlow = 6.5;  // GB/s
constexpr int kAhead = 4;      // slots at most that are not read yet
constexpr int kSources = 16;
constexpr int64_t kRoundBytes = 15 << 20;  // about so many, all slots twice at least

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Blocks of so many bytes, one after the other.
class Blocks {
 public:
  Blocks(int count, int64_t bytes)
      : count_(count),
        bytes_(bytes),
        memory_(static_cast<std::byte*>(std::aligned_alloc(4096, size_t(count * bytes)))) {
    std::memset(memory_.get(), 1, size_t(count * bytes));
  }
  std::byte* operator[](int i) const { return memory_.get() + i % count_ * bytes_; }
  int count() const { return count_; }
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  int count_;
  int64_t bytes_;
  std::unique_ptr<std::byte, Free> memory_;
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

Rates rates_of(bool non_temporal, const Blocks& slots, const Blocks& from, const Blocks& to) {
  const int64_t each = slots.bytes();
  const int times = std::max(int(kRoundBytes / each), 2 * slots.count());
  Count written, read;
  double writing = 0, reading = 0, whole = 0;
  std::thread writer([&] {
    pin_to(0);
    for (int i = 0; i < times; ++i) {
      while (i - read.value.load(std::memory_order_acquire) >= std::min(kAhead, slots.count())) {
      }
      const auto start = Clock::now();
      reduce::copy_bytes(slots[i], from[i], each, non_temporal);
      writing += seconds_since(start);
      written.value.store(i + 1, std::memory_order_release);
    }
  });
  std::thread reader([&] {
    pin_to(1);
    const auto begin = Clock::now();
    for (int i = 0; i < times; ++i) {
      while (written.value.load(std::memory_order_acquire) <= i) {
      }
      const auto start = Clock::now();
      reduce::copy_bytes(to[i], slots[i], each);
      reading += seconds_since(start);
      read.value.store(i + 1, std::memory_order_release);
    }
    whole = seconds_since(begin);
  });
  writer.join();
  reader.join();
  const double bytes = double(times) * double(each) / 1e9;
  return {bytes / whole, bytes / writing, bytes / reading};
}

double median(std::vector<Rates> rounds, double Rates::*rate) {
  std::sort(rounds.begin(), rounds.end(), [&](auto& a, auto& b) { return a.*rate < b.*rate; });
  return rounds[rounds.size() / 2].*rate;
}

void print(const char* which, const std::vector<Rates>& cached,
           const std::vector<Rates>& non_temporal) {
  fmt::print("{} in {} rounds\n", which, cached.size());
  if (cached.empty()) return;
  for (const auto& [way, rounds] : {std::pair{"through", &cached}, {"around", &non_temporal}})
    fmt::print("  {:<8}{:6.1f} GB/s, copies to slots {:6.1f}, from slots {:6.1f}\n", way,
               median(*rounds, &Rates::all), median(*rounds, &Rates::written),
               median(*rounds, &Rates::read));
}

}  // namespace
}  // namespace smp::bench

int main(int argc, char** argv) {
  using namespace smp::bench;
  const double seconds = argc == 2 || argc == 4 ? atof(argv[1]) : 0;
  const int64_t kib = argc == 4 ? atoi(argv[2]) : 256;
  const int places = argc == 4 ? atoi(argv[3]) : 4;
  if (seconds <= 0 || kib < 4 || kib % 4 != 0 || kib > 1024 || places < 1 || places > 4096) {
    fmt::print(
        stderr,
        "usage: smp_slots SECONDS [KIB PLACES]: KIB a multiple of 4 up to 1024, PLACES up to "
        "4096\n");
    return 2;
  }
  const Blocks slots(places, kib << 10), from(kSources, kib << 10), to(kSources, kib << 10);
  std::vector<Rates> cached[2], non_temporal[2];
  for (const auto begin = Clock::now(); seconds_since(begin) < seconds;) {
    const Rates through = rates_of(false, slots, from, to), past = rates_of(true, slots, from, to);
    const bool is_slow = through.written < kSlow;
    cached[is_slow].push_back(through);
    non_temporal[is_slow].push_back(past);
  }
  print("copies through the cache are quick", cached[0], non_temporal[0]);
  print("copies through the cache are slow", cached[1], non_temporal[1]);
}
