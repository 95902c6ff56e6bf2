#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "program.h"
#include "smp/plan/text/json.h"

// smp-plan on a cluster named local, with an smp-bench beside it that prints what the test says.

using namespace smp;
namespace fs = std::filesystem;

namespace {

const std::string kJob = SMP_SOURCE_DIR "/configs/jobs/quickstart.yaml";
constexpr const char* kLines =
    R"({"ranks":2,"collectives":[{"op":"all_reduce","bytes":16384,"seconds":1e-05}]}
{"matmul_flops_per_s":2e11,"memory_bytes_per_s":2e10,"steps":[{"ranks":2,"blocks":2,"hidden_size":256,"sequence_length":256,"microbatch_s":0.02,"update_s":0.001}]}
)";

// A folder with smp-plan, an smp-bench and a cache.
class LocalHost {
 public:
  LocalHost() {
    fs::copy_file(SMP_PLAN, folder_ / "smp-plan");
    bench("cat " + (folder_ / "lines"));
    std::ofstream(folder_ / "lines") << kLines;
  }

  // `script`: what smp-bench does. It also counts its calls.
  void bench(const std::string& script) const {
    const std::string path = folder_ / "smp-bench";
    std::ofstream(path) << "#!/bin/sh\n[ \"$*\" = host ] || exit 9\necho >>" << (folder_ / "calls")
                        << "\n"
                        << script << "\n";
    fs::permissions(path, fs::perms::owner_all);
  }

  std::vector<std::string> environment() const {
    return {"SMP_NO_MEASURE=0", "XDG_CACHE_HOME=" + (folder_ / "cache")};
  }
  std::vector<std::string> command(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {folder_ / "smp-plan", kJob});
    return more;
  }
  ProgramEnd plan(std::vector<std::string> more = {}) const {
    return run_program(command(std::move(more)), environment());
  }

  size_t calls() const {
    return fs::exists(folder_ / "calls") ? read_file(folder_ / "calls").size() : 0;
  }
  // The only file of the cache.
  std::string stored() const {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(folder_ / "cache/smp"))
      files.push_back(entry.path());
    REQUIRE(files.size() == 1);
    return files.front();
  }
  std::string operator/(const char* name) const { return folder_ / name; }

 private:
  ScratchFolder folder_;
};

constexpr const char* kReason = "\n         cluster local: measured on 20";

}  // namespace

TEST_CASE("a cluster named local is measured once, stored, and said to be") {
  const LocalHost host;
  const ProgramEnd first = host.plan();
  CHECK(first.code == 0);
  CHECK(first.err.starts_with("cluster local: measured this host in "));
  CHECK(
      first.err.ends_with(" s: 200 Gflop/s and 20.0 GB/s a CPU, 20.0 ms a microbatch at width "
                          "256; stored in " +
                          host.stored() + "\n"));
  CHECK(contains(first.out, kReason));
  CHECK(contains(host.stored(), "/cache/smp/host-"));
  const ProgramEnd second = host.plan({"-o", host / "plan.yaml"});
  CHECK(second.code == 0);
  CHECK(second.err.empty());
  CHECK(second.out.starts_with(first.out));
  CHECK(host.calls() == 1);
  // The plan records it, and its rates.
  const std::string plan = read_file(host / "plan.yaml");
  CHECK(contains(plan, "cluster local: measured on 20"));
  CHECK(contains(plan, "    memory_bytes_per_s: 10000000000\n"));  // 4 ranks on 2 CPUs
}

TEST_CASE("other instruction sets are measured by themselves") {
  const LocalHost host;
  CHECK(host.plan().code == 0);
  std::vector<std::string> environment = host.environment();
  environment.push_back("ONEDNN_MAX_CPU_ISA=AVX2");
  const ProgramEnd end = run_program(host.command(), environment);
  CHECK(contains(end.out, " CPUs, ONEDNN_MAX_CPU_ISA=AVX2\n"));
  CHECK(host.calls() == 2);
}

TEST_CASE("--no-measure and SMP_NO_MEASURE use the numbers of the file") {
  const LocalHost host;
  const ProgramEnd option = host.plan({"--no-measure"});
  CHECK(option.err.empty());
  CHECK(contains(
      option.out,
      "\n         cluster local: not measured, as asked; its numbers are the job's own\n"));
  CHECK(run_program(host.command(), {"SMP_NO_MEASURE=1"}).out == option.out);
  CHECK(host.calls() == 0);
}

