#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "comm/fabric_ranks.h"
#include "comm/processes.h"
#include "comm/times.h"

// What a rank forks ends as programs do, with all that it has got of its parent's groups.
using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::net;
using namespace smp::testing;

// Asked by the sanitizer at the end of a program: in a forked child what the parent's threads held
// would count as lost.
bool is_forked_child = false;
extern "C" int __lsan_is_turned_off();
extern "C" int __lsan_is_turned_off() { return is_forked_child ? 1 : 0; }

namespace {

constexpr int64_t kCount = 200000;

// What a rank has in hand when it forks.
struct Hand {
  std::unique_ptr<Communicator> world, pair;
  std::shared_ptr<std::byte[]> shared;
  std::unique_ptr<PeerWindow> window;
  std::vector<int64_t> numbers = std::vector<int64_t>(size_t(kCount), 1);
  WorkPtr complete, under_way;

  int64_t* in_shared() const { return reinterpret_cast<int64_t*>(shared.get()); }
};

void release_buffers(Hand& hand) {
  hand.under_way.reset();
  hand.complete.reset();
  hand.window.reset();
  hand.shared.reset();
  hand.pair.reset();
  hand.world.reset();
}

int by_exit(Hand& hand) {
  static std::unique_ptr<Communicator> world, pair;  // destroyed by exit()
  world = std::move(hand.world);
  pair = std::move(hand.pair);
  exit(0);
}

int by_destructors(Hand& hand) {
  release_buffers(hand);
  return 0;
}

int by_exception(Hand& hand) {
  try {
    struct AtEnd {
      Hand& hand;
      ~AtEnd() { release_buffers(hand); }
    } at_end{hand};
    throw std::runtime_error("the reader is broken");
  } catch (const std::runtime_error&) {
    return 0;
  }
}

int after_calls(Hand& hand) {
  const std::string refusal = "aborted -1: this process was forked from rank " +
                              std::to_string(hand.world->rank()) +
                              ": a child process cannot use the rank's groups";
  int accepted = 0;
  const auto refused = [&](const std::function<void()>& call) {
    try {
      call();
    } catch (const CommError& error) {
      if (text_of(error) == refusal) return;
    }
    ++accepted;
  };
  int64_t x = 1;
  std::vector<int64_t> all(8);
  for (Communicator* const comm : {hand.world.get(), hand.pair.get()}) {
    refused([&] { comm->all_reduce(&x, &x, 1, DType::kI64, ReduceOp::kSum, "x"); });
    refused([&] { comm->all_gather(&x, all.data(), 1, DType::kI64, "x"); });
    refused([&] { comm->send(&x, 1, DType::kI64, 0, "x"); });
    refused([&] { comm->recv(&x, 1, DType::kI64, 0, "x"); });
    refused([&] { comm->barrier("x"); });
    refused([&] { comm->split({comm->rank()}); });
    refused([&] { comm->open_window(hand.shared.get(), 1, DType::kI64, "x"); });
    refused([&] { comm->allocate_symmetric(1); });
    refused([&] { comm->set_timeout(kNever); });
    refused([&] { comm->shrink(kNever); });
    refused([&] { comm->error(); });
    refused([&] { comm->traffic(); });
    refused([&] { comm->abort("x"); });
  }
  refused([&] { hand.under_way->wait(); });
  refused([&] { hand.under_way->done(); });
  if (hand.window) {
    refused([&] { hand.window->show(); });
    refused([&] { hand.window->gather(0, 1, 1, 1, all.data(), "x"); });
  }
  hand.complete->wait();
  if (!hand.complete->done() || hand.world->size() != 2 || hand.in_shared()[0] != 2) ++accepted;
  return accepted;
}

int after_a_job_of_its_own(Hand&) {
#ifdef __SANITIZE_THREAD__
  return 0;  // it lets no such child start threads
#endif
  int64_t x = 3;
  const auto own = connect_shared_memory(options_of(0, 1, fresh_job_id()));
  own->all_reduce(&x, &x, 1, DType::kI64, ReduceOp::kSum, "x")->wait();
  return x == 3 ? 0 : 1;
}

constexpr int (*kEndings[])(Hand&) = {by_exit, by_destructors, by_exception, after_calls,
                                      after_a_job_of_its_own};

std::string sums(Hand& hand, int64_t* in) {
  std::fill(in, in + kCount, hand.world->rank() + 1);
  hand.world->all_reduce(in, in, kCount, DType::kI64, ReduceOp::kSum, "x")->wait();
  hand.pair->all_reduce(in, in, kCount, DType::kI64, ReduceOp::kSum, "x")->wait();
  return std::to_string(std::accumulate(in, in + kCount, int64_t(0)) / kCount) + " ";
}

// One of two ranks. All that a child has of the world and of a group is in use before and after.
std::string rank_with_children(std::unique_ptr<Communicator> world) {
  Hand hand;
  hand.pair = world->split({0, 1});
  hand.world = std::move(world);
  hand.shared = hand.world->allocate_symmetric(kCount * int64_t(sizeof(int64_t)));
  hand.window = hand.world->open_window(hand.shared.get(), kCount, DType::kI64, "w");
  const int other = 1 - hand.world->rank();
  std::string text;
  for (const auto& ending : kEndings) {
    std::fill_n(hand.in_shared(), kCount, 1);
    hand.complete = hand.world->all_reduce(hand.in_shared(), hand.in_shared(), kCount, DType::kI64,
                                           ReduceOp::kSum, "x");
    hand.complete->wait();
    hand.under_way = hand.pair->recv(hand.numbers.data(), kCount, DType::kI64, other, "m");
    const pid_t child = fork();
    if (child == 0) {
      is_forked_child = true;
      alarm(unsigned(kSoon.count()));  // not for ever
      _exit(ending(hand));
    }
    int status = 0;
    waitpid(child, &status, 0);
    text += std::to_string(status) + " ";
    hand.world->barrier("both children have ended")->wait();
    const std::vector<int64_t> out(size_t(kCount), 7);
    const WorkPtr sent = hand.pair->send(out.data(), kCount, DType::kI64, other, "m");
    hand.under_way->wait();
    sent->wait();
    text += std::to_string(hand.numbers.back()) + " ";
    text += sums(hand, hand.numbers.data());
    text += sums(hand, hand.in_shared());
  }
  return text;
}

std::string expected() {
  std::string text;
  for (size_t ending = 0; ending < std::size(kEndings); ++ending) text += "0 7 6 6 ";
  return text;
}

}  // namespace

TEST_CASE("what ranks of a host fork ends in any way, and their groups go on") {
  fflush(nullptr);  // exit() writes what is buffered
  const std::string job_id = fresh_job_id();
  std::vector<Child> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      return rank_with_children(connect_shared_memory(options_of(rank, 2, job_id)));
    });
  for (Child& rank : ranks) CHECK(rank.join().said == expected());
}

TEST_CASE("what ranks of two hosts fork ends in any way, and their groups go on") {
  if (!has_network()) return;
  fflush(nullptr);
  const std::string job_id = fresh_job_id();
  const HeldPort port;
  std::vector<Child> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.emplace_back([&, rank] {
      return rank_with_children(connect_fabric(options_of(rank, 2, 1, job_id, port.number())));
    });
  for (Child& rank : ranks) CHECK(rank.join().said == expected());
}
