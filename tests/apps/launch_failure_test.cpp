#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <map>

#include "launching.h"
#include "smp/plan/text/json.h"

// How a job fails: whose failure it is, and what is told of it.

using namespace smp;
using namespace smp::text;

namespace {

// "  process 4711, local" becomes "  process N, local".
std::string without_process(const std::string& text) {
  constexpr std::string_view kBefore = "\n  process ";
  const size_t begin = text.find(kBefore);
  if (begin == text.npos) return text;
  const size_t number = begin + kBefore.size();
  return fmt::format("{}N{}", text.substr(0, number), text.substr(text.find(',', number)));
}

}  // namespace

TEST_CASE("every exit code and every signal that ends a process is told exactly") {
  for (const char* range : {"0 63", "64 127", "128 191", "192 255"}) {
    const ProgramEnd codes = run_program({"/bin/sh", "-c",
                                          fmt::format("for code in $(seq {}); do " SMP_LAUNCH
                                                      " -n 1 -- sh -c \"exit $code\" 2>/dev/null; "
                                                      "test $? = $code || echo $code; done",
                                                      range)});
    CHECK(codes.out == "");
  }
  const ProgramEnd signals = run_program(
      {"/bin/sh", "-c",
       "ulimit -c 0; for number in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 24 25 26 27 29 30 31 34 "
       "35 36 "
       "37 38 39 40 64; do " SMP_LAUNCH " -n 1 -- sh -c \"kill -$number \\$\\$\" 2>/dev/null; test "
       "$? = $((128 + number)) || echo $number; done"});
  CHECK(signals.out == "");
}

TEST_CASE("the exit code is that of the first failing rank") {
  for (int code : {1, 2, 3, 42, 75, 127, 255}) {
    const ProgramEnd end =
        run_program(launch({"-n", "3"}, fmt::format("test $RANK = 1 && exit {}; sleep 300", code)));
    CHECK(end.code == code);
    CHECK(end.seconds < kSoonS);
    CHECK(contains(end.err, fmt::format("smp-launch: rank 1 ended with exit code {}", code)));
  }
}

TEST_CASE("a rank that a signal kills is named with it") {
  const std::map<int, std::string> texts = {
      {SIGSEGV, "SIGSEGV (Segmentation fault)"},
      {SIGKILL, "SIGKILL (Killed)"},
      {SIGFPE, "SIGFPE (Floating point exception)"},
      {SIGABRT, "SIGABRT (Aborted)"},
      {SIGTERM, "SIGTERM (Terminated)"},
  };
  for (const auto& [number, text] : texts) {
    const ProgramEnd end = run_program(launch(
        {"-n", "3"}, fmt::format("ulimit -c 0; test $RANK = 2 && kill -{} $$; sleep 300", number)));
    CHECK(end.code == 128 + number);
    CHECK(end.seconds < kSoonS);
    CHECK(contains(end.err, "smp-launch: rank 2 was killed by " + text));
  }
}

