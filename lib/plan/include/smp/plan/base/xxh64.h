#pragma once

#include <cstdint>

// XXH64, the 64-bit hash of Yann Collet's xxHash, with seed 0: what `xxhsum -H1` prints. Not
// against an attacker: it finds torn files, bad disks and edited bytes. Pure; safe from any thread.
namespace smp {

uint64_t xxh64(const void* data, int64_t bytes);

}  // namespace smp
