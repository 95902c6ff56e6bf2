#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "program.h"
#include "trace_check.h"

// smp-plan as a user runs it: every broken command line with its whole answer, and what the
// commands print and write when all is well.

using namespace smp;

namespace {

const std::string kJob = SMP_SOURCE_DIR "/configs/jobs/quickstart.yaml";

std::string usage(const std::string& text) {
  return "smp-plan: " + text + "\nsmp-plan --help shows examples\n";
}

ProgramEnd plan(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), SMP_PLAN);
  return run_program(arguments);
}

}  // namespace

TEST_CASE("smp-plan answers a broken command line with what to type instead") {
  const struct {
    std::vector<std::string> arguments;
    int code;
    std::string text;
  } cases[] = {
      {{}, 2, usage("a job file is missing, as in smp-plan model.yaml")},
      {{"--json"}, 2, usage("a job file is missing, as in smp-plan model.yaml")},
      {{"--hots", "3", kJob}, 2, usage("unknown option '--hots', did you mean '--hosts'?")},
      {{"--explian", kJob}, 2, usage("unknown option '--explian', did you mean '--explain'?")},
      {{"-x", kJob}, 2, usage("unknown option '-x'")},
      {{"chek", "plan.yaml"}, 2, usage("unknown command 'chek', did you mean 'check'?")},
      {{kJob, "extra"}, 2, usage("unexpected argument 'extra'")},
      {{kJob, "--hosts"}, 2, usage("--hosts needs a value")},
      {{kJob, "--hosts", "0"}, 2, usage("--hosts: Value 0 not in range 1 to 1048576")},
      {{kJob, "--hosts", "two"}, 2, usage("--hosts: Value two not in range 1 to 1048576")},
      {{kJob, "--top", "0"}, 2, usage("--top: Value 0 not in range 1 to 32")},
      {{kJob, "--set"}, 2, usage("--set needs a value")},
      {{kJob, "--strategy", "slow"},
       2,
       usage("--strategy 'slow': expected fastest or best-practice")},
      {{kJob, "--step-time", "3"},
       2,
       usage("--step-time needs --solve, as in --solve hosts --step-time 10")},
      {{kJob, "--solve", "size"},
       2,
       usage("--solve 'size': expected model, layers, batch, sequence or hosts")},
      {{kJob, "--what-if", "training.micro_batch"},
       2,
       usage("--what-if 'training.micro_batch': write a key and its values, as in --what-if "
             "training.micro_batch=1,2,4")},
      {{kJob, "-o"}, 2, usage("--output needs a value")},
      {{"check"}, 2, usage("check needs a plan or job file, as in smp-plan check plan.yaml")},
      {{"groups"}, 2, usage("groups needs a plan or job file, as in smp-plan groups plan.yaml")},
      {{"score"}, 2, usage("score needs a table of runs, as in smp-plan score runs.csv")},
      {{"calibrate"},
       2,
       usage("calibrate needs measured runs and --cluster, as in smp-plan calibrate runs.jsonl "
             "--cluster p4d.24xlarge")},
      {{"compare", kJob},
       2,
       usage("compare needs a plan and the report of its run, as in smp-plan compare plan.yaml "
             "report.json")},
      {{"groups", kJob},
       2,
       usage("groups needs --rank R, as in smp-plan groups plan.yaml --rank 3")},
      {{"groups", kJob, "--rank", "1", "--rnk", "1"},
       2,
       usage("unknown option '--rnk', did you mean '--rank'?")},
      {{"groups", kJob, "--rank", "one"}, 2, usage("Could not convert: --rank = one")},
      {{"schema", "x"}, 2, usage("unexpected argument 'x'")},
      {{"groups", kJob, "--rank", "9"}, 3, "rank 9: the plan has ranks 0 to 3\n"},
      {{"/no/such.yaml"}, 3, "/no/such.yaml: no such file\n"},
      {{"/tmp"}, 3, "/tmp: this is a folder; name a job file in it\n"},
      {{kJob, "--cluster", "/no/such.yaml"}, 3, "/no/such.yaml: no such file\n"},
      {{kJob, "-o", "/no/such/plan.yaml"},
       3,
       "/no/such/plan.yaml: cannot be written: No such file or directory\n"},
      {{kJob, "--set", "parallel.tensor_parallel_degre=2"},
       3,
       "--set: unknown key 'tensor_parallel_degre' in parallel, did you mean "
       "'tensor_parallel_degree'?\n"
       "  parallel.tensor_parallel_degre=2\n"
       "           ^\n"},
      {{kJob, "--set", "parallel.tensor_parallel_degree=3"},
       3,
       "parallel.tensor_parallel_degree: 3: processes_per_host (4) is not divisible by 3; legal "
       "values: 1, 2, 4; nearest: 2, 4\n"},
      {{kJob, "--set", "parallel.pipeline_parallel_degree=3"},
       3,
       "parallel.pipeline_parallel_degree: 3: 3 stages x tensor 1 = 3 neither divides "
       "processes_per_host (4) nor is a multiple of it; legal values: 1, 2, 4; nearest: 2, 4\n"},
      {{kJob, "--set", "parallel.pipeline_parallel_degree=8"},
       3,
       "parallel.pipeline_parallel_degree: 8: pipeline_parallel_degree (8) exceeds num_layers (4): "
       "every stage needs at least one layer; legal values: 1, 2, 4; nearest: 4\n"},
      {{kJob, "--set", "parallel.sharded_data_parallel_degree=3"},
       3,
       "parallel.sharded_data_parallel_degree: 3: sharded_data_parallel_degree (3) does not divide "
       "the data-parallel degree (4); legal values: 1, 2, 4; nearest: 2, 4\n"},
      {{kJob, "--set", "training.fused_loss=true"},
       3,
       "the engine cannot run this job on device cpu:\n  training.fused_loss: true (the engine has "
       "its own loss kernels)\n"},
      {{kJob, "--set", "training.global_batch=100000"},
       3,
       "training.global_batch: 100,000 x 256 tokens = 25,600,000 > max_tokens_per_batch 4,194,304: "
       "write at most 16,384 samples\n"},
  };
  for (const auto& broken : cases) {
    const ProgramEnd end = plan(broken.arguments);
    CAPTURE(broken.text);
    CHECK(end.code == broken.code);
    CHECK(end.err == broken.text);
    CHECK(end.out.empty());
  }
}

