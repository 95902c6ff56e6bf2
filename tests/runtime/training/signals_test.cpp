#include <ATen/Parallel.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "kernels/cpu_functions.h"
#include "smp/plan/system/signal_thread.h"
#include "smp/plan/system/signals_blocked.h"

// One process for these alone: no thread may be there before they block what they take.

using namespace smp;
using namespace smp::kernels;
using namespace smp::system;

namespace {

constexpr int kSignals = 10'000;

at::Tensor gradient_of(const at::Tensor& a, const at::Tensor& b) {
  const at::ScalarType wide = a.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor sum = at::zeros({a.size(1), b.size(1)}, wide);
  cpu_add_product(a, b, 1, sum);
  return sum;
}

// What a training step multiplies: from less than a register to more than a block of each kernel,
// with both factors as they lie, with the second transposed, and as a sum over the rows.
struct Products {
  at::Tensor x, weight, y, dx, gradient;

  static Products of(const at::Tensor& x, const at::Tensor& weight) {
    const at::Tensor y = cpu_product(x, weight);
    return {x, weight, y, cpu_product(y, weight.t()), gradient_of(y, x)};
  }
  bool are_again() const {
    const Products again = of(x, weight);
    return again.y.equal(y) && again.dx.equal(dx) && again.gradient.equal(gradient);
  }
};

std::vector<Products> many_products() {
  std::vector<Products> products;
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const int64_t rows : {1, 48, 257}) {
      for (const int64_t depth : {3, 64, 300}) {
        for (const int64_t cols : {17, 64, 257})
          products.push_back(
              Products::of(at::randn({rows, depth}).to(type), at::randn({cols, depth}).to(type)));
      }
    }
  }
  return products;
}

}  // namespace

TEST_CASE("10,000 signals while products of many shapes are computed change no bit of them") {
  std::atomic<int> taken{0};
  const SignalThread signals({SIGUSR1, SIGUSR2}, [&](int) { ++taken; });
  at::set_num_threads(1);  // the main thread, which the kernel gives signals first
  const std::vector<Products> products = many_products();
  std::atomic<bool> all_sent{false};
  std::thread sender = start_without_signals([&] {
    constexpr std::array kNumbers = {SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH, SIGCHLD};
    for (int i = 0; i < kSignals; ++i) {
      kill(getpid(), kNumbers[static_cast<size_t>(i) % kNumbers.size()]);
      usleep(50);  // of signals that come faster, many are one
    }
    all_sent = true;
  });
  int wrong = 0;
  do {
    for (const Products& one : products) wrong += one.are_again() ? 0 : 1;
  } while (!all_sent);
  sender.join();
  CHECK(wrong == 0);
  CHECK(taken > 0);
}

TEST_CASE("a signal that came while it was blocked is taken, and a late one ends nothing") {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &one, nullptr);  // as a rank is started
  kill(getpid(), SIGUSR1);
  std::atomic<int> taken{0};
  {
    const SignalThread signals({SIGUSR1, SIGUSR2}, [&](int number) { taken = number; });
    while (taken == 0) sched_yield();
    CHECK(taken == SIGUSR1);
  }
  kill(getpid(), SIGUSR1);
  kill(getpid(), SIGUSR2);
}

TEST_CASE("a thread that cannot be started says so, and which limit it may be") {
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  rlimit before{};
  getrlimit(RLIMIT_AS, &before);
  const rlimit little{1 << 20, before.rlim_max};
  setrlimit(RLIMIT_AS, &little);  // no room for a stack, but for those of threads that have ended
  std::string error;
  try {
    while (threads.size() < 100)
      threads.push_back(start_without_signals([&] { done.wait(false); }));
  } catch (const std::system_error& full) {
    error = full.what();
  }
  setrlimit(RLIMIT_AS, &before);
  done = true;
  done.notify_all();
  for (std::thread& thread : threads) thread.join();
  CHECK(error ==
        "cannot start a thread (limit of processes, see ulimit -u): Resource temporarily "
        "unavailable");
}
