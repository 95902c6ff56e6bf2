#include "output/input_feed.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <map>
#include <set>

#include "smp/plan/system/file_descriptor.h"

using namespace smp;
using namespace smp::job;
using namespace smp::output;
using namespace smp::system;

namespace {

// Its processes read nothing but what the test says.
class ReadingHost : public Host {
 public:
  std::string name() const override { return "nowhere"; }
  void start(int, const Command&) override {}
  void signal(int, int, SignalScope) override {}
  void give_input(int process, std::string_view bytes) override { given[process] += bytes.size(); }
  uint64_t input_taken(int process) const override {
    return process == slow ? taken : given.at(process);
  }
  int event_fd() const override { return -1; }
  void dispatch(HostEvents&) override {}
  void hold_output(bool) override {}
  int finish(HostEvents&) override { return 0; }

  std::map<int, uint64_t> given;
  int slow = 0;
  uint64_t taken = 0;  // by the slow one
};

// Standard input that never ends.
class EndlessInput {
 public:
  EndlessInput() : before_(dup(STDIN_FILENO)) {
    const FileDescriptor zeros(open("/dev/zero", O_RDONLY | O_CLOEXEC));
    dup2(zeros.number(), STDIN_FILENO);
  }
  ~EndlessInput() { dup2(before_.number(), STDIN_FILENO); }

 private:
  FileDescriptor before_;
};

}  // namespace

TEST_CASE("what waits for ranks that do not read is 1 MiB each, and 64 MiB for all of them") {
  const EndlessInput input;
  for (const auto& [ranks, window] :
       std::map<int, uint64_t>{{1, 1 << 20}, {64, 1 << 20}, {65, (64 << 20) / 65}, {1000, 67108}}) {
    ReadingHost host;
    std::set<int> all;
    for (int rank = 0; rank < ranks; ++rank) {
      all.insert(rank);
      host.given[rank] = 0;
    }
    InputFeed feed(host, all);
    while (feed.wanted() >= 0) feed.read_some();
    CHECK(host.given[0] == window);
    host.taken = 100;
    while (feed.wanted() >= 0) feed.read_some();
    CHECK(host.given[ranks - 1] == window + 100);
    feed.forget(0);  // the slow one holds nobody up any more
    CHECK((feed.wanted() >= 0) == (ranks > 1));
  }
}
