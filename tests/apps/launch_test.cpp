#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "launching.h"

// What ranks are given, and what cannot be started.

using namespace smp;

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
  std::ofstream(folder / "variables") << "A=1\n";
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
              "' is not empty: give another folder with --run-dir, remove this folder, or resume "
              "from its checkpoint with --resume\n");
  failure({"-n", "2", "--run-dir", folder / "text", "--", "/bin/true"}, 3,
          "smp-launch: cannot create run folder '" + (folder / "text") + "': it is a file\n");
  failure({"-n", "2", "--run-dir", folder / "text/run", "--", "/bin/true"}, 3,
          "smp-launch: cannot create run folder '" + (folder / "text/run") + "': '" +
              (folder / "text") + "' is a file\n");
  for (const char* option : {"--report", "--prometheus"})
    failure({"-n", "2", "--env-file", folder / "variables", option, folder / "variables", "--",
             "/bin/true"},
            3,
            "smp-launch: " + (folder / "variables") +
                ": the output would overwrite an input; write to another file\n");
  for (const auto& [option, kind] :
       {std::pair{"--report", "JSON"}, {"--prometheus", "metrics for Prometheus"}})
    failure({"-n", "2", option, folder / "variables", "--", "/bin/true"}, 3,
            "smp-launch: " + (folder / "variables") + ": the file holds another text, which " +
                kind + " would overwrite: write to another file, or remove this one first\n");
  // A device would be replaced by a file: for everybody, where root asks for it.
  REQUIRE(mkfifo((folder / "fifo").c_str(), 0600) == 0);
  failure({"-n", "2", "--prometheus", folder / "fifo", "--", "/bin/true"}, 3,
          "smp-launch: --prometheus: '" + (folder / "fifo") +
              "' is not a regular file: give a regular file or a new name\n");
  CHECK(std::filesystem::is_fifo(folder / "fifo"));
  failure({"-n", "2", "--report", folder / "none/r.json", "--", "/bin/true"}, 3,
          "smp-launch: " + (folder / "none/r.json") +
              ": cannot be written: No such file or directory\n");
}

TEST_CASE("a link that another user put beside the metrics file redirects no write") {
  const ScratchFolder folder;
  std::ofstream(folder / "victim") << "mine";
  std::ofstream(folder / "metrics") << "# HELP smp_old Of the last run.\n";
  std::filesystem::create_symlink(folder / "victim", folder / "metrics.new");
  std::filesystem::create_symlink(folder / "metrics", folder / "link");
  const ProgramEnd end =
      run_program(launch({"-n", "1", "--prometheus", folder / "link"}, "exit 0"));
  CHECK(end.code == 0);
  CHECK(read_file(folder / "victim") == "mine");
  CHECK(contains(read_file(folder / "metrics"), "smp_ranks"));
  CHECK(std::filesystem::is_symlink(folder / "link"));
}
