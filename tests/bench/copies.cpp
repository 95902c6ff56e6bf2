#include <cstring>

#include "copy.h"
#include "timed_processes.h"

// What no collective inside a host can beat: two processes at once copy what the other one has
// written, by memcpy and around the cache; the quicker of the two. Writes {"4096": seconds}.
//
//   smp_copies OUT [--dirty] BYTES ...
namespace smp::bench {
namespace {

void pin_to(int rank) {
  cpu_set_t allowed, own;
  CPU_ZERO(&own);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && seen++ == rank) CPU_SET(cpu, &own);
  if (CPU_COUNT(&own) == 1) sched_setaffinity(0, sizeof(own), &own);
}

int run(int argc, char** argv) {
  const TimedArguments arguments(argc, argv, 1);
  const auto most = size_t(*std::max_element(arguments.sizes.begin(), arguments.sizes.end()));
  void* const memory =
      mmap(nullptr, 2 * most, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
  const bool is_good =
      TimedProcesses::run(2, arguments.is_dirty, [&](TimedProcesses& all, int rank) {
        pin_to(rank);
        auto* const own = static_cast<std::byte*>(memory) + (rank == 0 ? 0 : most);
        const auto* const other = static_cast<std::byte*>(memory) + (rank == 0 ? most : 0);
        std::vector<std::byte> out(most);
        std::string text;
        for (const int64_t bytes : arguments.sizes) {
          const auto rewrite = [&] { memset(own, 1, size_t(bytes)); };
          const double cached =
              all.median_of([&] { shm::copy_bytes(out.data(), other, bytes, false); }, rewrite);
          const double streamed =
              all.median_of([&] { shm::copy_bytes(out.data(), other, bytes, true); }, rewrite);
          text += fmt::format("{}\"{}\": {:.9f}", text.empty() ? "{" : ", ", bytes,
                              std::min(cached, streamed));
        }
        if (rank == 0) write_text(arguments.out, text + "}\n");
      });
  return is_good ? 0 : 1;
}

}  // namespace
}  // namespace smp::bench

int main(int argc, char** argv) {
  try {
    return smp::bench::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "smp_copies: {}\n", error.what());
    return 2;
  }
}
