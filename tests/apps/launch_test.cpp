#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "program.h"

// smp-launch from outside: real ranks, real signals. Ranks are small shell scripts.

using namespace smp;

namespace {

// smp-launch, its options, then "-- sh -c script".
std::vector<std::string> launch(const std::vector<std::string>& options,
                                const std::string& script) {
  return joined(joined({SMP_LAUNCH}, options), {"--", "/bin/sh", "-c", script});
}

// For scripts of ranks: waits for so many lines in the file, or until a process is no more whose
// number stands in it and whose parent has taken note of its end.
std::string wait_for(const std::string& file, int lines) {
  return fmt::format("until [ \"$(cat {} 2>/dev/null | wc -l)\" -ge {} ]; do sleep 0.01; done; ",
                     file, lines);
}
std::string wait_for_end_of(const std::string& file) {
  return wait_for(file, 1) + "while kill -0 $(cat " + file + ") 2>/dev/null; do :; done; ";
}

// Text in which times are replaced: "12 ms" and "1.2 s" become "T".
std::string without_times(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && (std::isdigit(text[end]) != 0 || text[end] == '.')) ++end;
    const std::string_view rest = std::string_view(text).substr(end);
    const bool starts_word = i == 0 || text[i - 1] == ' ';
    if (end > i && starts_word && (rest.starts_with(" ms") || rest.starts_with(" s"))) {
      result += "T";
      i = end + (rest.starts_with(" ms") ? 3 : 2);
    } else {
      result += text[i++];
    }
  }
  return result;
}

}  // namespace

TEST_CASE("ranks get the environment that torchrun gives, and ours") {
  const ProgramEnd end = run_program(
      launch({"-n", "3", "--show-ranks", "all"},
             "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE "
             "$MASTER_ADDR ${#SMP_JOB_KEY} ${#SMP_JOB_ID} ${SMP_PLAN-none} ${SMP_ERROR_FILE-none}; "
             "test \"$SMP_JOB_ID\" = \"$TORCHELASTIC_RUN_ID\" || echo bad; "
             "test \"$MASTER_PORT\" -gt 1023 || echo bad; test \"$OMP_NUM_THREADS\" -ge 1 || echo "
             "bad"),
      {"SMP_PLAN=left over from outside"});
  CHECK(end.code == 0);
  CHECK(end.err == "");
  CHECK(sorted_lines(end.out) ==
        std::vector<std::string>{"[0] 0 0 3 3 0 1 127.0.0.1 64 16 none none",
                                 "[1] 1 1 3 3 0 1 127.0.0.1 64 16 none none",
                                 "[2] 2 2 3 3 0 1 127.0.0.1 64 16 none none"});
}

TEST_CASE("a user's OMP_NUM_THREADS stays") {
  const ProgramEnd end =
      run_program(launch({"-n", "2"}, "echo $OMP_NUM_THREADS"), {"OMP_NUM_THREADS=7"});
  CHECK(end.out == "[0] 7\n");
}

TEST_CASE("a rank can bind MASTER_PORT as torch's store does, and nobody else has it") {
  const ProgramEnd end =
      run_program({SMP_LAUNCH, "-n", "1", "--", "/usr/bin/env", "python3", "-c",
                   "import os, socket\n"
                   "s = socket.socket()\n"
                   "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
                   "s.bind(('127.0.0.1', int(os.environ['MASTER_PORT'])))\n"
                   "s.listen()\n"
                   "socket.create_connection(('127.0.0.1', int(os.environ['MASTER_PORT'])))\n"
                   "print('connected')"});
  CHECK(end.err == "");
  CHECK(end.out == "[0] connected\n");
}

TEST_CASE("arguments arrive as they were typed") {
  const std::vector<std::string> arguments = {
      "a b", "", "--", "-n", "$HOME", "`x`", "\"'\\", "--help", "*", "\xff\xfe", "line\nline"};
  std::vector<std::string> command = {SMP_LAUNCH, "-n", "1", "--", "/usr/bin/printf", "<%s>"};
  const ProgramEnd end = run_program(joined(command, arguments));
  std::string expected = "[0] ";
  for (const std::string& argument : arguments) expected += "<" + argument + ">";
  expected.replace(expected.find("line\nline"), 5, "line\n[0] ");
  CHECK(end.out == expected + "\n");
}

