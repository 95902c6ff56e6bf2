#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/values.h"
#include "smp/comm/communicator.h"

// Any call of a group with memory of its own, what each rank puts into it, and what it must get.
namespace smp::testing {

// Symmetric memory that calls take one after the other: fresh pages would take longer than they do.
class SymmetricRoom {
 public:
  explicit SymmetricRoom(comm::Communicator& comm) : comm_(comm) {}
  std::shared_ptr<std::byte[]> take(int64_t bytes);

 private:
  comm::Communicator& comm_;
  std::multimap<int64_t, std::shared_ptr<std::byte[]>> blocks_;  // by their bytes
};

struct AnyCall {
  mesh::CollectiveOp op = mesh::CollectiveOp::kAllReduce;
  int64_t count = 5000;  // of an all_reduce, a broadcast and a reduce; else of a rank's part
  DType dtype = DType::kF32;
  comm::ReduceOp reduction = comm::ReduceOp::kSum;
  int root = 0;
  bool in_place = false;          // where it can be
  SymmetricRoom* room = nullptr;  // where its memory is, of this rank; its own otherwise
  int64_t salt = 0;               // calls of another one have other elements
  std::string label = "x";

  bool reduces() const;
  bool has_root() const;
  bool can_be_in_place() const;  // or not
};
std::string text_of(const AnyCall& call);

// A send stands for one to the next rank, and a recv from the one before.
inline constexpr mesh::CollectiveOp kOps[] = {
    mesh::CollectiveOp::kAllReduce,     mesh::CollectiveOp::kAllGather,
    mesh::CollectiveOp::kReduceScatter, mesh::CollectiveOp::kBroadcast,
    mesh::CollectiveOp::kReduce,        mesh::CollectiveOp::kGather,
    mesh::CollectiveOp::kScatter,       mesh::CollectiveOp::kAllToAll,
    mesh::CollectiveOp::kSend};

class CallUnderWay {
 public:
  CallUnderWay(comm::Communicator& comm, const AnyCall& call);

  // Waits; how many elements of the output are not what fp64 gives, and of an input of its own are
  // not what they were.
  int64_t wrong_elements();

 private:
  void start(comm::Communicator& comm, const void* in, void* out);
  int value(int rank, int64_t i) const;  // that a rank puts there
  int64_t wrong_output();
  int64_t bytes() const;  // of an element

  AnyCall call_;
  int size_, rank_;
  int64_t in_begin_ = 0, out_begin_ = 0;  // of what it puts and gets, in its memory
  bool in_place_ = false;
  Values in_, out_;
  std::vector<comm::WorkPtr> works_;
};

// Of the call at once.
inline int64_t wrong_elements(comm::Communicator& comm, const AnyCall& call) {
  return CallUnderWay(comm, call).wrong_elements();
}

}  // namespace smp::testing
