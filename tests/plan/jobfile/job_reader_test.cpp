#include "smp/plan/jobfile/job_reader.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/job_format.h"
#include "smp/plan/program/fusions.h"

namespace smp {
namespace {

namespace fs = std::filesystem;

const std::string kModel =
    "model:\n  num_layers: 4\n  hidden_size: 128\n  num_heads: 4\n  vocab_size: 256\n";
const std::string kLlama =
    "model:\n  family: llama\n  num_layers: 4\n  hidden_size: 128\n  num_heads: 4\n"
    "  ffn_hidden_size: 344\n  vocab_size: 256\n";

JobSpec read(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return jobfile::read_job({{"job.yaml", text}}, overrides);
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

// A folder that is gone at the end of the test.
struct TemporaryFolder {
  fs::path path;
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "smp-test-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~TemporaryFolder() { fs::remove_all(path); }
};

}  // namespace

TEST_CASE("errors of --set name the key and suggest as those of files do") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"parallel.tensor_paralel_degree=2",
       "--set: unknown key 'tensor_paralel_degree' in parallel, did you mean "
       "'tensor_parallel_degree'?\n"
       "  parallel.tensor_paralel_degree=2\n"
       "           ^"},
      {"parallel.num_layers=2",
       "--set: unknown key 'num_layers' in parallel; it belongs in model\n"
       "  parallel.num_layers=2\n"
       "           ^"},
      {"paralel.sharding=none",
       "--set: unknown section 'paralel', did you mean 'parallel.sharding'?\n"
       "  paralel.sharding=none\n"
       "  ^"},
      {"a.b=none",
       "--set: unknown section 'a'; there are model, model.input, cluster, training, "
       "training.fusions, training.optimizer, training.loss_scale, training.lora, training.data, "
       "training.data.images, training.checkpoint, "
       "training.evaluation, training.trace, parallel, parallel.tensor_parallel, "
       "parallel.collectives\n"
       "  a.b=none\n"
       "  ^"},
      {"steps=3",
       "--set: unknown key 'steps' at the top level; it belongs in training\n"
       "  steps=3\n"
       "  ^"},
      {"training.data=x",
       "--set: 'training.data' is a section; set one of its keys: path, format, sources, split, "
       "end_of_document, suffixes, tokens, pack, longer, loss_mask, images\n"
       "  training.data=x\n"
       "  ^"},
      {"training.steps",
       "--set: write section.key=value, e.g. parallel.tensor_parallel_degree=2\n"
       "  training.steps\n"
       "  ^"},
      {"=3",
       "--set: write section.key=value, e.g. parallel.tensor_parallel_degree=2\n"
       "  =3\n"
       "  ^"},
      {"", "--set: write section.key=value, e.g. parallel.tensor_parallel_degree=2"},
      {"training.steps=",
       "--set: training.steps needs a value\n"
       "  training.steps=\n"
       "                 ^"},
      {"training.steps=1e3",
       "--set: training.steps must be a whole number: write 1000, not 1e3\n"
       "  training.steps=1e3\n"
       "                 ^"},
      {"training.steps= 10",
       "--set: training.steps must be a whole number: write 10, not  10\n"
       "  training.steps= 10\n"
       "                 ^"},
      {"parallel.partition=2,2",
       "--set: parallel.partition must be a list of whole numbers such as [3, 3, 2] or auto, not "
       "'2,2'\n"
       "  parallel.partition=2,2\n"
       "                     ^"},
      {"parallel.partition=[2,2",
       "--set: parallel.partition is not a valid list, as in [3, 3, 2]\n  "
       "parallel.partition=[2,2\n                     ^"},
      {"parallel.partition=[1,2]",
       "--set: partition adds up to 3 layers, but num_layers is 4\n"
       "  parallel.partition=[1,2]\n"
       "  ^"},
      {"cluster.hosts=0",
       "--set: cluster.hosts must be at least 1, not 0\n"
       "  cluster.hosts=0\n"
       "                ^"},
      {"model.num_heads=3",
       "--set: hidden_size (128) is not divisible by num_heads (3)\n"
       "  model.num_heads=3\n"
       "  ^"},
  };
  for (const auto& wrong : cases) {
    CAPTURE(wrong.first);
    CHECK(error_of([&] { read(kModel, {wrong.first}); }) == wrong.second);
  }
}