TEST_CASE("ranks have only their standard streams, and nothing to read") {
  const ProgramEnd end =
      run_program(launch({"-n", "2"}, "cat; ls /proc/$$/fd | tr '\\n' ' '; ulimit -Sn"), {});
  CHECK(contains(end.out, "[0] 0 1 2 "));
  CHECK(end.code == 0);
}

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
  // A control group of 256 MiB for smp-launch (a sanitized one takes a hundred) and its ranks,
  // where this user may make one.
  std::string group;
  for (const char* root : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
    const std::string path = fmt::format("{}/smp-test-{}", root, getpid());
    const bool v1 = std::string(root).ends_with("memory");
    if (access((std::string(root) + "/cgroup.procs").c_str(), W_OK) != 0) continue;
    if (mkdir(path.c_str(), 0755) != 0) continue;
    std::ofstream limit(path + (v1 ? "/memory.limit_in_bytes" : "/memory.max"));
    limit << (256 << 20);
    limit.close();
    if (limit) {
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
                   "{{ sleep 0.2; exec python3 -c \"x = bytearray(1 << 30); import time; "
                   "time.sleep(300)\"; }}; sleep 300'",
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
      "  last lines of its standard error (" +
      run + "/logs/rank-2.err):\n";
  for (int line = 21; line < 60; ++line) expected += fmt::format("    line {}\n", line);
  expected +=
      "    no end\n"
      "  consequence: ranks 0, 1 ended by smp-launch\n"
      "  consequence: rank 3 had ended well\n"
      "smp-launch: 4 ranks ended in T; exit code 9\n";
  CHECK(without_times(end.err) == expected);
}

TEST_CASE("--report-json says the same to programs") {
  ScratchFolder folder;
  const ProgramEnd end =
      run_program(launch({"-n", "2", "--report-json", folder / "r.json"},
                         "test $RANK = 1 && { echo oops >&2; kill -KILL $$; }; sleep 300"));
  CHECK(end.code == 137);
  const auto json = nlohmann::json::parse(read_file(folder / "r.json"));
  CHECK(json["end"] == "rank_failed");
  CHECK(json["exit_code"] == 137);
  CHECK(json["cause"]["rank"] == 1);
  CHECK(json["cause"]["last_lines"] == std::vector<std::string>{"oops"});
  CHECK(json["ranks"][0]["signal"] == "SIGTERM");
  CHECK(json["ranks"][0]["ended_by_launcher"] == true);
  CHECK(json["ranks"][1]["signal"] == "SIGKILL");
  CHECK(json["ranks"][1]["ended_by_launcher"] == false);
}

TEST_CASE("ranks that ignore SIGTERM are killed after --grace") {
  ScratchFolder folder;
  const std::string ready = folder / "ready";
  const ProgramEnd end =
      run_program(launch({"-n", "3", "--grace", "300ms"},
                         "trap '' TERM; echo up >> " + ready + "; test $RANK = 1 && { " +
                             wait_for(ready, 3) + "exit 5; }; while :; do sleep 1; done"));
  CHECK(end.code == 5);
  CHECK(end.seconds > 0.3);
  CHECK(end.seconds < kSoonS);
  CHECK(contains(end.err,
                 "consequence: ranks 0, 2 killed by smp-launch, 300 ms after being asked to end"));
}

TEST_CASE("a stopped rank is ended too") {
  const ProgramEnd end = run_program(launch(
      {"-n", "2"}, "test $RANK = 0 && kill -STOP $$; test $RANK = 1 && { sleep 0.2; exit 4; }"));
  CHECK(end.code == 4);
  CHECK(end.seconds < kSoonS);
}

TEST_CASE("nothing that a rank has started outlives the job") {
  ScratchFolder folder;
  const std::string pids = folder / "pids";
  // One child in the rank's session, one in a session of its own that ignores SIGTERM, and one
  // whose parent has gone.
  const std::string start = fmt::format(
      "sleep 100 & echo $! >> {0}; "
      "setsid sh -c 'trap \"\" TERM; echo $$ >> {0}; while :; do sleep 1; done' & "
      "(setsid sh -c 'sh -c \"echo \\$\\$ >> {0}; exec sleep 100\" &' &); ",
      pids);
  SUBCASE("a failure") {
    const ProgramEnd end =
        run_program(launch({"-n", "2"}, start + wait_for(pids, 6) + "exit $RANK"));
    CHECK(end.code == 1);
  }
  SUBCASE("a good end") {
    const ProgramEnd end = run_program(launch({"-n", "2"}, start + wait_for(pids, 6)));
    CHECK(end.code == 0);
    CHECK(contains(end.err, "that the ranks had left behind"));
  }
  SUBCASE("kill -9 of smp-launch") {
    Program program(launch({"-n", "2"}, start + "echo $$ >> " + pids + "; sleep 100"));
    wait_for_lines(pids, 8);
    program.signal(SIGKILL);
    CHECK(program.wait().code == 137);
  }
  SUBCASE("kill -9 of its second process") {
    Program program(launch({"-n", "2"}, start + "echo $PPID >> " + pids + "; sleep 100"));
    wait_for_lines(pids, 8);
    // The ranks' parent is the supervising process: every other number is a rank's descendant.
    const ProgramEnd ranks = run_program(
        {"/bin/sh", "-c",
         fmt::format(
             "for p in $(cat {}); do grep -q smp-supervise /proc/$p/comm 2>/dev/null && kill "
             "-9 $p; done; true",
             pids)});
    CHECK(ranks.code == 0);
    const ProgramEnd end = program.wait();
    CHECK(end.code == 125);
    CHECK(contains(end.err, "its supervising process was killed by signal 9"));
  }
  CHECK(all_gone(wait_for_lines(pids, 6)));
}

TEST_CASE("kill -9 of smp-launch right after its start leaves nothing") {
  ScratchFolder folder;
  const std::string pids = folder / "pids";
  for (int delay_ms : {0, 1, 2, 4, 8, 12, 16, 20, 30, 40}) {
    Program program(launch({"-n", "8"}, "echo $$ >> " + pids + "; exec sleep 100"));
    usleep(static_cast<useconds_t>(delay_ms * 1000));
    program.signal(SIGKILL);
    program.wait();
  }
  std::vector<std::string> started = sorted_lines(read_file(pids));
  CHECK(all_gone(started));
  usleep(100'000);  // a rank that had just been started may write its number only now
  started = sorted_lines(read_file(pids));
  CHECK(all_gone(started));
}

TEST_CASE("Ctrl-C once asks the ranks to end, twice kills them") {
  ScratchFolder folder;
  const std::string ready = folder / "ready";
  SUBCASE("once") {
    Program program(launch(
        {"-n", "2", "--show-ranks", "all"},
        "trap 'echo bye; exit 0' INT; echo $$ >> " + ready + "; while :; do sleep 0.05; done"));
    wait_for_lines(ready, 2);
    program.signal(SIGINT);
    const ProgramEnd end = program.wait();
    CHECK(end.code == 130);
    CHECK(sorted_lines(end.out) == std::vector<std::string>{"[0] bye", "[1] bye"});
    CHECK(without_times(end.err) ==
          "smp-launch: interrupted by SIGINT\n"
          "  consequence: ranks 0, 1 ended by smp-launch\n"
          "smp-launch: 2 ranks ended in T; exit code 130\n");
  }
  SUBCASE("twice") {
    Program program(launch({"-n", "2", "--grace", "60s"}, "trap 'echo $$ >> " + ready +
                                                              "' INT; echo $$ >> " + ready +
                                                              "; while :; do sleep 0.05; done"));
    wait_for_lines(ready, 2);
    program.signal(SIGINT);
    wait_for_lines(ready, 4);
    program.signal(SIGINT);
    const ProgramEnd end = program.wait();
    CHECK(end.code == 130);
    CHECK(end.seconds < kSoonS);
  }
  SUBCASE("a terminal's Ctrl-C, which reaches the whole process group, counts once") {
    Program program(launch(
        {"-n", "2"}, "trap 'exit 0' INT; echo $$ >> " + ready + "; while :; do sleep 0.05; done"));
    wait_for_lines(ready, 2);
    kill(-program.pid(), SIGINT);
    const ProgramEnd end = program.wait();
    CHECK(end.code == 130);
    CHECK(contains(end.err, "ended by smp-launch"));
    CHECK(!contains(end.err, "killed by smp-launch"));
  }
  SUBCASE("SIGTERM") {
    Program program(launch({"-n", "2"}, "echo $$ >> " + ready + "; sleep 100"));
    wait_for_lines(ready, 2);
    program.signal(SIGTERM);
    CHECK(program.wait().code == 143);
  }
  CHECK(all_gone(wait_for_lines(ready, 2)));
}

TEST_CASE("SIGUSR1 is passed on to the ranks") {
  ScratchFolder folder;
  Program program(launch({"-n", "2"}, "trap 'exit 0' USR1; echo $$ >> " + (folder / "ready") +
                                          "; while :; do sleep 0.05; done"));
  wait_for_lines(folder / "ready", 2);
  program.signal(SIGUSR1);
  CHECK(program.wait().code == 0);
}

TEST_CASE("--timeout ends the job with exit code 124") {
  const ProgramEnd end = run_program(launch({"-n", "2", "--timeout", "300ms"}, "sleep 100"));
  CHECK(end.code == 124);
  CHECK(end.seconds < kSoonS);
  CHECK(without_times(end.err) ==
        "smp-launch: the job had not ended after T (--timeout)\n"
        "  consequence: ranks 0, 1 ended by smp-launch\n"
        "smp-launch: 2 ranks ended in T; exit code 124\n");
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
    CHECK(contains(end.err,
                   "smp-launch: rank 1 stopped responding: it was stopped by a signal (SIGSTOP or "
                   "the like)\n  rank 0 said:\n    step 7: backward: waited 5 s for rank 1\n"));
  }
  SUBCASE("it is stuck, and the blame passes through others") {
    const ProgramEnd end = run_program(
        launch({"-n", "4", "--run-dir", run},
               blame + "case $RANK in 0) echo $$ > " + pid + "; " + wait_for(ready, 1) +
                   "blame timeout 1 'waited for 1';; 1) echo up > " + ready + "; " +
                   wait_for_end_of(pid) + "blame timeout 3 'waited for 3';; *) sleep 300;; esac"));
    CHECK(end.code == 1);
    CHECK(contains(end.err, "smp-launch: rank 3 stopped responding\n  rank 1 said:\n"));
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

TEST_CASE("lines stay whole under load, on the console and in the logs") {
  ScratchFolder folder;
  const std::string run = folder / "run";
  const ProgramEnd end = run_program(launch(
      {"-n", "4", "--show-ranks", "all", "--run-dir", run},
      "i=0; while [ $i -lt 3000 ]; do echo \"$RANK:$i:abcdefghijklmnopqrstuvwxyz\"; "
      "echo \"$RANK:$i:error\" >&2; i=$((i+1)); done; printf 'rank %s has no line end' $RANK"));
  CHECK(end.code == 0);
  std::map<std::string, int> next;
  std::istringstream lines(end.out);
  int whole = 0, last = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string rank = line.substr(1, 1);
    if (line == "[" + rank + "] rank " + rank + " has no line end") {
      ++last;
      continue;
    }
    REQUIRE(line == fmt::format("[{0}] {0}:{1}:abcdefghijklmnopqrstuvwxyz", rank, next[rank]++));
    ++whole;
  }
  CHECK(whole == 12000);
  CHECK(last == 4);
  CHECK(std::count(end.err.begin(), end.err.end(), '\n') == 12000);
  CHECK(contains(read_file(run + "/logs/rank-3.out"), "3:2999:abcdefghijklmnopqrstuvwxyz\n"));
  CHECK(contains(read_file(run + "/logs/rank-3.out"), "rank 3 has no line end"));
  CHECK(contains(read_file(run + "/logs/rank-2.err"), "2:0:error\n"));
}

TEST_CASE("--show-ranks chooses what reaches the console") {
  const std::string script = "echo $RANK";
  CHECK(run_program(launch({"-n", "4"}, script)).out == "[0] 0\n");
  CHECK(run_program(launch({"-n", "4", "--show-ranks", "none"}, script)).out == "");
  CHECK(sorted_lines(run_program(launch({"-n", "4", "--show-ranks", "1,2-3"}, script)).out) ==
        std::vector<std::string>{"[1] 1", "[2] 2", "[3] 3"});
}

TEST_CASE("a reader of the console that has gone does not end the ranks") {
  ScratchFolder folder;
  const ProgramEnd end = run_program(
      {"/bin/sh", "-c",
       fmt::format("{} -n 1 -- sh -c 'i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); "
                   "done; echo done > {}' | head -1",
                   SMP_LAUNCH, folder / "done")});
  CHECK(end.out == "[0] line 0\n");
  CHECK(wait_for_lines(folder / "done", 1).front() == "done");
}

TEST_CASE("64 ranks that do nothing, again and again") {
  for (int round = 0; round < 20; ++round) {
    const ProgramEnd end = run_program({SMP_LAUNCH, "-n", "64", "--", "/bin/true"});
    CHECK(end.code == 0);
    CHECK(end.err == "");
  }
}

TEST_CASE("what cannot be started or written is said with its reason") {
  ScratchFolder folder;
  std::ofstream(folder / "text") << "no program";
  std::ofstream(folder / "script") << "#!/no/such/shell\n";
  chmod((folder / "script").c_str(), 0755);
  const auto failure = [&](const std::vector<std::string>& arguments, int code,
                           const std::string& text) {
    const ProgramEnd end = run_program(joined({SMP_LAUNCH}, arguments));
    CHECK(end.code == code);
    CHECK(without_times(end.err) == text);
  };
  const std::string last = "smp-launch: 2 ranks ended in T; exit code 125\n";
  failure({"-n", "2", "--", "no-such-program"}, 125,
          "smp-launch: rank 0: cannot start 'no-such-program': not found in PATH\n" + last);
  failure({"-n", "2", "--", folder / "none"}, 125,
          "smp-launch: rank 0: cannot start '" + (folder / "none") +
              "': No such file or directory\n" + last);
  failure(
      {"-n", "2", "--", folder / "text"}, 125,
      "smp-launch: rank 0: cannot start '" + (folder / "text") + "': Permission denied\n" + last);
  failure({"-n", "2", "--", folder / "script"}, 125,
          "smp-launch: rank 0: cannot start '" + (folder / "script") +
              "': No such file or directory (the file exists: the interpreter in its first line "
              "does not)\n" +
              last);
  failure({"-n", "2", "--run-dir", folder.path(), "--", "/bin/true"}, 3,
          "smp-launch: run folder '" + folder.path() +
              "' is not empty: name another one with --run-dir, remove it, or go on from its "
              "checkpoint with --resume\n");
  failure({"-n", "2", "--run-dir", folder / "text", "--", "/bin/true"}, 3,
          "smp-launch: cannot create run folder '" + (folder / "text") + "': it is a file\n");
  failure({"-n", "2", "--run-dir", folder / "text/run", "--", "/bin/true"}, 3,
          "smp-launch: cannot create run folder '" + (folder / "text/run") + "': '" +
              (folder / "text") + "' is a file\n");
  failure(
      {"-n", "2", "--report-json", folder / "none/r.json", "--", "/bin/true"}, 3,
      "smp-launch: cannot write '" + (folder / "none/r.json") + "': No such file or directory\n");
}

TEST_CASE("a log that cannot be written ends the job") {
  ScratchFolder folder;
  const std::string run = folder / "run";
  // The limit on file size stands for a full disk.
  const ProgramEnd end = run_program(
      {"/bin/sh", "-c",
       fmt::format(
           "ulimit -f 1; exec {} -n 2 --show-ranks none --run-dir {} -- sh -c 'head -c 100000 "
           "/dev/zero; sleep 300'",
           SMP_LAUNCH, run)});
  CHECK(end.code == 125);
  CHECK(contains(end.err, "smp-launch: cannot write log '" + run + "/logs/rank-"));
  CHECK(contains(end.err, ".out': File too large\n"));
}

TEST_CASE("processes that the launcher's shell had before are not touched") {
  ScratchFolder folder;
  const std::string pids = folder / "pids";
  const ProgramEnd end = run_program(
      {"/bin/sh", "-c",
       fmt::format("sleep 60 & echo $! > {}; exec {} -n 2 -- sh -c 'kill -9 $PPID; sleep 300'",
                   pids, SMP_LAUNCH)});
  CHECK(end.code == 125);
  const std::vector<std::string> stranger = wait_for_lines(pids, 1);
  CHECK(!all_gone(stranger, std::chrono::milliseconds(0)));
  kill(std::stoi(stranger.front()), SIGKILL);
}
