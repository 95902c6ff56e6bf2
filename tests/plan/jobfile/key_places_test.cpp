#include "smp/plan/jobfile/key_places.h"

#include <doctest/doctest.h>

#include <utility>

using namespace smp::jobfile;

namespace {

std::pair<int, int> place(const KeyPlaces& places, const char* path) {
  const KeyPlace at = places.of(path);
  return {at.line, at.column};
}

}  // namespace

TEST_CASE("a key is where the file sets it, else its nearest section, else the first line") {
  const KeyPlaces places({"job.yaml",
                          "cluster: p5.48xlarge\n"
                          "training:\n"
                          "  loss_scale: {dynamic: false}\n"});
  CHECK(place(places, "training.loss_scale.dynamic") == std::pair(3, 16));
  CHECK(place(places, "training.loss_scale.init_scale") == std::pair(3, 3));
  CHECK(place(places, "training.micro_batch") == std::pair(2, 1));
  CHECK(place(places, "cluster.hosts") == std::pair(1, 1));
  CHECK(place(places, "model.vocab_size") == std::pair(1, 1));
}

TEST_CASE("the keys of a plan are those of its job") {
  const KeyPlaces places({"plan.yaml",
                          "smp_plan: 2\n"
                          "job:\n"
                          "  model:\n"
                          "    vocab_size: 256\n"});
  CHECK(place(places, "model.vocab_size") == std::pair(4, 5));
  CHECK(place(places, "parallel.recompute") == std::pair(1, 1));
}

TEST_CASE("a text that is no YAML has no keys") {
  CHECK(place(KeyPlaces({"x", "a: [\n\t&"}), "a.b") == std::pair(1, 1));
  CHECK(place(KeyPlaces({"x", ""}), "a") == std::pair(1, 1));
}
