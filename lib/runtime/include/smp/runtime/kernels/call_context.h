#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace smp::kernels {

// Which microbatch a call works on, and whether it trains. The backward of a call, and a forward
// again, have the context of its forward: by it a layer finds the same random numbers.
struct CallContext {
  uint64_t seed = 0;         // of the job
  int64_t step = 0;          // from 0
  int64_t first_sample = 0;  // of the microbatch, in the step's global batch
  bool trains = false;       // else nothing is random
  // Where a sample holds several documents: of each token the place in its sample, from 0, of its
  // document's first token (BatchField::kDocumentStarts), [b, s] int64, where the layers compute
  // and on the host; the same memory on CPUs. Null: a sample is one document.
  const at::Tensor* document_starts = nullptr;
  const at::Tensor* document_starts_on_host = nullptr;
};

}  // namespace smp::kernels
