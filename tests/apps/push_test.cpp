#include <doctest/doctest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>

#include "program.h"

// smp-launch --push, from outside. The hosts are this machine: each has a folder of its own.

using namespace smp;
namespace fs = std::filesystem;

namespace {

// smp-launch, in a folder with files, with a place for what hosts are pushed.
struct Pushing {
  ScratchFolder folder;
  std::string here = folder / "here", there = folder / "there";

  Pushing() {
    fs::create_directories(here + "/sub");
    fs::create_directories(there);
    std::ofstream(here + "/big") << std::string(3'000'000, 'x');
    std::ofstream(here + "/sub/empty");
    std::ofstream(here + "/run.sh") << "#!/bin/sh\nwc -c < big; ls sub; pwd\n";
    fs::permissions(here + "/run.sh", fs::perms::owner_all);
  }

  std::vector<std::string> launch(const std::string& hosts, const std::string& options,
                                  const std::string& program) const {
    return {"/bin/sh", "-c",
            "cd " + here + " && TMPDIR=" + there + " exec " SMP_LAUNCH " --hosts '" + hosts +
                "' --via local " + options + " -- " + program};
  }
  ProgramEnd run(const std::string& hosts, const std::string& options,
                 const std::string& program) const {
    return run_program(launch(hosts, options, program));
  }
};

}  // namespace

TEST_CASE("ranks run among the files that their hosts were pushed, which are removed at the end") {
  const Pushing pushing;
  for (const char* hosts : {"a,b", "h[1-7] --fan-out 2"}) {
    const std::string words = hosts;
    const size_t blank = words.find(' ');
    const ProgramEnd end =
        pushing.run(words.substr(0, blank),
                    "--show-ranks last --push run.sh --push sub/../big --push sub" +
                        (blank == words.npos ? "" : words.substr(blank)),
                    "./run.sh");
    CHECK(end.err == "");
    CHECK(end.code == 0);
    CHECK(contains(end.out, "] 3000000\n"));
    CHECK(contains(end.out, "] empty\n"));
    CHECK(contains(end.out, "] " + pushing.there + "/smp-push-"));
    CHECK(fs::is_empty(pushing.there));
  }
}

TEST_CASE("nothing pushed is left behind by a failure, nor by the death of an agent") {
  const Pushing pushing;
  CHECK(
      pushing.run("a:2,b", "--push big", "sh -c 'test $RANK = 1 && exit 7; exec sleep 30'").code ==
      7);
  CHECK(fs::is_empty(pushing.there));
  CHECK(pushing.run("a:2,b", "--push big", "sh -c 'test $RANK = 1 && kill -9 $PPID; exec sleep 30'")
            .code == 125);
  // Its other process removes it, which nobody waits for.
  for (int i = 0; i < 200 && !fs::is_empty(pushing.there); ++i) usleep(50'000);
  CHECK(fs::is_empty(pushing.there));
}

TEST_CASE("files are pushed by any path that leads to this folder") {
  const Pushing pushing;
  const std::string linked = pushing.folder / "linked";
  fs::create_symlink(pushing.folder.path(), linked);
  fs::create_symlink(pushing.here, pushing.folder / "direct");
  fs::create_symlink("/etc/passwd", pushing.here + "/sub/elsewhere");
  const auto list = [&](const std::string& options) {
    const ProgramEnd end = pushing.run("a", options, "ls -R");
    CHECK(end.err == "");
    return end.out;
  };
  CHECK(list("--push " + linked + "/here/big --push " + linked + "/here/sub") ==
        "[0] .:\n[0] big\n[0] sub\n[0] \n[0] ./sub:\n[0] elsewhere\n[0] empty\n");
  CHECK(list("--push " + linked + "/here") == list("--push ."));
  CHECK(list("--push " + (pushing.folder / "direct")) == list("--push ."));
  const ProgramEnd outside = pushing.run("a", "--push " + linked + "/there", "true");
  CHECK(contains(outside.err, "only files below the working folder can be sent"));
}

// Many of them take longer than agents wait for a word.
TEST_CASE("what is to be pushed is known before any host is reached") {
  const Pushing pushing;
  const ProgramEnd end = run_program(
      {"/bin/sh", "-c",
       "cd " + pushing.here +
           " && exec " SMP_LAUNCH
           " --hosts a --via 'exec:touch sub/late; exec $SMP_AGENT --agent' --push sub -- ls sub"},
      {"TMPDIR=" + pushing.there});
  CHECK(end.code == 0);
  CHECK(end.out == "[0] empty\n");
  CHECK(fs::exists(pushing.here + "/sub/late"));
}

TEST_CASE("what cannot be pushed is said before anything starts") {
  const Pushing pushing;
  const auto refused = [&](const std::string& option, const std::string& why) {
    const ProgramEnd end = pushing.run("a", option, "true");
    CHECK(end.code == 3);
    CHECK(end.err == "smp-launch: --push " + why + "\n");
  };
  refused("--push none", "'none': there is no such file");
  refused("--push ../x",
          "'../x': only files below the working folder can be sent, because each keeps its "
          "relative path");
  refused("--push /etc/passwd",
          "'/etc/passwd': only files below the working folder can be sent, because each keeps its "
          "relative path");
  fs::create_symlink("/nowhere", pushing.here + "/sub/link");
  refused("--push sub", "'sub': 'sub/link' is a link whose target does not exist");
  fs::create_directories(pushing.here + "/hollow");
  refused("--push hollow", "'hollow': the folder has no files");
  const ProgramEnd local = run_program({SMP_LAUNCH, "-n", "1", "--push", "x", "--", "true"});
  CHECK(local.code == 2);
  CHECK(contains(local.err,
                 "--push is for jobs on other hosts: name the hosts with --hosts or --hostfile"));
}

TEST_CASE("a host that cannot take what is pushed is named") {
  const Pushing pushing;
  const ProgramEnd end = run_program(
      {"/bin/sh", "-c",
       "cd " + pushing.here +
           " && exec " SMP_LAUNCH
           " --hosts a,b --via 'exec:test $SMP_HOST = b && export TMPDIR=/nowhere; exec $SMP_AGENT "
           "--agent' --push big -- true"},
      {"TMPDIR=" + pushing.there});
  CHECK(end.code == 125);
  CHECK(contains(end.err,
                 "smp-launch: 1 of 2 hosts could not be used:\n"
                 "  host b: cannot make folder '/nowhere/smp-push-"));
  CHECK(contains(end.err, "': No such file or directory\n"));
}
