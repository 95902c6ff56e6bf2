#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace smp::waiting {

// Sleeps while `word` has `value`, for at most `limit`; the word may lie in shared memory.
void futex_wait(std::atomic<uint32_t>& word, uint32_t value, std::chrono::microseconds limit);
void futex_wake_all(std::atomic<uint32_t>& word);

}  // namespace smp::waiting