TEST_CASE("smp-plan --help starts with what it does and examples: each command has its own") {
  const ProgramEnd help = plan({"--help"});
  CHECK(help.code == 0);
  CHECK(help.out.starts_with(
      "Chooses how to split the training of a model over a cluster, and prints the "
      "reasons.\n\nExamples:\n  smp-plan configs/jobs/quickstart.yaml -o plan.yaml\n"));
  CHECK(help.out.find("\n  check       Proves a plan") != std::string::npos);
  CHECK(plan({"help"}).out == help.out);
  for (const char* command :
       {"calibrate", "check", "compare", "completion", "export", "frameworks", "groups", "import",
        "init", "models", "schedule", "schema", "score"}) {
    CAPTURE(std::string(command));
    const ProgramEnd end = plan({command, "--help"});
    CHECK(end.code == 0);
    // The whole of it is in the command's own help alone.
    CHECK(help.out.find(end.out.substr(0, end.out.find("\n\nOptions"))) == std::string::npos);
    const size_t examples = end.out.find("Examples:\n");
    REQUIRE(examples != std::string::npos);
    CHECK(end.out.find(std::string("smp-plan ") + command, examples) != std::string::npos);
  }
  CHECK(plan({"--version"}).out == "smp-plan 0.1.0\n");
}

TEST_CASE("a plan is written whole, proved, and the same byte for byte") {
  ScratchFolder folder;
  const ProgramEnd first = plan({kJob, "-o", folder / "a.yaml"});
  CHECK(first.code == 0);
  CHECK(first.out.starts_with("quickstart: 3,290,624 parameters, 4 ranks (1 host x 4, cpu)\n"));
  CHECK(first.out.ends_with("\nwritten to " + (folder / "a.yaml") + "\n"));
  CHECK(plan({kJob, "-o", folder / "b.yaml"}).code == 0);
  CHECK(read_file(folder / "a.yaml") == read_file(folder / "b.yaml"));
  CHECK(plan({kJob, "-o", "-"}).out == read_file(folder / "a.yaml"));

  const ProgramEnd check = plan({"check", folder / "a.yaml"});
  CHECK(check.code == 0);
  CHECK(check.out.starts_with((folder / "a.yaml") + ": fits: 47.0 of 62.0 MiB a rank"));
  CHECK(check.err.empty());
}

