#include "comm/fake_network.h"

#include <algorithm>
#include <barrier>
#include <cstring>
#include <exception>
#include <new>
#include <set>
#include <stdexcept>
#include <thread>

#include "groups/rank_context.h"
#include "segment/shared_job.h"

namespace smp::testing {

using net::FabricTransport;
using segment::Failure;
using segment::FailureRecord;
using segment::SharedJob;

class FakeNetwork::End final : public FabricTransport {
 public:
  End(FakeNetwork& network, int rank) : network_(network), rank_(rank) {}
  ~End() override {
    std::lock_guard guard(network_.mutex_);
    Inbox& inbox = network_.inboxes_[size_t(rank_)];
    for (auto& receives : inbox.receives) receives.clear();
    inbox.refused.clear();
  }

  std::string address() const override { return std::to_string(rank_); }
  void set_peers(const std::vector<std::string>&) override {}

  std::unique_ptr<Memory> allocate(size_t bytes) override {
    std::lock_guard guard(network_.mutex_);
    if (network_.full_[size_t(rank_)]) throw std::bad_alloc();
    return std::make_unique<Known>(bytes);
  }
  std::unique_ptr<Memory> adopt(std::byte* begin, size_t bytes) override {
    std::lock_guard guard(network_.mutex_);
    if (network_.full_[size_t(rank_)]) throw std::runtime_error("too much is locked");
    return std::make_unique<Known>(network_, begin, bytes);
  }

  size_t short_bytes() const override { return network_.faults_.short_bytes; }
  bool takes_any_memory() const override { return !network_.faults_.wants_own_memory; }
  bool writes() const override { return network_.faults_.writes; }

  void expose(Transfer& receive, uint64_t secret) override {
    receive.remote_buffer.key = secret;
    if (!writes()) return;
    std::lock_guard guard(network_.mutex_);
    if (network_.full_[size_t(rank_)] || is_closed_) {
      receive.error = "no memory";
      return;
    }
    if (!knows(receive)) return;
    receive.remote_buffer.ticket = ++network_.tickets_;
    receive.remote_buffer.address = reinterpret_cast<uint64_t>(receive.rest);
    network_.inboxes_[size_t(rank_)].receives[int(MessageClass::kZeroCopy)].push_back(&receive);
  }

  bool send(Transfer& transfer) override {
    std::lock_guard guard(network_.mutex_);
    if (is_closed_) transfer.error = "closed";
    if (!is_closed_ && refuses()) return false;
    if (!is_closed_ && !knows(transfer)) {
      cancelled_.push_back(&transfer);
      return true;
    }
    if (transfer.message_class == MessageClass::kData) ++network_.data_messages_;
    if (transfer.message_class == MessageClass::kControl) ++network_.control_messages_;
    // The caller's memory is read when the message leaves, not before.
    if (transfer.rest_bytes == 0 && !is_closed_) leave(transfer);
    sent_.push_back(&transfer);
    return true;
  }

  bool receive(Transfer& transfer) override {
    std::lock_guard guard(network_.mutex_);
    Inbox& inbox = network_.inboxes_[size_t(rank_)];
    if (is_closed_) {
      transfer.error = "closed";
      cancelled_.push_back(&transfer);
      return true;
    }
    if (refuses()) {
      if (transfer.message_class != MessageClass::kControl) inbox.refused.insert(&transfer);
      return false;
    }
    inbox.refused.erase(&transfer);
    if (!knows(transfer)) {
      cancelled_.push_back(&transfer);
      return true;
    }
    inbox.receives[int(transfer.message_class)].push_back(&transfer);
    return true;
  }

  void cancel(Transfer& transfer) override {
    std::lock_guard guard(network_.mutex_);
    auto& receives = network_.inboxes_[size_t(rank_)].receives[int(transfer.message_class)];
    const auto found = std::find(receives.begin(), receives.end(), &transfer);
    if (found == receives.end()) return;
    receives.erase(found);
    transfer.error = "cancelled";
    cancelled_.push_back(&transfer);
  }

  void close() override {
    std::lock_guard guard(network_.mutex_);
    is_closed_ = true;
    for (auto& receives : network_.inboxes_[size_t(rank_)].receives) receives.clear();
    sent_.clear();
    cancelled_.clear();
  }