TEST_CASE("a rank that the kernel kills for lack of memory is named so") {
  // A control group of 256 MiB and no swap for smp-launch (a sanitized one takes a hundred) and its
  // ranks, where this user may make one.
  std::string group;
  for (const char* root : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
    const std::string path = fmt::format("{}/smp-test-{}", root, getpid());
    const bool v1 = std::string(root).ends_with("memory");
    if (access((std::string(root) + "/cgroup.procs").c_str(), W_OK) != 0) continue;
    if (mkdir(path.c_str(), 0755) != 0) continue;
    auto set = [&path](const char* limit, const std::string& most) {
      std::ofstream file(path + limit);
      file << most << std::flush;
      return file.good();
    };
    const std::string most = std::to_string(256 << 20);
    const char* const swap = v1 ? "/memory.memsw.limit_in_bytes" : "/memory.swap.max";
    if (access((path + "/cgroup.procs").c_str(), W_OK) == 0 &&
        set(v1 ? "/memory.limit_in_bytes" : "/memory.max", most) &&
        (access((path + swap).c_str(), F_OK) != 0 || set(swap, v1 ? most : "0"))) {
      group = path;
      break;
    }
    rmdir(path.c_str());
  }
  if (group.empty()) {
    MESSAGE("skipped: no control group may be made here");
    return;
  }
  const ProgramEnd end = run_program(
      {"/bin/sh", "-c",
       fmt::format("echo $$ > {}/cgroup.procs && exec {} -n 2 -- /bin/sh -c 'test $RANK = 1 && "
                   "{{ sleep 0.2; exec python3 -c \"bytearray(1 << 30)\"; }}; sleep 60'",
                   group, SMP_LAUNCH)});
  CHECK(end.code == 137);
  CHECK(contains(
      end.err, "smp-launch: rank 1 was killed by SIGKILL (Killed) by the kernel: out of memory, "));
  for (int i = 0; i < 100 && rmdir(group.c_str()) != 0; ++i) usleep(10'000);
}

TEST_CASE("the report of a failure comes last and holds cause, evidence and consequences") {
  ScratchFolder folder;
  const std::string run = folder / "run";
  const ProgramEnd end =
      run_program(launch({"-n", "4", "--run-dir", run},
                         "test $RANK = 3 && { echo $$ > " + (folder / "three") +
                             "; exit 0; }; test $RANK = 2 || exec sleep 300; "
                             "i=0; while [ $i -lt 60 ]; do echo \"line $i\" >&2; i=$((i+1)); done; "
                             "printf 'no end' >&2; " +
                             wait_for_end_of(folder / "three") + "exit 9"));
  CHECK(end.code == 9);
  CHECK(end.out == "");
  std::string expected =
      "smp-launch: rank 2 ended with exit code 9, T after the start\n"
      "  process N, local rank 2\n"
      "  last lines of its standard error (" +
      run + "/logs/rank-2.err):\n";
  for (int line = 21; line < 60; ++line) expected += fmt::format("    line {}\n", line);
  expected +=
      "    no end\n  consequence: ranks 0, 1 ended by smp-launch\n  consequence: rank 3 had ended "
      "with exit code 0\nsmp-launch: 4 ranks ended in T; exit code 9\n";
  CHECK(without_process(without_times(end.err)) == expected);
}

TEST_CASE("--report says the same to programs") {
  ScratchFolder folder;
  const ProgramEnd end =
      run_program(launch({"-n", "2", "--report", folder / "r.json"},
                         "test $RANK = 1 && { echo oops >&2; kill -KILL $$; }; sleep 300"));
  CHECK(end.code == 137);
  const auto json = Json::parse(read_file(folder / "r.json"));
  CHECK(json["end"] == "rank_failed");
  CHECK(json["exit_code"] == 137);
  CHECK(json["cause"]["rank"] == 1);
  CHECK(json["cause"]["last_lines"] == std::vector<std::string>{"oops"});
  CHECK(json["ranks"][0]["signal"] == "SIGTERM");
  CHECK(json["ranks"][0]["ended_by_launcher"] == true);
  CHECK(json["ranks"][1]["signal"] == "SIGKILL");
  CHECK(json["ranks"][1]["local_rank"] == 1);
  CHECK(json["ranks"][1]["pid"] > 1);
  CHECK(json["ranks"][1]["dumped_core"] == false);
  CHECK(json["ranks"][1]["out_of_memory"] == false);
  CHECK(json["ranks"][1]["ended_by_launcher"] == false);
}

TEST_CASE("the rank that the others blame is named, not the one that ended first") {
  ScratchFolder folder;
  const std::string run = folder / "run", pid = folder / "pid", ready = folder / "ready";
  const std::string blame =
      "blame() { printf '{\"rank\":%d,\"kind\":\"%s\",\"culprit\":%d,\"phase\":\"step 7: "
      "backward\",\"message\":\"%s\"}' $RANK $1 $2 \"$3\" > $SMP_ERROR_FILE; exit 1; }; ";
  SUBCASE("its own death is seen a moment later") {
    const ProgramEnd end =
        run_program(launch({"-n", "3", "--run-dir", run},
                           blame + "case $RANK in 0) echo $$ > " + pid + "; " + wait_for(ready, 1) +
                               "blame peer_lost 2 'lost rank 2';; 1) sleep 300;; 2) echo up > " +
                               ready + "; " + wait_for_end_of(pid) + "kill -SEGV $$;; esac"));
    CHECK(end.code == 139);
    CHECK(contains(end.err, "smp-launch: rank 2 was killed by SIGSEGV (Segmentation fault)"));
    CHECK(contains(end.err,
                   "consequence: rank 0 ended with exit code 1: step 7: backward: lost rank 2"));
  }
  SUBCASE("it is stopped") {
    const ProgramEnd end = run_program(launch(
        {"-n", "3", "--run-dir", run},
        blame + "case $RANK in 0) " + wait_for(pid, 1) + "until [ \"$(cut -d' ' -f3 /proc/$(cat " +
            pid +
            ")/stat)\" = T ]; do sleep 0.01; done; blame timeout 1 'waited 5 s for rank 1';; "
            "1) echo $$ > " +
            pid + "; kill -STOP $$;; 2) sleep 300;; esac"));
    CHECK(end.code == 1);
    CHECK(end.seconds < kSoonS);
    CHECK(contains(
        without_process(end.err),
        "smp-launch: rank 1 stopped responding: a signal such as SIGSTOP has stopped its process\n "
        " process N, local rank 1\n  rank 0 said:\n    step 7: backward: waited 5 s for rank 1\n"));
  }
  SUBCASE("it is stuck, and the blame passes through others") {
    const ProgramEnd end = run_program(
        launch({"-n", "4", "--run-dir", run},
               blame + "case $RANK in 0) echo $$ > " + pid + "; " + wait_for(ready, 1) +
                   "blame timeout 1 'waited for 1';; 1) echo up > " + ready + "; " +
                   wait_for_end_of(pid) + "blame timeout 3 'waited for 3';; *) sleep 300;; esac"));
    CHECK(end.code == 1);
    CHECK(contains(without_process(end.err),
                   "smp-launch: rank 3 stopped responding\n  process N, local rank 3\n"
                   "  rank 1 said:\n"));
  }
  SUBCASE("an error of its own") {
    const ProgramEnd end = run_program(
        launch({"-n", "2", "--run-dir", run},
               blame + "case $RANK in 0) blame out_of_memory 0 'asked for 5 MiB';; *) sleep 300;; "
                       "esac"));
    CHECK(end.code == 1);
    CHECK(contains(end.err, "rank 0 said:\n    step 7: backward: asked for 5 MiB\n"));
  }
}

TEST_CASE("a broken error file is no evidence and no trouble") {
  ScratchFolder folder;
  const ProgramEnd end = run_program(
      launch({"-n", "2", "--run-dir", folder / "run"},
             "test $RANK = 1 && { printf '{\"kind\":\"peer_' > $SMP_ERROR_FILE; exit 6; "
             "}; sleep 300"));
  CHECK(end.code == 6);
  CHECK(contains(end.err, "rank 1 ended with exit code 6"));
}
