#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "program.h"
#include "smp/plan/text/json.h"

// What smp-plan reads and writes: files that stand for a part of the job, and files that are none.

using namespace smp;
using namespace smp::text;
namespace fs = std::filesystem;

namespace {

const std::string kJob = SMP_SOURCE_DIR "/configs/jobs/quickstart.yaml";
const std::string kModel = "model: {num_layers: 4, hidden_size: 128, num_heads: 4, vocab_size: 256";

ProgramEnd plan(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), SMP_PLAN);
  return run_program(arguments);
}

std::string usage(const std::string& text) {
  return fmt::format("smp-plan: {}\nsmp-plan --help shows examples\n", text);
}

std::string written(const ScratchFolder& folder, const char* name, const std::string& text) {
  std::ofstream(folder / name) << text;
  return folder / name;
}

}  // namespace

TEST_CASE("a model is all that a job needs: without a cluster there is no limit") {
  ScratchFolder folder;
  const ProgramEnd end = plan({written(folder, "m.yaml", kModel + "}\n")});
  CHECK(end.code == 0);
  CHECK(end.out.starts_with("m: 957,184 parameters, 1 rank (1 host x 1, cpu)\n"));
  CHECK(end.out.find("no limit is given") != std::string::npos);
  CHECK(end.out.find("step time unknown") != std::string::npos);
}

TEST_CASE("--set model.hf_config takes the whole model from a config.json") {
  ScratchFolder folder;
  const std::string config = SMP_SOURCE_DIR "/tests/golden/interchange/huggingface/gpt2.json";
  // What the file says of the model, such as its experts, is of another model.
  const std::string job =
      written(folder, "m.yaml", kModel + ", num_experts: 8, experts_per_token: 2}\n");
  const ProgramEnd alone =
      plan({written(folder, "n.yaml", fmt::format("name: m\nmodel: {{hf_config: {}}}\n", config)),
            "--cluster", "p4d.24xlarge", "-o", folder / "a.yaml"});
  CHECK(alone.code == 0);
  const ProgramEnd set = plan({job, "--set", "model.hf_config=" + config, "--cluster",
                               "p4d.24xlarge", "-o", folder / "b.yaml"});
  CHECK(set.code == 0);
  const std::string head = "m: 124,439,808 parameters, 8 ranks (1 host x 8, A100-SXM4-40GB)\n";
  CHECK(alone.out.starts_with(head));
  CHECK(set.out.starts_with(head));
  // Keys set beside it come last, as ever.
  CHECK(plan({job, "--set", "model.hf_config=" + config, "--set", "model.num_layers=6", "--cluster",
              "p4d.24xlarge"})
            .out.starts_with("m: 81,912,576 parameters"));
  const ProgramEnd missing = plan({job, "--set", "model.hf_config=/no/such.json"});
  CHECK(missing.code == 3);
  CHECK(missing.err == "/no/such.json: no such file\n");
}

TEST_CASE("--cluster replaces the job's cluster, nothing of which is left over") {
  ScratchFolder folder;
  const std::string own = written(folder, "own.yaml", "cluster: p5.48xlarge\n" + kModel + "}\n");
  const std::string none = written(folder, "none.yaml", kModel + "}\n");
  const auto cluster_of = [&](const std::string& job) {
    CHECK(plan({job, "--cluster", "rtx4090-8x", "--set", "name=x", "-o", folder / "plan.yaml"})
              .code == 0);
    return read_file(folder / "plan.yaml");
  };
  CHECK(cluster_of(own) == cluster_of(none));  // no price, no fp8 of the p5
  const ProgramEnd end = plan({none, "--cluster", own.substr(0, own.size() - 8) + "none.yaml"});
  CHECK(end.code == 3);
  CHECK(end.err.starts_with(none + ":1:1: this file has no section 'cluster'\n"));
}

