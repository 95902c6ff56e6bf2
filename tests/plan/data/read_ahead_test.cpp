#include "smp/plan/data/read_ahead.h"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "plan/data/corpus.h"
#include "scratch_folder.h"
#include "smp/plan/data/token_data.h"

namespace smp {
namespace {

// Samples 6 to 12 of a batch, two at a time.
data::BatchShare share_of(int64_t length) {
  return {.first_sample = 6,
          .microbatches = 3,
          .micro_batch = 2,
          .length = length,
          .sequences = 1,
          .tokens = true,
          .targets = true,
          .document_starts = true,
          .readers = 1};
}

// Token = 100 step + sample.
data::ReadAhead::Read numbered(int64_t length, std::atomic<int64_t>& reads) {
  return
      [length, &reads](int64_t step, int64_t first, int64_t count, const data::TokenBuffers& out) {
        ++reads;
        for (int64_t i = 0; i < count * length; ++i) {
          const int64_t value = 100 * step + first + i / length;
          if (out.tokens != nullptr) out.tokens[i] = value;
          if (out.targets != nullptr) out.targets[i] = -value;
          if (out.document_starts != nullptr) out.document_starts[i] = 0;
        }
      };
}

void wait_for(const std::atomic<int64_t>& reads, int64_t wanted) {
  for (int i = 0; i < 5000 && reads < wanted; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("what is read ahead is what would be read on the spot, of each field and packing") {
  const ScratchFolder folder;
  corpus::write_megatron16(folder / "a", corpus::counted_documents(700, 50, 5));
  constexpr int64_t kLength = 16, kBatch = 12;
  for (const Packing pack : {Packing::kConcatenate, Packing::kDocuments}) {
    JobSpec job = corpus::job_on(folder / "a", kLength, kBatch);
    job.training.data_pack = pack;
    const data::TokenData data(job);
    const auto read = [&](int64_t step, int64_t first, int64_t count,
                          const data::TokenBuffers& out) { data.read(step, first, count, out); };
    data::ReadAhead ahead(read, share_of(kLength));
    ahead.start(3, 40);
    for (int64_t step = 3; step < 40; ++step) {
      for (int64_t first = 6; first < 12; first += 2) {
        corpus::Batch batch = corpus::room_for(2, kLength);
        ahead.read(step, first, 2, corpus::buffers(batch));
        CHECK(batch == corpus::read(data, step, first, 2, kLength));
      }
    }
  }
}

TEST_CASE("one batch is read ahead and no more, and what was taken is read again on the spot") {
  std::atomic<int64_t> reads = 0;
  data::ReadAhead ahead(numbered(4, reads), share_of(4));
  ahead.start(0, 10);
  wait_for(reads, 3);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(reads == 3);
  std::vector<int64_t> tokens(8);
  ahead.read(0, 6, 2, {.tokens = tokens.data()});
  CHECK(tokens == std::vector<int64_t>{6, 6, 6, 6, 7, 7, 7, 7});
  wait_for(reads, 4);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(reads == 4);  // of step 1
  ahead.read(0, 6, 2, {.tokens = tokens.data()});
  CHECK(tokens == std::vector<int64_t>{6, 6, 6, 6, 7, 7, 7, 7});
  ahead.read(1, 6, 2, {.tokens = tokens.data()});
  CHECK(tokens == std::vector<int64_t>{106, 106, 106, 106, 107, 107, 107, 107});
  ahead.read(1, 2, 2, {.tokens = tokens.data()});  // another rank's
  CHECK(tokens[0] == 102);
  ahead.read(77, 6, 2, {.tokens = tokens.data()});
  CHECK(tokens[0] == 7706);
}

TEST_CASE("a microbatch that several chunks of layers read stays until all have it") {
  std::atomic<int64_t> reads = 0;
  data::BatchShare share = share_of(1);
  share.readers = 2;
  data::ReadAhead ahead(numbered(1, reads), share);
  ahead.start(0, 5);
  for (int64_t step = 0; step < 5; ++step) {
    for (const bool targets : {false, true}) {
      for (int64_t first = 6; first < 12; first += 2) {
        std::vector<int64_t> values(2);
        ahead.read(step, first, 2,
                   targets ? data::TokenBuffers{.targets = values.data()}
                           : data::TokenBuffers{.tokens = values.data()});
        const int64_t value = (100 * step + first) * (targets ? -1 : 1);
        CHECK(values[0] == value);
      }
    }
  }
  CHECK(reads == 15);
}

TEST_CASE("an error is that of the samples that wanted it") {
  std::atomic<int64_t> reads = 0;
  const auto inner = numbered(1, reads);
  const auto fails = [&](int64_t step, int64_t first, int64_t count,
                         const data::TokenBuffers& out) {
    if (step == 1 && first == 8) throw std::runtime_error("token 17 of a.bin");
    inner(step, first, count, out);
  };
  data::ReadAhead ahead(fails, share_of(1));
  ahead.start(0, 5);
  std::vector<int64_t> tokens(2);
  const auto read = [&](int64_t step, int64_t first) {
    ahead.read(step, first, 2, {.tokens = tokens.data()});
  };
  for (int64_t first = 6; first < 12; first += 2) read(0, first);
  wait_for(reads, 4);
  read(1, 6);
  CHECK(message_of([&] { read(1, 8); }) == "token 17 of a.bin");
  CHECK(message_of([&] { read(1, 8); }) == "token 17 of a.bin");
}

TEST_CASE("a reader that nobody starts, or that has nothing to read, reads on the spot") {
  std::atomic<int64_t> reads = 0;
  std::vector<int64_t> tokens(2);
  data::ReadAhead unstarted(numbered(1, reads), share_of(1));
  unstarted.read(4, 6, 2, {.tokens = tokens.data()});
  CHECK(tokens[0] == 406);
  data::ReadAhead idle(numbered(1, reads), {});
  idle.start(0, 5);
  CHECK(reads == 1);
  data::ReadAhead over(numbered(1, reads), share_of(1));
  over.start(5, 5);
  CHECK(reads == 1);
}

TEST_CASE("the end of a reader waits for nobody who would take what it has") {
  std::atomic<int64_t> reads = 0;
  {
    data::ReadAhead ahead(numbered(1, reads), share_of(1));
    ahead.start(0, 1000000);
    wait_for(reads, 3);
  }
  CHECK(reads == 3);
}

}  // namespace smp