TEST_CASE("a rate that the command line sets is not replaced") {
  const LocalHost host;
  CHECK(host.plan({"--set", "cluster.memory_bytes_per_s=7G", "-o", host / "plan.yaml"}).code == 0);
  CHECK(contains(read_file(host / "plan.yaml"), "    memory_bytes_per_s: 7000000000\n"));
}

TEST_CASE("a stored measurement that cannot be used is ignored with a note, and made again") {
  const LocalHost host;
  CHECK(host.plan().code == 0);
  const std::string file = host.stored(), good = read_file(file);
  const auto ignored = [&](const std::string& text, const std::string& note) {
    std::ofstream(file) << text;
    const ProgramEnd end = host.plan();
    CHECK(end.code == 0);
    CHECK(end.err.starts_with("cluster local: " + file + " is ignored: " + note +
                              "\ncluster local: measured this host in "));
    CHECK(contains(end.out, kReason));
    CHECK(read_file(file) == good);
  };
  ignored("", "it holds no measurement");
  ignored("\xff\n", "it holds no measurement");
  std::string other = good;
  other.replace(other.find("\"cpus\":"), 7, "\"cpus\":9");
  ignored(other, "it is of another CPU or build");
  ignored(good.substr(0, good.find('\n') + 1), "the measurement has no steps of the engine");
  CHECK(host.plan().err.empty());
}

TEST_CASE("a measurement that fails is a warning, and the numbers of the file stay") {
  const LocalHost host;
  const ProgramEnd assumed = host.plan({"--no-measure"});
  const auto warned = [&](const std::string& why) {
    const ProgramEnd end = host.plan();
    CHECK(end.code == 0);
    CHECK(end.err ==
          "cluster local: warning: not measured: " + why + "; its numbers are the job's own\n");
    CHECK(contains(end.out, "\n         cluster local: not measured: " + why + "; its numbers"));
    CHECK(end.out.substr(0, end.out.find("\nwhy")) ==
          assumed.out.substr(0, assumed.out.find("\nwhy")));
  };
  host.bench("echo no >&2; echo torch is not here >&2; exit 1");
  warned("smp-bench host ended with 1: torch is not here");
  host.bench("echo {}");
  warned("the measurement has no steps of the engine");
  fs::remove(host / "smp-bench");
  warned("no smp-bench beside smp-plan");
}

TEST_CASE("a cache that cannot be written is said, and the measurement used") {
  const LocalHost host;
  std::ofstream(host / "cache") << "a file";
  const ProgramEnd end = host.plan();
  CHECK(end.code == 0);
  CHECK(contains(end.err, "; not stored: "));
  CHECK(contains(end.out, kReason));
}

TEST_CASE("several processes at once measure and store, and each has a plan") {
  const LocalHost host;
  host.bench("sleep 0.2; cat " + (host / "lines"));
  std::vector<std::unique_ptr<Program>> all;
  for (int i = 0; i < 4; ++i)
    all.push_back(std::make_unique<Program>(host.command(), host.environment()));
  for (const auto& program : all) {
    const ProgramEnd end = program->wait();
    CHECK(end.code == 0);
    CHECK(contains(end.out, kReason));
  }
  CHECK(contains(read_file(host.stored()), "\"steps\""));
}

TEST_CASE("check, and a job that names the cluster alone, use the measurement as well") {
  const LocalHost host;
  const std::string job = host / "job.yaml";
  std::ofstream(job) << "model: {num_layers: 2, hidden_size: 128, num_heads: 2, vocab_size: 256}\n"
                        "cluster: local\ntraining: {sequence_length: 64, global_batch: 4}\n";
  const ProgramEnd end = run_program({host / "smp-plan", "check", job}, host.environment());
  CHECK(end.code == 0);
  CHECK(end.err.starts_with("cluster local: measured this host in "));
  CHECK(host.calls() == 1);
  const ProgramEnd none =
      run_program({host / "smp-plan", "check", job, "--no-measure"}, host.environment());
  CHECK(none.err.empty());
  CHECK(none.out != end.out);
}
