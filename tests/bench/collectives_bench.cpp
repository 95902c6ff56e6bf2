#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "subject.h"

// smp_collectives_bench [ranks] [rounds]
//
// Medians of smp's and gloo's collectives between processes of this host, and their ratio. In every
// round the libraries are measured one after the other at each size, so that a busy machine hurts
// all. A sample is the time of a batch of calls between barriers, of the slowest rank, by call.
namespace smp::bench {
namespace {

constexpr int kMaxRanks = 16;
constexpr int kSamples = 7;
constexpr int64_t kSizes[] = {4 << 10, 256 << 10, 4 << 20, 64 << 20};
const char* const kOps[] = {"all_gather", "reduce_scatter", "all_reduce"};
// What we want to reach at each size, gloo = 1.
constexpr double kTargets[] = {10, 6, 4, 2};

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Shared {  // by the ranks of one job
  double seconds[kMaxRanks];
  double samples[3][kSamples];
};

class Measure {
 public:
  Measure(Subject& subject, Shared& shared, int rank, int size, int64_t bytes)
      : subject_(subject),
        shared_(shared),
        rank_(rank),
        size_(size),
        count_(bytes / 4),
        in_(subject.buffer(count_)),
        out_(subject.buffer(count_)) {}

  void run() {
    // Zeros: gloo's sums in place must not overflow over thousands of calls.
    sample(0, [this] { subject_.all_gather(in_, out_, count_); });
    sample(1, [this] { subject_.reduce_scatter(in_, out_, count_); });
    sample(2, [this] { subject_.all_reduce(in_, out_, count_); });
  }

 private:
  double slowest(double mine) {
    subject_.barrier();
    shared_.seconds[rank_] = mine;
    subject_.barrier();
    const double result = *std::max_element(shared_.seconds, shared_.seconds + size_);
    subject_.barrier();
    return result;
  }

  void sample(int op, const std::function<void()>& call) {
    call();
    const double start = now_s();
    for (int i = 0; i < 3; ++i) call();
    const double one_s = slowest(now_s() - start) / 3;
    const int batch = std::clamp(int(0.02 / one_s), 1, 500);
    for (double& s : shared_.samples[op]) {
      subject_.barrier();
      const double begin = now_s();
      for (int i = 0; i < batch; ++i) call();
      const double mine = (now_s() - begin) / batch;
      const double slow = slowest(mine);
      if (rank_ == 0) s = slow;
    }
  }

  Subject& subject_;
  Shared& shared_;
  const int rank_, size_;
  const int64_t count_;
  float *const in_, *const out_;
};

// One job of one library at one size.
void run_job(const std::string& library, int size, int64_t bytes, Shared& shared) {
  static int jobs = 0;
  const std::string meeting = fmt::format("smp-bench-{}-{}", getpid(), ++jobs);
  const std::string folder = (std::filesystem::temp_directory_path() / meeting).string();
  std::filesystem::create_directory(folder);
  for (int rank = 0; rank < size; ++rank) {
    if (fork() != 0) continue;
    {
      const auto subject =
          library == "gloo" ? make_gloo_subject(rank, size, folder, bytes / 4)
                            : make_smp_subject(rank, size, meeting,
                                               library == "smp" ? Memory::kOwn : Memory::kPrivate);
      Measure(*subject, shared, rank, size, bytes).run();
      subject->barrier();
    }
    _exit(0);
  }
  bool failed = false;
  for (int status; wait(&status) > 0;) failed |= status != 0;
  std::filesystem::remove_all(folder);
  if (failed) {
    fmt::print(stderr, "smp_collectives_bench: a rank of {} failed at {} bytes\n", library, bytes);
    exit(1);
  }
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The median of the round that other programs disturbed least, and that of all rounds.
struct Figure {
  double best_s = 0, all_s = 0;
};
Figure figure_of(const std::vector<std::vector<double>>& rounds) {
  std::vector<double> medians, all;
  for (const auto& round : rounds) {
    medians.push_back(median(round));
    all.insert(all.end(), round.begin(), round.end());
  }
  return {*std::min_element(medians.begin(), medians.end()), median(all)};
}

std::string size_text(int64_t bytes) {
  return bytes >= 1 << 20 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

int run(int size, int rounds) {
  auto* shared = static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  std::map<std::string, std::vector<std::vector<double>>> samples;  // by round
  auto key = [](const std::string& library, int op, int64_t bytes) {
    return fmt::format("{}/{}/{}", library, kOps[op], bytes);
  };
  for (int round = 0; round < rounds; ++round)
    for (const int64_t bytes : kSizes)
      for (const std::string library : {"smp", "gloo", "smp private"}) {
        run_job(library, size, bytes, *shared);
        for (int op = 0; op < 3; ++op) {
          const double* s = shared->samples[op];
          samples[key(library, op, bytes)].emplace_back(s, s + kSamples);
        }
      }
  fmt::print(
      "{} ranks, {} rounds; microseconds of a call: median of each library's quietest round, and "
      "of "
      "all rounds\n",
      size, rounds);
  bool reached = true;
  for (const std::string library : {"smp", "smp private"}) {
    fmt::print("\n{}\n", library == "smp" ? "smp with buffers of Communicator::allocate_symmetric, "
                                            "as in training:"
                                          : "smp with buffers in private memory:");
    fmt::print("{:<16}{:>8}{:>11}{:>11}{:>8}{:>8}{:>14}{:>11}{:>8}\n", "collective", "size",
               "smp us", "gloo us", "ratio", "target", "all: smp us", "gloo us", "ratio");
    for (int op = 0; op < 3; ++op)
      for (size_t i = 0; i < std::size(kSizes); ++i) {
        const Figure own = figure_of(samples[key(library, op, kSizes[i])]);
        const Figure gloo = figure_of(samples[key("gloo", op, kSizes[i])]);
        const double ratio = gloo.best_s / own.best_s;
        if (library == "smp") reached &= ratio >= kTargets[i];
        fmt::print("{:<16}{:>8}{:>11.2f}{:>11.2f}{:>7.1f}x{:>7.0f}x{:>14.2f}{:>11.2f}{:>7.1f}x{}\n",
                   kOps[op], size_text(kSizes[i]), own.best_s * 1e6, gloo.best_s * 1e6, ratio,
                   kTargets[i], own.all_s * 1e6, gloo.all_s * 1e6, gloo.all_s / own.all_s,
                   ratio >= kTargets[i] ? "" : "  missed");
      }
  }
  return reached ? 0 : 1;
}

}  // namespace
}  // namespace smp::bench

int main(int argc, char** argv) {
  const int size = argc > 1 ? atoi(argv[1]) : 2;
  const int rounds = argc > 2 ? atoi(argv[2]) : 5;
  if (size < 2 || size > smp::bench::kMaxRanks || rounds < 1) {
    fmt::print(stderr, "usage: smp_collectives_bench [ranks, 2 to 16] [rounds]\n");
    return 2;
  }
  return smp::bench::run(size, rounds);
}
