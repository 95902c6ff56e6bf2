#include "kernels/product_race.h"

#include <ATen/Parallel.h>
#include <doctest/doctest.h>

#include "kernels/cpu_functions.h"
#include "smp/runtime/ledger/memory_ledger.h"

using namespace smp;
using namespace smp::kernels;
using program::ProductKind;
using program::SizedProduct;

namespace {

SizedProduct product(int64_t out) { return {{ProductKind::kForward, out, 64}, 256}; }
const std::vector<SizedProduct> kThree = {product(1), product(2), product(3)};

// A library's seconds on a host that slows each call down by another amount, and the first of each
// product by much.
struct SlowHost {
  double onednn_s = 0.002, torch_s = 0.001;
  int calls = 0;

  double operator()(const SizedProduct&, ProductLibrary library) {
    const bool warms_up = calls < 18 && calls % 6 < 2;
    const double noise = warms_up ? 0.05 : 0.0001 * (calls % 3);
    ++calls;
    return noise + (library == ProductLibrary::kOnednn ? onednn_s : torch_s);
  }
};

}  // namespace

TEST_CASE("a race's least times count, and none of the first ones") {
  SlowHost host;
  const auto times = race_products(kThree, 10, std::ref(host));
  REQUIRE(times.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK((times[i].product == kThree[i]));
    CHECK(times[i].onednn_s >= host.onednn_s);
    CHECK(times[i].onednn_s < 1.11 * host.onednn_s);
    CHECK(times[i].torch_s < 1.21 * host.torch_s);
  }
  CHECK(host.calls == 3 * 2 * 5);
}

TEST_CASE("a race ends with its time: what was not timed twice by both is not in it") {
  // 0.02 s by one library and 0.01 s by the other: three times are 0.09 s.
  int calls = 0;
  const auto time = [&](const SizedProduct&, ProductLibrary library) {
    ++calls;
    return library == ProductLibrary::kOnednn ? 0.02 : 0.01;
  };
  CHECK(race_products(kThree, 0.075, time).empty());
  CHECK(calls == 5);
  calls = 0;
  const auto times = race_products(kThree, 0.215, time);
  CHECK(calls == 15);
  REQUIRE(times.size() == 2);
  CHECK((times[0].product == kThree[0]));
  CHECK((times[1].product == kThree[1]));
  CHECK(times[1].torch_speed() == doctest::Approx(2));
  calls = 0;
  CHECK(race_products({}, 1, time).empty());
  CHECK(calls == 0);
}

TEST_CASE("large products are timed by a part of them, alike ones by the same") {
  const SizedProduct head{{ProductKind::kWeightGradient, 50257, 256}, 100'000};
  const SizedProduct timed = timed_for(head, 2);
  CHECK((timed == SizedProduct{{ProductKind::kWeightGradient, 384, 256}, 512}));
  CHECK((timed_for({{ProductKind::kWeightGradient, 32000, 256}, 2048}, 2) == timed));
  CHECK((timed_for(timed, 2) == timed));
  CHECK(timed_for(head, 64).rows == 2048);
  CHECK((timed_for(product(7), 1) == product(7)));
}

TEST_CASE("a race here times both libraries, and takes none of the rank's memory") {
  ledger::install_counting_allocator();
  at::set_num_threads(1);
  ledger::MemoryLedger ledger(0, 1);  // a byte
  const ledger::LedgerScope scope(ledger);
  const std::vector<SizedProduct> products = {{{ProductKind::kForward, 5, 3}, 7},
                                              {{ProductKind::kInputGradient, 5, 3}, 7},
                                              {{ProductKind::kWeightGradient, 3, 5}, 1}};
  const auto times = race_products_here(products, 60);
  CHECK(times.size() == (has_onednn_product() ? 3 : 0));
  for (const auto& one : times) {
    CHECK(one.onednn_s > 0);
    CHECK(one.torch_s > 0);
  }
  CHECK(ledger.peak().bytes == 0);
}
