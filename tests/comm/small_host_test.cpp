#include <doctest/doctest.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "comm/processes.h"
#include "comm/times.h"

// Hosts that allow little, as containers do.
using namespace smp;
using namespace smp::testing;

namespace {

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

SharedMemoryOptions options_of(int rank, const std::string& job_id) {
  SharedMemoryOptions options;
  options.rank = rank;
  options.size = 2;
  options.job_id = job_id;
  options.job_key = "the key of the tests";
  options.timeout = kNever;
  return options;
}

enum class End { kInOrder, kException, kKilled };

void sum(Communicator& comm) {
  std::vector<float> own(1 << 18, 1);
  const auto shared = comm.allocate_symmetric(1 << 20);
  for (float* data : {own.data(), reinterpret_cast<float*>(shared.get())})
    comm.all_reduce(data, data, 1 << 18, DType::kF32, ReduceOp::kSum, "sum")->wait();
}

// One job of this process and another, which ends as it is told.
void run_job(End end) {
  const std::string job_id = fresh_job_id();
  const pid_t peer = fork();
  if (peer == 0) {
    try {
      const auto comm = connect_shared_memory(options_of(1, job_id));
      sum(*comm);
      if (end == End::kKilled) raise(SIGKILL);
      if (end == End::kException) throw std::logic_error("the end");
    } catch (const std::exception&) {
    }
    _exit(0);
  }
  try {
    const auto comm = connect_shared_memory(options_of(0, job_id));
    sum(*comm);
    if (end != End::kInOrder) comm->barrier("nobody else comes")->wait();
  } catch (const CommError&) {
  }
  waitpid(peer, nullptr, 0);
}

int64_t open_files() {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

int64_t resident_bytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm").ignore(32, ' ') >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

}  // namespace

TEST_CASE("processes: a job gives back its files and memory, however its peer ended") {
  Child child([] {
    const auto run_jobs = [] {
      for (const End end : {End::kInOrder, End::kException, End::kKilled}) run_job(end);
    };
    run_jobs();
    const int64_t files = open_files(), bytes = resident_bytes();
    run_jobs();
    run_jobs();
    const int64_t grown = resident_bytes() - bytes;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const bool is_steady = true;  // ASan keeps what is freed, TSan what it has seen of it
#else
    const bool is_steady = grown < 1 << 20;
#endif
    return fmt::format("{} files more{}", open_files() - files,
                       is_steady ? "" : fmt::format(", {} bytes more", grown));
  });
  CHECK(child.join().said == "0 files more");
}

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
