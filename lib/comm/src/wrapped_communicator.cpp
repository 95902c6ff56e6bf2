#include "smp/comm/wrapped_communicator.h"

namespace smp {

WorkPtr WrappedCommunicator::wrap(WorkPtr work, const Passed&) { return work; }

WorkPtr WrappedCommunicator::all_reduce(const void* in, void* out, int64_t count, DType dtype,
                                        ReduceOp op, std::string_view label) {
  return pass({CollectiveOp::kAllReduce, count, dtype, label},
              [&] { return inner_.all_reduce(in, out, count, dtype, op, label); });
}

WorkPtr WrappedCommunicator::all_gather(const void* in, void* out, int64_t count, DType dtype,
                                        std::string_view label) {
  return pass({CollectiveOp::kAllGather, count, dtype, label},
              [&] { return inner_.all_gather(in, out, count, dtype, label); });
}

WorkPtr WrappedCommunicator::reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                                            ReduceOp op, std::string_view label) {
  return pass({CollectiveOp::kReduceScatter, count, dtype, label},
              [&] { return inner_.reduce_scatter(in, out, count, dtype, op, label); });
}

WorkPtr WrappedCommunicator::broadcast(void* buffer, int64_t count, DType dtype, int root,
                                       std::string_view label) {
  return pass({CollectiveOp::kBroadcast, count, dtype, label, root},
              [&] { return inner_.broadcast(buffer, count, dtype, root, label); });
}

WorkPtr WrappedCommunicator::reduce(const void* in, void* out, int64_t count, DType dtype,
                                    ReduceOp op, int root, std::string_view label) {
  return pass({CollectiveOp::kReduce, count, dtype, label, root},
              [&] { return inner_.reduce(in, out, count, dtype, op, root, label); });
}

WorkPtr WrappedCommunicator::gather(const void* in, void* out, int64_t count, DType dtype, int root,
                                    std::string_view label) {
  return pass({CollectiveOp::kGather, count, dtype, label, root},
              [&] { return inner_.gather(in, out, count, dtype, root, label); });
}

WorkPtr WrappedCommunicator::scatter(const void* in, void* out, int64_t count, DType dtype,
                                     int root, std::string_view label) {
  return pass({CollectiveOp::kScatter, count, dtype, label, root},
              [&] { return inner_.scatter(in, out, count, dtype, root, label); });
}

WorkPtr WrappedCommunicator::all_to_all(const void* in, void* out, int64_t count, DType dtype,
                                        std::string_view label) {
  return pass({CollectiveOp::kAllToAll, count, dtype, label},
              [&] { return inner_.all_to_all(in, out, count, dtype, label); });
}

WorkPtr WrappedCommunicator::send(const void* in, int64_t count, DType dtype, int peer,
                                  std::string_view label) {
  return pass({CollectiveOp::kSend, count, dtype, label},
              [&] { return inner_.send(in, count, dtype, peer, label); });
}

WorkPtr WrappedCommunicator::recv(void* out, int64_t count, DType dtype, int peer,
                                  std::string_view label) {
  return pass({CollectiveOp::kRecv, count, dtype, label},
              [&] { return inner_.recv(out, count, dtype, peer, label); });
}

WorkPtr WrappedCommunicator::barrier(std::string_view label) {
  return pass({CollectiveOp::kBarrier, 0, DType::kU8, label},
              [&] { return inner_.barrier(label); });
}

}  // namespace smp
