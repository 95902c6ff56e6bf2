#include "comm/fake_network.h"

#include <algorithm>
#include <barrier>
#include <cstring>
#include <exception>
#include <new>
#include <set>
#include <stdexcept>
#include <thread>

#include "job.h"
#include "seat.h"

namespace smp::testing {

using shm::Failure;
using shm::FailureRecord;
using shm::Job;
using shm::Transport;

class FakeNetwork::End final : public Transport {
 public:
  End(FakeNetwork& network, int rank) : network_(network), rank_(rank) {}
  ~End() override {
    std::lock_guard guard(network_.mutex_);
    for (auto& receives : network_.inboxes_[size_t(rank_)].receives) receives.clear();
  }

  std::string address() const override { return std::to_string(rank_); }
  void set_peers(const std::vector<std::string>&) override {}

  std::unique_ptr<Memory> allocate(size_t bytes) override {
    struct Heap final : Memory {
      explicit Heap(size_t size) : bytes(size) {}
      std::byte* data() const override { return const_cast<std::byte*>(bytes.data()); }
      std::vector<std::byte> bytes;
    };
    std::lock_guard guard(network_.mutex_);
    if (network_.full_[size_t(rank_)]) throw std::bad_alloc();
    return std::make_unique<Heap>(bytes);
  }

  bool send(Transfer& transfer) override {
    std::lock_guard guard(network_.mutex_);
    if (refuses()) return false;
    if (network_.cut_[size_t(rank_)] || network_.cut_[size_t(transfer.peer)]) {
      transfer.error = "the wire is cut";
    } else if (network_.parted_.count(std::minmax(rank_, int(transfer.peer))) == 0) {
      const std::byte* begin = transfer.data();
      const int delay = network_.faults_.delay_polls;
      Message message{{begin, begin + transfer.bytes},
                      rank_,
                      delay > 0 ? int(network_.random_() % uint64_t(delay)) : 0};
      Inbox& inbox = network_.inboxes_[size_t(transfer.peer)];
      auto& messages = inbox.messages[int(transfer.box)];
      // Its receiver has given a receive for it, though the network may have had no room for that
      // yet.
      if (transfer.box == Box::kData &&
          messages.size() >= inbox.receives[0].size() + inbox.refused.size())
        ++network_.unexpected_;
      messages.push_back(std::move(message));
      if (inbox.bell) inbox.bell.ring();
    }
    sent_.push_back(&transfer);
    return true;
  }

  bool receive(Transfer& transfer) override {
    std::lock_guard guard(network_.mutex_);
    Inbox& inbox = network_.inboxes_[size_t(rank_)];
    if (refuses()) {
      if (transfer.box == Box::kData) inbox.refused.insert(&transfer);
      return false;
    }
    inbox.refused.erase(&transfer);
    inbox.receives[int(transfer.box)].push_back(&transfer);
    return true;
  }

  void poll(std::vector<Transfer*>& complete) override {
    std::lock_guard guard(network_.mutex_);
    if (network_.faults_.slow_rank == rank_ && network_.random_() % 50 != 0) return;
    const size_t most = complete.size() + size_t(network_.faults_.at_once);
    while (!sent_.empty() && complete.size() < most) {
      complete.push_back(sent_.front());
      sent_.pop_front();
    }
    Inbox& inbox = network_.inboxes_[size_t(rank_)];
    for (int box = 0; box < 2; ++box) {
      auto& messages = inbox.messages[box];
      auto& receives = inbox.receives[box];
      for (Message& message : messages) --message.polls_left;
      while (!receives.empty() && complete.size() < most) {
        const auto message = next(messages);
        if (message == messages.end()) break;
        Transfer* transfer = receives.front();
        receives.pop_front();
        memcpy(transfer->data(), message->bytes.data(), message->bytes.size());
        transfer->bytes = message->bytes.size();
        messages.erase(message);
        complete.push_back(transfer);
      }
    }
  }

  int where_to_sleep() override {
    std::lock_guard guard(network_.mutex_);
    const Inbox& inbox = network_.inboxes_[size_t(rank_)];
    if (!inbox.bell) return shm::kNoDescriptor;
    if (!sent_.empty() || !inbox.messages[0].empty() || !inbox.messages[1].empty())
      return shm::kPollAgain;
    inbox.bell.answer();
    return inbox.bell.descriptor();
  }

 private:
  bool refuses() {
    return network_.faults_.refuse > 0 &&
           std::uniform_real_distribution<>(0, 1)(network_.random_) < network_.faults_.refuse;
  }

  // Without reordering a message waits for those that its sender has sent before.
  std::deque<Message>::iterator next(std::deque<Message>& messages) {
    std::set<int> waiting;
    for (auto message = messages.begin(); message != messages.end(); ++message) {
      if (message->polls_left <= 0 &&
          (network_.faults_.reorder || waiting.count(message->from) == 0))
        return message;
      waiting.insert(message->from);
    }
    return messages.end();
  }

