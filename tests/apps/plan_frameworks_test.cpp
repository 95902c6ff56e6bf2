#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "files_and_errors.h"
#include "program.h"
#include "scratch_folder.h"
#include "smp/plan/text/json.h"

// Frameworks as a user of smp-plan lists, prints, edits and names them.

using namespace smp;

namespace {

ProgramEnd plan_as(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), SMP_PLAN);
  return run_program(arguments);
}

const std::string kLlama = SMP_SOURCE_DIR "/configs/models/llama2-7b.yaml";

text::Json report_of(const std::string& framework) {
  const ProgramEnd end = plan_as(
      {kLlama, "--cluster", "p4d.24xlarge", "--set", "parallel.framework=" + framework, "--json"});
  CAPTURE(end.err);
  REQUIRE(end.code == 0);
  return text::Json::parse(end.out);
}

}  // namespace

TEST_CASE("smp-plan frameworks lists the shipped ones, and prints the file of each") {
  const ProgramEnd list = plan_as({"frameworks"});
  CHECK(list.code == 0);
  const ProgramEnd as_json = plan_as({"frameworks", "--json"});
  const auto json = text::Json::parse(as_json.out);
  CHECK(json.size() >= 12);
  for (const auto& framework : json) {
    const std::string name = framework["name"];
    CAPTURE(name);
    CHECK(list.out.find("\n" + name + " ") != std::string::npos);
    const std::string file = text_of(SMP_SOURCE_DIR "/configs/frameworks/" + name + ".yaml");
    CHECK(plan_as({"frameworks", name}).out == file);
    const auto keys = text::Json::parse(plan_as({"frameworks", name, "--json"}).out);
    CHECK(keys["residuals"]["memory_rows"] == framework["memory"]["rows"]);
    CHECK(keys["messages"].size() == 15);
  }
  const ProgramEnd unknown = plan_as({"frameworks", "megatron"});
  CHECK(unknown.code == 3);
  CHECK(
      unknown.err.starts_with("unknown framework 'megatron'; Megatron-LM is called "
                              "'megatron-core' here. Known frameworks: automodel, "));
}

TEST_CASE("a printed framework that a user edits prices a job, and its mistakes have a place") {
  const ScratchFolder folder;
  const std::string mine = folder / "mine.yaml";
  std::string text = plan_as({"frameworks", "fsdp2"}).out;
  std::ofstream(mine) << text;
  const auto shipped = report_of("fsdp2")["ranges"], same = report_of(mine)["ranges"];
  CHECK(same == shipped);
  const size_t at = text.find("fragmentation: 0.06");
  REQUIRE(at != std::string::npos);
  std::ofstream(mine) << std::string(text).replace(at, 19, "fragmentation: 0.09");
  CHECK(report_of(mine)["ranges"] != shipped);
  std::ofstream(mine) << std::string(text).replace(at, 19, "fragmentaton: 0.06");
  const ProgramEnd end = plan_as({kLlama, "--set", "parallel.framework=" + mine});
  CHECK(end.code == 3);
  CHECK(end.err.find("unknown key 'fragmentaton' in process, did you mean 'fragmentation'?") !=
        std::string::npos);
}

TEST_CASE("a plan of a user's framework is proved again while the file is there") {
  const ScratchFolder folder;
  const std::string mine = folder / "mine.yaml", written = folder / "plan.yaml";
  std::ofstream(mine) << plan_as({"frameworks", "fsdp2"}).out;
  CHECK(plan_as({kLlama, "--cluster", "p4d.24xlarge", "--set", "parallel.framework=" + mine, "-o",
                 written})
            .code == 0);
  CHECK(plan_as({"check", written}).code == 0);
  std::filesystem::remove(mine);
  const ProgramEnd end = plan_as({"check", written});
  CHECK(end.code == 3);
  CHECK(end.out.find("is a framework file, of which a plan keeps only the path") !=
        std::string::npos);
  CHECK(plan_as({"groups", written, "--rank", "0"}).code == 0);
}

TEST_CASE("the former names of the key and of the option are refused with the new ones") {
  CHECK(plan_as({"score", "runs.csv", "--profile", "fsdp2"}).code == 2);
  const ProgramEnd end = plan_as({kLlama, "--set", "parallel.profile=fsdp2"});
  CHECK(end.err.find("--set: unknown key 'profile' in parallel, did you mean 'framework'?") !=
        std::string::npos);
}
