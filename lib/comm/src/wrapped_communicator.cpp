#include "smp/comm/wrapped_communicator.h"

#include <stdexcept>

namespace smp::comm {

WorkPtr WrappedCommunicator::make(const Call& call, Communicator& on) {
  const auto& [op, in, out, count, dtype, reduce_op, peer, label] = call;
  switch (op) {
    case mesh::CollectiveOp::kAllReduce:
      return on.all_reduce(in, out, count, dtype, reduce_op, label);
    case mesh::CollectiveOp::kAllGather: return on.all_gather(in, out, count, dtype, label);
    case mesh::CollectiveOp::kReduceScatter:
      return on.reduce_scatter(in, out, count, dtype, reduce_op, label);
    case mesh::CollectiveOp::kBroadcast: return on.broadcast(out, count, dtype, peer, label);
    case mesh::CollectiveOp::kReduce:
      return on.reduce(in, out, count, dtype, reduce_op, peer, label);
    case mesh::CollectiveOp::kGather: return on.gather(in, out, count, dtype, peer, label);
    case mesh::CollectiveOp::kScatter: return on.scatter(in, out, count, dtype, peer, label);
    case mesh::CollectiveOp::kAllToAll: return on.all_to_all(in, out, count, dtype, label);
    case mesh::CollectiveOp::kSend: return on.send(in, count, dtype, peer, label);
    case mesh::CollectiveOp::kRecv: return on.recv(out, count, dtype, peer, label);
    case mesh::CollectiveOp::kBarrier: return on.barrier(label);
  }
  throw std::logic_error("no such call");
}

WorkPtr WrappedCommunicator::all_reduce(const void* in, void* out, int64_t count, DType dtype,
                                        ReduceOp op, std::string_view label) {
  return pass({.op = mesh::CollectiveOp::kAllReduce,
               .in = in,
               .out = out,
               .count = count,
               .dtype = dtype,
               .reduce_op = op,
               .label = label});
}

WorkPtr WrappedCommunicator::all_gather(const void* in, void* out, int64_t count, DType dtype,
                                        std::string_view label) {
  return pass({.op = mesh::CollectiveOp::kAllGather,
               .in = in,
               .out = out,
               .count = count,
               .dtype = dtype,
               .label = label});
}

WorkPtr WrappedCommunicator::reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                                            ReduceOp op, std::string_view label) {
  return pass({.op = mesh::CollectiveOp::kReduceScatter,
               .in = in,
               .out = out,
               .count = count,
               .dtype = dtype,
               .reduce_op = op,
               .label = label});
}

WorkPtr WrappedCommunicator::broadcast(void* buffer, int64_t count, DType dtype, int root,
                                       std::string_view label) {
  return pass({.op = mesh::CollectiveOp::kBroadcast,
               .out = buffer,
               .count = count,
               .dtype = dtype,
               .peer = root,
               .label = label});
}

WorkPtr WrappedCommunicator::reduce(const void* in, void* out, int64_t count, DType dtype,
                                    ReduceOp op, int root, std::string_view label) {
  return pass({.op = mesh::CollectiveOp::kReduce,
               .in = in,
               .out = out,
               .count = count,
               .dtype = dtype,
               .reduce_op = op,
               .peer = root,
               .label = label});
}

WorkPtr WrappedCommunicator::gather(const void* in, void* out, int64_t count, DType dtype, int root,
                                    std::string_view label) {
  return pass({.op = mesh::CollectiveOp::kGather,
               .in = in,
               .out = out,
               .count = count,
               .dtype = dtype,
               .peer = root,
               .label = label});
}

WorkPtr WrappedCommunicator::scatter(const void* in, void* out, int64_t count, DType dtype,
                                     int root, std::string_view label) {
  return pass({.op = mesh::CollectiveOp::kScatter,
               .in = in,
               .out = out,
               .count = count,
               .dtype = dtype,
               .peer = root,
               .label = label});
}

WorkPtr WrappedCommunicator::all_to_all(const void* in, void* out, int64_t count, DType dtype,
                                        std::string_view label) {
  return pass({.op = mesh::CollectiveOp::kAllToAll,
               .in = in,
               .out = out,
               .count = count,
               .dtype = dtype,
               .label = label});
}

WorkPtr WrappedCommunicator::send(const void* in, int64_t count, DType dtype, int peer,
                                  std::string_view label) {
  return pass({.op = mesh::CollectiveOp::kSend,
               .in = in,
               .count = count,
               .dtype = dtype,
               .peer = peer,
               .label = label});
}

WorkPtr WrappedCommunicator::recv(void* out, int64_t count, DType dtype, int peer,
                                  std::string_view label) {
  return pass({.op = mesh::CollectiveOp::kRecv,
               .out = out,
               .count = count,
               .dtype = dtype,
               .peer = peer,
               .label = label});
}

WorkPtr WrappedCommunicator::barrier(std::string_view label) {
  return pass({.op = mesh::CollectiveOp::kBarrier, .label = label});
}

}  // namespace smp::comm
