#include "health/xid.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "agent/agent_messages.h"
#include "scratch_folder.h"

using namespace smp;
using namespace smp::agent;
using namespace smp::health;
using namespace smp::process;

namespace {

using Texts = std::vector<std::string>;

// Stands for /dev/kmsg and the driver's list of GPUs.
struct Machine {
  Machine() {
    std::filesystem::create_directories(folder / "dev");
    for (const char* gpu : {"0000:02:00.0", "0000:3b:00.0"})
      std::filesystem::create_directories(
          fmt::format("{}/proc/driver/nvidia/gpus/{}", folder.path(), gpu));
    see_pids_of("pid:[4026531836]");
    log("4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 48, pid=7, of a job before\n");
  }
  void log(const std::string& message) {
    std::ofstream(folder / "dev/kmsg", std::ios::app) << message;
  }
  void see_pids_of(const char* space) {
    const std::filesystem::path ns = folder / "proc/self/ns";
    std::filesystem::create_directories(ns);
    std::filesystem::remove(ns / "pid");
    std::filesystem::create_symlink(space, ns / "pid");
  }
  void process(int pid, int parent, int session) {
    const std::string of = folder / fmt::format("proc/{}", pid);
    std::filesystem::create_directories(of);
    std::ofstream(of + "/stat") << fmt::format("{} (a) b) S {} 1 {} 0\n", pid, parent, session);
  }
  ScratchFolder folder;
};

}  // namespace

TEST_CASE("an Xid has a number, and often a process") {
  const auto xid =
      xid_in("4,339,51,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=123, name=x, Fault\n S=p\n");
  REQUIRE(xid.has_value());
  CHECK(xid->number == 31);
  CHECK(xid->pid == 123);
  CHECK(xid->text == "Xid (PCI:0000:3b:00): 31, pid=123, name=x, Fault");
  CHECK(xid_in("4,1,1,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', off\n")->pid == 0);
  CHECK(!xid_in("4,1,1,-;NVRM: loading the driver\n").has_value());
}

TEST_CASE("a rank is told the Xids of its time, but for those of other ranks") {
  Machine machine;
  XidWatch watch(machine.folder.path());
  watch.add(123);
  watch.add(124);
  CHECK(watch.about(123).empty());
  machine.log("4,2,2,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=123, Fault\n");
  CHECK(watch.about(123) == Texts{"GPU 1: Xid (PCI:0000:3b:00): 31, pid=123, Fault"});
  CHECK(watch.about(124).empty());
  machine.log("6,3,3,-;something else\n");
  machine.log("4,4,4,-;NVRM: Xid (PCI:0000:ff:00): 79, pid='<unknown>', off the bus\n");
  const std::string gone = "Xid (PCI:0000:ff:00): 79, pid='<unknown>', off the bus";
  CHECK(watch.about(124) == Texts{gone});
  CHECK(watch.about(123).size() == 2);
  for (int i = 0; i < 9; ++i) {
    machine.log(fmt::format("4,5,5,-;NVRM: Xid (PCI:0000:02:00): 13, pid=99, {}\n", i));
    watch.about(123);
  }
  const Texts last = watch.about(124);
  CHECK(last.size() == 5);
  CHECK(last.back() == "GPU 0: Xid (PCI:0000:02:00): 13, pid=99, 8");
}

TEST_CASE("an Xid that names what a rank has started is that rank's") {
  Machine machine;
  machine.process(200, 1, 123);    // its parent has gone
  machine.process(300, 124, 300);  // leads a session of its own,
  machine.process(301, 300, 300);  // as torchrun's workers do
  XidWatch watch(machine.folder.path());
  watch.add(123);
  watch.add(124);
  machine.log("4,2,2,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=200, a\n");
  CHECK(watch.about(124).empty());
  std::filesystem::remove_all(machine.folder / "proc/200");  // known by now
  CHECK(watch.about(124).empty());
  CHECK(watch.about(123) == Texts{"GPU 1: Xid (PCI:0000:3b:00): 31, pid=200, a"});
  machine.log("4,3,3,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=301, b\n");
  CHECK(watch.about(123).size() == 1);
  CHECK(watch.about(124) == Texts{"GPU 1: Xid (PCI:0000:3b:00): 31, pid=301, b"});
}

TEST_CASE("in a pid namespace the processes that the driver names are not known") {
  Machine machine;
  machine.see_pids_of("pid:[4026532555]");
  XidWatch watch(machine.folder.path());
  watch.add(123);
  machine.log("4,2,2,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=123, of whom\n");
  CHECK(watch.about(123).empty());
  machine.log("4,3,3,-;NVRM: Xid (PCI:0000:02:00): 79, pid='<unknown>', off the bus\n");
  CHECK(watch.about(123) == Texts{"GPU 0: Xid (PCI:0000:02:00): 79, pid='<unknown>', off the bus"});
}

TEST_CASE("where the kernel's log may not be read, no rank is told of Xids") {
  const ScratchFolder nothing;
  CHECK(XidWatch(nothing.path()).about(1).empty());
}

TEST_CASE("Xids of a rank on another host arrive") {
  ProcessEnd end;
  end.exit_code = 3;
  end.gpu_errors = {"GPU 1: Xid a", "Xid b"};
  const std::string message = encode_end(5, end);
  wire::PayloadReader reader(message);
  CHECK(reader.number() == 5);
  const ProcessEnd arrived = decode_end(reader);
  CHECK(arrived.exit_code == 3);
  CHECK(arrived.gpu_errors == end.gpu_errors);
}