TEST_CASE("what is no regular file is written to, not replaced") {
  ScratchFolder folder;
  fs::create_symlink("/dev/null", folder / "null");
  CHECK(plan({kJob, "-o", folder / "null"}).code == 0);
  CHECK(fs::is_symlink(folder / "null"));
  CHECK(fs::is_character_file("/dev/null"));
  fs::create_symlink("/dev/full", folder / "full");
  const ProgramEnd full = plan({kJob, "--html", folder / "full"});
  CHECK(full.code == 3);
  CHECK(full.err == (folder / "full") + ": cannot be written: No space left on device\n");
  CHECK(fs::is_character_file("/dev/full"));
  written(folder, "real.yaml", "smp_plan: old");
  fs::create_symlink("real.yaml", folder / "link.yaml");
  CHECK(plan({kJob, "-o", folder / "link.yaml"}).code == 0);
  CHECK(fs::is_symlink(folder / "link.yaml"));
  CHECK(read_file(folder / "real.yaml").starts_with("# A plan"));
  const ProgramEnd as_folder = plan({kJob, "-o", folder / ""});
  CHECK(as_folder.code == 3);
  CHECK(as_folder.err.find(": cannot be written: Is a directory\n") != std::string::npos);
}

TEST_CASE("a plan and a page are never written over the text that the job trains on") {
  ScratchFolder folder;
  const std::string data = written(folder, "data.txt", "text to train on");
  for (const char* option : {"-o", "--html"}) {
    const ProgramEnd end = plan({kJob, "--set", "training.data.path=" + data, option, data});
    CHECK(end.code == 3);
    CHECK(end.err == data + ": the output would overwrite an input; write to another file\n");
    CHECK(read_file(data) == "text to train on");
  }
}

TEST_CASE("only a file of the kind that a command writes is written over") {
  const ScratchFolder folder;
  const std::string job = written(folder, "job.yaml", read_file(kJob));
  const std::string other = folder / "plan.yaml", page = folder / "page.html";
  REQUIRE(plan({job, "-o", other, "--html", page}).code == 0);
  CHECK(plan({job, "-o", other, "--html", page}).code == 0);
  CHECK(plan({job, "-o", written(folder, "empty", "")}).code == 0);
  const std::string script = written(folder, "train.py", "import torch\n");
  const std::string json = written(folder, "metrics.json", "{}");
  const std::string instead = " would overwrite: write to another file, or remove this one first\n";
  const struct {
    std::vector<std::string> arguments;
    std::string output, why;
  } cases[] = {
      {{job, "--html"}, other, "the file holds a plan, which a page (HTML)"},
      {{job, "--html"}, script, "the file holds another text, which a page (HTML)"},
      {{job, "-o"}, page, "the file holds a page (HTML), which a plan"},
      {{job, "-o"}, script, "the file holds another text, which a plan"},
      {{job, "-o"}, json, "the file holds JSON, which a plan"},
      {{job, "--solve", "batch", "-o"}, script, "the file holds another text, which a plan"},
      {{"export", job, "--to", "torchrun", "-o"},
       other,
       "the file holds a plan, which another text"},
      {{"export", job, "--to", "deepspeed", "-o"}, other, "the file holds a plan, which JSON"},
      {{"import", SMP_SOURCE_DIR "/tests/golden/interchange/huggingface/gpt2.json", "-o"},
       other,
       "the file holds a plan, which another text"},
  };
  for (const auto& refused : cases) {
    CAPTURE(refused.output);
    const std::string before = read_file(refused.output);
    const ProgramEnd end = plan(joined(refused.arguments, {refused.output}));
    CHECK(end.code == 3);
    CHECK(end.err.ends_with(refused.output + ": " + refused.why + instead));
    CHECK(read_file(refused.output) == before);
  }
}

