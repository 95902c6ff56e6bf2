#include <doctest/doctest.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/on_paths.h"
#include "comm/processes.h"
#include "held_port.h"
#include "scratch_folder.h"
#include "segment/memory_limit.h"

// Hosts that allow little, as containers do.
using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::mesh;
using namespace smp::net;
using namespace smp::testing;

namespace {

// A control group whose memory is limited, of either version; "" where none may be made.
std::string limited_group(int64_t bytes) {
  for (const std::string root : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
    const std::string group = fmt::format("{}/smp-comm-test-{}", root, getpid());
    if (access((root + "/cgroup.procs").c_str(), W_OK) != 0) continue;
    if (mkdir(group.c_str(), 0755) != 0) continue;
    const bool v1 = root.ends_with("memory");
    std::ofstream limit(group + (v1 ? "/memory.limit_in_bytes" : "/memory.max"));
    limit << bytes << std::flush;
    if (limit.good()) return group;
    rmdir(group.c_str());
  }
  return "";
}

// A /dev/shm of 1 MiB, seen by this process alone. False where it may not be made.
bool shrink_dev_shm() {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  if (mount("small", "/dev/shm", "tmpfs", 0, "size=1m") != 0) return false;
  struct statvfs shm {};
  return statvfs("/dev/shm", &shm) == 0 && shm.f_blocks * shm.f_frsize == 1 << 20;
}

// From here on the system refuses to copy between processes. False where it cannot be told to.
bool forbid_copies_between_processes() {
  const auto jump_if = [](uint32_t call, uint8_t skip) {
    return sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, skip, 0);
  };
  std::array<sock_filter, 5> filter = {{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      jump_if(SYS_process_vm_readv, 2),
      jump_if(SYS_process_vm_writev, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
  }};
  const sock_fprog program{filter.size(), filter.data()};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return false;
  return syscall(SYS_process_vm_readv, getpid(), nullptr, 0, nullptr, 0, 0) == -1 && errno == EPERM;
}

std::string work_of(Communicator& comm) {
  constexpr int64_t kCount = 4 << 20;  // 16 MiB, more than all of /dev/shm
  const int64_t size = comm.size();
  const auto shared = comm.allocate_symmetric(kCount * 4);
  std::vector<float> own(kCount, 1), all(size_t(kCount * size));
  auto* const direct = reinterpret_cast<float*>(shared.get());
  for (int64_t i = 0; i < kCount; ++i) direct[i] = 1;
  for (float* data : {own.data(), direct}) {
    comm.all_reduce(data, data, kCount, DType::kF32, ReduceOp::kSum, "sum")->wait();
    if (data[0] != float(size) || data[kCount - 1] != float(size)) return "a wrong sum";
    comm.all_gather(data, all.data(), kCount, DType::kF32, "all")->wait();
    if (all.back() != float(size)) return "a wrong gather";
  }
  comm.barrier("end")->wait();
  return "good";
}

}  // namespace

TEST_CASE("processes: a /dev/shm of 1 MiB, and no copies between processes, change nothing") {
  const std::string job_id = fresh_job_id();
  std::vector<Child> children;
  for (int rank = 0; rank < 3; ++rank)
    children.emplace_back([rank, job_id]() -> std::string {
      if (!shrink_dev_shm()) return "skipped: no mounts of its own";
      if (!forbid_copies_between_processes()) return "skipped: no seccomp";
      SharedMemoryOptions options;
      options.rank = rank;
      options.size = 3;
      options.job_id = job_id;
      options.job_key = "the key of the tests";
      options.timeout = std::chrono::seconds(60);
      return work_of(*connect_shared_memory(options));
    });
  std::vector<std::string> said;
  for (Child& child : children) said.push_back(child.join().said);
  if (said[0].starts_with("skipped")) {
    MESSAGE(said[0]);
    return;
  }
  CHECK(said == std::vector<std::string>(3, "good"));
}

TEST_CASE("processes: a /dev/shm of its own stays empty, on all paths, however ranks end") {
  // What ranks leave there, each of them in the way of its number.
  const auto left_by = [](Path path, int ranks) -> std::string {
    const HeldPort port;
    if (!shrink_dev_shm()) return "skipped: no mounts of its own";
    const std::string job_id = fresh_job_id();
    std::vector<Child> children;
    for (int rank = 0; rank < ranks; ++rank)
      children.emplace_back([&, rank]() -> std::string {
        try {
          const auto comm =
              connect_on(path, rank, ranks, job_id, port.number(), std::chrono::seconds(60));
          std::vector<float> in(size_t(kCount * ranks), 1), out(in.size());
          make("all_reduce", *comm, in.data(), out.data());
          make("send", *comm, in.data(), out.data());
          if (rank == ranks - 1) raise(SIGKILL);
          if (rank == 1) throw std::logic_error("the end");
          comm->barrier("all")->wait();
        } catch (const CommError&) {
        }
        return "";
      });
    for (Child& child : children) child.join();
    std::string left;
    for (const auto& file : std::filesystem::directory_iterator("/dev/shm"))
      left += file.path().filename().string() + "\n";
    return left;
  };
  for (const Path path : kPaths)
    for (const int ranks : kNumbersOfRanks) {
      if (!may_die_on(path)) continue;
      const std::string left = Child([&] { return left_by(path, ranks); }).join().said;
      if (left.starts_with("skipped")) {
        MESSAGE(left);
        return;
      }
      CAPTURE(name_of(path));
      CAPTURE(ranks);
      CHECK(left == "");
    }
}