  void poll(std::vector<Transfer*>& complete) override {
    std::lock_guard guard(network_.mutex_);
    if (network_.faults_.slow_rank == rank_ && network_.random_() % 50 != 0) return;
    complete.insert(complete.end(), cancelled_.begin(), cancelled_.end());
    cancelled_.clear();
    const size_t most = complete.size() + size_t(network_.faults_.at_once);
    for (; !sent_.empty() && complete.size() < most; sent_.pop_front()) {
      if (network_.stuck_[size_t(rank_)] && sent_.front()->rest_bytes > 0) break;
      if (sent_.front()->rest_bytes > 0 && !is_closed_) leave(*sent_.front());
      complete.push_back(sent_.front());
    }
    Inbox& inbox = network_.inboxes_[size_t(rank_)];
    for (int message_class = 0; message_class < kMessageClasses; ++message_class) {
      auto& messages = inbox.messages[message_class];
      auto& receives = inbox.receives[message_class];
      for (Message& message : messages) --message.polls_left;
      if (message_class == int(MessageClass::kZeroCopy) && writes())
        refuse_late(messages, receives);
      while (!receives.empty() && complete.size() < most) {
        const auto message = next(messages, receives, message_class);
        if (message == messages.end()) break;
        const auto receive = receive_of(*message, receives, message_class);
        complete.push_back(*receive);
        fill(**receive, *message);
        receives.erase(receive);
        messages.erase(message);
      }
    }
  }

  int wait_descriptor() override {
    std::lock_guard guard(network_.mutex_);
    const Inbox& inbox = network_.inboxes_[size_t(rank_)];
    if (!inbox.bell) return waiting::kNoDescriptor;
    bool is_quiet = sent_.empty() && cancelled_.empty();
    for (const auto& messages : inbox.messages) is_quiet &= messages.empty();
    if (!is_quiet) return waiting::kPollAgain;
    inbox.bell.answer();
    return inbox.bell.descriptor();
  }

 private:
  // Its own memory, or somebody else's that it knows.
  struct Known final : Memory {
    explicit Known(size_t size) : own(size), begin(own.data()), end(begin + size) {}
    Known(FakeNetwork& its_network, std::byte* its_begin, size_t size)
        : network(&its_network), begin(its_begin), end(begin + size) {
      ++network->registered_;
    }
    ~Known() override {
      if (network == nullptr) return;
      std::lock_guard guard(network->mutex_);
      --network->registered_;
    }
    std::byte* data() const override { return begin; }

    FakeNetwork* const network = nullptr;
    std::vector<std::byte> own;
    std::byte *const begin, *const end;
  };

  // As a network with memory of its own: what is nobody's that it knows is not touched.
  bool knows(Transfer& transfer) {
    if (!network_.faults_.wants_own_memory || transfer.rest_bytes == 0) return true;
    const auto* const memory = static_cast<Known*>(transfer.rest_memory);
    if (memory == nullptr || transfer.rest < memory->begin ||
        transfer.rest + transfer.rest_bytes > memory->end) {
      transfer.error = "memory that is not registered";
      ++network_.foreign_;
      return false;
    }
    network_.zero_copy_bytes_ += memory->network != nullptr ? int64_t(transfer.rest_bytes) : 0;
    return true;
  }

  using Messages = std::deque<Message>;
  using Receives = std::deque<Transfer*>;

  bool refuses() {
    return network_.faults_.refuse > 0 &&
           std::uniform_real_distribution<>(0, 1)(network_.random_) < network_.faults_.refuse;
  }

  void leave(Transfer& transfer) {
    if (network_.cut_[size_t(rank_)] || network_.cut_[size_t(transfer.peer)]) {
      transfer.error = "the wire is cut";
      return;
    }
    if (network_.parted_.count(std::minmax(rank_, int(transfer.peer))) != 0) return;
    if (network_.has_stopped(transfer.peer) || network_.has_stopped(rank_)) return;
    if (const auto left = network_.left_until_stopped_.find(rank_);
        left != network_.left_until_stopped_.end() && transfer.message_class == MessageClass::kData)
      --left->second;
    const std::byte* begin = transfer.data();
    const int delay = network_.faults_.delay_polls;
    Message message{{begin, begin + transfer.bytes},
                    rank_,
                    delay > 0 ? int(network_.random_() % uint64_t(delay)) : 0,
                    transfer.remote_buffer};
    message.bytes.insert(message.bytes.end(), transfer.rest, transfer.rest + transfer.rest_bytes);
    Inbox& inbox = network_.inboxes_[size_t(transfer.peer)];
    const auto message_class = transfer.message_class;
    auto& messages = inbox.messages[int(message_class)];
    // Its receiver has given a receive for it, though the network may have had no room for that
    // yet.
    const auto is_for_it = [&](const Transfer* receive) {
      return receive->message_class == message_class &&
             is_of(receive->remote_buffer, transfer.remote_buffer);
    };
    const auto& receives = inbox.receives[int(message_class)];
    const auto given = std::count_if(receives.begin(), receives.end(), is_for_it) +
                       std::count_if(inbox.refused.begin(), inbox.refused.end(), is_for_it);
    const auto before = std::count_if(messages.begin(), messages.end(), [&](const Message& other) {
      return is_of(other.remote_buffer, transfer.remote_buffer);
    });
    if (message_class != MessageClass::kControl && before >= given) ++network_.unexpected_;
    messages.push_back(std::move(message));
    if (inbox.bell) inbox.bell.ring();
  }

