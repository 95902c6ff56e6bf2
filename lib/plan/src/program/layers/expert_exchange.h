#pragma once

#include <string>
#include <string_view>

#include "program/builder.h"
#include "program/layers/region.h"

// Around the experts of a layer, where ranks share them (expert parallelism): a token's rows travel
// to the ranks of its experts, and what these put out comes back (Lepikhin et al. 2020,
// arXiv:2006.16668). Each rank sends the rows of its own tokens alone: tensor ranks, which route
// all tokens of a microbatch alike, have a part of them each.
//
//   sorted by expert [sent]  --all-to-all-->  by rank [received]  -->  by expert and rank
//
// How many rows there are is known once the tokens are routed; tensors have room for as many as
// there may be.
namespace smp::program {

class ExpertExchange {
 public:
  ExpertExchange(ProgramBuilder& builder, const Region& region, const RouterAttributes& router);

  bool exists() const { return degree_ > 1; }
  int64_t rows() const { return received_; }   // of all experts of this rank, at most
  int64_t tokens() const { return fullest_; }  // of one of them, at most
  int64_t experts() const { return experts_; }

  // Sorts the choices of the rank's tokens and tells the experts' ranks how many rows come.
  struct Sorted {
    ValueId rows = kNoValue;    // the choice of each row that this rank sends
    ValueId places = kNoValue;  // the row of each choice
    ValueId ends = kNoValue;    // of the rows of this rank's experts
  };
  Sorted sort(ValueId chosen);

  // Rows under way, until what they bring is asked for.
  struct UnderWay {
    ValueId sent = kNoValue, come = kNoValue;
    std::string name;
  };
  // Of tokens [tokens, cols], and of weights [tokens, chosen].
  UnderWay start_to_experts(ValueId x, const std::string& name, std::string_view label);
  ValueId at_experts(const UnderWay& rows);
  ValueId weights_to_experts(ValueId weights);
  // Back: rows of experts, which the tokens add up; of weights those of each choice, 0 where
  // another tensor rank has the token.
  UnderWay start_to_tokens(ValueId x, std::string_view label);
  ValueId at_tokens(const UnderWay& rows);  // [sent, cols]
  ValueId weights_to_tokens(ValueId weights);

 private:
  UnderWay send(OperationKind kind, ValueId x, int64_t rows, std::string_view label, bool waits);
  ValueId come(const UnderWay& rows);
  ValueId grouped(OperationKind kind, ValueId x);

  ProgramBuilder& builder_;
  const int64_t degree_;
  ExpertAttributes sorting_;  // of all experts
  int64_t experts_ = 1;       // of this rank
  int64_t sent_ = 0, received_ = 0, fullest_ = 0;
  Sorted sorted_;
  ValueId all_ends_ = kNoValue, counts_ = kNoValue;
};

}  // namespace smp::program
