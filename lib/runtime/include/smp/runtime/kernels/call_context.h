#pragma once

#include <cstdint>

namespace at {
class Tensor;
}

namespace smp::kernels {

// The microbatch that a layer call works on, and whether the call trains. The backward of a call
// and its recomputation get the context of its forward, so they draw the same random numbers.
struct CallContext {
  uint64_t seed = 0;         // of the job
  int64_t step = 0;          // from 0
  int64_t first_sample = 0;  // of the microbatch, in the step's global batch
  bool trains = false;       // false: no dropout
  bool is_first = false;     // the forward whose routers' choices count in the step's loads
  // The gradient of a loss that a layer adds, such as a router's: of its sum over the tokens of the
  // microbatch.
  double loss_gradient = 0;
  // For packed samples: for each token the position in its sample of its document's first token
  // (BatchField::kDocumentStarts), [b, s] int64. One copy is on the layers' device, one on the
  // host; on CPUs both are the same memory. Null: a sample is one document.
  const at::Tensor* document_starts = nullptr;
  const at::Tensor* document_starts_on_host = nullptr;
};

}  // namespace smp::kernels
