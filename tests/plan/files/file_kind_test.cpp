#include "smp/plan/files/file_kind.h"

#include <doctest/doctest.h>

#include <string>

#include "scratch_folder.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"

using namespace smp;
using namespace smp::files;

TEST_CASE("a file is known by its content") {
  CHECK(kind_of_text("# A plan\nsmp_plan: 2\n") == FileKind::kPlan);
  CHECK(kind_of_text("smp_plan: 2\n") == FileKind::kPlan);
  CHECK(kind_of_text("\n<!DOCTYPE HTML>\n") == FileKind::kPage);
  CHECK(kind_of_text("  {\"smp_plan\": 2}") == FileKind::kJson);
  CHECK(kind_of_text("# HELP smp_loss\n") == FileKind::kMetrics);
  CHECK(kind_of_text("model: {}\n") == FileKind::kOther);
  CHECK(kind_of_text("") == FileKind::kOther);
}

TEST_CASE("only an empty file and one of its kind are replaced, but for an edition of the file") {
  const ScratchFolder folder;
  const std::string path = folder / "file", plan = "smp_plan: 2\n", text = "model: {}\n";
  write_text_file(path, text);
  CHECK_THROWS_WITH_AS(write_text_file(path, plan),
                       (path + ": the file holds another text, which a plan would overwrite: write "
                               "to another file, or remove this one first")
                           .c_str(),
                       ConfigError);
  write_text_file(path, "", path);
  write_text_file(path, plan);
  write_text_file(path, plan + "job:\n");
  CHECK_THROWS_AS(write_text_file(path, text), ConfigError);
  CHECK_THROWS_AS(refuse_output(path, FileKind::kPage), ConfigError);
  refuse_output(path, FileKind::kPlan);
  refuse_output(folder / "none", FileKind::kPage);
  write_text_file(path, text, path);
}
