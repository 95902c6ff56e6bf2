#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/barrier.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <optional>
#include <vector>

#include "subject.h"

// gloo over its TCP transport on the loopback interface, the only one that it has inside a host. Of
// its all_reduce algorithms the quickest in a short trial is used, chosen by rank 0 for all.
namespace smp::bench {
namespace {

class GlooSubject final : public Subject {
 public:
  GlooSubject(std::shared_ptr<gloo::rendezvous::Context> context, int64_t count)
      : context_(std::move(context)), count_(int(count)), scratch_(size_t(count)) {
    const std::vector<float*> buffers = {scratch_.data()};
    halving_doubling_.emplace(context_, buffers, count_);
    const std::vector<int> parts(size_t(context_->size), count_ / context_->size);
    reduce_scatter_.emplace(context_, buffers, count_, parts);
    choose();
  }

  float* buffer(int64_t count) override { return buffers_.emplace_back(size_t(count)).data(); }

  void all_gather(const float* in, float* out, int64_t count) override {
    gloo::AllgatherOptions options(context_);
    options.setInput(const_cast<float*>(in), size_t(count / context_->size));
    options.setOutput(out, size_t(count));
    gloo::allgather(options);
  }

  // gloo reduces in place, in the buffer that the algorithm was made for.
  void reduce_scatter(float*, float*, int64_t) override { reduce_scatter_->run(); }

  void all_reduce(float* in, float* out, int64_t count) override {
    if (use_halving_doubling_) return halving_doubling_->run();
    ring(in, out, count);
  }

  void barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }

 private:
  void ring(float* in, float* out, int64_t count) {
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setInput(in, size_t(count));
    options.setOutput(out, size_t(count));
    options.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
  }

  void choose() {
    std::vector<float> in(scratch_), out(scratch_);
    auto seconds_of = [](auto&& call) {
      call();
      const auto start = std::chrono::steady_clock::now();
      for (int i = 0; i < 5; ++i) call();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    const double ring_s = seconds_of([&] { ring(in.data(), out.data(), count_); });
    const double doubling_s = seconds_of([&] { halving_doubling_->run(); });
    std::vector<float> mine(1, doubling_s < ring_s), all(size_t(context_->size));
    all_gather(mine.data(), all.data(), context_->size);
    use_halving_doubling_ = all[0] != 0;
  }

  std::shared_ptr<gloo::rendezvous::Context> context_;
  int count_;
  std::vector<float> scratch_;
  std::vector<std::vector<float>> buffers_;
  std::optional<gloo::AllreduceHalvingDoubling<float>> halving_doubling_;
  std::optional<gloo::ReduceScatterHalvingDoubling<float>> reduce_scatter_;
  bool use_halving_doubling_ = false;
};

}  // namespace

std::unique_ptr<Subject> make_gloo_subject(int rank, int size, const std::string& meeting,
                                           int64_t count) {
  gloo::transport::tcp::attr address("127.0.0.1");
  auto device = gloo::transport::tcp::CreateDevice(address);
  gloo::rendezvous::FileStore store(meeting);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);
  return std::make_unique<GlooSubject>(std::move(context), count);
}

}  // namespace smp::bench