TEST_CASE("what is read is never written over, by whatever name") {
  ScratchFolder folder;
  const std::string job = folder / "job.yaml", config = folder / "config.json";
  const std::string text = read_file(kJob);
  std::ofstream(job) << text;
  fs::copy_file(SMP_SOURCE_DIR "/tests/golden/interchange/huggingface/gpt2.json", config);
  const std::string config_text = read_file(config);
  fs::create_symlink("job.yaml", folder / "link.yaml");
  fs::create_hard_link(job, folder / "hard.yaml");
  const std::string named = written(folder, "named.yaml", "model: {hf_config: config.json}\n");
  const std::string cluster =
      written(folder, "cluster.yaml", "cluster:\n  hosts: 1\n  processes_per_host: 2\n");
  const std::string why = ": the output would overwrite an input; write to another file\n";
  const struct {
    std::vector<std::string> arguments;
    std::string output;
  } cases[] = {
      {{job, "-o", job}, job},
      {{job, "-o", folder / "./job.yaml"}, folder / "./job.yaml"},
      {{job, "-o", folder / "link.yaml"}, folder / "link.yaml"},
      {{job, "-o", folder / "hard.yaml"}, folder / "hard.yaml"},
      {{folder / "link.yaml", "-o", job}, job},
      {{job, "--html", job}, job},
      {{job, "-o", folder / "plan.yaml", "--html", job}, job},
      {{job, "--solve", "batch", "-o", job}, job},
      {{job, "--cluster", cluster, "-o", cluster}, cluster},
      {{named, "-o", config}, config},
      {{"export", job, "--to", "torchrun", "-o", job}, job},
      {{"import", config, "-o", config}, config},
  };
  for (const auto& refused : cases) {
    CAPTURE(refused.output);
    const ProgramEnd end = plan(refused.arguments);
    CHECK(end.code == 3);
    CHECK(end.err.ends_with(refused.output + why));
  }
  CHECK(read_file(job) == text);
  CHECK(read_file(config) == config_text);
  CHECK_FALSE(fs::exists(folder / "plan.yaml"));
  CHECK(plan({job, "-o", "x", "--html", "x"}).err == usage("-o and --html both write x"));
  // An edition of the file itself.
  CHECK(plan({"import", "nccl-tests", SMP_SOURCE_DIR "/tests/fuzz/corpus/nccl/all_reduce.txt",
              "--cluster", cluster, "-o", cluster})
            .code == 0);
  CHECK(read_file(cluster).find("bytes: ") != std::string::npos);
}

TEST_CASE("control characters of whoever wrote a file do not reach the terminal") {
  ScratchFolder folder;
  const std::string job =
      written(folder, "m.yaml",
              "model: {num_layers: 4, hidden_size: 128, num_heads: 4, vocab_size: 256}\n"
              "\"\\x1b]0;gone\\a\\u009b2J\\u202e\": 1\n");
  const ProgramEnd end = plan({job});
  CHECK(end.code == 3);
  for (const char* bad : {"\x1b", "\a", "\xc2\x9b", "\xe2\x80\xae"})
    CHECK(end.err.find(bad) == std::string::npos);
  CHECK(end.err.find("?]0;gone?\\u009b2J\\u202e") != std::string::npos);
  CHECK(plan({folder / "\x1b[2J.yaml"}).err == (folder / "\\x1b[2J.yaml") + ": no such file\n");
}

