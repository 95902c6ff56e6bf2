// How long an asynchronous save stops its caller, against a memcpy of the same bytes.
//   smp_checkpoint_bench FOLDER [MIB] [SAVES]        default 512 MiB, 9 saves; exits 1 above 1.5x
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "smp/tensorfiles/checkpoint/checkpoint_store.h"
#include "smp/tensorfiles/checkpoint/checkpoint_writer.h"

namespace {

using namespace smp;
using Clock = std::chrono::steady_clock;

constexpr double kLimit = 1.5;
constexpr int64_t kTensors = 24;
constexpr int64_t kCols = 1024;

double seconds(const auto& body) {
  const Clock::time_point start = Clock::now();
  body();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: smp_checkpoint_bench FOLDER [MIB] [SAVES]\n");
    return 2;
  }
  const int64_t mib = argc > 2 ? std::atoll(argv[2]) : 512;
  const int64_t saves = argc > 3 ? std::atoll(argv[3]) : 9;
  const int64_t rows = (mib << 20) / kTensors / kCols / 4;
  const int64_t bytes = rows * kCols * 4;
  std::vector<std::vector<float>> memory;
  std::vector<safetensors::TensorPiece> pieces;
  for (int64_t i = 0; i < kTensors; ++i) {
    memory.emplace_back(static_cast<size_t>(rows * kCols), static_cast<float>(i));
    pieces.push_back({fmt::format("layers.{}.weight", i),
                      {rows, kCols},
                      DType::kF32,
                      {0, rows, 0, kCols},
                      0,
                      rows * kCols,
                      reinterpret_cast<std::byte*>(memory.back().data())});
  }
  std::vector<float> copy(static_cast<size_t>(rows * kCols * kTensors), 0.0F);
  checkpoint::CheckpointStore store(argv[1]);
  store.clean();
  checkpoint::CheckpointWriter writer(store, 0, pieces);
  std::vector<double> copies, stalls, whole;
  for (int64_t save = 1; save <= saves; ++save) {
    copies.push_back(seconds([&] {
      for (size_t i = 0; i < memory.size(); ++i) {
        std::memcpy(copy.data() + i * memory[i].size(), memory[i].data(),
                    static_cast<size_t>(bytes));
      }
    }));
    double stall = 0;
    whole.push_back(seconds([&] {
      stall = seconds([&] { writer.start(save); });
      writer.then([&] { store.commit(save, 1, 1, {}); });
      writer.wait();
    }));
    stalls.push_back(stall);
  }
  const double ratio = median(stalls) / median(copies);
  fmt::print(
      "{} MiB, {} saves, medians: memcpy {:.1f} ms, stall {:.1f} ms = {:.2f}x (limit {}x), "
      "until whole on disk {:.0f} ms = {:.0f} MB/s\n",
      bytes * kTensors >> 20, saves, 1e3 * median(copies), 1e3 * median(stalls), ratio, kLimit,
      1e3 * median(whole), 1e-6 * static_cast<double>(bytes * kTensors) / median(whole));
  return ratio <= kLimit ? 0 : 1;
}
