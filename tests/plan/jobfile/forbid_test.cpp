#include "smp/plan/jobfile/forbid.h"

#include <doctest/doctest.h>

using namespace smp;
using namespace smp::jobfile;

namespace {

bool holds(const std::string& text, int64_t value) {
  const ForbidReading reading = read_forbid(text);
  REQUIRE_MESSAGE(reading.problem.empty(), reading.problem);
  REQUIRE(reading.comparisons.size() == 1);
  return reading.comparisons.front().holds(value);
}

}  // namespace

TEST_CASE("a comparison holds for the values that it says") {
  CHECK(holds("tensor_parallel_degree=8", 8));
  CHECK_FALSE(holds("tensor_parallel_degree=8", 4));
  CHECK(holds("tensor_parallel_degree = 2 | 8", 2));
  CHECK_FALSE(holds("tensor_parallel_degree=2|8", 4));
  CHECK(holds("micro_batch!=1", 2));
  CHECK(holds("training.micro_batch>=4", 4));
  CHECK_FALSE(holds("micro_batch>4", 4));
  CHECK(holds("micro_batch<=4", 4));
  CHECK_FALSE(holds("micro_batch<4", 4));
  CHECK(holds("pipeline=simple|zb_v", 4));
  CHECK(holds("offload_activations=true", 1));
  CHECK(holds("placement_strategy=spread", 1));
}

TEST_CASE("several comparisons are joined by and") {
  const ForbidReading reading =
      read_forbid("sharding=parameters and sharded_data_parallel_degree>64");
  CHECK(reading.problem == "");
  REQUIRE(reading.comparisons.size() == 2);
  CHECK(reading.comparisons[0].key == LayoutKey::kSharding);
  CHECK(reading.comparisons[0].values == std::vector<int64_t>{3});
  CHECK(reading.comparisons[1].relation == Relation::kAbove);
}

TEST_CASE("a text that is no comparison is refused with what to write") {
  const auto problem = [](const char* text) { return read_forbid(text).problem; };
  CHECK(problem("tensor_parallel_degree") ==
        "must be a comparison such as tensor_parallel_degree=8 or micro_batch>=4, or several "
        "joined by ' and ', not 'tensor_parallel_degree'");
  CHECK(problem("tensor_paralel_degree=8") ==
        "names the unknown key 'tensor_paralel_degree', did you mean 'tensor_parallel_degree'?");
  CHECK(
      problem("steps=8").starts_with("names 'steps', which is not a key of the layout; keys of the "
                                     "layout are pipeline_parallel_degree, "));
  CHECK(problem("pipeline>simple") ==
        "compares pipeline, whose values have no order: write pipeline=value");
  CHECK(problem("pipeline=1f1b") ==
        "is wrong: pipeline must be simple, interleaved, virtual, zb_h1 or zb_v, not '1f1b'; 1F1B "
        "is called 'interleaved' here");
  CHECK(problem("micro_batch=two") == "is wrong: micro_batch must be a whole number, not 'two'");
  CHECK(problem("micro_batch=1|") == "is wrong: micro_batch must be a whole number, not ''");
  CHECK(problem("micro_batch=1 and ") ==
        "must be a comparison such as tensor_parallel_degree=8 or micro_batch>=4, or several "
        "joined by ' and ', not ''");
}