TEST_CASE("a plan larger than any job file is read by every command") {
  ScratchFolder folder;
  const std::string root = SMP_SOURCE_DIR "/configs/";
  const std::string path = folder / "large.yaml";
  CHECK(plan({root + "models/gpt3-175b.yaml", "--cluster", root + "clusters/p4d.24xlarge.yaml",
              "--hosts", "96", "--set", "parallel.pipeline_parallel_degree=96", "--set",
              "parallel.tensor_parallel_degree=8", "-o", path})
            .code == 0);
  CHECK(read_file(path).size() > 1 << 20);
  CHECK(plan({"check", path}).code == 0);
  CHECK(plan({"groups", path, "--rank", "0"}).code == 0);
  CHECK(plan({"schedule", path}).code == 0);
}

TEST_CASE("output that cannot be written is no success") {
  const std::string command = std::string(SMP_PLAN) + " ";
  for (const std::string& arguments :
       {kJob + " --json", kJob, std::string("schema"), std::string("--help"),
        std::string("--version"), kJob + " -o -"}) {
    CAPTURE(arguments);
    for (const char* nowhere : {" >/dev/full", " >&-"}) {
      const ProgramEnd end = run_program({"/bin/sh", "-c", command + arguments + nowhere});
      CHECK(end.code == 1);
      CHECK(end.err.ends_with("smp-plan: standard output could not be written in full\n"));
    }
  }
}

TEST_CASE("a file does not become the standard output that was closed") {
  const ScratchFolder folder;
  const std::string file = folder / "plan.yaml";
  const ProgramEnd end = run_program(
      {"/bin/sh", "-c", std::string(SMP_PLAN) + " " + kJob + " -o " + file + " <&- >&-"});
  CHECK(end.code == 1);
  CHECK(run_program({SMP_PLAN, "check", file}).code == 0);
}

TEST_CASE("a stack that is too small is an error, not a segmentation fault") {
  const ProgramEnd end = run_program(
      {"/bin/sh", "-c", "ulimit -s 64; " + std::string(SMP_PLAN) + " --version; exit $?"});
  CHECK(end.code == 1);
  CHECK(end.err ==
        "smp-plan: the limit of the stack is 64 KiB (ulimit -s), but at least 512 KiB are needed: "
        "raise it, as in ulimit -s 8192\n");
  CHECK(run_program({"/bin/sh", "-c", "ulimit -s 512; exec " + std::string(SMP_PLAN) + " " + kJob})
            .code == 0);
}

TEST_CASE("an edited plan is no plan") {
  ScratchFolder folder;
  CHECK(plan({kJob, "-o", folder / "plan.yaml"}).code == 0);
  std::string text = read_file(folder / "plan.yaml");
  const size_t at = text.find("micro_batch: 1");
  REQUIRE(at != std::string::npos);
  text.replace(at, 14, "micro_batch: 2");
  std::ofstream(folder / "plan.yaml") << text;
  const ProgramEnd end = plan({"check", folder / "plan.yaml"});
  CHECK(end.code == 3);
  CHECK(end.out.starts_with((folder / "plan.yaml") + ": invalid: "));
}

TEST_CASE("nothing fits: exit code 4, why, and what would make it fit") {
  const ProgramEnd end = plan({kJob, "--set", "cluster.memory_per_process=1MiB"});
  CHECK(end.code == 4);
  CHECK(end.out.empty());
  CHECK(end.err.starts_with("no layout fits: the closest layout ("));
  CHECK(end.err.find("\nwhat would make it fit, smallest change first\n"
                     "  cluster.memory_per_process: ") != std::string::npos);
  const ProgramEnd json = plan({kJob, "--set", "cluster.memory_per_process=1MiB", "--json"});
  CHECK(json.code == 4);

  ScratchFolder folder;
  std::string tight = read_file(kJob);
  tight.replace(tight.find("memory_per_process: 62MiB"), 25, "memory_per_process: 1MiB ");
  std::ofstream(folder / "tight.yaml") << tight;
  const ProgramEnd check = plan({"check", folder / "tight.yaml"});
  CHECK(check.code == 4);
  CHECK(check.out.starts_with((folder / "tight.yaml") + ": no: the closest layout ("));
  CHECK(json.out.starts_with("{\n  \"feasible\": false,\n"));
}