TEST_CASE("processes: memory beyond the control group's limit is an exception, no signal") {
  const std::string group = limited_group(int64_t{1} << 30);
  if (group.empty()) {
    MESSAGE("skipped: no control group may be made here");
    return;
  }
  const auto outcomes = run_processes(2, [&](Communicator& comm) -> std::string {
    std::ofstream(group + "/cgroup.procs") << getpid();
    try {
      const auto memory = comm.allocate_symmetric(int64_t{2} << 30);
      return "there is more memory than is allowed";
    } catch (const std::exception& error) {
      const std::string said = error.what();
      const bool names_it =
          said.find(
              "no memory for the shared segment of a group: 2048 MiB are "
              "needed, but of the limit of 1024 MiB of control group /sys/fs/cgroup") == 0 &&
          said.find(group) != said.npos;
      return names_it ? work_of(comm) : said;
    }
  });
  for (const Outcome& outcome : outcomes) CHECK(outcome.said == "good");
  for (int i = 0; i < 100 && rmdir(group.c_str()) != 0; ++i) usleep(10'000);
}

TEST_CASE("the room in control groups of memory: their own and those above, of both versions") {
  const ScratchFolder folder;
  const std::string root = folder / "root";
  const auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text << "\n";
  };
  constexpr int64_t kMiB = 1 << 20;
  CHECK(segment::no_room_for(kMiB, root) == std::nullopt);  // nothing is known
  write("/proc/self/cgroup", "4:cpu:/x\n0::/job/step");
  write("/sys/fs/cgroup/job/step/memory.max", "max");
  write("/sys/fs/cgroup/job/step/memory.current", std::to_string(90 * kMiB));
  CHECK(segment::no_room_for(int64_t{1} << 50, root) == std::nullopt);
  write("/sys/fs/cgroup/job/memory.max", std::to_string(100 * kMiB));
  write("/sys/fs/cgroup/job/memory.current", std::to_string(95 * kMiB));
  CHECK(segment::no_room_for(5 * kMiB, root) == std::nullopt);
  CHECK(segment::no_room_for(6 * kMiB, root) ==
        "6 MiB are needed, but of the limit of 100 MiB of control group /sys/fs/cgroup/job, 95 MiB "
        "are used");
  write("/sys/fs/cgroup/job/memory.stat",
        "anon 5\nactive_file 1048576\ninactive_file 1048576\nother 9999999999");
  CHECK(segment::no_room_for(7 * kMiB, root) == std::nullopt);
  CHECK(segment::no_room_for(8 * kMiB, root) != std::nullopt);
  write("/sys/fs/cgroup/job/memory.stat",
        "active_file 1048576\ninactive_file 1048576\nslab_reclaimable 1048576");
  CHECK(segment::no_room_for(8 * kMiB, root) == std::nullopt);
  CHECK(segment::no_room_for(9 * kMiB, root) != std::nullopt);
  write("/proc/meminfo", "MemFree: 7 kB\nSwapFree: 2048 kB\nDirty: 0 kB");
  CHECK(segment::no_room_for(10 * kMiB, root) == std::nullopt);
  write("/sys/fs/cgroup/job/memory.swap.max", std::to_string(3 * kMiB));
  write("/sys/fs/cgroup/job/memory.swap.current", std::to_string(2 * kMiB));
  CHECK(segment::no_room_for(9 * kMiB, root) == std::nullopt);
  CHECK(segment::no_room_for(10 * kMiB, root) != std::nullopt);
  write("/proc/meminfo", "MemFree: 7 kB\nSwapFree: 0 kB");
  write("/proc/self/cgroup", "4:cpu,memory:/x\n0::/");
  write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", std::to_string(10 * kMiB));
  write("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", std::to_string(4 * kMiB));
  write("/sys/fs/cgroup/memory/x/memory.stat", "inactive_file 0\ntotal_inactive_file 1048576");
  CHECK(segment::no_room_for(7 * kMiB, root) == std::nullopt);
  CHECK(segment::no_room_for(8 * kMiB, root) ==
        "8 MiB are needed, but of the limit of 10 MiB of control group /sys/fs/cgroup/memory/x, 4 "
        "MiB are used");
}

TEST_CASE("processes: memory that is not there is an exception, and the group lives") {
  const auto outcomes = run_processes(2, [](Communicator& comm) -> std::string {
    try {
      const auto memory = comm.allocate_symmetric(int64_t{1} << 60);
      return "there is a great deal of memory";
    } catch (const std::exception&) {
      return work_of(comm);
    }
  });
  for (const Outcome& outcome : outcomes) CHECK(outcome.said == "good");
}
