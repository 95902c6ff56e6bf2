#include "smp/comm/wrapped_communicator.h"

namespace smp {

WorkPtr WrappedCommunicator::wrap(WorkPtr work, const Passed&) { return work; }

WorkPtr WrappedCommunicator::all_reduce(const void* in, void* out, int64_t count, DType dtype,
                                        ReduceOp op, std::string_view label) {
  return wrap(inner_.all_reduce(in, out, count, dtype, op, label),
              {CollectiveOp::kAllReduce, count, dtype, label});
}

WorkPtr WrappedCommunicator::all_gather(const void* in, void* out, int64_t count, DType dtype,
                                        std::string_view label) {
  return wrap(inner_.all_gather(in, out, count, dtype, label),
              {CollectiveOp::kAllGather, count, dtype, label});
}

WorkPtr WrappedCommunicator::reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                                            ReduceOp op, std::string_view label) {
  return wrap(inner_.reduce_scatter(in, out, count, dtype, op, label),
              {CollectiveOp::kReduceScatter, count, dtype, label});
}

WorkPtr WrappedCommunicator::broadcast(void* buffer, int64_t count, DType dtype, int root,
                                       std::string_view label) {
  return wrap(inner_.broadcast(buffer, count, dtype, root, label),
              {CollectiveOp::kBroadcast, count, dtype, label, root});
}

WorkPtr WrappedCommunicator::reduce(const void* in, void* out, int64_t count, DType dtype,
                                    ReduceOp op, int root, std::string_view label) {
  return wrap(inner_.reduce(in, out, count, dtype, op, root, label),
              {CollectiveOp::kReduce, count, dtype, label, root});
}

WorkPtr WrappedCommunicator::gather(const void* in, void* out, int64_t count, DType dtype, int root,
                                    std::string_view label) {
  return wrap(inner_.gather(in, out, count, dtype, root, label),
              {CollectiveOp::kGather, count, dtype, label, root});
}

WorkPtr WrappedCommunicator::scatter(const void* in, void* out, int64_t count, DType dtype,
                                     int root, std::string_view label) {
  return wrap(inner_.scatter(in, out, count, dtype, root, label),
              {CollectiveOp::kScatter, count, dtype, label, root});
}

WorkPtr WrappedCommunicator::all_to_all(const void* in, void* out, int64_t count, DType dtype,
                                        std::string_view label) {
  return wrap(inner_.all_to_all(in, out, count, dtype, label),
              {CollectiveOp::kAllToAll, count, dtype, label});
}

WorkPtr WrappedCommunicator::send(const void* in, int64_t count, DType dtype, int peer,
                                  std::string_view label) {
  return wrap(inner_.send(in, count, dtype, peer, label),
              {CollectiveOp::kSend, count, dtype, label});
}

WorkPtr WrappedCommunicator::recv(void* out, int64_t count, DType dtype, int peer,
                                  std::string_view label) {
  return wrap(inner_.recv(out, count, dtype, peer, label),
              {CollectiveOp::kRecv, count, dtype, label});
}

WorkPtr WrappedCommunicator::barrier(std::string_view label) {
  return wrap(inner_.barrier(label), {CollectiveOp::kBarrier, 0, DType::kU8, label});
}

}  // namespace smp
