#include <doctest/doctest.h>

#include "program.h"

// smp-launch --torchrun-compat: torchrun's words and variables.

using namespace smp;

namespace {

ProgramEnd compat(const std::vector<std::string>& words,
                  const std::vector<std::string>& environment = {}) {
  return run_program(joined({SMP_LAUNCH, "--torchrun-compat"}, words), environment);
}

const std::vector<std::string> kProgram = {"/bin/sh", "-c", "echo $RANK/$WORLD_SIZE $1", "sh"};

}  // namespace

TEST_CASE("torchrun's command lines start the ranks that they ask for") {
  const std::vector<std::string> two = {"[0] 0/2 --x", "[1] 1/2 --x"};
  const std::vector<std::string> program = joined(kProgram, {"--x"});
  CHECK(sorted_lines(
            compat(joined({"--standalone", "--nproc-per-node=2", "--no-python"}, program)).out) ==
        two);
  CHECK(sorted_lines(compat(joined({"--nproc_per_node", "2", "--nnodes=1:1", "--rdzv_id", "7",
                                    "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0",
                                    "--max-restarts", "0", "-t", "3", "--no_python"},
                                   program))
                         .out) == two);
  CHECK(sorted_lines(compat(program, {"PET_NPROC_PER_NODE=2", "PET_NO_PYTHON=1", "PET_NNODES=1",
                                      "PET_NODE_RANK=0", "PET_MASTER_ADDR=x"})
                         .out) == two);
  CHECK(
      compat(joined({"--nproc-per-node", "2", "--local-ranks-filter", "1", "--no-python"}, program))
          .out == "[1] 1/2 --x\n");
  CHECK(compat({"--nproc-per-node", "1", "-m", "this"}).out.starts_with("[0] The Zen of Python"));
  const ScratchFolder folder;
  CHECK(compat(joined({"--log-dir", folder / "run", "--no-python"}, program)).code == 0);
  CHECK(read_file(folder / "run/logs/rank-0.out") == "0/1 --x\n");
}

TEST_CASE("what torchrun can and smp-launch cannot is refused") {
  const auto error_of = [](const std::vector<std::string>& words) {
    const ProgramEnd end = compat(words);
    CHECK(end.code == 2);
    return end.err.substr(12, end.err.find('\n') - 12);
  };
  CHECK(error_of({}) == "--torchrun-compat: no script to start");
  CHECK(error_of({"--nproc", "2", "x.py"}) ==
        "--torchrun-compat: '--nproc' is not an option of torchrun");
  CHECK(error_of({"--nnodes"}) == "--nnodes needs a value");
  CHECK(error_of({"--nnodes", "2:4", "x.py"}) ==
        "--nnodes 2:4: smp-launch has a fixed number of hosts: give one number");
  CHECK(error_of({"--nproc-per-node", "two", "x.py"}) ==
        "--nproc-per-node 'two': expected a whole number of at least 1");
  CHECK(error_of({"--max-restarts", "three", "x.py"}) ==
        "--max-restarts 'three': expected a whole number from 0 to 1000000");
  CHECK(error_of({"--role", "trainer", "x.py"}) ==
        "--torchrun-compat: smp-launch supports only the role 'default'");
  CHECK(error_of({"--rdzv-backend", "etcd", "x.py"}) ==
        "--torchrun-compat: smp-launch supports only the backends static and c10d, not 'etcd'");
  CHECK(error_of({"--run-path", "x.py"}) ==
        "--torchrun-compat: smp-launch does not support --run-path");
  CHECK(error_of({"--nnodes", "2", "x.py"}) ==
        "--torchrun-compat of several hosts needs --node-rank");
  CHECK(error_of({"--nnodes", "2", "--node-rank", "0", "x.py"}) ==
        "--torchrun-compat of several hosts needs --key-file FILE (or PET_KEY_FILE), a file with "
        "the same secret on all hosts (torchrun has no such check)");
  CHECK(error_of({"--nnodes", "2", "--node-rank", "0", "--key-file", "k", "x.py"}) ==
        "--torchrun-compat of several hosts needs --master-addr or --rdzv-endpoint");
}

TEST_CASE("torchrun's words as a dry run") {
  const ProgramEnd end = run_program(
      {SMP_LAUNCH, "--dry-run=json", "--torchrun-compat", "--nnodes=2", "--nproc-per-node=2",
       "--node-rank=1", "--master-addr=10.0.0.1", "--key-file=k", "--no-python", "/bin/true"});
  CHECK(end.code == 0);
  CHECK(contains(end.out, "\"WORLD_SIZE\": \"4\""));
  CHECK(contains(end.out, "\"host\": \"node1\""));
}