  FakeNetwork& network_;
  const int rank_;
  std::deque<Transfer*> sent_;
};

FakeNetwork::FakeNetwork(int size, NetworkFaults faults)
    : faults_(faults),
      random_(faults.seed),
      inboxes_(size_t(size)),
      cut_(size_t(size)),
      full_(size_t(size)) {
  if (!faults.rings || faults.deaf) return;
  for (Inbox& inbox : inboxes_) inbox.bell = shm::Doorbell::make();
}

std::unique_ptr<Transport> FakeNetwork::transport(int rank) {
  return std::make_unique<End>(*this, rank);
}

int64_t FakeNetwork::unexpected() const {
  std::lock_guard guard(mutex_);
  return unexpected_;
}

void FakeNetwork::cut(int rank) {
  std::lock_guard guard(mutex_);
  cut_[size_t(rank)] = true;
}

void FakeNetwork::part(int a, int b) {
  std::lock_guard guard(mutex_);
  parted_.insert(std::minmax(a, b));
}

void FakeNetwork::fill(int rank) {
  std::lock_guard guard(mutex_);
  full_[size_t(rank)] = true;
}

namespace {

// Tells every host of a failure at once, as the watch over hosts does.
class Telegraph final : public shm::Outside {
 public:
  std::vector<std::shared_ptr<Job>> jobs;
  std::vector<std::shared_ptr<shm::Seat>> seats;
  std::mutex mutex;

  std::string place_of(int) const override { return ""; }
  void failed(const FailureRecord& record, const Failure& failure) override {
    std::lock_guard guard(mutex);
    uint64_t key = 0;
    for (const auto& seat : seats)
      if (seat)
        if (const auto known = seat->key_of(record)) key = *known;
    const bool whole = std::any_of(jobs.begin(), jobs.end(),
                                   [&](const auto& job) { return &job->failure() == &record; });
    if (whole)
      for (const auto& job : jobs) job->write(job->failure(), failure);
    else if (key != 0)
      for (const auto& seat : seats)
        if (seat) seat->job->write(seat->record_of(key), failure);
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
               const std::function<void(Communicator&, FakeNetwork&)>& program,
               const HostsOptions& options) {
  const int size = hosts * per_host;
  shm::Fleet fleet;
  for (int rank = 0; rank < size; ++rank)
    fleet.host_of.push_back(options.host_of.empty() ? rank / per_host
                                                    : options.host_of[size_t(rank)]);
  for (int host = 0; host < hosts; ++host) fleet.hosts.push_back("host " + std::to_string(host));
  fleet.ranks_here = per_host;
  fleet.exchange.pinned = options.exchange;

  FakeNetwork network(size, options.faults);
  Telegraph telegraph;
  for (int host = 0; host < hosts; ++host) {
    auto mapping = shm::Mapping::anonymous(Job::bytes(size));
    Job::prepare(mapping, size);
    telegraph.jobs.push_back(std::make_shared<Job>(std::move(mapping), size));
    telegraph.jobs.back()->set_outside(&telegraph);
    if (!options.faults.rings) continue;
    std::vector<shm::Doorbell> bells;
    for (int rank = 0; rank < size; ++rank) bells.push_back(shm::Doorbell::make());
    telegraph.jobs.back()->set_doorbells(std::move(bells));
  }
  telegraph.seats.resize(size_t(size));

  std::mutex mutex;
  std::exception_ptr first;
  std::barrier all_here(size);
  auto run = [&](int rank) {
    const auto job = telegraph.jobs[size_t(fleet.host_of[size_t(rank)])];
    auto seat = std::make_shared<shm::Seat>(
        job, rank, options.timeout, fleet,
        std::make_unique<shm::Port>(network.transport(rank), rank, 77, options.silence));
    {
      std::lock_guard guard(telegraph.mutex);
      telegraph.seats[size_t(rank)] = seat;
    }
    all_here.arrive_and_wait();
    try {
      const auto world = shm::make_world(seat);
      try {
        program(*world, network);
      } catch (...) {
        const auto error = std::current_exception();
        {
          std::lock_guard guard(mutex);
          if (!first) first = error;
        }
        job->fail(job->failure(), {CommError::Kind::kAborted, rank, rank,
                                   "rank " + std::to_string(rank) + " failed: " + text_of(error)});
      }
    } catch (...) {
      std::lock_guard guard(mutex);
      if (!first) first = std::current_exception();
    }
    for (const auto& other : telegraph.jobs) other->board(rank).gone.store(1);
  };
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.emplace_back(run, rank);
  for (std::thread& rank : ranks) rank.join();
  if (options.afterwards) options.afterwards(network);
  for (const auto& job : telegraph.jobs) job->set_outside(nullptr);
  telegraph.seats.clear();
  if (first) std::rethrow_exception(first);
}

void run_hosts(int hosts, int per_host, const std::function<void(Communicator&)>& program,
               const HostsOptions& options) {
  run_hosts(
      hosts, per_host, [&](Communicator& comm, FakeNetwork&) { program(comm); }, options);
}

}  // namespace smp::testing
