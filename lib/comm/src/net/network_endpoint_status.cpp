#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "net/network_endpoint.h"

// The status of ranks on other hosts. A rank that waits for another one asks
// its endpoint; the progress engine there answers, whatever the rank does.
namespace smp::net {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kGrace{300};  // time for a better reason than an error of the network
constexpr milliseconds kAskEvery{500};

}  // namespace

std::optional<std::string> NetworkEndpoint::unreachable(int rank) {
  if (has_ended_)
    return fmt::format(
        "rank {} has closed its network, because the transfers of a failed call could not be "
        "cancelled",
        rank_);
  const auto now = Clock::now();
  if (const auto found = send_errors_.find(rank);
      found != send_errors_.end() && now - found->second.since >= kGrace)
    return found->second.text;
  OpenQuery& asked = liveness_[rank];
  if (now - asked.last < kAskEvery) return std::nullopt;
  // Time without questions does not count: this rank did not wait, or was itself stopped.
  if (!asked.is_open)
    asked.since = now;
  else if (now - asked.last > 2 * kAskEvery)
    asked.since += now - asked.last;
  if (now - asked.since >= silence_)
    return fmt::format(
        "no message has come from rank {} for {:g} s, although that rank is alive: its host and "
        "the host of rank {} do not reach each other",
        rank, std::chrono::duration<double>(silence_).count(), rank_);
  asked.is_open = true;
  asked.last = now;
  MessageHeader query{};
  query.kind = MessageHeader::kStatusRequest;
  send_control(query, rank);
  return std::nullopt;
}

void NetworkEndpoint::set_topology(std::vector<int> host_of, StatusProvider status_provider) {
  host_of_ = std::move(host_of);
  status_provider_ = std::move(status_provider);
}

// A status has one text: the call of the rank that an error must name.
void NetworkEndpoint::reply_status(const MessageHeader& query) {
  MessageHeader reply{};
  reply.kind = MessageHeader::kStatusReply;
  reply.index = query.index;
  if (query.index != 0) {
    const auto group = groups_.find(query.channel);
    const auto own = status_provider_(
        group == groups_.end() ? std::nullopt : group->second->awaited_in(query.number));
    if (own) {
      const bool of_awaited = own->has_called && own->waits_for >= 0;
      const std::string& text = of_awaited ? own->last_call_of_awaited : own->last_call;
      reply.op = own->has_called;
      reply.root = own->waits_for;
      memcpy(reply.label, text.data(), std::min(text.size(), segment::kLabelBytes - 1));
    } else {
      reply.index = 0;
    }
  }
  send_control(reply, query.from);
}

void NetworkEndpoint::on_status_reply(const MessageHeader& header) {
  for (auto& [about, query] : status_queries_) {
    if (header.index == 0 || query.number != header.index) continue;
    progress::PeerStatus said;
    said.has_called = header.op != 0;
    said.waits_for = header.root;
    const bool of_awaited = said.has_called && said.waits_for >= 0;
    (of_awaited ? said.last_call_of_awaited : said.last_call) = header.label;
    query.status = said;
  }
}

std::optional<progress::PeerStatus> NetworkEndpoint::query_status(int rank, uint64_t key,
                                                                  uint64_t number,
                                                                  Clock::time_point since) {
  StatusQuery& query = status_queries_[{rank, key, number}];
  if (query.number == 0 || query.asked < since) {
    const auto now = Clock::now();
    const bool is_open = query.number != 0 && !query.status;
    query = {++status_queries_sent_, now, is_open ? query.open_since : now, std::nullopt};
    MessageHeader request{};
    request.kind = MessageHeader::kStatusRequest;
    request.channel = key;
    request.number = number;
    request.index = query.number;
    send_control(request, rank);
  }
  if (query.status) return query.status;
  // One that has not answered for a while will not now.
  const auto asked = liveness_.find(rank);
  const bool is_open = asked != liveness_.end() && asked->second.is_open;
  const auto open_since = is_open ? asked->second.since : query.open_since;
  if (Clock::now() - std::min(open_since, query.open_since) < unresponsive_after())
    return std::nullopt;
  progress::PeerStatus unresponsive;
  unresponsive.is_unresponsive = true;
  return unresponsive;
}

}  // namespace smp::net
