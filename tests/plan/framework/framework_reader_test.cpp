#include "framework/framework_reader.h"

#include <doctest/doctest.h>

#include "files_and_errors.h"
#include "framework/framework_fields.h"
#include "plan/jobfile/bad_jobs.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/framework/framework_format.h"

namespace smp::framework {
namespace {

// Of the shipped files as those of a user: what a name extends is read from the program.
Framework read(const std::string& name, const std::string& text) {
  std::vector<std::string> names;
  for (const NamedFramework& known : named_frameworks()) names.emplace_back(known.name);
  text::Diagnostics diagnostics;
  const int source = diagnostics.add_source(name, text);
  Framework framework = read_framework(
      text, source, {names, [](const std::string& base) { return shipped_framework(base); }},
      diagnostics);
  diagnostics.raise_if_any();
  return framework;
}

const std::string kMine =
    "extends: deepspeed\nabout:\n  name: mine\n  title: ours\n  versions: any\n  sources: []\n"
    "residuals: {memory_rows: 0, time_rows: 2}\n";

}  // namespace

TEST_CASE("each bad framework file says its exact errors") {
  const auto cases = testing::read_bad_jobs(SMP_SOURCE_DIR "/tests/golden/bad-frameworks");
  CHECK(cases.size() >= 12);
  for (const testing::BadJob& bad : cases) {
    CAPTURE(bad.name);
    const std::string actual = error_of([&] { read(bad.name, bad.text); }) + "\n";
    if (actual == bad.errors) continue;
    ADD_FAIL_CHECK_AT(bad.file.c_str(), bad.line, difference(bad, actual));
  }
}

TEST_CASE("each shipped framework reads, under its file's name, and says what it describes") {
  CHECK(named_frameworks().size() >= 7);
  std::string_view before;
  for (const NamedFramework& known : named_frameworks()) {
    CAPTURE(known.name);
    CHECK(before < known.name);
    before = known.name;
    const Framework& framework = *shipped_framework(known.name);
    CHECK(framework.name == known.name);
    CHECK_FALSE(framework.title.empty());
    CHECK_FALSE(framework.versions.empty());
    CHECK_FALSE(framework.sources.empty());
    CHECK_FALSE(framework.offers.shardings.empty());
    CHECK(framework.model.fixed_bytes > 0);
    CHECK(framework.memory.low < framework.memory.high);
    CHECK(framework.time.low < framework.time.high);
  }
  CHECK(shipped_framework("none-such") == nullptr);
  CHECK(shipped_framework("smp") == shipped_framework("smp"));
}

TEST_CASE("a file that extends another has all its keys, and those that it says itself") {
  const Framework base = *shipped_framework("deepspeed");
  Framework mine = read("mine.yaml", kMine +
                                         "messages: {neighbour_wait: 0.25}\n"
                                         "offers: {schedules: [simple, zb_v]}\n");
  CHECK(mine.name == "mine");
  CHECK(mine.time.rows == 2);
  CHECK(mine.time.high == base.time.high);
  CHECK(mine.model.neighbour_wait == 0.25);
  CHECK(mine.offers.schedules == std::vector{PipelineKind::kSimple, PipelineKind::kZbV});
  mine.name = base.name;
  mine.title = base.title;
  mine.versions = base.versions;
  mine.sources = base.sources;
  mine.memory.rows = base.memory.rows;
  mine.time.rows = base.time.rows;
  mine.model.neighbour_wait = base.model.neighbour_wait;
  mine.offers.schedules = base.offers.schedules;
  CHECK(framework_json(mine) == framework_json(base));
}

TEST_CASE("docs/frameworks.md ends with the keys of the table") {
  const std::string page = text_of(SMP_SOURCE_DIR "/docs/frameworks.md");
  const std::string generated = "## The keys\n" + habits_markdown();
  if (!page.ends_with(generated)) {
    std::ofstream("frameworks.md") << page.substr(0, page.find("## The keys\n")) << generated;
    MESSAGE("the page as it should be: frameworks.md in the folder that this test ran in");
  }
  CHECK(page.ends_with(generated));
}

}  // namespace smp::framework