TEST_CASE("options that would not be heard are refused") {
  const struct {
    std::vector<std::string> arguments;
    std::string text;
  } cases[] = {
      {{kJob, "--solve", "batch", "--html", "x.html"},
       "--html cannot be used with --solve: run smp-plan once for each"},
      {{kJob, "--solve", "batch", "--what-if", "cluster.hosts=1,2"},
       "--what-if cannot be used with --solve: run smp-plan once for each"},
      {{kJob, "--solve", "batch", "--cluster", "p4d.24xlarge", "--cluster", "p5.48xlarge"},
       "several --cluster cannot be used with --solve: run smp-plan once for each"},
      {{kJob, "--what-if", "cluster.hosts=1,2", "-o", "x.yaml"},
       "-o cannot be used with --what-if: run smp-plan once for each"},
      {{kJob, "--cluster", "p4d.24xlarge", "--cluster", "p5.48xlarge", "--explain"},
       "--explain cannot be used with a ranking of clusters: run smp-plan once for each"},
      {{kJob, "--solve", "batch", "-o", "-"},
       "--solve prints its answer: write the plan to a file with -o FILE"},
      {{kJob, "--solve", "batch", "--step-time", "nan"},
       "--step-time: 'nan' is not a number above 0"},
      {{kJob, "-o", ""}, "--output: the value is empty"},
      {{"compare", kJob, kJob, "--max-time-error", ""}, "--max-time-error: the value is empty"},
  };
  for (const auto& refused : cases) {
    CAPTURE(refused.text);
    const ProgramEnd end = plan(refused.arguments);
    CHECK(end.code == 2);
    CHECK(end.err == usage(refused.text));
    CHECK(end.out.empty());
  }
}

TEST_CASE("a job from standard input, and init from a file that names no model") {
  const std::string command = std::string(SMP_PLAN) + " - <" + kJob;
  CHECK(run_program({"/bin/sh", "-c", command}).out.starts_with("stdin: 3,290,624 parameters"));
  ScratchFolder folder;
  const std::string empty = written(folder, "empty.yaml", "cluster: cpu-4\n");
  const ProgramEnd end = plan({"init", "--model", empty, "-o", folder / "job.yaml"});
  CHECK(end.code == 3);
  CHECK(end.err == empty + ": this file has no section 'model'\n");
  CHECK(!fs::exists(folder / "job.yaml"));
}

TEST_CASE("readers of runs say what is wrong with a file that is none") {
  ScratchFolder folder;
  const std::string plan_file = folder / "plan.yaml";
  CHECK(plan({kJob, "-o", plan_file}).code == 0);
  const std::string as_folder = folder / "";
  CHECK(plan({"compare", plan_file, as_folder}).err ==
        as_folder + ": this is a folder; name the report.json of a run in it\n");
  CHECK(plan({"compare", as_folder, plan_file}).err ==
        as_folder + ": this is a folder; name the plan file in it\n");
  CHECK(plan({"score", as_folder}).err ==
        as_folder + ": this is a folder; name the table of runs in it\n");
  CHECK(plan({"compare", plan_file, "/dev/null"}).err ==
        "/dev/null: not valid JSON: the file is empty\n");
  CHECK(plan({"compare", "/dev/zero", plan_file}).err ==
        "/dev/zero: larger than 256 MiB, the limit of a plan file\n");
}

TEST_CASE("--json --from has the scaled run in the one object") {
  ScratchFolder folder;
  CHECK(plan({kJob, "-o", folder / "plan.yaml"}).code == 0);
  const std::string run =
      written(folder, "run.jsonl",
              R"({"plan": "plan.yaml", "measured_step_s": 2, "measured_peak_bytes": 60000000})");
  const ProgramEnd end = plan({kJob, "--json", "--from", run});
  CHECK(end.code == 0);
  const Json json = Json::parse(end.out);
  CHECK(json.at("feasible") == true);
  CHECK(json.at("scaled").at("step").at("seconds").get<double>() == doctest::Approx(2));
  const ProgramEnd text = plan({kJob, "--from", run});
  CHECK(text.out.find("scaled from the measured run") != std::string::npos);
}

TEST_CASE("--what-if takes lists: clusters with prices are ranked by cost as well") {
  const ProgramEnd lists = plan({kJob, "--set", "parallel.pipeline_parallel_degree=2", "--what-if",
                                 "parallel.partition=[3,1],[2,2]"});
  CHECK(lists.code == 0);
  CHECK(lists.out.find("\n[3,1]") != std::string::npos);
  CHECK(lists.out.find("\n[2,2]") != std::string::npos);
  const ProgramEnd ranked =
      plan({SMP_SOURCE_DIR "/configs/models/llama2-7b.yaml", "--cluster", "p4de.24xlarge",
            "--cluster", "p5.48xlarge", "--cluster", "dgx-h100"});
  CHECK(ranked.code == 0);
  const size_t order = ranked.out.find("by cost a token: 1 x p");
  CHECK(order != std::string::npos);
  CHECK(ranked.out.find("dgx-h100", order) == std::string::npos);  // it names no price
}