TEST_CASE("errors of all files and overrides come together, in order") {
  CHECK(error_of([] {
          jobfile::read_job(
              {{"model.yaml", "model:\n  num_layer: 4\n"}, {"cluster.yaml", "cluster: 4\n"}},
              {"training.steps=x"});
        }) ==
        "model.yaml:1:1: model needs hidden_size, num_heads, vocab_size\n"
        "  model:\n"
        "  ^\n"
        "model.yaml:2:3: unknown key 'num_layer' in model, did you mean 'num_layers'?\n"
        "    num_layer: 4\n"
        "    ^\n"
        "cluster.yaml:1:10: cluster must be a map of keys such as 'name: ...', not '4'\n"
        "  cluster: 4\n"
        "           ^\n"
        "--set: training.steps must be a whole number, not 'x'\n"
        "  training.steps=x\n"
        "                 ^");
  CHECK(error_of([] { jobfile::read_job({}); }) == "no job file was given");
}

TEST_CASE("more than 50 errors are counted") {
  std::string text = kModel;
  for (int i = 0; i < 60; ++i) text += "zzzz_" + std::to_string(i) + ": 1\n";
  const std::string message = error_of([&] { read(text); });
  CHECK(message.ends_with("\nand 10 more errors"));
}

TEST_CASE("a Git LFS pointer is no job file and no config.json") {
  const TemporaryFolder folder;
  const std::string path = folder.path / "config.json";
  std::ofstream(path) << "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 660\n";
  CHECK(error_of([&] { jobfile::load_job_source(path); }) ==
        path + ": this is a Git LFS pointer to 660 bytes, not the file itself; run git lfs pull");
}

TEST_CASE("an expert degree of 1 is what dense layers have") {
  const JobSpec job = read(kModel + "parallel:\n  expert_parallel_degree: 1\n");
  CHECK(job.parallel.expert_parallel_degree == 1);
}

TEST_CASE("a job file is read from disk, or the reason is named") {
  const TemporaryFolder folder;
  const std::string file = folder.path / "small.yaml";
  std::ofstream(file) << kModel;
  CHECK(jobfile::load_job_source(file).text == kModel);
  CHECK(jobfile::load_job_source(file).path == file);
  CHECK(jobfile::read_job({jobfile::load_job_source(file)}).name == "small");

  const std::string missing = folder.path / "none.yaml";
  CHECK(error_of([&] { jobfile::load_job_source(missing); }) == missing + ": no such file");
  const std::string below_file = file + "/x.yaml";
  CHECK(error_of([&] { jobfile::load_job_source(below_file); }) ==
        below_file + ": Not a directory");
  const std::string as_folder = folder.path;
  CHECK(error_of([&] { jobfile::load_job_source(as_folder); }) ==
        as_folder + ": this is a folder; name a job file in it");
  CHECK(error_of([] { jobfile::load_job_source(""); }) == ": no such file");
  const std::string large = folder.path / "large.yaml";
  std::ofstream(large) << std::string((1 << 20) + 1, '#');
  CHECK(error_of([&] { jobfile::load_job_source(large); }) ==
        large + ": the file is larger than 1048576 bytes, the limit of a job file");
  CHECK(
      error_of([] { read(std::string((1 << 20) + 1, '#')); })
          .starts_with(
              "job.yaml:1:1: the file has 1048577 bytes, more than the limit of 1048576 bytes\n"));
}

TEST_CASE("the defaults of a gpt2 follow from its sizes") {
  const JobSpec job = read(kModel);
  CHECK(job.name == "job");
  CHECK(job.model.family == ModelFamily::kGpt2);
  CHECK(job.model.num_kv_heads == 4);
  CHECK(job.model.head_dim == 32);
  CHECK(job.model.ffn_hidden_size == 512);
  CHECK(job.model.max_positions == 1024);
  CHECK(job.model.tied_embeddings);
  CHECK(job.training.sequence_length == 1024);
  CHECK(job.training.max_tokens_per_batch == 4194304);
  CHECK(job.training.optimizer.min_learning_rate == 3e-5);
  CHECK(job.training.steps == 0);
  CHECK_FALSE(job.training.precision);
  CHECK_FALSE(job.parallel.sharding);
  CHECK_FALSE(job.parallel.bucket_bytes);
  CHECK(job.cluster.hosts == 1);
}

