#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "program.h"
#include "smp/plan/text/json.h"

// import, export, init and completion as a user runs them.

using namespace smp;

namespace {

const std::string kGolden = SMP_SOURCE_DIR "/tests/golden/interchange/";

ProgramEnd plan(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), SMP_PLAN);
  return run_program(arguments);
}

std::string usage(const std::string& text) {
  return fmt::format("smp-plan: {}\nsmp-plan --help shows examples\n", text);
}

// What bash offers after `line`, whose last word is being typed.
std::vector<std::string> offered(const std::string& script, const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += fmt::format(" '{}'", word);
  const ProgramEnd end =
      run_program({"/bin/bash", "-c",
                   fmt::format("source {}; COMP_WORDS=(smp-plan{}); COMP_CWORD={}; _smp_plan; "
                               "printf '%s\\n' \"${{COMPREPLY[@]}}\"",
                               script, line, words.size())});
  CHECK(end.code == 0);
  CHECK(end.err.empty());
  std::istringstream out(end.out);
  std::vector<std::string> offers;
  for (std::string offer; std::getline(out, offer);) {
    if (!offer.empty()) offers.push_back(offer);
  }
  return offers;
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::ranges::count(words, word) > 0;
}

}  // namespace

TEST_CASE("import, export, init and completion answer broken command lines") {
  const std::string config = kGolden + "huggingface/gpt2.json";
  const struct {
    std::vector<std::string> arguments;
    int code;
    std::string text;
  } cases[] = {
      {{"import"}, 2, usage("import needs a file, as in smp-plan import config.json")},
      {{"import", config, "--from", "keras"},
       2,
       usage("--from: expected one of hf|smp-v1|smp-v2|deepspeed|megatron|accelerate|sagemaker|"
             "nemo|torchtitan|llama-factory|axolotl|automodel, not 'keras'")},
      {{"import", "/no/such.json"}, 3, "/no/such.json: no such file\n"},
      {{"export", "plan.yaml"},
       2,
       usage("export needs a plan or job file and --to, as in smp-plan export plan.yaml --to "
             "deepspeed")},
      {{"export", "plan.yaml", "--to", "megaton"},
       2,
       usage("--to: expected one of deepspeed, megatron, torchtitan, accelerate, sagemaker-v1, "
             "sagemaker-v2, sagemaker-v2-sdk3, torchrun, mpirun, not 'megaton'; did you mean "
             "'megatron'?")},
      {{"completion"}, 2, usage("completion needs a shell: bash, zsh or fish")},
      {{"completion", "tcsh"}, 2, usage("completion is for bash, zsh or fish, not 'tcsh'")},
      {{"init", "--ouput", "x"}, 2, usage("unknown option '--ouput', did you mean '--output'?")},
  };
  for (const auto& c : cases) {
    const ProgramEnd end = plan(c.arguments);
    CHECK(end.code == c.code);
    CHECK(end.err == c.text);
  }
  const ProgramEnd model = plan({"init", "--model", "gpt2-125m"});
  CHECK(model.code == 3);
  CHECK(model.err.starts_with("unknown model 'gpt2-125m', did you mean 'gpt2-124m'"));
  CHECK(model.err.ends_with("; give a config.json or a model file by its path\n"));
}

TEST_CASE("a config.json is imported, planned and exported") {
  const ScratchFolder folder;
  const std::string job = folder.path() + "/job.yaml";
  const std::string config = kGolden + "huggingface/gpt2.json";
  CHECK(plan({"import", config, "-o", job}).code == 0);
  CHECK(plan({"import", config}).out == read_file(job));
  const ProgramEnd bad = plan({"import", kGolden + "bad/hf-heads.json"});
  CHECK(bad.code == 3);
  CHECK(bad.err.find(":3:3: hidden_size (64) is not divisible by num_attention_heads (5)") !=
        std::string::npos);

  const std::string export_job = kGolden + "export/gpt2-ddp.yaml";
  const ProgramEnd line = plan({"export", export_job, "--to", "torchrun"});
  CHECK(line.code == 0);
  CHECK(line.out == "torchrun --nnodes 1 --nproc-per-node 8 --standalone train.py\n");
  CHECK(line.err ==
        "note: replace train.py by your program; this line does not contain the layout\n");
  const ProgramEnd refused = plan({"export", export_job, "--to", "torchtitan"});
  CHECK(refused.code == 3);
  CHECK(refused.out.empty());
  CHECK(
      refused.err.starts_with(export_job + ": torchtitan does not support a model with 48 layers"));
}

