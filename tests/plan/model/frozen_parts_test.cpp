#include "smp/plan/model/frozen_parts.h"

#include <doctest/doctest.h>

#include "plan/model_samples.h"

using namespace smp;
using namespace smp::model;

namespace {

FrozenParts parts_of(const std::vector<std::string>& frozen) {
  JobSpec job;
  job.model = small_llama();  // 5 blocks
  job.training.frozen = frozen;
  CHECK(problem_of_frozen(frozen, 5).empty());
  return frozen_parts(job);
}

}  // namespace

TEST_CASE("the embedding, the head and the first layers can be frozen") {
  CHECK(parts_of({}).first_blocks == 0);
  const FrozenParts first = parts_of({"layers.0-2"});
  CHECK(first.first_blocks == 3);
  CHECK_FALSE(first.embedding);
  CHECK_FALSE(first.first_blocks_end_backward());
  const FrozenParts prefix = parts_of({"embedding", "layers.0"});
  CHECK(prefix.first_blocks == 1);
  CHECK(prefix.first_blocks_end_backward());
  const FrozenParts but_head = parts_of({"layers", "embedding"});
  CHECK(but_head.first_blocks == 5);
  CHECK_FALSE(but_head.head);
  CHECK(parts_of({"head"}).head);
}

TEST_CASE("a list of frozen parts says what is wrong with it") {
  CHECK(problem_of_frozen({"norms"}, 5) ==
        "must name embedding, head, layers or first layers as in layers.0-15, not norms");
  CHECK(problem_of_frozen({"layers.a"}, 5) ==
        "must name embedding, head, layers or first layers as in layers.0-15, not layers.a");
  CHECK(problem_of_frozen({"layers.2-3"}, 5) ==
        "names layers.2-3: the layers must be the first ones, as in layers.0-3");
  CHECK(problem_of_frozen({"layers.0-5"}, 5) == "names layers.0-5, but the last layer is layers.4");
  CHECK(problem_of_frozen({"head", "head"}, 5) == "names head twice");
  CHECK(problem_of_frozen({"layers.0", "layers.0-2"}, 5) == "names layers twice");
  CHECK(problem_of_frozen({"embedding", "layers.0-4", "head"}, 5) ==
        "leaves nothing to train: leave out a part, or use training.lora");
}

TEST_CASE("adapters freeze weights without a list") {
  JobSpec job;
  CHECK_FALSE(freezes_weights(job));
  job.training.lora.rank = 1;
  CHECK(freezes_weights(job));
  job.training.lora.rank = 0;
  job.training.frozen = {"embedding"};
  CHECK(freezes_weights(job));
}
