#include "text/strict_map.h"

#include <doctest/doctest.h>

#include "smp/plan/text/suggest.h"

namespace smp {
namespace {

// A plan-like file: what a codec reads with StrictMap.
struct Reader {
  text::Diagnostics diagnostics;
  text::YamlTree tree;
  explicit Reader(const std::string& text) {
    tree = text::parse_yaml(text, diagnostics.add_source("plan.yaml", text), diagnostics);
  }
  text::StrictMap root() { return text::StrictMap(tree.root, "the plan", diagnostics); }
};

}  // namespace

TEST_CASE("a strict map gives each value with its type") {
  Reader reader(
      "format: 1\nname: x y\nfamily: llama\ntags: [a, b]\n"
      "degrees: {pipeline: 2}\nstages:\n  - {first: 0}\n  - {first: 3}\n");
  text::StrictMap root = reader.root();
  CHECK(root.integer("format", 1, 1) == 1);
  CHECK(root.text("name") == "x y");
  CHECK(root.choice("family", {"gpt2", "llama"}) == 1);
  CHECK(root.texts("tags") == std::vector<std::string>{"a", "b"});
  text::StrictMap degrees = root.map("degrees");
  CHECK(degrees.integer("pipeline") == 2);
  degrees.finish();
  std::vector<text::StrictMap> stages = root.maps("stages");
  REQUIRE(stages.size() == 2);
  CHECK(stages[1].integer("first") == 3);
  stages[0].integer("first");
  stages[0].finish();
  root.finish();
  CHECK_FALSE(reader.diagnostics.any());
}

TEST_CASE("a strict map finds all mistakes in one pass") {
  Reader reader("format: 2\nlayers: [a, [b]]\ndegrees: 4\nshar: 0.5\nstages: [{frist: 1}, 3]\n");
  text::StrictMap root = reader.root();
  root.integer("format", 1, 1);
  root.text("share");
  root.texts("layers");
  text::StrictMap degrees = root.map("degrees");
  degrees.integer("pipeline");  // silent: the map itself is reported
  degrees.finish();
  text::StrictMap missing = root.map("tensor");
  missing.integer("degree");
  missing.finish();
  for (text::StrictMap& stage : root.maps("stages")) {
    stage.integer("first");
    stage.finish();
  }
  root.error("format", "this plan is from another time");
  root.finish();
  CHECK(reader.diagnostics.text() ==
        "plan.yaml:1:1: the plan needs 'share'\n"
        "  format: 2\n"
        "  ^\n"
        "plan.yaml:1:1: the plan needs 'tensor'\n"
        "  format: 2\n"
        "  ^\n"
        "plan.yaml:1:1: this plan is from another time\n"
        "  format: 2\n"
        "  ^\n"
        "plan.yaml:1:9: format must be at most 1, not 2\n"
        "  format: 2\n"
        "          ^\n"
        "plan.yaml:2:13: item 2 of layers must be text, not a list\n"
        "  layers: [a, [b]]\n"
        "              ^\n"
        "plan.yaml:3:10: degrees must be a map, not '4'\n"
        "  degrees: 4\n"
        "           ^\n"
        "plan.yaml:4:1: unknown key 'shar' in the plan, did you mean 'share'?\n"
        "  shar: 0.5\n"
        "  ^\n"
        "plan.yaml:5:10: item 1 of stages needs 'first'\n"
        "  stages: [{frist: 1}, 3]\n"
        "           ^\n"
        "plan.yaml:5:11: unknown key 'frist' in item 1 of stages, did you mean 'first'?\n"
        "  stages: [{frist: 1}, 3]\n"
        "            ^\n"
        "plan.yaml:5:22: item 2 of stages must be a map, not '3'\n"
        "  stages: [{frist: 1}, 3]\n"
        "                       ^");
}

TEST_CASE("the nearest word is suggested, or none") {
  CHECK(text::edit_distance("", "abc") == 3);
  CHECK(text::edit_distance("kitten", "sitting") == 3);
  CHECK(text::edit_distance("hidden_sise", "hidden_size") == 1);
  CHECK(text::edit_distance("lenght", "length") == 1);  // a swap is one edit
  const std::vector<std::string> words = {"hosts", "steps", "seed", "micro_batch"};
  CHECK(text::nearest("host", words) == "hosts");
  CHECK(text::nearest("Micro-Batch", words) == "micro_batch");
  CHECK_FALSE(text::nearest("xyz", words));
  CHECK_FALSE(text::nearest("", words));
  CHECK_FALSE(text::nearest(std::string(1000, 'a'), words));
  CHECK_FALSE(text::nearest("host", {}));
}

TEST_CASE("a strict map says where a list is missing") {
  Reader reader("layers: 4\n");
  reader.root().texts("layers");
  CHECK(reader.diagnostics.text() ==
        "plan.yaml:1:9: layers must be a list, not '4'\n"
        "  layers: 4\n"
        "          ^");
}

}  // namespace smp