TEST_CASE("a script of SageMaker becomes a job that the engine runs") {
  const ScratchFolder folder;
  const std::string script = kGolden + "import/sagemaker-options.txt";
  const std::string config = folder.path() + "/config.json";
  const std::string job = folder.path() + "/job.yaml";
  const std::string text = folder.path() + "/text.txt";
  std::ofstream(config) << R"({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 256,
    "max_position_embeddings": 32})";
  std::ofstream(text) << std::string(5000, 'x');
  const ProgramEnd imported = plan({"import", script, config, "-o", job});
  CHECK(imported.code == 0);
  CHECK(imported.err.find("prescaled_batch") == std::string::npos);
  const std::vector<std::string> run = {job,
                                        "--cluster",
                                        "cpu-4",
                                        "--set",
                                        "training.steps=2",
                                        "--set",
                                        "training.data.path=" + text};
  const ProgramEnd planned = plan(run);
  CHECK(planned.code == 0);
  CHECK(planned.err.empty());
  CHECK(planned.out.find("pipeline 2 x tensor 2") != std::string::npos);
  CHECK(planned.out.find("the engine's default on CPUs") != std::string::npos);
  CHECK(planned.out.find("data     " + text + "\n") != std::string::npos);  // its files tell more

  // Bytes fill next to nothing of a tokenizer's vocabulary; who means it says so.
  std::vector<std::string> large = run;
  large.insert(large.end(),
               {"--set", "model.vocab_size=50257", "--set", "training.data.format=text"});
  const ProgramEnd refused = plan(large);
  CHECK(refused.code == 3);
  CHECK(refused.err ==
        "the engine cannot run this job on device cpu:\n  model.vocab_size: above 512 (the engine "
        "has no tokenizer and reads text as bytes, which are 256 tokens: give files of tokens, see "
        "docs/data.md; or train from scratch with vocab_size: 256; or write training.data.tokens: "
        "bytes)\n");
  large.insert(large.end(), {"--set", "training.data.tokens=bytes"});
  CHECK(plan(large).code == 0);
}

TEST_CASE(
    "a launch script is imported as far as it says what it runs, and refused by line where not") {
  const ProgramEnd good = plan({"import", kGolden + "import/megatron-shell-dtype.sh"});
  CHECK(good.code == 0);
  CHECK(good.out.find("  precision: bf16 ") != std::string::npos);
  CHECK(good.err.empty());
  const std::string branch = kGolden + "bad/megatron-shell-branch.sh";
  const ProgramEnd bad = plan({"import", branch});
  CHECK(bad.code == 3);
  CHECK(bad.out.empty());
  CHECK(bad.err.starts_with(branch + ":3:4: the value of --num-layers depends on $HOSTNAME, which "
                                     "this text does not set"));
  const ProgramEnd open = plan({"import", kGolden + "import/deepspeed-auto-precision.json"});
  CHECK(open.code == 0);
  CHECK(open.err.find("\"auto\" values are left to a script; unless another file gives them, the "
                      "planner chooses: training.precision (bf16.enabled)") != std::string::npos);
}

TEST_CASE("check takes the files that import takes, without a job file between") {
  const std::string config = kGolden + "huggingface/llama2-7b.json";
  const std::string deepspeed = kGolden + "import/deepspeed-zero3-offload.json";
  const ProgramEnd end =
      plan({"check", deepspeed, "--with", config, "--cluster", "p4d.24xlarge", "--hosts", "2"});
  CHECK(end.code == 0);
  CHECK(end.out.starts_with(deepspeed + ": fits: "));
  CHECK(end.out.find("\n" + deepspeed + ":47:3: warning smp/import: unknown key 'my_own_key'\n") !=
        std::string::npos);
  CHECK(end.err.empty());
  const std::vector<std::string> same = {"check", deepspeed,   "--with",
                                         config,  "--cluster", "p4d.24xlarge"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), same.begin(), same.end());
    return plan(more);
  };
  const text::Json warnings = text::Json::parse(with({"--json"}).out)["warnings"];
  CHECK(std::ranges::any_of(warnings, [&](const text::Json& one) {
    return one["id"] == "smp/import" && one["line"] == 47 && one["column"] == 3 &&
           one["text"] == "unknown key 'my_own_key'";
  }));
  CHECK(with({"--annotations", "github"})
            .out.find("::warning file=" + deepspeed +
                      ",line=47,col=3,title=smp/import::unknown key 'my_own_key'\n") !=
        std::string::npos);
  CHECK(with({"--annotations", "sarif"}).out.find("\"smp/import\"") != std::string::npos);
  CHECK(with({"--fail-on", "warning"}).code == 6);
  const ProgramEnd bare = plan({"check", config});
  CHECK(bare.code == 3);
  CHECK(bare.out ==
        config +
            ": invalid: the file does not name the accelerators: give --cluster NAME, as "
            "in --cluster dgx-h100\n");
  CHECK(plan({"check", config, "--from", "nemmo"}).code == 2);

  const ScratchFolder folder;
  const std::string file = folder.path() + "/plan.yaml";
  CHECK(plan({SMP_SOURCE_DIR "/configs/jobs/quickstart.yaml", "-o", file}).code == 0);
  const ProgramEnd both = plan({"check", config, "--with", file});
  CHECK(both.code == 3);
  CHECK(both.out ==
        config + ": invalid: " + file + ": this is a plan: give it alone, without --with\n");
  const ProgramEnd hosts = plan({"check", file, "--hosts", "9"});
  CHECK(hosts.code == 3);
  CHECK(hosts.out == file +
                         ": invalid: this is a plan: give it without --cluster, --hosts, "
                         "--processes-per-host, --from and --recipe, which are for jobs\n");
  const std::string job = SMP_SOURCE_DIR "/configs/jobs/quickstart.yaml";
  CHECK(plan({"check", job, "--no-measure", "--recipe", "llama3_8b_pretrain_config"}).code == 3);
}

