#pragma once

namespace smp::memory {

// What stays of `held` bytes that messages could give back, beside `reserved` bytes that a rank
// needs of the `allowed` ones: all of them where the accelerator has room, little where it has not,
// because an allocator that finds no block waits for the messages and frees theirs.
double held_bytes(double held, double reserved, double allowed);

}  // namespace smp::memory
