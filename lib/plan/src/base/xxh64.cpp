#include "smp/plan/base/xxh64.h"

#define XXH_INLINE_ALL  // nothing to link, nothing to find at run time
#include <xxhash.h>

namespace smp {

uint64_t xxh64(const void* data, int64_t bytes) {
  return XXH64(data, static_cast<size_t>(bytes), 0);
}

}  // namespace smp