TEST_CASE("--what-if has a row for every value, also for one that no job can have") {
  const ProgramEnd end =
      plan({kJob, "--plain", "--what-if", "parallel.tensor_parallel_degree=1,3,two"});
  CHECK(end.code == 0);
  CHECK(end.out.find("\n1 ") != std::string::npos);
  CHECK(end.out.find("  no plan: parallel.tensor_parallel_degree: 3: processes_per_host (4) is not "
                     "divisible by 3") != std::string::npos);
  CHECK(
      end.out.find("  no plan: parallel.tensor_parallel_degree must be a whole number or auto, not "
                   "'two'") != std::string::npos);
  // A key that there is not is no question.
  const ProgramEnd unknown = plan({kJob, "--what-if", "training.steps_=1,2"});
  CHECK(unknown.code == 3);
  CHECK(unknown.err.starts_with("--what-if: unknown key 'steps_' in training"));
  CHECK(unknown.err.find("--set") == std::string::npos);
  CHECK(plan({kJob, "--set", "training.bogus=1", "--what-if", "training.steps=1,2"})
            .err.starts_with("--set: unknown key 'bogus' in training"));
}

TEST_CASE("a plan where a job is expected, and the name of a model, are known for what they are") {
  const ScratchFolder folder;
  const std::string file = folder / "plan.yaml";
  REQUIRE(plan({kJob, "-o", file}).code == 0);
  const ProgramEnd again = plan({file});
  CHECK(again.code == 3);
  CHECK(again.err == file + ": expected a job file, but this is a plan: smp-plan check " + file +
                         " proves it, smp-launch " + file + " runs it\n");
  CHECK(plan({kJob, "--cluster", file}).err ==
        file +
            ": this is a plan; name a known cluster, or the file with a cluster section that it "
            "was planned from\n");
  const ProgramEnd scored = plan({"score", file});
  CHECK(scored.code == 3);
  CHECK(scored.err == file + ": this is a plan, not a table of runs: smp-plan check " + file +
                          " proves it, smp-plan compare compares it with its run\n");
  const ProgramEnd model = plan({"llama3"});
  CHECK(model.code == 3);
  CHECK(model.err ==
        "llama3: no such file; known models are llama3-405b, llama3.1-70b, llama3.1-8b: smp-plan "
        "llama3-405b plans one\n");
  const ProgramEnd named = plan({"meta-llama/Meta-Llama-3-8B", "--cluster", "dgx-h100", "--plain"});
  CHECK(named.code == 0);
  CHECK(named.out.starts_with("llama3-8b: 8,030,261,248 parameters, 8 ranks"));
  CHECK(plan({"google/gemma-3-4b-it", "--cluster", "dgx-h100", "--plain"})
            .out.find("\nwarning  only the text part is priced in time: of the vision tower, its "
                      "419,816,304 parameters on the first stage are all that counts\n") !=
        std::string::npos);
  CHECK(plan({"llama3", "help"}).out == plan({"--help"}).out);
  CHECK(plan({"help", "score"}).out == plan({"score", "--help"}).out);
}

TEST_CASE("a list of layers is cut by parameters over more stages than two chunks each allow") {
  const ProgramEnd end = plan(
      {SMP_SOURCE_DIR "/configs/jobs/digits.yaml", "--set", "cluster.processes_per_host=4", "--set",
       "parallel.partition_method=parameters", "--set", "parallel.pipeline_parallel_degree=4"});
  CHECK(end.code == 0);
  CHECK(end.err == "");
  CHECK(end.out.find("numbers of parameters as equal as whole layers allow") != std::string::npos);
}