TEST_CASE("the defaults of a llama follow from its sizes and the sequence") {
  const JobSpec job = read(kLlama);
  CHECK(job.model.num_kv_heads == 4);
  CHECK_FALSE(job.model.tied_embeddings);
  CHECK(job.model.max_positions == 4096);
  CHECK(job.training.sequence_length == 4096);
  const JobSpec longer = read(kLlama + "  num_kv_heads: 2\ntraining: {sequence_length: 8192}\n");
  CHECK(longer.model.max_positions == 8192);
  CHECK(longer.model.num_kv_heads == 2);
}

TEST_CASE("sizes, counts, rates and numbers take their units") {
  const JobSpec job = read(kModel +
                           "cluster:\n"
                           "  memory_per_process: 40GiB\n"
                           "  reserved_memory: 1.5GB\n"
                           "  host_memory: 4Mi\n"
                           "  half_flops_per_s: 312T\n"
                           "  intra_host_bytes_per_s: 2.5e10\n"
                           "  inter_host_bytes_per_s: 25GB\n"
                           "  inter_host_latency_s: 1e-05\n"
                           "training:\n"
                           "  max_tokens_per_batch: 4M\n"
                           "  seed: 18446744073709551615\n"
                           "parallel: {bucket_bytes: 26214400B}\n");
  CHECK(job.cluster.memory_per_process_bytes == int64_t{40} << 30);
  CHECK(job.cluster.reserved_bytes == 1500000000);
  CHECK(job.cluster.host_memory_bytes == 4 << 20);
  CHECK(job.cluster.half_flops_per_s == 312e12);
  CHECK(job.cluster.intra_host_bytes_per_s == 25e9);
  CHECK(job.cluster.inter_host_bytes_per_s == 25e9);
  CHECK(job.cluster.inter_host_latency_s == 1e-5);
  CHECK(job.training.max_tokens_per_batch == 4000000);
  CHECK(job.training.seed == 18446744073709551615u);
  CHECK(job.parallel.bucket_bytes == 26214400);
}

TEST_CASE("text is text, whatever it looks like") {
  const JobSpec job =
      read("name: 2024\n" + kModel +
           "  name: no\n"
           "cluster: {accelerator: 'A100: \"40\" GB'}\n"
           "training: {data: {path: \"/tmp/\\u00e9 #1\", suffixes: [.py, '010']}}\n");
  CHECK(job.name == "2024");
  CHECK(job.model.name == "no");
  CHECK(job.cluster.accelerator == "A100: \"40\" GB");
  CHECK(job.training.data_path == "/tmp/\xC3\xA9 #1");
  CHECK(job.training.data_suffixes == std::vector<std::string>{".py", "010"});
}

TEST_CASE("metrics go where the list says, to metrics.jsonl alone by default") {
  CHECK(read(kModel).training.metrics == std::vector<std::string>{"jsonl"});
  const auto metrics = [](const std::string& list) {
    return read(kModel + "training: {metrics: " + list + "}\n").training.metrics;
  };
  CHECK(metrics("[tensorboard, jsonl]") == std::vector<std::string>{"tensorboard", "jsonl"});
  CHECK(metrics("[]").empty());
}

TEST_CASE("auto leaves a key open, and takes back what an earlier file said") {
  const JobSpec job = jobfile::read_job(
      {{"a.yaml",
        kModel + "  head_dim: 32\nparallel: {tensor_parallel_degree: 2, sharding: none}\n"},
       {"b.yaml", "model: {head_dim: auto}\nparallel: {tensor_parallel_degree: auto}\n"}},
      {"parallel.partition=auto"});
  CHECK(job.model.head_dim == 32);
  CHECK_FALSE(job.parallel.tensor_parallel_degree);
  CHECK(job.parallel.sharding == Sharding::kNone);
  CHECK(job.parallel.partition.empty());
}

