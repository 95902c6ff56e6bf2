#include "groups/interhost/interhost_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "arguments.h"
#include "groups/fork_guarded_communicator.h"

namespace smp::groups {
namespace {

constexpr std::chrono::milliseconds kLastMessages{1000};
constexpr std::chrono::milliseconds kLastPieces{
    500};  // after a failure, for half-sent or half-received pieces

enum class Purpose : uint64_t { kCollectives = 1, kMessages = 2 };

// The same on both sides.
uint64_t channel_id(uint64_t key, int a, int b, Purpose purpose) {
  const uint64_t id = net::mix(net::mix(key, uint64_t(std::min(a, b))), uint64_t(std::max(a, b)));
  return net::mix(id, uint64_t(purpose));
}

std::vector<int64_t> hosts_of(const HostTopology& topology, const std::vector<int>& globals) {
  std::vector<int64_t> hosts;
  for (const int rank : globals) hosts.push_back(topology.host_of[size_t(rank)]);
  return hosts;
}

}  // namespace

InterhostGroup::InterhostGroup(std::shared_ptr<RankContext> context, std::vector<int> globals,
                               int rank, uint64_t key, std::vector<RecordPtr> parents)
    : GroupSide(std::move(context), std::move(globals), rank, key, std::move(parents)) {
  const mesh::HostGrid grid = mesh::host_grid(hosts_of(context_->topology, globals_));
  hosts_ = int(grid.hosts), per_host_ = int(grid.per_host);
  host_ = rank_ / per_host_, place_ = rank_ % per_host_;
  records_.insert(records_.begin(), context_->group_failures.open(key_));
  if (per_host_ > 1) {
    const auto first = globals_.begin() + member(host_, 0);
    local_ = std::make_unique<Group>(context_, std::vector<int>(first, first + per_host_), place_,
                                     key_, records_);
  }
  rails_.resize(size_t(hosts_));
  heard_.resize(size_t(hosts_));
  context_->engine.exclusively([this] {
    try {
      for (int step = 1; step < hosts_; ++step) {
        const int host = (host_ + step) % hosts_, peer = global(member(host, place_));
        rails_[size_t(host)] = std::make_unique<net::Channel>(
            *context_->endpoint, channel_id(key_, global(rank_), peer, Purpose::kCollectives), peer,
            this);
      }
      context_->endpoint->add(key_, *this);
    } catch (...) {  // memory of the network; channels end under the lock
      for (const auto& rail : rails_)
        if (rail) rail->close_silently();
      rails_.clear();
      throw;
    }
  });
}

InterhostGroup::~InterhostGroup() {
  std::vector<progress::Lane*> lanes;
  for (auto& [peer, pair] : pairs_) {
    lanes.push_back(&pair->sends);
    lanes.push_back(&pair->recvs);
  }
  const bool abandoned = close(std::move(lanes));
  // Peers that have not learnt of the failure yet must not take this end for the cause.
  const bool quiet = abandoned || failure();
  if (quiet && local_) local_->close_silently();
  context_->engine.exclusively([&] { context_->endpoint->remove(key_); });
  local_.reset();  // steps in the host use the members below
  context_->engine.exclusively([&] {
    for (auto& [peer, pair] : pairs_) {
      if (quiet) pair->channel->close_silently();
      pair->channel.reset();
    }
    for (auto& rail : rails_) {
      if (quiet && rail) rail->close_silently();
      rail.reset();
    }
    for (Scratch* const scratch : {&scratch_, &more_scratch_}) scratch->end(quiet);
  });
}

// Messages of a rank may arrive after the notice that the rank has left.
bool InterhostGroup::has_left(int rank) const {
  if (context_->job->board(global(rank)).gone.load() != 0) {
    const auto now = std::chrono::steady_clock::now();
    const auto seen = gone_since_.emplace(rank, now).first->second;
    if (now - seen > kLastMessages) return true;
  }
  const auto pair = pairs_.find(rank);
  const net::Channel* const messages = pair == pairs_.end() ? nullptr : pair->second->channel.get();
  const net::Channel* const rail =
      rank % per_host_ == place_ ? rails_[size_t(rank / per_host_)].get() : nullptr;
  if (messages == nullptr && rail == nullptr) return false;
  return (messages == nullptr || messages->closed_by_peer()) &&
         (rail == nullptr || rail->closed_by_peer());
}

bool InterhostGroup::has_called(int rank, const progress::Call& call) const {
  const bool message = call.op == mesh::CollectiveOp::kSend || call.op == mesh::CollectiveOp::kRecv;
  return !message && heard_[size_t(rank / per_host_)] >= call.number;
}

// A member of this host that has not begun its step is awaited first. A member that relays data of
// other hosts may itself wait for them.
int InterhostGroup::awaited(progress::Operation& op) const {
  const int peer = GroupSide::awaited(op);
  progress::Operation* const step =
      local_ && &op.lane == &collectives_ ? local_->under_way() : nullptr;
  const int mate = step == nullptr ? -1 : local_->awaited(*step);
  return peer < 0 || (mate >= 0 && !step->is_indirect) ? mate : peer;
}

std::optional<int> InterhostGroup::awaited_in(uint64_t number) const {
  if (collectives_.last_number < number) return std::nullopt;
  if (collectives_.operations.empty()) return -1;
  progress::Operation& op = *collectives_.operations.front();
  return op.call.number > number ? -1 : awaited(op);
}

std::optional<std::string> InterhostGroup::unreachable(int rank) const {
  return context_->endpoint->unreachable(global(rank));
}

// Messages that peers still send are discarded.
void InterhostGroup::release_buffers() {
  std::vector<net::Channel*> channels;
  for (const auto& rail : rails_)
    if (rail) channels.push_back(rail.get());
  for (const auto& [peer, pair] : pairs_)
    if (pair->channel) channels.push_back(pair->channel.get());
  const auto job_has_failed = [this] {
    return context_->job->failure().state.load() == segment::FailureRecord::kWritten;
  };
  const auto has_gone = [this](int rank) { return context_->job->board(rank).gone.load() != 0; };
  if (context_->endpoint->release_buffers(channels, kLastPieces, job_has_failed, has_gone)) return;
  const int self = global(rank_);
  context_->job->fail(context_->job->failure(), {comm::CommError::Kind::kPeerLost, self, self,
                                                 *context_->endpoint->unreachable(self)});
}

comm::WorkPtr InterhostGroup::all_reduce(const void* in, void* out, int64_t count, DType dtype,
                                         comm::ReduceOp op, std::string_view label) {
  progress::Call call = reduction(mesh::CollectiveOp::kAllReduce, in, out, count, dtype, op, label);
  auto work = operation(collectives_, std::move(call));
  const auto from = static_cast<ConstBytes>(in);
  const auto to = static_cast<Bytes>(out);
  return begin(std::move(work), work->call.bytes() <= mesh::kOneShotBytes
                                    ? run_one_shot(*work, from, to, count)
                                    : run_all_reduce(*work, from, to));
}

comm::WorkPtr InterhostGroup::all_gather(const void* in, void* out, int64_t count, DType dtype,
                                         std::string_view label) {
  auto work =
      operation(collectives_, collective(mesh::CollectiveOp::kAllGather, count, dtype, label));
  return begin(std::move(work),
               run_all_gather(*work, static_cast<ConstBytes>(in), static_cast<Bytes>(out)));
}

comm::WorkPtr InterhostGroup::reduce_scatter(const void* in, void* out, int64_t count, DType dtype,
                                             comm::ReduceOp op, std::string_view label) {
  comm::check_divisible(label, count, size_);
  progress::Call call =
      reduction(mesh::CollectiveOp::kReduceScatter, in, out, count, dtype, op, label);
  auto work = operation(collectives_, std::move(call));
  return begin(std::move(work),
               run_reduce_scatter(*work, static_cast<ConstBytes>(in), static_cast<Bytes>(out)));
}

comm::WorkPtr InterhostGroup::broadcast(void* buffer, int64_t count, DType dtype, int root,
                                        std::string_view label) {
  auto work =
      operation(collectives_, with_root(mesh::CollectiveOp::kBroadcast, count, dtype, root, label));
  return begin(std::move(work), run_broadcast(*work, static_cast<Bytes>(buffer)));
}

comm::WorkPtr InterhostGroup::begin(std::shared_ptr<progress::Operation>&& op,
                                    progress::Program program) {
  op->rest = std::move(program);
  progress::Operation& begun = *op;
  return start(std::move(op), run_greeting(begun));
}

progress::Program InterhostGroup::program_of(progress::Operation& op, ConstBytes in, Bytes out) {
  switch (op.call.op) {
    case mesh::CollectiveOp::kReduce: op.rest = run_reduce(op, in, out); break;
    case mesh::CollectiveOp::kGather: op.rest = run_gather(op, in, out); break;
    case mesh::CollectiveOp::kScatter: op.rest = run_scatter(op, in, out); break;
    default: op.rest = run_all_to_all(op, in, out); break;
  }
  return run_greeting(op);
}

void InterhostGroup::set_timeout(std::chrono::milliseconds timeout) {
  GroupSide::set_timeout(timeout);
  if (local_) local_->set_timeout(timeout);
}

comm::WorkPtr InterhostGroup::barrier(std::string_view label) {
  auto work =
      operation(collectives_, collective(mesh::CollectiveOp::kBarrier, 0, DType::kU8, label));
  return begin(std::move(work), run_barrier(*work));
}

// Only the programs use the map; the caller also uses its entries.
InterhostGroup::Pair& InterhostGroup::pair(int peer) {
  if (const auto known = pairs_.find(peer); known != pairs_.end()) return *known->second;
  Pair* made = nullptr;
  context_->engine.exclusively([&] {
    const int to = global(peer);
    auto fresh = std::make_unique<Pair>(*this);
    fresh->sends.member = fresh->recvs.member = this;
    fresh->channel = std::make_unique<net::Channel>(
        *context_->endpoint, channel_id(key_, global(rank_), to, Purpose::kMessages), to,
        fresh.get());
    made = (pairs_[peer] = std::move(fresh)).get();
  });
  return *made;
}

comm::WorkPtr InterhostGroup::send(const void* in, int64_t count, DType dtype, int to,
                                   std::string_view label) {
  comm::check_peer(mesh::CollectiveOp::kSend, label, to, rank_, size_);
  if (is_here(to)) return local_->send(in, count, dtype, to % per_host_, label);
  Pair& p = pair(to);
  auto work =
      operation(p.sends, message(mesh::CollectiveOp::kSend, count, dtype, to, label, p.sent));
  return start(std::move(work), run_send(*work, *p.channel, static_cast<ConstBytes>(in)));
}

comm::WorkPtr InterhostGroup::recv(void* out, int64_t count, DType dtype, int from,
                                   std::string_view label) {
  comm::check_peer(mesh::CollectiveOp::kRecv, label, from, rank_, size_);
  if (is_here(from)) return local_->recv(out, count, dtype, from % per_host_, label);
  Pair& p = pair(from);
  auto work =
      operation(p.recvs, message(mesh::CollectiveOp::kRecv, count, dtype, from, label, p.received));
  const auto to = static_cast<Bytes>(out);
  if (const progress::Call& call = work->call; path_of(call.bytes()).is_zero_copy)
    work->at_once = [this, &p, &call, to] {
      if (failure()) return;
      p.channel->expect(call, to, call.bytes());
      p.channel->defer_advertisement();
    };
  return start(std::move(work), run_recv(*work, *p.channel, to));
}

std::vector<comm::TrafficCount> InterhostGroup::traffic() const {
  std::vector<comm::TrafficCount> counts = traffic_.counts(size_);
  if (!local_) return counts;
  for (comm::TrafficCount row : local_->traffic()) {
    row.group_size = size_;
    const auto same =
        std::find_if(counts.begin(), counts.end(), [&row](const comm::TrafficCount& count) {
          return count.label == row.label && count.op == row.op;
        });
    if (same == counts.end()) {
      counts.push_back(std::move(row));
    } else {
      same->calls += row.calls;
      same->wire_bytes += row.wire_bytes;
    }
  }
  std::sort(counts.begin(), counts.end(),
            [](const comm::TrafficCount& a, const comm::TrafficCount& b) {
              return std::tie(a.label, a.op) < std::tie(b.label, b.op);
            });
  return counts;
}

int64_t InterhostGroup::segment_bytes() const {
  return mesh::group_bytes({hosts_, per_host_}, key_ == net::kWorldKey);
}

std::unique_ptr<comm::Communicator> make_group(std::shared_ptr<RankContext> context,
                                               std::vector<int> globals, int rank, uint64_t key,
                                               std::vector<RecordPtr> parents) {
  bool here = true;
  if (context->topology.spans_hosts()) {
    const std::vector<int64_t> hosts = hosts_of(context->topology, globals);
    here = std::all_of(hosts.begin(), hosts.end(),
                       [&](int64_t host) { return host == hosts.front(); });
  }
  std::unique_ptr<comm::Communicator> group;
  if (here)
    group = std::make_unique<Group>(std::move(context), std::move(globals), rank, key,
                                    std::move(parents));
  else
    group = std::make_unique<InterhostGroup>(std::move(context), std::move(globals), rank, key,
                                             std::move(parents));
  return std::make_unique<ForkGuardedCommunicator>(std::move(group));
}

std::unique_ptr<comm::Communicator> make_world(std::shared_ptr<RankContext> context) {
  std::vector<int> globals(size_t(context->job->size()));
  std::iota(globals.begin(), globals.end(), 0);
  const int rank = context->engine.rank();
  RecordPtr failure(context->job, &context->job->failure());
  return make_group(std::move(context), std::move(globals), rank, net::kWorldKey,
                    {std::move(failure)});
}

}  // namespace smp::groups