  static Receives::iterator receive_of(const Message& message, Receives& receives,
                                       int message_class) {
    if (message_class != int(MessageClass::kZeroCopy)) return receives.begin();
    return std::find_if(receives.begin(), receives.end(), [&](const Transfer* transfer) {
      return is_of(transfer->remote_buffer, message.remote_buffer);
    });
  }

  static bool is_of(const RemoteBuffer& one, const RemoteBuffer& other) {
    return one.address == other.address && one.key == other.key && one.ticket == other.ticket;
  }

  void refuse_late(Messages& messages, Receives& receives) {
    network_.refused_ += int64_t(std::erase_if(messages, [&](const Message& message) {
      return receive_of(message, receives, int(MessageClass::kZeroCopy)) == receives.end();
    }));
  }

  static void fill(Transfer& transfer, const Message& message) {
    const size_t bytes = message.bytes.size();
    const size_t first = std::min(bytes, transfer.bytes);
    if (bytes > transfer.bytes + transfer.rest_bytes) {
      transfer.error = "longer than its receive";
      return;
    }
    memcpy(transfer.data(), message.bytes.data(), first);
    if (bytes > first) memcpy(transfer.rest, message.bytes.data() + first, bytes - first);
    transfer.bytes = bytes;
  }

  // Without reordering a message waits for those that its sender has sent before.
  Messages::iterator next(Messages& messages, Receives& receives, int message_class) {
    std::set<int> waiting;
    for (auto message = messages.begin(); message != messages.end(); ++message) {
      if (message->polls_left <= 0 &&
          (network_.faults_.reorder || waiting.count(message->from) == 0) &&
          receive_of(*message, receives, message_class) != receives.end())
        return message;
      waiting.insert(message->from);
    }
    return messages.end();
  }

  FakeNetwork& network_;
  const int rank_;
  std::deque<Transfer*> sent_;
  std::vector<Transfer*> cancelled_;
  bool is_closed_ = false;
};

FakeNetwork::FakeNetwork(int size, NetworkFaults faults)
    : faults_(faults),
      random_(faults.seed),
      inboxes_(size_t(size)),
      cut_(size_t(size)),
      stuck_(size_t(size)),
      full_(size_t(size)) {
  if (!faults.rings || faults.deaf) return;
  for (Inbox& inbox : inboxes_) inbox.bell = waiting::Doorbell::make();
}

std::unique_ptr<FabricTransport> FakeNetwork::transport(int rank) {
  return std::make_unique<End>(*this, rank);
}

int64_t FakeNetwork::unexpected() const {
  std::lock_guard guard(mutex_);
  return unexpected_;
}

int64_t FakeNetwork::foreign() const {
  std::lock_guard guard(mutex_);
  return foreign_;
}

int64_t FakeNetwork::adopted() const {
  std::lock_guard guard(mutex_);
  return registered_;
}

int64_t FakeNetwork::zero_copy_bytes() const {
  std::lock_guard guard(mutex_);
  return zero_copy_bytes_;
}

int64_t FakeNetwork::data_messages() const {
  std::lock_guard guard(mutex_);
  return data_messages_;
}

int64_t FakeNetwork::notes() const {
  std::lock_guard guard(mutex_);
  return control_messages_;
}

int64_t FakeNetwork::refused() const {
  std::lock_guard guard(mutex_);
  return refused_;
}

void FakeNetwork::cut(int rank) {
  std::lock_guard guard(mutex_);
  cut_[size_t(rank)] = true;
}

void FakeNetwork::part(int a, int b) {
  std::lock_guard guard(mutex_);
  parted_.insert(std::minmax(a, b));
}

void FakeNetwork::stop_after(int rank, int64_t messages) {
  std::lock_guard guard(mutex_);
  left_until_stopped_[rank] = messages;
}

bool FakeNetwork::is_stopped(int rank) const {
  std::lock_guard guard(mutex_);
  return has_stopped(rank);
}

bool FakeNetwork::has_stopped(int rank) const {
  const auto left = left_until_stopped_.find(rank);
  return left != left_until_stopped_.end() && left->second <= 0;
}

void FakeNetwork::hold(int rank) {
  std::lock_guard guard(mutex_);
  stuck_[size_t(rank)] = true;
}

void FakeNetwork::fill(int rank) {
  std::lock_guard guard(mutex_);
  full_[size_t(rank)] = true;
}

namespace {

// Tells every host of a failure at once, as the watch over hosts does.
class FailureRelay final : public segment::RemoteHosts {
 public:
  std::vector<std::shared_ptr<SharedJob>> jobs;
  std::vector<std::shared_ptr<groups::RankContext>> contexts;
  std::mutex mutex;

