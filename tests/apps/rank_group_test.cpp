#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "launching.h"

// Where a control group is delegated to smp-launch, its ranks have one of their own in it.

using namespace smp;

namespace {

// Below the group of this process, as a scheduler makes one for a job. Removed with its object.
class DelegatedGroup {
 public:
  static std::optional<DelegatedGroup> make() {
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
      if (!line.starts_with("0::")) continue;
      for (const std::string root : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
        DelegatedGroup group(fmt::format("{}{}/smp-test-{}", root, line.substr(3), getpid()));
        if (mkdir(group.path_.c_str(), 0755) != 0) continue;
        const ProgramEnd joins = run_program(joined(group.inside(), {"/bin/true"}));
        if (access((group.path_ + "/cgroup.kill").c_str(), W_OK) == 0 && joins.code == 0)
          return group;
        rmdir(group.path_.c_str());
      }
    }
    MESSAGE("skipped: no control group with cgroup.kill may be made here");
    return std::nullopt;
  }
  void remove() const { rmdir(path_.c_str()); }

  // Put before a program, it runs in the group.
  std::vector<std::string> inside() const {
    return {"/bin/sh", "-c", "echo $$ > " + path_ + "/cgroup.procs && exec \"$@\"", "sh"};
  }
  int groups_below() const {
    return static_cast<int>(std::count_if(std::filesystem::directory_iterator(path_), {},
                                          [](const auto& entry) { return entry.is_directory(); }));
  }

 private:
  explicit DelegatedGroup(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace

TEST_CASE("ranks have a control group of their own, and nothing of it is left") {
  const auto group = DelegatedGroup::make();
  if (!group) return;
  ScratchFolder folder;
  const std::string pids = folder / "pids";
  const std::string own = "grep ^0: /proc/self/cgroup; ";
  const std::string leave = "setsid sleep 100 & echo $! >> " + pids + "; ";
  SUBCASE("a good end, with a process left behind") {
    const ProgramEnd end =
        run_program(joined(group->inside(), launch({"-n", "2", "--show-ranks", "all"},
                                                   own + leave + wait_for(pids, 2))));
    CHECK(end.code == 0);
    CHECK(contains(end.out, "/smp-ranks-"));
    CHECK(contains(end.err, "2 processes that the ranks had left behind"));
    CHECK(all_gone(wait_for_lines(pids, 2)));
  }
  SUBCASE("kill -9 of its second process") {
    Program program(joined(group->inside(),
                           launch({"-n", "2"}, leave + wait_for(pids, 2) +
                                                   "test $RANK = 1 || kill -9 $PPID; sleep 100")));
    const ProgramEnd end = program.wait();
    CHECK(end.code == 125);
    CHECK(contains(end.err, "its supervising process was killed by signal 9"));
    CHECK(all_gone(wait_for_lines(pids, 2)));
  }
  SUBCASE("a program that is not there") {
    const ProgramEnd end =
        run_program(joined(group->inside(), {SMP_LAUNCH, "-n", "2", "--", "no-such-program"}));
    CHECK(end.code == 125);
    CHECK(contains(end.err, "rank 0: cannot start 'no-such-program': not found in PATH"));
  }
  SUBCASE("agents") {
    const ProgramEnd end = run_program(joined(
        group->inside(), launch({"--hosts", "a:2,b:2", "--via", "local", "--show-ranks", "all"},
                                own + "test $RANK != 3 || exit 7; sleep 100")));
    CHECK(end.code == 7);
    CHECK(contains(end.out, "/smp-ranks-"));
  }
  CHECK(group->groups_below() == 0);
  group->remove();
}
