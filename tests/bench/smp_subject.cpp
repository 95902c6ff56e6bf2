#include <vector>

#include "smp/comm/shared_memory.h"
#include "subject.h"

namespace smp::bench {
namespace {

class SmpSubject final : public Subject {
 public:
  SmpSubject(std::unique_ptr<Communicator> comm, Memory memory)
      : comm_(std::move(comm)), memory_(memory) {}

  float* buffer(int64_t count) override {
    if (memory_ == Memory::kOwn) {
      symmetric_.push_back(comm_->allocate_symmetric(count * 4));
      return reinterpret_cast<float*>(symmetric_.back().get());
    }
    return private_.emplace_back(size_t(count)).data();
  }

  void all_gather(const float* in, float* out, int64_t count) override {
    comm_->all_gather(in, out, count / comm_->size(), DType::kF32, "bench")->wait();
  }
  void reduce_scatter(float* in, float* out, int64_t count) override {
    comm_->reduce_scatter(in, out, count, DType::kF32, ReduceOp::kSum, "bench")->wait();
  }
  void all_reduce(float* in, float* out, int64_t count) override {
    comm_->all_reduce(in, out, count, DType::kF32, ReduceOp::kSum, "bench")->wait();
  }
  void barrier() override { comm_->barrier("bench")->wait(); }

 private:
  std::unique_ptr<Communicator> comm_;
  const Memory memory_;
  std::vector<std::shared_ptr<std::byte[]>> symmetric_;
  std::vector<std::vector<float>> private_;
};

}  // namespace

std::unique_ptr<Subject> make_smp_subject(int rank, int size, const std::string& meeting,
                                          Memory memory) {
  SharedMemoryOptions options;
  options.rank = rank;
  options.size = size;
  options.job_id = meeting;
  options.job_key = meeting;
  return std::make_unique<SmpSubject>(connect_shared_memory(options), memory);
}

}  // namespace smp::bench
