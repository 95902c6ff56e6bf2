#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "fuzz/mutator.h"
#include "fuzz/target.h"
#include "plan/jobfile/bad_jobs.h"
#include "smp/plan/base/errors.h"

// smp-fuzz TARGET [--seconds S] [--runs N] [--seed X]   replays the corpus, then mutates it
// smp-fuzz TARGET FILE...                               replays these files alone
// smp-fuzz --list
//
// A text that fails is left in failed-TARGET.txt, for a test that names what broke.
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using namespace smp::fuzz;

// Of the processor, sanitized, on a slow machine: a reader of 64 KiB that takes longer hangs.
constexpr double kSlowS = 10;

// What is being run, for a handler that may not allocate.
const char* running_text = nullptr;
size_t running_size = 0;
char failed_path[256];

void leave_text() {
  const int file = open(failed_path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
  if (file < 0) return;
  for (size_t done = 0; done < running_size;) {
    const ssize_t wrote = write(file, running_text + done, running_size - done);
    if (wrote <= 0) break;
    done += static_cast<size_t>(wrote);
  }
  close(file);
}

void on_signal(int number) {
  leave_text();
  signal(number, SIG_DFL);
  raise(number);
}

[[noreturn]] void fail(const std::string& why) {
  leave_text();
  std::fprintf(stderr, "%s\nthe text is in %s\n", why.c_str(), failed_path);
  std::exit(1);
}

void run_one(const Target& target, const std::string& text, const std::string& origin) {
  running_text = text.data();
  running_size = text.size();
  const std::clock_t start = std::clock();  // the machine may be busy with other things
  try {
    target.run(text);
  } catch (const smp::ConfigError& error) {
    if (std::string_view(error.what()).empty()) fail(origin + ": an error without a text");
  } catch (const PropertyBroken& broken) {
    fail(origin + ": " + broken.what);
  } catch (const std::exception& error) {
    fail(origin + ": an exception that is no ConfigError: " + error.what());
  }
  const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  if (took > kSlowS) fail(origin + ": took " + std::to_string(took) + " s");
}

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Seed {
  std::string origin, text;
};

// The texts of a file of the corpus: one, or the job of each case of a cases file.
std::vector<Seed> seeds_of(const fs::path& path) {
  if (path.extension() != ".cases") return {{path, contents(path)}};
  std::vector<Seed> seeds;
  for (const auto& job : smp::testing::read_cases(path, contents(path))) {
    seeds.push_back({job.file + ":" + std::to_string(job.line), job.text});
  }
  return seeds;
}

std::vector<fs::path> corpus_files(const Target& target) {
  std::vector<fs::path> files;
  for (const char* place : target.corpus) {
    const fs::path path = fs::path(SMP_SOURCE_DIR) / place;
    if (fs::is_regular_file(path)) files.push_back(path);
    if (!fs::is_directory(path)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(path)) {
      if (entry.is_regular_file() && entry.path().extension() != ".expected") {
        files.push_back(entry.path());
      }
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

struct Options {
  double seconds = 0;
  long runs = 0;
  uint64_t seed = 1;
  std::vector<fs::path> files;
};

int fuzz(const Target& target, const Options& options) {
  std::snprintf(failed_path, sizeof failed_path, "failed-%s.txt", target.name);
  const std::vector<fs::path> files = options.files.empty() ? corpus_files(target) : options.files;
  if (files.empty()) fail(std::string(target.name) + " has no corpus");
  std::vector<std::string> corpus;
  for (const fs::path& path : files) {
    for (const Seed& seed : seeds_of(path)) {
      run_one(target, seed.text, seed.origin);
      corpus.push_back(seed.text);
    }
  }
  Mutator mutator(corpus, options.seed);
  const auto start = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  long runs = 0;
  while (options.files.empty() && (options.runs == 0 || runs < options.runs) &&
         (options.seconds > 0 ? elapsed() < options.seconds : options.runs > 0)) {
    ++runs;
    run_one(target, mutator.next(),
            "seed " + std::to_string(options.seed) + ", text " + std::to_string(runs));
  }
  std::printf("%s: %zu texts of the corpus, %ld mutations in %.1f s\n", target.name, corpus.size(),
              runs, elapsed());
  return 0;
}

int usage() {
  std::fputs("usage: smp-fuzz TARGET [--seconds S] [--runs N] [--seed X] [FILE...] | --list\n",
             stderr);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--list") == 0) {
    for (const Target& target : targets()) std::puts(target.name);
    return 0;
  }
  if (argc < 2) return usage();
  Options options;
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (!word.starts_with("--")) {
      options.files.emplace_back(argv[i]);
    } else if (i + 1 == argc) {
      return usage();
    } else if (word == "--seconds") {
      options.seconds = std::atof(argv[++i]);
    } else if (word == "--runs") {
      options.runs = std::atol(argv[++i]);
    } else if (word == "--seed") {
      options.seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      return usage();
    }
  }
  for (const int number : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL}) signal(number, on_signal);
  for (const Target& target : targets()) {
    if (std::strcmp(target.name, argv[1]) == 0) return fuzz(target, options);
  }
  return usage();
}
