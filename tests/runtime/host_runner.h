#pragma once

#include <algorithm>
#include <tuple>

#include "cuda/expert_launches_of.h"
#include "cuda/flat_launches_of.h"
#include "cuda/gpu_functions.h"
#include "cuda/launches_of.h"
#include "host_block.h"

// The functions of a GPU on CPU tensors: kernels' bodies on host threads, and torch's CPU forms of
// what it has for GPUs.
namespace smp::test {

class HostRunner {
 public:
  using Block = HostBlock;
  static constexpr int64_t kThreadsOfBlock = 256;

  // Launches have at most `blocks` blocks, each of `threads`.
  HostRunner(int64_t blocks, int64_t threads, bool flash)
      : blocks_(blocks), threads_(threads), flash_(flash) {}

  template <typename Body>
  void run(int64_t blocks, const Body& body) const {
    launch_on_host(std::min(blocks, blocks_), threads_, body);
  }
  template <typename Body>
  void run_warps(int64_t warps, const Body& body) const {
    run(warps, body);
  }

  at::Tensor wide_product(const at::Tensor& a, const at::Tensor& b) const {
    return a.to(at::kFloat).mm(b.to(at::kFloat));
  }

  bool has_flash(const kernels::AttentionShape& shape, at::ScalarType /*type*/) const {
    return flash_ && shape.relative_buckets == 0 && shape.window == 0 &&
           shape.dropout.threshold == 0;
  }
  std::tuple<at::Tensor, at::Tensor> flash_forward(const kernels::AttentionShape& shape,
                                                   const at::Tensor& q, const at::Tensor& k,
                                                   const at::Tensor& v) const;
  std::tuple<at::Tensor, at::Tensor, at::Tensor> flash_backward(
      const kernels::AttentionShape& shape, const at::Tensor& q, const at::Tensor& k,
      const at::Tensor& v, const at::Tensor& output, const at::Tensor& output_gradient,
      const at::Tensor& log_sums) const;

 private:
  // Each document of a sample alone.
  std::tuple<at::Tensor, at::Tensor> packed_forward(const kernels::AttentionShape& shape,
                                                    const at::Tensor& q, const at::Tensor& k,
                                                    const at::Tensor& v) const;
  std::tuple<at::Tensor, at::Tensor, at::Tensor> packed_backward(
      const kernels::AttentionShape& shape, const at::Tensor& q, const at::Tensor& k,
      const at::Tensor& v, const at::Tensor& output, const at::Tensor& output_gradient,
      const at::Tensor& log_sums) const;

  int64_t blocks_, threads_;
  bool flash_;
};

using HostFunctions = cuda::GpuFunctions<HostRunner>;

// While it lives, all CPU tensors are computed with by `functions`.
class FunctionsScope {
 public:
  explicit FunctionsScope(const kernels::DeviceFunctions& functions) {
    kernels::set_functions(c10::DeviceType::CPU, &functions);
  }
  ~FunctionsScope() { kernels::set_functions(c10::DeviceType::CPU, nullptr); }
  FunctionsScope(const FunctionsScope&) = delete;
  FunctionsScope& operator=(const FunctionsScope&) = delete;
};

}  // namespace smp::test

// Compiled in host_runner.cpp: it costs each file that runs it ten seconds.
extern template class smp::cuda::GpuFunctions<smp::test::HostRunner>;
