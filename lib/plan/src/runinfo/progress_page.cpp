#include "smp/plan/runinfo/progress_page.h"

#include <algorithm>
#include <cstring>

#include "smp/plan/runinfo/step_timeline.h"

namespace smp::runinfo {
namespace {

constexpr int kTries = 100;  // a post takes some ten nanoseconds

void store(ProgressPage::Number& number, int64_t value) {
  number.store(value, std::memory_order_release);
}

void store(std::atomic<double>& number, double value) {
  number.store(value, std::memory_order_release);
}

void store(ProgressPage::Name& name, std::string_view text) {
  std::array<uint64_t, ProgressPage::kNameWords> words{};
  std::memcpy(words.data(), text.data(), std::min(text.size(), sizeof words - 1));
  for (size_t i = 0; i < words.size(); ++i) name[i].store(words[i], std::memory_order_release);
}

template <typename Value>
Value load(const std::atomic<Value>& word) {
  return word.load(std::memory_order_acquire);
}

std::string load(const ProgressPage::Name& name) {
  std::array<char, ProgressPage::kNameWords * sizeof(uint64_t)> text;
  for (size_t i = 0; i < name.size(); ++i) {
    const uint64_t word = name[i].load(std::memory_order_acquire);
    std::memcpy(text.data() + i * sizeof word, &word, sizeof word);
  }
  return {text.data(), strnlen(text.data(), text.size())};
}

RankProgress words_of(const ProgressPage& page) {
  RankProgress progress;
  progress.step = load(page.step);
  progress.microbatch = load(page.microbatch);
  progress.layer = load(page.layer);
  progress.phase = load(page.phase);
  progress.collectives = load(page.collectives);
  progress.collective = load(page.collective);
  progress.waiting = load(page.waiting) != 0;
  progress.steps_done = load(page.steps_done);
  progress.steps = load(page.steps);
  progress.loss = load(page.loss);
  progress.tokens_per_s = load(page.tokens_per_s);
  progress.step_s = load(page.step_s);
  return progress;
}

}  // namespace

std::optional<RankProgress> read_progress(const ProgressPage& page) {
  RankProgress progress;
  uint64_t before = 0;
  for (int i = 0; i < kTries; ++i) {
    before = load(page.version);
    if (before == 0) return std::nullopt;
    progress = words_of(page);
    if (before % 2 == 0 && page.version.load(std::memory_order_relaxed) == before) break;
  }
  progress.posts = before / 2;
  return progress;
}

// Acquire and release on every word, which cost nothing on x86: what a reader sees of a post comes
// after the odd version, so its second look at the version differs from its first.
template <typename Write>
void ProgressPost::post(const Write& write) {
  const uint64_t version = page_.version.load(std::memory_order_relaxed);
  page_.version.store(version + 1, std::memory_order_relaxed);
  write();
  page_.version.store(version + 2, std::memory_order_release);
}

void ProgressPost::enter(const char* phase, int64_t step, int64_t microbatch, int64_t layer) {
  if (recorder_ != nullptr) recorder_->enter(phase, step, microbatch, layer);
  post([&] {
    store(page_.phase, phase);
    if (step >= 0) store(page_.step, step);
    store(page_.microbatch, microbatch);
    store(page_.layer, layer);
  });
}

void ProgressPost::begin_collective(std::string_view label) {
  post([&] {
    store(page_.collectives, page_.collectives.load(std::memory_order_relaxed) + 1);
    store(page_.collective, label);
  });
}

void ProgressPost::wait(bool waiting) {
  if (recorder_ != nullptr) recorder_->wait(waiting);
  post([&] { store(page_.waiting, waiting ? 1 : 0); });
}

void ProgressPost::end_step(int64_t done, int64_t steps, double loss, double tokens_per_s,
                            double step_s) {
  post([&] {
    store(page_.steps_done, done);
    store(page_.steps, steps);
    store(page_.loss, loss);
    store(page_.tokens_per_s, tokens_per_s);
    store(page_.step_s, step_s);
  });
}

}  // namespace smp::runinfo