TEST_CASE("the command lines of the README plan") {
  const std::string root = SMP_SOURCE_DIR "/";
  CHECK(plan({kJob, "--set", "parallel.tensor_parallel_degree=2", "--set",
              "parallel.pipeline_parallel_degree=2"})
            .out.find("pipeline 2 x tensor 2 x data 1") != std::string::npos);
  const ProgramEnd large = plan({root + "configs/models/llama2-70b.yaml", "--cluster",
                                 root + "configs/clusters/p4d.24xlarge.yaml", "--hosts", "32"});
  CHECK(large.code == 0);
  CHECK(
      large.out.starts_with("llama2-70b: 68,976,648,192 parameters, 256 ranks (32 hosts x 8, "
                            "A100-SXM4-40GB)\n"));
}

TEST_CASE("every job file and every model on p4d plans or says what is missing") {
  const std::string root = SMP_SOURCE_DIR "/configs/";
  for (const auto& entry : std::filesystem::directory_iterator(root + "models")) {
    CAPTURE(entry.path().string());
    CHECK(plan({entry.path().string(), "--cluster", root + "clusters/p4d.24xlarge.yaml", "--hosts",
                "64"})
              .code == 0);
  }
  for (const auto& entry : std::filesystem::directory_iterator(root + "jobs")) {
    CAPTURE(entry.path().string());
    CHECK(plan({entry.path().string()}).code == 0);
  }
  CHECK(plan({root + "models/gpt2-124m.yaml", "--cluster", root + "clusters/cpu-4.yaml"}).code ==
        0);
}

TEST_CASE("the planned step is written as a timeline, by stage and by rank") {
  ScratchFolder folder;
  const std::string path = folder / "planned.json";
  const ProgramEnd stages = plan({"schedule", kJob, "--trace", path});
  CHECK(stages.code == 0);
  CHECK(stages.out == "wrote " + path + "\n");
  const test::TraceCheck of_stages(read_file(path));
  CHECK(of_stages.problems() == std::vector<std::string>{});
  CHECK(of_stages.about().at("kind") == "planned");
  CHECK(plan({"schedule", kJob, "--trace", path, "--ranks"}).code == 0);
  const test::TraceCheck of_ranks(read_file(path));
  CHECK(of_ranks.problems() == std::vector<std::string>{});
  CHECK(of_ranks.processes().size() == 4);
  CHECK(plan({"schedule", kJob, "--ranks"}).code == 2);  // of what?
  CHECK(plan({"schedule", kJob, "--trace", path, "--width", "100"}).code == 2);
  const ProgramEnd nowhere = plan({"schedule", kJob, "--trace", folder / "none/planned.json"});
  CHECK(nowhere.code == 3);
  CHECK(nowhere.err.find("none/planned.json") != std::string::npos);
}

TEST_CASE("groups and schedule print what a person asks for") {
  const ProgramEnd groups = plan({"groups", kJob, "--rank", "3"});
  CHECK(groups.code == 0);
  CHECK(groups.out.find("WORLD       4  [0, 1, 2, 3]  everybody\n") != std::string::npos);
  const ProgramEnd schedule = plan({"schedule", kJob});
  CHECK(schedule.code == 0);
  CHECK(schedule.out.find("\n0 |F0- B0===== |\n") != std::string::npos);
  const ProgramEnd narrow = plan({"schedule", kJob, "--width", "10"});
  CHECK(narrow.code == 2);
  CHECK(narrow.err.find("--width: Value 10 not in range 40 to 100000") != std::string::npos);
  const ProgramEnd models = plan({"models"});
  CHECK(models.code == 0);
  CHECK(models.out.find("\nqwen3-30b-a3b             30.5 B     3.4 B  Qwen/Qwen3-30B-A3B, ") !=
        std::string::npos);
  const ProgramEnd model = plan({"models", "google-t5/t5-base"});
  CHECK(model.out.starts_with("model:\n  name: t5-base\n"));
  CHECK(plan({"models", "--json", "GPT2"}).out.find("\"parameters\": 124439808,") !=
        std::string::npos);
  CHECK(
      plan({"models", "t5-bsae"}).err.starts_with("unknown model 't5-bsae', did you mean 't5-ba"));
  const ProgramEnd schema = plan({"schema"});
  CHECK(schema.code == 0);
  CHECK(schema.out.find("http://json-schema.org/draft-07/schema#") != std::string::npos);
}
