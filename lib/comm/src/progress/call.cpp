#include "progress/call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "smp/plan/base/fnv1a.h"
#include "words_of.h"

namespace smp::progress {

namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr size_t kTextWords = std::size(segment::LastCall().text), kTextBytes = kTextWords * 8;

void store_text(segment::LastCall& to, std::string_view text) {
  comm::store_words(to.text, text.substr(0, kTextBytes - 1), kRelaxed);
}

}  // namespace

void store(segment::LastCall& to, const Call& call) {
  if (is_step(call.label)) return store(to, std::string_view(call.label).substr(1));
  to.op.store(1 + uint64_t(call.op), kRelaxed);
  to.number.store(call.number, kRelaxed);
  store_text(to, call.label);
}

void store(segment::LastCall& to, std::string_view text) {
  to.op.store(0, kRelaxed);
  store_text(to, text);
}

std::string load(const segment::LastCall& from) {
  char text[kTextBytes];
  for (size_t i = 0; i < kTextWords; ++i) {
    const uint64_t word = from.text[i].load(kRelaxed);
    memcpy(text + 8 * i, &word, 8);
  }
  text[kTextBytes - 1] = 0;
  const uint64_t op = from.op.load(kRelaxed);
  if (op == 0) return text;
  return fmt::format("#{} {} '{}'", from.number.load(kRelaxed), name_of(mesh::CollectiveOp(op - 1)),
                     static_cast<const char*>(text));
}

comm::CommError mismatch(int culprit, int rank, const std::string& call, int other,
                         const std::string& others_call) {
  const std::string a = fmt::format("rank {}: {}", rank, call);
  const std::string b = fmt::format("rank {}: {}", other, others_call);
  return comm::CommError(
      comm::CommError::Kind::kMismatch, culprit,
      fmt::format("{} does not match {}", rank < other ? a : b, rank < other ? b : a));
}

std::string describe(const Call& call, int peer) {
  if (is_step(call.label)) return call.label.substr(1);
  std::string text = fmt::format("{} #{} '{}'", name_of(call.op), call.number, call.label);
  if (call.op != mesh::CollectiveOp::kBarrier || call.count > 0)  // with a count it opens a window
    text += fmt::format(" of {} {}", call.count, name_of(call.dtype));
  if (call.reduce_op != comm::ReduceOp::kSum) text += fmt::format(" ({})", name_of(call.reduce_op));
  switch (call.op) {
    case mesh::CollectiveOp::kBroadcast:
    case mesh::CollectiveOp::kScatter:
    case mesh::CollectiveOp::kRecv: text += fmt::format(" from rank {}", peer); break;
    case mesh::CollectiveOp::kReduce:
    case mesh::CollectiveOp::kGather:
    case mesh::CollectiveOp::kSend: text += fmt::format(" to rank {}", peer); break;
    default: break;
  }
  return text;
}

uint64_t fingerprint(const Call& call) {
  uint64_t hash = kFnv1aStart;
  auto mix = [&hash](uint64_t value) { hash = fnv1a_step(hash, value); };
  const bool message = call.op == mesh::CollectiveOp::kSend || call.op == mesh::CollectiveOp::kRecv;
  mix(message ? 0 : 1 + uint64_t(call.op));
  mix(uint64_t(call.dtype));
  mix(uint64_t(call.reduce_op));
  mix(uint64_t(call.count));
  mix(message ? 0 : uint64_t(call.peer + 1));
  for (size_t at = 0; at + sizeof(uint64_t) <= call.label.size(); at += sizeof(uint64_t)) {
    mix(comm::word_at(call.label, at));
    hash ^= hash >> 32;  // the low bits of a product depend on low bits only
  }
  mix(comm::last_word(call.label));
  return hash;
}

void write(segment::CallEntry& entry, const Call& call, uint64_t print) {
  entry.fingerprint = print;
  entry.count = call.count;
  entry.root = call.peer;
  entry.in_at = call.in_at;
  entry.out_at = call.out_at;
  entry.op = uint8_t(call.op);
  entry.dtype = uint8_t(call.dtype);
  entry.reduce_op = uint8_t(call.reduce_op);
  const size_t length = std::min(call.label.size(), segment::kLabelBytes - 1);
  memcpy(entry.label, call.label.data(), length);
  entry.label[length] = 0;
}

}  // namespace smp::progress
