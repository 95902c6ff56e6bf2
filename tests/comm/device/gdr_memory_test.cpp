#include "smp/comm/device/gdr_memory.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "comm/fake_gdrapi.h"
#include "comm/stepped_gpu.h"
#include "smp/comm/device/staged_communicator.h"
#include "smp/comm/jobs/thread_group.h"
#include "smp/plan/base/errors.h"

// The smallest copies to and from a GPU by libgdrapi; libsmp_test_gdrapi.so stands for it and says
// what it was wrongly asked for.
using namespace smp;
using namespace smp::comm;
using namespace smp::device;
using namespace smp::jobs;
using test::SteppedGpu;

namespace {

const GdrLibraries kLibraries{SMP_TEST_GDRAPI, SMP_TEST_GDRAPI};

// A GPU with GDRCopy, and nothing that was done wrongly when it goes.
struct Fixture {
  explicit Fixture(GdrUse use = GdrUse::kAuto) : gdr(gpu, use, kLibraries) {}

  // Pages are mapped when they are used a second time.
  void use(std::byte* place, int64_t bytes = 8) {
    std::array<std::byte, GdrMemory::kMaxBytes> sink;
    read(sink.data(), place, bytes)->wait();
  }
  CopyPtr read(std::byte* to, const std::byte* from, int64_t bytes) {
    return gdr.start_to_host(to, from, bytes, *gpu.until_now());
  }
  // Behind what the GPU has been asked for, once it has had the time to answer.
  CopyPtr write(std::byte* to, const std::byte* from, int64_t bytes) {
    const CopyPtr now = gpu.until_now();
    now->done();
    return gdr.start_to_device(to, from, bytes, *now);
  }