TEST_CASE("later files and overrides win, key by key") {
  const JobSpec job = jobfile::read_job(
      {{"configs/models/tiny.v1.yaml", kModel + "cluster: {hosts: 2}\n"},
       {"p4d.yaml", "cluster: {processes_per_host: 8, name: p4d}\n"}},
      {"cluster.hosts=32", "parallel.partition=[1, 3]", "training.data.path=a #b: c",
       "training.steps=1", "training.steps=2", "name=big"});
  CHECK(job.name == "big");
  CHECK(job.cluster.name == "p4d");
  CHECK(job.cluster.hosts == 32);
  CHECK(job.cluster.processes_per_host == 8);
  CHECK(job.parallel.partition == std::vector<int64_t>{1, 3});
  CHECK(job.training.data_path == "a #b: c");
  CHECK(job.training.steps == 2);
}

TEST_CASE("a job without a name takes its first file's") {
  const auto name_of_file = [](const std::string& path) {
    return jobfile::read_job({{path, kModel}, {"other.yaml", "cluster: {}\n"}}).name;
  };
  CHECK(name_of_file("configs/jobs/quickstart.yaml") == "quickstart");
  CHECK(name_of_file("p4d.24xlarge.yaml") == "p4d.24xlarge");
  CHECK(name_of_file("my job.yaml") == "my-job");
  CHECK(name_of_file("/dev/fd/63") == "63");
  CHECK(name_of_file("..") == "job");
  CHECK(name_of_file("") == "job");
}

TEST_CASE("the three keys of sharding agree on one") {
  const auto sharding = [](const std::string& keys) {
    return read(kModel + "cluster: {processes_per_host: 4}\nparallel: {" + keys + "}\n")
        .parallel.sharding;
  };
  CHECK_FALSE(sharding(""));
  CHECK_FALSE(sharding("shard_optimizer_state: false"));
  CHECK(sharding("shard_optimizer_state: true") == Sharding::kOptimizerState);
  CHECK(sharding("sharding: optimizer_state") == Sharding::kOptimizerState);
  CHECK(sharding("shard_optimizer_state: true, sharded_data_parallel_degree: 4") ==
        Sharding::kOptimizerState);
  CHECK(sharding("shard_optimizer_state: false, sharding: optimizer_state, "
                 "sharded_data_parallel_degree: 2, tensor_parallel_degree: 1, "
                 "pipeline_parallel_degree: 1") == Sharding::kOptimizerState);
  CHECK(sharding("sharded_data_parallel_degree: 4") == Sharding::kParameters);
  CHECK(sharding("sharded_data_parallel_degree: 1") == Sharding::kNone);
  CHECK(sharding("sharding: gradients, sharded_data_parallel_degree: 2") == Sharding::kGradients);
  // One data-parallel rank has nobody to shard with.
  CHECK(sharding("sharding: optimizer_state, sharded_data_parallel_degree: 1, "
                 "tensor_parallel_degree: 4") == Sharding::kOptimizerState);
}

TEST_CASE("each fusion has a key of its name, and is on by default") {
  CHECK(read(kModel).training.fusions == Fusions{});
  for (const program::FusionRule& rule : program::fusion_rules()) {
    std::string key(rule.name);
    std::replace(key.begin(), key.end(), ' ', '_');
    Fusions fusions;
    fusions.*rule.is_on = false;
    CAPTURE(key);
    CHECK(read(kModel + "training: {fusions: {" + key + ": false}}\n").training.fusions == fusions);
  }
}

TEST_CASE("sections may be empty, commented out or in braces: a byte order mark is skipped") {
  CHECK(read("\xEF\xBB\xBF" + kModel + "parallel:\n#  sharding: none\ntraining: {}\n").name ==
        "job");
  CHECK(read("# yaml-language-server: $schema=./smp.schema.json\n---\n" + kModel).name == "job");
  CHECK(read("{model: {num_layers: 1, hidden_size: 8, num_heads: 2, vocab_size: 9}}")
            .model.head_dim == 4);
}

}  // namespace smp
