#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "timed_processes.h"

// gloo for scripts/bench-collectives, over TCP on the loopback interface, the only transport that
// it has inside a host. Writes {"all_reduce": {"4096": seconds}}, of its quickest algorithm.
//
//   gloo_collectives RANKS OUT [--dirty] BYTES ...
namespace smp::bench {
namespace {

using Seconds = std::map<std::string, std::map<int64_t, double>>;

class Gloo {
 public:
  Gloo(TimedProcesses& all, std::shared_ptr<gloo::rendezvous::Context> context, int64_t bytes)
      : all_(all),
        context_(std::move(context)),
        count_(int(bytes / 4) / context_->size * context_->size),
        in_(size_t(bytes) / sizeof(Line) + 1),
        out_(in_.size()) {}

  void all_gather(double& seconds) {
    seconds = time([this] {
      gloo::AllgatherOptions options(context_);
      options.setInput(in(), size_t(count_ / context_->size));
      options.setOutput(out(), size_t(count_));
      gloo::allgather(options);
    });
  }

  // gloo reduces in place, in the buffer that the algorithm was made for.
  void reduce_scatter(double& seconds) {
    const std::vector<int> parts(size_t(context_->size), count_ / context_->size);
    gloo::ReduceScatterHalvingDoubling<float> algorithm(context_, {in()}, count_, parts);
    seconds = time([&] { algorithm.run(); });
  }

  void all_reduce(double& seconds) {
    gloo::AllreduceHalvingDoubling<float> halving(context_, {in()}, count_);
    seconds = time([&] { halving.run(); });
    using Algorithm = gloo::AllreduceOptions::Algorithm;
    std::vector<Algorithm> others = {Algorithm::RING};
    const bool is_power_of_two = (context_->size & (context_->size - 1)) == 0;
    if (is_power_of_two) others.push_back(Algorithm::BCUBE);
    for (const Algorithm other : others)
      seconds = std::min(
          seconds, time([this, other] {
            gloo::AllreduceOptions options(context_);
            options.setAlgorithm(other);
            options.setInput(in(), size_t(count_));
            options.setOutput(out(), size_t(count_));
            options.setReduceFunction(
                static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
            gloo::allreduce(options);
          }));
  }

 private:
  float* in() { return reinterpret_cast<float*>(in_.data()); }
  float* out() { return reinterpret_cast<float*>(out_.data()); }

  double time(const std::function<void()>& call) {
    return all_.median_of(call,
                          [this] { memset(in_.data(), kTimedByte, in_.size() * sizeof(Line)); });
  }

  TimedProcesses& all_;
  const std::shared_ptr<gloo::rendezvous::Context> context_;
  const int count_;
  std::vector<Line> in_, out_;
};

void run_rank(TimedProcesses& all, int rank, int size, const std::string& meeting,
              const TimedArguments& arguments) {
  gloo::transport::tcp::attr address("127.0.0.1");
  auto device = gloo::transport::tcp::CreateDevice(address);
  gloo::rendezvous::FileStore store(meeting);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);
  Seconds seconds;
  for (const int64_t bytes : arguments.sizes) {
    Gloo gloo(all, context, bytes);
    gloo.all_gather(seconds["all_gather"][bytes]);
    gloo.reduce_scatter(seconds["reduce_scatter"][bytes]);
    gloo.all_reduce(seconds["all_reduce"][bytes]);
  }
  all.barrier();
  if (rank != 0) return;
  std::string text;
  for (const auto& [op, of_sizes] : seconds) {
    text += fmt::format("{}\"{}\": {{", text.empty() ? "{" : ", ", op);
    for (auto at = of_sizes.begin(); at != of_sizes.end(); ++at)
      text += fmt::format("{}\"{}\": {:.9f}", at == of_sizes.begin() ? "" : ", ", at->first,
                          at->second);
    text += "}";
  }
  write_text(arguments.out, text + "}\n");
}

int run(int argc, char** argv) {
  const int size = argc > 1 ? atoi(argv[1]) : 0;
  const TimedArguments arguments(argc, argv, 2);
  if (size < 2 || size > kMostProcesses)
    throw std::invalid_argument("gloo_collectives RANKS (2 to 64) OUT [--dirty] BYTES ...");
  const std::string meeting = arguments.out + ".meeting";
  std::filesystem::create_directory(meeting);
  const bool is_good = TimedProcesses::run(
      size, arguments.is_dirty,
      [&](TimedProcesses& all, int rank) { run_rank(all, rank, size, meeting, arguments); });
  std::filesystem::remove_all(meeting);
  return is_good ? 0 : 1;
}

}  // namespace
}  // namespace smp::bench

int main(int argc, char** argv) {
  return smp::bench::run_program("gloo_collectives", smp::bench::run, argc, argv);
}