  SteppedGpu gpu;
  GdrMemory gdr;
};

struct NothingWrong {
  ~NothingWrong() {
    CHECK(fake_gpu::take_faults() == std::vector<std::string>{});
    const fake_gpu::Now now = fake_gpu::now();
    CHECK(now.opened == 0);
    CHECK(now.pinned == 0);
    CHECK(now.mapped == 0);
  }
};

void fill(std::byte* memory, int64_t bytes, int value) {
  std::fill_n(memory, bytes, static_cast<std::byte>(value));
}

bool is_all(const std::byte* memory, int64_t bytes, int value) {
  return std::all_of(memory, memory + bytes,
                     [&](std::byte byte) { return byte == static_cast<std::byte>(value); });
}

std::string refusal_of(const std::function<void()>& what) {
  try {
    what();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE(
    "GDRCopy: from the second use of a page on, the CPU copies up to 2 KiB in both directions") {
  const NothingWrong nothing_wrong;
  std::byte* const memory = fake_gpu::allocate(1 << 20);
  std::array<std::byte, 4096> host{};
  {
    Fixture f;
    CHECK(f.gdr.text() == "GDRCopy 2.5 for copies of up to 2048 bytes");
    // The last straddles two pages.
    for (const int64_t offset : {int64_t{0}, int64_t{4099}, int64_t{(64 << 10) - 1000}}) {
      f.use(memory + offset, 2048);
      f.use(memory + offset, 2048);
      f.gpu.finish_copies();
      for (const int64_t bytes : {1, 7, 2048}) {
        fill(memory + offset, 4096, 1);
        const CopyPtr read = f.read(host.data(), memory + offset, bytes);
        CHECK(!read->done());  // the mark is on its way
        CHECK(read->done());
        CHECK(is_all(host.data(), bytes, 1));
        fill(host.data(), 4096, 2);
        CHECK(f.write(memory + offset, host.data(), bytes)->done());
        CHECK(is_all(memory + offset, bytes, 2));
        CHECK(is_all(memory + offset + bytes, 100, 1));
      }
    }
    CHECK(f.gdr.writes() == 9);
    CHECK(f.gpu.to_device == 0);
    const int64_t reads = f.gdr.reads();
    const int by_stream = f.gpu.to_host;
    CHECK(reads >= 9);
    f.read(host.data(), memory, 2049)->wait();
    f.write(memory, host.data(), 2049)->wait();
    f.read(host.data(), memory, 0)->wait();
    CHECK(f.gdr.reads() == reads);
    CHECK(f.gpu.to_host == by_stream + 2);
    CHECK(f.gpu.to_device == 1);
  }
  fake_gpu::free(memory);
}

TEST_CASE("GDRCopy: the CPU reads when the GPU has come to it, and writes only if it has") {
  const NothingWrong nothing_wrong;
  std::byte* const memory = fake_gpu::allocate(1 << 17);
  std::array<std::byte, 4096> host{};
  {
    Fixture f;
    f.use(memory);
    f.use(memory);
    f.gpu.finish_copies();
    fill(memory, 64, 1);
    f.gpu.compute([&] { fill(memory, 64, 2); });
    const CopyPtr read = f.read(host.data(), memory, 64);
    CHECK(!read->done());
    CHECK(is_all(host.data(), 64, 0));
    // What the GPU has still to do before may read what would be written.
    const int by_stream = f.gpu.to_device;
    std::array<std::byte, 64> fresh{};
    const CopyPtr write = f.write(memory + 128, fresh.data(), 64);
    CHECK(!write->done());
    CHECK(f.gpu.to_device == by_stream + 1);
    CHECK(f.gdr.writes() == 0);
    f.gpu.finish_kernels();
    CHECK(read->done());
    CHECK(is_all(host.data(), 64, 2));
    // That copy by the stream is not done: a later one does not overtake it.
    f.write(memory + 128, fresh.data(), 64);
    CHECK(f.gdr.writes() == 0);
    f.gpu.finish_copies();
    CHECK(f.write(memory + 128, fresh.data(), 64)->done());
    CHECK(f.gdr.writes() == 1);

    // What it is asked for later does not keep the CPU from writing.
    const CopyPtr now = f.gpu.until_now();
    now->done();
    f.gpu.compute([&] { fill(memory, 64, 4); });
    CHECK(f.gdr.start_to_device(memory + 128, fresh.data(), 64, *now)->done());
    CHECK(f.gdr.writes() == 2);

    // Of who waits.
    f.read(host.data(), memory, 64)->wait();
    CHECK(is_all(host.data(), 64, 4));

    // The same to the host.
    const CopyPtr long_one = f.read(host.data(), memory, 4096);
    fill(memory, 64, 3);
    const CopyPtr behind = f.read(host.data(), memory, 64);
    CHECK(!behind->done());
    behind->wait();
    CHECK(long_one->done());
    CHECK(behind->done());
    CHECK(is_all(host.data(), 64, 3));
  }
  fake_gpu::free(memory);
}

TEST_CASE("GDRCopy: memory that was freed is not read, though its address is in use again") {
  const NothingWrong nothing_wrong;
  std::byte* memory = fake_gpu::allocate(1 << 17);
  std::byte* const other = fake_gpu::allocate(1 << 17);
  std::array<std::byte, 64> host{};
  {
    Fixture f;
    f.use(memory);
    f.use(memory);
    fill(memory, 64, 1);
    fake_gpu::free(memory);
    memory = fake_gpu::allocate(1 << 17, true, memory);
    fill(memory, 64, 2);
    for (int i = 0; i < 3; ++i) {
      f.read(host.data(), memory, 64)->wait();
      CHECK(is_all(host.data(), 64, 2));
      fill(host.data(), 64, 3);
      f.write(memory, host.data(), 64)->wait();
      CHECK(is_all(memory, 64, 3));
      fill(memory, 64, 2);
    }
    CHECK(f.gdr.reads() > 1);
    // What is gone is unmapped with the next page that is mapped.
    CHECK(fake_gpu::now().pinned == 1);
    fake_gpu::free(memory);
    f.use(other);
    f.use(other);
    CHECK(fake_gpu::now().pinned == 1);
  }
  fake_gpu::free(other);
}

TEST_CASE("GDRCopy: pages that are used by turns are mapped once, and no more than 64 of them") {
  const NothingWrong nothing_wrong;
  constexpr int64_t kPage = 64 << 10;
  std::byte* const memory = fake_gpu::allocate(100 * kPage);
  {
    Fixture f;
    const auto round = [&](int pages) {
      for (int i = 0; i < pages; ++i) f.use(memory + i * kPage);
    };
    const int64_t before = fake_gpu::now().pins;
    round(64);
    CHECK(fake_gpu::now().pins == before);  // what is used once is not mapped
    for (int i = 0; i < 3; ++i) round(64);
    CHECK(fake_gpu::now().pins == before + 64);
    CHECK(f.gdr.reads() == 3 * 64);
    for (int i = 0; i < 3; ++i) round(100);  // none is left when its turn comes again
    CHECK(fake_gpu::now().pins == before + 64);
    CHECK(fake_gpu::now().pinned == 0);
    CHECK(f.gdr.reads() == 4 * 64);
  }
  fake_gpu::free(memory);
}

TEST_CASE(
    "GDRCopy: what cannot be mapped goes by the stream, or with SMP_GDRCOPY=on ends the run") {
  const NothingWrong nothing_wrong;
  std::byte* const pooled = fake_gpu::allocate(1 << 17, false);
  std::byte* const apart = fake_gpu::allocate(1 << 17, true, nullptr, 512);
  std::byte* const plain = fake_gpu::allocate(1 << 17);
  const auto check = [&](std::byte* memory, const std::string& why) {
    std::array<std::byte, 64> host{};
    fill(memory, 64, 1);
    {
      Fixture f;
      for (int i = 0; i < 3; ++i) {
        f.read(host.data(), memory, 64)->wait();
        CHECK(is_all(host.data(), 64, 1));
        f.write(memory, host.data(), 64)->wait();
      }
      CHECK(f.gdr.reads() + f.gdr.writes() == 0);
    }
    Fixture f(GdrUse::kOn);
    f.use(memory);
    CHECK(refusal_of([&] { f.use(memory); }) ==
          "SMP_GDRCOPY=on, but memory of the GPU cannot be mapped: " + why);
  };
  check(
      pooled,
      "the memory is not from cudaMalloc (but from cudaMallocAsync, or from expandable segments)");
  check(apart, "the page of 64 KiB around the memory is not in one allocation");
  fake_gpu::let_pin_fail(ENOMEM);
  check(plain, "gdr_pin_buffer refuses: Cannot allocate memory");
  fake_gpu::let_pin_fail(0);
  fake_gpu::let_map_fail(EAGAIN);
  check(plain, "gdr_map refuses: Resource temporarily unavailable");
  fake_gpu::let_map_fail(0);
  fake_gpu::let_info_fail(EINVAL);
  check(plain, "gdr_get_info_v2 refuses: Invalid argument");
  fake_gpu::let_info_fail(0);
  fake_gpu::let_info_be_elsewhere(true);
  const auto page = reinterpret_cast<uintptr_t>(plain);
  check(plain, fmt::format("gdr_map mapped 65536 bytes from {:#x} instead of 65536 from {:#x}",
                           page + (64 << 10), page));
  fake_gpu::let_info_be_elsewhere(false);
  for (std::byte* const memory : {pooled, apart, plain}) fake_gpu::free(memory);
}

TEST_CASE("GDRCopy: a copy that fails is an error of the call that it is of") {
  const NothingWrong nothing_wrong;
  std::byte* const memory = fake_gpu::allocate(1 << 17);
  {
    Fixture f;
    f.use(memory);
    f.use(memory);
    f.gpu.finish_copies();
    std::array<std::byte, 64> host{};
    fake_gpu::let_copies_fail(EINVAL);
    CHECK(refusal_of([&] { f.read(host.data(), memory, 64)->wait(); }) ==
          "gdr_copy_from_mapping refuses: Invalid argument");
    CHECK(refusal_of([&] { f.write(memory, host.data(), 64); }) ==
          "gdr_copy_to_mapping refuses: Invalid argument");
    fake_gpu::let_copies_fail(0);
  }
  fake_gpu::free(memory);
}

TEST_CASE("GDRCopy: why there is none is said, and with SMP_GDRCOPY=on ends the run") {
  const NothingWrong nothing_wrong;
  SteppedGpu gpu;
  CHECK(GdrMemory(gpu, GdrUse::kOff, kLibraries).text() == "no GDRCopy: SMP_GDRCOPY=off");
  const auto check = [&](const GdrLibraries& libraries, const std::string& why) {
    const GdrMemory without(gpu, GdrUse::kAuto, libraries);
    CHECK(without.text() == "no GDRCopy: " + why);
    CHECK(refusal_of([&] { GdrMemory(gpu, GdrUse::kOn, libraries); }) ==
          "SMP_GDRCOPY=on, but GDRCopy is not available: " + why + " (auto runs without GDRCopy)");
  };
  const std::string none = "libsmp_test_none.so";
  check({none, SMP_TEST_GDRAPI},
        none + ": cannot open shared object file: No such file or directory");
  check({SMP_TEST_GDRAPI, none},
        none + ": cannot open shared object file: No such file or directory");
  check({"libm.so.6", SMP_TEST_GDRAPI}, "libm.so.6 has no function gdr_open");
  check({SMP_TEST_GDRAPI, "libm.so.6"}, "libm.so.6 has no function cuPointerGetAttributes");
  fake_gpu::let_open_fail(true);
  check(kLibraries,
        "gdr_open failed: the kernel module gdrdrv is not loaded, or this process has no "
        "permission to open /dev/gdrdrv (GDRCOPY_ENABLE_LOGGING=1 prints details)");
  fake_gpu::let_open_fail(false);
  std::array<std::byte, 8> from{}, to{};
  fill(from.data(), 8, 1);
  GdrMemory without(gpu, GdrUse::kOff, kLibraries);
  without.start_to_host(to.data(), from.data(), 8, *gpu.until_now())->wait();
  CHECK(to == from);
}

TEST_CASE("GDRCopy: SMP_GDRCOPY is auto, off or on") {
  struct Unset {
    ~Unset() { ::unsetenv("SMP_GDRCOPY"); }
  } const unset;
  ::unsetenv("SMP_GDRCOPY");
  CHECK(read_gdr_use() == GdrUse::kAuto);
  ::setenv("SMP_GDRCOPY", "auto", 1);
  CHECK(read_gdr_use() == GdrUse::kAuto);
  ::setenv("SMP_GDRCOPY", "off", 1);
  CHECK(read_gdr_use() == GdrUse::kOff);
  ::setenv("SMP_GDRCOPY", "on", 1);
  CHECK(read_gdr_use() == GdrUse::kOn);
  ::setenv("SMP_GDRCOPY", "yes", 1);
  CHECK(refusal_of([] { read_gdr_use(); }) == "SMP_GDRCOPY=yes: expected auto, off or on");
}

TEST_CASE("GDRCopy: staged messages by it give what they give without, short and long mixed") {
  const NothingWrong nothing_wrong;
  constexpr int64_t kLong = 4096;
  run_ranks(3, [&](Communicator& world) {
    auto* const memory = reinterpret_cast<int64_t*>(fake_gpu::allocate(1 << 20));
    SteppedGpu gpu;
    {
      GdrMemory gdr(gpu, GdrUse::kOn, kLibraries);
      StagedCommunicator staged(world, gdr);
      for (int64_t i = 0; i < 20; ++i) {
        const int64_t count = i % 5 == 4 ? kLong : 1 + 17 * i % 256;
        int64_t* const out = memory + kLong;
        if (i % 3 == 0) gpu.finish_copies();
        gpu.compute([=, rank = world.rank()] {
          for (int64_t k = 0; k < count; ++k) memory[k] = i + k * rank;
        });
        if (i % 2 == 0) gpu.finish_kernels();
        const WorkPtr sum =
            staged.all_reduce(memory, out, count, DType::kI64, ReduceOp::kSum, "sum");
        while (!sum->done()) {  // meanwhile the GPU goes on
          gpu.finish_kernels();
          gpu.finish_copies();
        }
        bool is_right = true;
        for (int64_t k = 0; k < count; ++k) is_right = is_right && out[k] == 3 * i + 3 * k;
        CHECK(is_right);
        gpu.compute([=] { std::fill_n(out, count, -1); });
      }
      CHECK(gdr.reads() > 0);
      CHECK(gdr.writes() > 0);
      CHECK(gpu.to_host > 0);
      CHECK(gpu.to_device > 0);
    }
    fake_gpu::free(reinterpret_cast<std::byte*>(memory));
  });
}