TEST_CASE("a job file may name a config.json, relative to itself") {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder.path() + "/model");
  std::filesystem::copy_file(kGolden + "huggingface/gpt2.json",
                             folder.path() + "/model/config.json");
  std::ofstream(folder.path() + "/job.yaml")
      << "model: {hf_config: model/config.json, attention_dropout: 0, hidden_dropout: 0}\n"
         "cluster: cpu-4\ntraining: {micro_batch: 1}\n";
  const ProgramEnd end = plan({"check", folder.path() + "/job.yaml"});
  CHECK(end.code == 0);
  CHECK(end.err.empty());
}

TEST_CASE(
    "init writes a commented job file that smp-plan plans, for a name and for a config.json") {
  const ScratchFolder folder;
  const std::string job = folder.path() + "/job.yaml";
  CHECK(plan({"init", "-o", job}).code == 0);
  const std::string text = read_file(job);
  CHECK(text.find("cluster: cpu-4\n") != std::string::npos);
  CHECK(text.find("  hidden_size: 768\n") != std::string::npos);
  CHECK(text.find("  #tensor_parallel_degree: auto\n") != std::string::npos);
  CHECK(plan({job}).code == 0);
  const ProgramEnd again = plan({"init", "-o", job});
  CHECK(again.code == 3);
  CHECK(again.err == job + ": the file exists: remove it, or give another file with -o\n");

  const std::string hf = folder.path() + "/hf.yaml";
  const std::string config = kGolden + "huggingface/llama2-7b.json";
  CHECK(plan({"init", "--model", config, "--cluster", "p4d.24xlarge", "-o", hf}).code == 0);
  CHECK(read_file(hf).find("  hf_config: \"") != std::string::npos);
  CHECK(plan({hf}).code == 0);
}

TEST_CASE("bash completes commands, their options and the words that an option takes") {
  const ScratchFolder folder;
  const std::string script = folder.path() + "/smp-plan.bash";
  const ProgramEnd bash = plan({"completion", "bash"});
  CHECK(bash.code == 0);
  std::ofstream(script) << bash.out;
  CHECK(run_program({"/bin/bash", "-n", script}).code == 0);

  const auto commands = offered(script, {""});
  for (const char* command :
       {"import", "export", "init", "completion", "check", "schema", "models"}) {
    CHECK(has(commands, command));
  }
  CHECK(has(offered(script, {"imp"}), "import"));
  CHECK(!has(offered(script, {"imp"}), "export"));
  const auto options = offered(script, {"import", "config.json", "--"});
  CHECK(has(options, "--from"));
  CHECK(has(options, "--output"));
  CHECK(!has(options, "--top"));
  CHECK(has(offered(script, {"--"}), "--top"));
  CHECK(offered(script, {"export", "plan.yaml", "--to", "sagemaker-v2"}) ==
        std::vector<std::string>{"sagemaker-v2", "sagemaker-v2-sdk3"});
  CHECK(has(offered(script, {"import", "--from", ""}), "megatron"));
}

TEST_CASE("the completions of zsh and fish are scripts that those shells take") {
  const ScratchFolder folder;
  for (const std::string shell : {"zsh", "fish"}) {
    const ProgramEnd script = plan({"completion", shell});
    CHECK(script.code == 0);
    CHECK(script.out.find("sagemaker-v2-sdk3") != std::string::npos);
    if (run_program({"/bin/bash", "-c", "command -v " + shell}).code != 0) {
      MESSAGE(shell, " is not installed: its script is not parsed");
      continue;
    }
    const std::string path = folder.path() + "/script";
    std::ofstream(path) << script.out;
    CHECK(run_program({"/bin/bash", "-c", fmt::format("{} -n {}", shell, path)}).code == 0);
  }
}
