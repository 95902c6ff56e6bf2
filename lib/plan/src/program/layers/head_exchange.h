#pragma once

#include <string>

#include "program/builder.h"

// Around attention, where context-parallel ranks exchange heads (Ulysses): behind the projection
// each rank has all heads of its tokens, and in attention a part of the heads of all their tokens.
namespace smp::program {

inline constexpr std::string_view kContextForward = "context.forward",
                                  kContextBackward = "context.backward";

class HeadExchange {
 public:
  // `heads` and `kv_heads`: of this rank in attention. Nothing is exchanged by one rank.
  HeadExchange(ProgramBuilder& builder, const AttentionAttributes& attention);

  bool exists() const { return degree_ > 1; }
  // Rows of [q heads | k heads | v heads], there and back; x itself where nothing is exchanged.
  ValueId packed_to_heads(ValueId x, std::string_view label) const;
  ValueId packed_to_tokens(ValueId x, std::string_view label) const;
  // Rows of what the heads have given.
  ValueId result_to_heads(ValueId x, std::string_view label) const;
  ValueId result_to_tokens(ValueId x, std::string_view label) const;

 private:
  ValueId exchanged(ValueId x, std::string_view label, bool to_heads, int64_t q, int64_t k,
                    int64_t v) const;

  ProgramBuilder& builder_;
  const AttentionAttributes attention_;
  const int64_t degree_;
};

}  // namespace smp::program
