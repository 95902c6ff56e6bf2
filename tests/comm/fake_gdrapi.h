#pragma once

#include <cstdint>
#include <string>
#include <vector>

// What tests ask of libsmp_test_gdrapi.so, which stands for libgdrapi and libcuda: its GPU's memory
// is the host's, at addresses of its own, and a mapping is a second view of it. All of it is of the
// process; any thread.
namespace smp::fake_gpu {

// Memory of cudaMalloc: begins at a page of 64 KiB, plus `apart`. `is_plain`: not of another
// allocator. `at`: where earlier memory was, which is gone.
std::byte* allocate(int64_t bytes, bool is_plain = true, std::byte* at = nullptr,
                    int64_t apart = 0);
// Mappings of it go on to show what was there, as those of the driver do.
void free(std::byte* memory);

// errno that a function gives from now on; 0: it does as it should.
void let_open_fail(bool fails);
void let_pin_fail(int error);
void let_map_fail(int error);
void let_info_fail(int error);
void let_info_be_elsewhere(bool is);
void let_copies_fail(int error);

struct Now {
  int opened, pinned, mapped;  // that are, and are not undone
  int64_t pins;                // that were ever made
};
Now now();

// What was done that may not be: none, if all is well. They are forgotten.
std::vector<std::string> take_faults();

}  // namespace smp::fake_gpu