  std::string place_of(int) const override { return ""; }
  void failed(const FailureRecord& record, const Failure& failure) override {
    std::lock_guard guard(mutex);
    uint64_t key = 0;
    for (const auto& context : contexts)
      if (context)
        if (const auto known = context->group_failures.key_of(record)) key = *known;
    const bool whole = std::any_of(jobs.begin(), jobs.end(),
                                   [&](const auto& job) { return &job->failure() == &record; });
    if (whole)
      for (const auto& job : jobs) job->write(job->failure(), failure, failure.finder);
    else if (key != 0)
      for (const auto& context : contexts)
        if (context) context->group_failures.write(*context->job, key, failure);
  }
};

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

void run_hosts(int hosts, int per_host,
               const std::function<void(comm::Communicator&, FakeNetwork&)>& program,
               const HostsOptions& options) {
  const int size = hosts * per_host;
  groups::HostTopology topology;
  for (int rank = 0; rank < size; ++rank)
    topology.host_of.push_back(options.host_of.empty() ? rank / per_host
                                                       : options.host_of[size_t(rank)]);
  for (int host = 0; host < hosts; ++host) topology.hosts.push_back("host " + std::to_string(host));
  topology.ranks_here = per_host;
  topology.exchange.pinned = options.exchange;

  FakeNetwork network(size, options.faults);
  FailureRelay relay;
  for (int host = 0; host < hosts; ++host) {
    auto mapping = segment::Mapping::anonymous(SharedJob::bytes(size, size));
    SharedJob::prepare(mapping, size, size);
    relay.jobs.push_back(std::make_shared<SharedJob>(std::move(mapping), size));
    relay.jobs.back()->set_remote_hosts(&relay);
    if (!options.faults.rings) continue;
    std::vector<waiting::Doorbell> bells;
    for (int rank = 0; rank < size; ++rank) bells.push_back(waiting::Doorbell::make());
    relay.jobs.back()->set_doorbells(std::move(bells));
  }
  relay.contexts.resize(size_t(size));
  std::vector<std::unique_ptr<FabricTransport>> ends;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < size; ++rank) {
    ends.push_back(options.end ? options.end() : network.transport(rank));
    addresses.push_back(ends.back()->address());
  }
  for (const auto& end : ends) end->set_peers(addresses);

  std::mutex mutex;
  std::exception_ptr first;
  std::barrier all_here(size);
  auto run = [&](int rank) {
    const auto job = relay.jobs[size_t(topology.host_of[size_t(rank)])];
    auto context = std::make_shared<groups::RankContext>(
        job, rank, options.timeout, topology,
        std::make_unique<net::NetworkEndpoint>(std::move(ends[size_t(rank)]), rank, 77,
                                               options.silence));
    {
      std::lock_guard guard(relay.mutex);
      relay.contexts[size_t(rank)] = context;
    }
    all_here.arrive_and_wait();
    try {
      const auto world = groups::make_world(context);
      try {
        program(*world, network);
      } catch (...) {
        const auto error = std::current_exception();
        {
          std::lock_guard guard(mutex);
          if (!first) first = error;
        }
        job->fail(job->failure(), {comm::CommError::Kind::kAborted, rank, rank,
                                   "rank " + std::to_string(rank) + " failed: " + text_of(error)});
      }
    } catch (...) {
      std::lock_guard guard(mutex);
      if (!first) first = std::current_exception();
    }
    if (options.counted)
      context->engine.exclusively([&] { options.counted(context->endpoint->counts()); });
    for (const auto& other : relay.jobs) other->board(rank).gone.store(1);
  };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.emplace_back(run, rank);
  for (std::thread& rank : ranks) rank.join();
  if (options.afterwards) options.afterwards(network);
  for (const auto& job : relay.jobs) job->set_remote_hosts(nullptr);
  relay.contexts.clear();
  if (first) std::rethrow_exception(first);
}

void run_hosts(int hosts, int per_host, const std::function<void(comm::Communicator&)>& program,
               const HostsOptions& options) {
  run_hosts(
      hosts, per_host, [&](comm::Communicator& comm, FakeNetwork&) { program(comm); }, options);
}

}  // namespace smp::testing
