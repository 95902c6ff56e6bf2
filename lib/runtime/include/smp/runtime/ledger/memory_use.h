#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "smp/plan/spec/plan.h"

// What a MemoryLedger (memory_ledger.h) counts and tells. Plain data.
namespace smp::ledger {

using CategoryBytes = std::array<int64_t, kMemoryCategories>;

inline constexpr std::string_view kSavePhase = "save";  // after the last step

// What a rank is doing: "step 7: backward, microbatch 2, layer 3". -1 leaves a part out.
struct Phase {
  const char* name = "setup";  // a literal
  int64_t step = -1;
  int64_t microbatch = -1;
  int64_t layer = -1;
};
std::string to_string(const Phase& phase);

// An allocation would exceed the rank's limit.
class OutOfMemory : public std::runtime_error {
 public:
  OutOfMemory(const std::string& where, const std::string& text)
      : std::runtime_error(text), phase(where) {}
  std::string phase;
};

// The bytes of a ledger at one moment, with their breakdown.
struct MemoryUse {
  int64_t bytes = 0;
  CategoryBytes by_category{};
  Phase phase;
};

// One live allocation or charge.
struct MemoryItem {
  MemoryCategory category = MemoryCategory::kWorkspace;
  int64_t bytes = 0;
  std::string what;  // "flat weights"; "step 7: forward, microbatch 2, layer 3"
};

inline constexpr size_t kItemsNamed = 10;  // in reports and errors

// The memory that a ledger counts.
enum class MemoryPool { kDevice, kHost };

}  // namespace smp::ledger
