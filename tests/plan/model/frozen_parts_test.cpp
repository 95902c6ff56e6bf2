#include "smp/plan/model/frozen_parts.h"

#include <doctest/doctest.h>

#include "plan/model_samples.h"
#include "smp/plan/model/layers.h"

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

TEST_CASE("the layers of the first blocks are frozen, and the embedding is no block") {
  JobSpec job;
  job.model = small_llama();
  const auto frozen = [&](const std::vector<std::string>& parts) {
    job.training.frozen = parts;
    std::string layers;
    for (const LayerSpec& layer : layers_of(job.model)) {
      if (is_frozen_block(job, layer)) layers += layer.name + " ";
    }
    return layers;
  };
  CHECK(frozen({}) == "");
  CHECK(frozen({"embedding", "head"}) == "");
  CHECK(frozen({"layers.0-1"}) == "layers.0 layers.1 ");
  CHECK(frozen({"layers", "embedding"}) == "layers.0 layers.1 layers.2 layers.3 layers.4 ");
  CHECK(frozen_blocks(job) == 5);
  job.training.frozen.clear();
  CHECK(frozen_blocks(job) == 0);
}

TEST_CASE("a tied projection is frozen with the embedding") {
  ModelSpec model = small_llama();
  model.tied_embeddings = false;
  CHECK(parts_of({"head"}).projection(model));
  CHECK_FALSE(parts_of({"embedding"}).projection(model));
  model.tied_embeddings = true;
  CHECK_FALSE(parts_of({"head"}).projection(model));
  CHECK(parts_of({"embedding"}).projection(model));
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
