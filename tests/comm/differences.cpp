#include "comm/differences.h"

#include <fmt/format.h>

namespace smp::testing {

namespace {

AnyCall call_of(mesh::CollectiveOp op) {
  AnyCall call;
  call.op = op;
  return call;
}

// As errors name the call, whatever its number.
bool names(const std::string& error, const AnyCall& call, int size) {
  const bool is_scattered = call.op == mesh::CollectiveOp::kReduceScatter;
  std::string text =
      fmt::format(" '{}' of {} {}", call.label, is_scattered ? call.count * size : call.count,
                  name_of(call.dtype));
  if (call.reduces() && call.reduction != comm::ReduceOp::kSum)
    text += fmt::format(" ({})", name_of(call.reduction));
  const bool is_from =
      call.op == mesh::CollectiveOp::kBroadcast || call.op == mesh::CollectiveOp::kScatter;
  if (call.has_root()) text += fmt::format(" {} rank {}", is_from ? "from" : "to", call.root);
  const std::string of_another = " (max)";  // of another call
  const std::string op = fmt::format(": {} #", name_of(call.op));
  for (size_t at = error.find(op); at != std::string::npos; at = error.find(op, at + 1)) {
    const size_t after = error.find_first_not_of("0123456789", at + op.size());
    if (after == std::string::npos || error.compare(after, text.size(), text) != 0) continue;
    if (error.compare(after + text.size(), of_another.size(), of_another) != 0) return true;
  }
  return false;
}

bool names_one(const std::string& error, const Calls& calls, int size) {
  for (const AnyCall& call : calls)
    if (names(error, call, size)) return true;
  return false;
}

}  // namespace

std::vector<Difference> all_differences(int other_root) {
  using Op = mesh::CollectiveOp;
  std::vector<Difference> all;
  const auto add = [&](const char* what, const AnyCall& usual, const AnyCall& odd) {
    all.push_back({what, {usual}, {odd}});
  };
  add("op", call_of(Op::kBroadcast), call_of(Op::kAllGather));
  add("op", call_of(Op::kGather), call_of(Op::kScatter));
  add("op", call_of(Op::kAllReduce), call_of(Op::kReduce));
  add("op", call_of(Op::kReduceScatter), call_of(Op::kAllToAll));
  for (const Op op : kOps) {
    if (op == Op::kSend) continue;
    AnyCall odd = call_of(op);
    odd.count = 4992;
    add("count", call_of(op), odd);
    odd = call_of(op);
    odd.dtype = DType::kI32;
    add("type", call_of(op), odd);
    odd = call_of(op);
    odd.reduction = comm::ReduceOp::kMax;
    if (odd.reduces()) add("reduction", call_of(op), odd);
    odd = call_of(op);
    odd.root = other_root;
    if (odd.has_root()) add("root", call_of(op), odd);
    AnyCall a = call_of(op), b = call_of(op);
    a.label = "a", b.label = "b";
    all.push_back({"order", {a, b}, {b, a}});
  }
  return all;
}

std::string text_of(const Difference& difference) {
  return fmt::format("{}: {}, odd: {}", difference.what, text_of(difference.usual[0]),
                     text_of(difference.odd[0]));
}

void run_calls(comm::Communicator& comm, const Calls& calls, bool is_symmetric) {
  SymmetricRoom room(comm);
  for (AnyCall call : calls) {
    if (is_symmetric) call.room = &room;
    (void)wrong_elements(comm, call);
  }
  comm.barrier("after")->wait();
}

std::string wrong_with(const std::string& error, const Difference& difference, int size) {
  const bool went_on = error.find("'after'") != std::string::npos;
  const bool names_usual = went_on || names_one(error, difference.usual, size);
  if (error.starts_with("mismatch ") && names_usual && names_one(error, difference.odd, size) &&
      error.find(" does not match rank ") != std::string::npos)
    return "";
  return text_of(difference) + ": " + error;
}

}  // namespace smp::testing
