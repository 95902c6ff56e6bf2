#include <cstring>

#include "reduce/copy.h"
#include "timed_processes.h"

// What no collective inside a host can beat: two processes at once copy what the other one has
// written, in each way that a CPU has. Writes {"4096": {"memcpy": seconds}}.
//
//   smp_copies OUT [--dirty] BYTES ...
namespace smp::bench {
namespace {

using Copy = void (*)(std::byte* to, const std::byte* from, int64_t bytes);
struct Way {
  const char* name;
  Copy copy;
};

void in_one_go(std::byte* to, const std::byte* from, int64_t bytes) {
  memcpy(to, from, size_t(bytes));
}

// To where a line begins, as all here do.
void by_vectors(std::byte* to, const std::byte* from, int64_t bytes) {
  static const auto copies = reduce::line_copies_here();
  const int64_t done = copies.empty() ? 0 : copies.back().cached(to, from, bytes);
  memcpy(to + done, from + done, size_t(bytes - done));
}

// As collectives copy.
void by_pieces(std::byte* to, const std::byte* from, int64_t bytes) {
  constexpr int64_t kPiece = 128 << 10;
  for (int64_t at = 0; at < bytes; at += kPiece)
    reduce::copy_bytes(to + at, from + at, std::min(kPiece, bytes - at), false);
}

void around_the_cache(std::byte* to, const std::byte* from, int64_t bytes) {
  reduce::copy_bytes(to, from, bytes, true);
}

#if defined(__x86_64__)
void rep_movsb(std::byte* to, const std::byte* from, int64_t bytes) {
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}
#endif

// As much memory of malloc() lies, at no multiple of a line's length.
template <Copy kCopy>
void off_lines(std::byte* to, const std::byte* from, int64_t bytes) {
  kCopy(to + 16, from, bytes);
}

constexpr Way kWays[] = {
    {"memcpy", in_one_go},
    {"vectors", by_vectors},
    {"by 128 KiB", by_pieces},
    {"around the cache", around_the_cache},
    {"by 128 KiB, off lines", off_lines<by_pieces>},
#if defined(__x86_64__)
    {"rep movsb", rep_movsb},
    {"rep movsb, off lines", off_lines<rep_movsb>},
#endif
};

int run(int argc, char** argv) {
  const TimedArguments arguments(argc, argv, 1);
  const auto most = size_t(*std::max_element(arguments.sizes.begin(), arguments.sizes.end()));
  void* const memory = shared_memory(2 * most);
  const bool is_good =
      TimedProcesses::run(2, arguments.is_dirty, [&](TimedProcesses& all, int rank) {
        pin_to(rank);
        auto* const own = static_cast<std::byte*>(memory) + (rank == 0 ? 0 : most);
        const auto* const other = static_cast<std::byte*>(memory) + (rank == 0 ? most : 0);
        std::vector<Line> lines(most / sizeof(Line) + 1);
        std::byte* const out = lines.front().bytes;
        std::string text;
        for (const int64_t bytes : arguments.sizes) {
          const auto rewrite = [&] { memset(own, kTimedByte, size_t(bytes)); };
          text += fmt::format("{}\"{}\": {{", text.empty() ? "{" : ", ", bytes);
          for (const Way& way : kWays) {
            const double seconds = all.median_of([&] { way.copy(out, other, bytes); }, rewrite);
            text += fmt::format("{}\"{}\": {:.9f}", &way == kWays ? "" : ", ", way.name, seconds);
          }
          text += "}";
        }
        if (rank == 0) write_text(arguments.out, text + "}\n");
      });
  return is_good ? 0 : 1;
}

}  // namespace
}  // namespace smp::bench

int main(int argc, char** argv) {
  return smp::bench::run_program("smp_copies", smp::bench::run, argc, argv);
}
