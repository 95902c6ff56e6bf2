#pragma once

#include <cstdint>

// XXH64, the 64-bit hash of Yann Collet's xxHash, with seed 0: the value that `xxhsum -H1` prints.
// It finds torn files, bad disks and edited bytes, and does not stop an attacker. Pure; safe from
// any thread.
namespace smp {

uint64_t xxh64(const void* data, int64_t bytes);

}  // namespace smp
