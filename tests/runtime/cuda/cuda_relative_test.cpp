#include <doctest/doctest.h>

#include <cmath>
#include <vector>

#include "cuda/relative_body.h"
#include "runtime/host_block.h"
#include "tolerances.h"
#include "worst.h"

// The bodies of relative positions, run on host threads, against the CPU's loops in fp64.
using namespace smp;
using namespace smp::kernels;
using namespace smp::model;

namespace {

std::vector<double> some_values(int64_t count, double step) {
  std::vector<double> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(step * static_cast<double>(i));
  return values;
}

double worst_of(const std::vector<double>& ours, const std::vector<double>& expected) {
  double worst = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    worst = smp::testing::worst_of(worst, std::abs(ours[i] - expected[i]));
  }
  return worst;
}

AttentionShape shape_of(bool causal, int64_t sequence) {
  AttentionShape shape;
  shape.batch = 3;
  shape.sequence = shape.keys = sequence;
  shape.causal = causal;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.relative_buckets = kRelativeBuckets;
  return shape;
}

}  // namespace

TEST_CASE("cuda bodies: every distance falls in the bucket that the CPU says") {
  for (const bool causal : {true, false}) {
    for (const int64_t buckets : {int64_t{4}, int64_t{8}, kRelativeBuckets}) {
      AttentionShape shape = shape_of(causal, 1);
      shape.relative_buckets = buckets;
      const cuda::BucketBounds bounds = cuda::bounds_of(shape);
      for (int64_t distance = -3000; distance <= 3000; ++distance) {
        REQUIRE(bounds.bucket(distance) == relative_bucket(distance, buckets, causal));
      }
    }
  }
}

TEST_CASE("cuda bodies: numbers by distance from the table, and their gradients back") {
  for (const bool causal : {true, false}) {
    const AttentionShape shape = shape_of(causal, 150);
    const cuda::BucketBounds bounds = cuda::bounds_of(shape);
    const int64_t entries = kRelativeBuckets * shape.heads, count = shape.distances();
    const std::vector<double> table = some_values(entries, 0.7);
    std::vector<double> ours(static_cast<size_t>(shape.heads * count)), expected(ours.size());
    launch_on_host(2, 3, [&](HostBlock& block) {
      cuda::fill_diagonals(block, shape, bounds, table.data(), ours.data());
    });
    fill_diagonals(shape, table.data(), expected.data());
    CHECK(ours == expected);

    std::vector<double> to = some_values(entries, 0.3), right = to;
    launch_on_host(2, 3, [&](HostBlock& block) {
      cuda::add_to_table(block, shape, bounds, ours.data(), to.data());
    });
    add_diagonals(shape, expected.data(), right.data());
    CHECK(worst_of(to, right) <= tolerance::kDeviceBodiesF64 * 150);
  }
}

TEST_CASE("cuda bodies: gradients of a block of scores are added by distance") {
  const AttentionShape shape = shape_of(true, 9);
  const cuda::ScoreRows rows{shape.batch * shape.kv_heads, 4, 7, 3,
                             1};  // queries 3 to 6, keys 0 to 6
  const std::vector<double> scores = some_values(rows.rows() * rows.cols, 0.9);
  const int64_t count = shape.distances();
  std::vector<double> ours = some_values(shape.heads * count, 0.1), expected = ours;
  launch_on_host(2, 3, [&](HostBlock& block) {
    cuda::add_to_diagonals(block, shape, rows, scores.data(), ours.data());
  });
  for (int64_t row = 0; row < rows.rows(); ++row) {
    const cuda::ScorePosition place = cuda::place_of(shape, rows, row);
    for (int64_t key = 0; key < rows.cols; ++key) {
      const int64_t at = place.head * count + key - place.position + shape.sequence - 1;
      expected[static_cast<size_t>(at)] += scores[static_cast<size_t>(row * rows.cols + key)];
    }
  }
  CHECK(worst_of(ours, expected) <= tolerance::kDeviceBodiesF64);
}
