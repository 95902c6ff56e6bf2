#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "net/port.h"

// Whether ranks of other hosts are still there, and what they are at: whoever waits for one asks
// its port, whose engine answers whatever the rank does.
namespace smp::net {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kGrace{300};  // for a better reason than an error of the network
constexpr milliseconds kAskEvery{500};

}  // namespace

std::optional<std::string> Port::unreachable(int rank) {
  if (has_ended_)
    return fmt::format(
        "the network of rank {} has ended, for what a call that failed had sent or was to receive "
        "could not be called back",
        rank_);
  const auto now = Clock::now();
  if (const auto found = troubles_.find(rank);
      found != troubles_.end() && now - found->second.since >= kGrace)
    return found->second.text;
  Questions& asked = asked_[rank];
  if (now - asked.last < kAskEvery) return std::nullopt;
  // Time in which this rank did not ask, for it did not wait or was itself stopped, does not count.
  if (!asked.are_open)
    asked.since = now;
  else if (now - asked.last > 2 * kAskEvery)
    asked.since += now - asked.last;
  if (now - asked.since >= silence_)
    return fmt::format(
        "nothing has come from rank {} for {:g} s, though it lives: its host and that of rank {} "
        "do not reach each other",
        rank, std::chrono::duration<double>(silence_).count(), rank_);
  asked.are_open = true;
  asked.last = now;
  MessageHeader question{};
  question.kind = MessageHeader::kAsk;
  note(question, rank);
  return std::nullopt;
}

void Port::introduce(std::vector<int> host_of, Witness witness) {
  host_of_ = std::move(host_of);
  witness_ = std::move(witness);
}

// One text has to do: that of whoever must be named.
void Port::answer(const MessageHeader& question) {
  MessageHeader answer{};
  answer.kind = MessageHeader::kHere;
  answer.index = question.index;
  if (question.index != 0) {
    const auto group = groups_.find(question.channel);
    const auto own = witness_(group == groups_.end() ? std::nullopt
                                                     : group->second->awaited_in(question.number));
    if (own) {
      const bool of_awaited = own->has_called && own->waits_for >= 0;
      const std::string& text = of_awaited ? own->last_call_of_awaited : own->last_call;
      answer.op = own->has_called;
      answer.root = own->waits_for;
      memcpy(answer.label, text.data(), std::min(text.size(), segment::kLabelBytes - 1));
    } else {
      answer.index = 0;
    }
  }
  note(answer, question.from);
}

void Port::answered(const MessageHeader& header) {
  for (auto& [about, inquiry] : inquiries_) {
    if (header.index == 0 || inquiry.question != header.index) continue;
    progress::Standing said;
    said.has_called = header.op != 0;
    said.waits_for = header.root;
    const bool of_awaited = said.has_called && said.waits_for >= 0;
    (of_awaited ? said.last_call_of_awaited : said.last_call) = header.label;
    inquiry.standing = said;
  }
}

std::optional<progress::Standing> Port::ask(int rank, uint64_t key, uint64_t number,
                                            Clock::time_point since) {
  Inquiry& inquiry = inquiries_[{rank, key, number}];
  if (inquiry.question == 0 || inquiry.asked < since) {
    const auto now = Clock::now();
    const bool is_open = inquiry.question != 0 && !inquiry.standing;
    inquiry = {++inquired_, now, is_open ? inquiry.open_since : now, std::nullopt};
    MessageHeader question{};
    question.kind = MessageHeader::kAsk;
    question.channel = key;
    question.number = number;
    question.index = inquiry.question;
    note(question, rank);
  }
  if (inquiry.standing) return inquiry.standing;
  // One that has not answered for a while will not now.
  const auto asked = asked_.find(rank);
  const bool is_open = asked != asked_.end() && asked->second.are_open;
  const auto open_since = is_open ? asked->second.since : inquiry.open_since;
  if (Clock::now() - std::min(open_since, inquiry.open_since) < mute_after()) return std::nullopt;
  progress::Standing mute;
  mute.is_mute = true;
  return mute;
}

}  // namespace smp::net
