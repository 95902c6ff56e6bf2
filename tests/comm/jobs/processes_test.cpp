#include "comm/processes.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <sstream>
#include <thread>

#include "bootstrap/participant.h"
#include "comm/times.h"
#include "smp/rendezvous/sockets/unix_socket.h"

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::testing;

namespace {

std::string sum_to_text(Communicator& comm, int64_t count) {
  std::vector<int32_t> x(size_t(count), comm.rank() + 1);
  comm.all_reduce(x.data(), x.data(), count, DType::kI32, ReduceOp::kSum, "x")->wait();
  return std::to_string(std::accumulate(x.begin(), x.end(), int64_t(0)));
}

// Other programs may work on the same machine: only names that hold the job's count.
std::string names_in(const char* folder, const std::string& job_id) {
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.find(job_id) != std::string::npos || name.find("smp-job") != std::string::npos)
      found += name + "\n";
  }
  return found;
}

std::string abstract_sockets(const std::string& job_id) {
  std::ifstream file("/proc/net/unix");
  std::string found;
  for (std::string line; std::getline(file, line);)
    if (line.find(job_id) != std::string::npos) found += line + "\n";
  return found;
}

}  // namespace

TEST_CASE("processes: every size and operation") {
  for (const int size : {1, 2, 3, 5, 8}) {
    const auto outcomes = run_processes(size, [](Communicator& comm) {
      std::string text = sum_to_text(comm, 5) + " " + sum_to_text(comm, 200000);
      std::vector<int64_t> all(size_t(comm.size()) * 3);
      const std::vector<int64_t> mine(3, comm.rank());
      comm.all_gather(mine.data(), all.data(), 3, DType::kI64, "x")->wait();
      text += " " + std::to_string(all.back());
      std::vector<double> big(size_t(comm.size()) * 9000, 1.0), part(9000);
      comm.reduce_scatter(big.data(), part.data(), int64_t(big.size()), DType::kF64, ReduceOp::kSum,
                          "x")
          ->wait();
      text += " " + std::to_string(int(part.back()));
      std::vector<uint8_t> bytes(300000, uint8_t(comm.rank()));
      comm.broadcast(bytes.data(), 300000, DType::kU8, comm.size() - 1, "x")->wait();
      text += " " + std::to_string(bytes.back());
      if (comm.size() > 1) {
        std::vector<float> out(100000, float(comm.rank())), in(100000);
        const int to = (comm.rank() + 1) % comm.size();
        const int from = (comm.rank() + comm.size() - 1) % comm.size();
        const WorkPtr sent = comm.send(out.data(), 100000, DType::kF32, to, "m");
        comm.recv(in.data(), 100000, DType::kF32, from, "m")->wait();
        sent->wait();
        if (in.back() != float(from)) text += " wrong message";
      }
      std::vector<int> half;
      for (int rank = 0; rank < comm.size(); ++rank)
        if (rank % 2 == comm.rank() % 2) half.push_back(rank);
      const auto group = comm.split(half);
      int32_t sum = comm.rank();
      group->all_reduce(&sum, &sum, 1, DType::kI32, ReduceOp::kSum, "x")->wait();
      if (sum != std::accumulate(half.begin(), half.end(), 0)) text += " wrong sum of a half";
      return text;
    });
    const int sum = size * (size + 1) / 2;
    std::ostringstream expected;
    expected << sum * 5 << " " << sum * 200000 << " " << size - 1 << " " << size << " " << size - 1;
    for (const Outcome& outcome : outcomes) {
      CHECK(outcome.said == expected.str());
      CHECK(outcome.status == 0);
    }
  }
}

TEST_CASE("processes: ranks come together in any order, and leave in any order") {
  const std::string job_id = fresh_job_id();
  std::vector<Child> children;
  for (int rank = 2; rank >= 0; --rank)
    children.emplace_back([&, rank] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100 * (2 - rank)));
      const auto world = connect_shared_memory(options_of(rank, 3, job_id));
      const auto pair = rank == 0 ? nullptr : world->split({1, 2});
      const std::string said = sum_to_text(*world, 10);
      if (rank == 0) return said;  // has left while the others go on without it
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return said + " " + sum_to_text(*pair, 10);
    });
  CHECK(children[0].join().said == "60 30");
  CHECK(children[1].join().said == "60 30");
  CHECK(children[2].join().said == "60");
}

TEST_CASE("processes: nothing is left in /tmp or among the sockets, however ranks end") {
  ProcessOptions options;
  options.job_id = fresh_job_id();
  run_processes(
      2,
      [&](Communicator& comm) {
        sum_to_text(comm, 1000);
        if (comm.rank() == 1) raise(SIGKILL);
        return sum_to_text(comm, 1000);
      },
      options);
  CHECK(names_in("/tmp", options.job_id) == "");
  CHECK(abstract_sockets(options.job_id) == "");
}

TEST_CASE("processes: a stranger with another key finds nobody, and the job goes on") {
  const std::string job_id = fresh_job_id();
  Child zero([&] { return sum_to_text(*connect_shared_memory(options_of(0, 2, job_id)), 10); });
  Child stranger([&] {
    SharedMemoryOptions options = options_of(1, 2, job_id);
    options.job_key = "a guess";
    options.timeout = std::chrono::milliseconds(200);
    connect_shared_memory(options);
    return std::string("was let in");
  });
  CHECK(stranger.join().said == "timeout 0: rank 1: rank 0 of job '" + job_id +
                                    "' did not join the rendezvous within 0.2 s");
  Child one([&] { return sum_to_text(*connect_shared_memory(options_of(1, 2, job_id)), 10); });
  CHECK(one.join().said == "30");
  CHECK(zero.join().said == "30");
}

TEST_CASE("processes: who knows the job's name alone takes none of its sockets first") {
  const std::string job_id = fresh_job_id();
  std::vector<system::FileDescriptor> taken;
  for (int rank = 0; rank < 2; ++rank)
    for (const char* door : {"", "/again"})
      taken.push_back(sockets::listen_unix(fmt::format("smp/{}/{}{}", job_id, rank, door)));
  for (const char* what : {"rendezvous", "regroup"})
    for (int rank = 0; rank < 2; ++rank) {
      const bootstrap::Participant guess{{rank, 2, job_id, "a guess"}, kNever, ""};
      taken.push_back(sockets::listen_unix(guess.name_of_socket(what, rank)));
    }
  ProcessOptions options;
  options.job_id = job_id;
  for (const Outcome& outcome : run_processes(
           2, [](Communicator& comm) { return sum_to_text(comm, 10); }, options))
    CHECK(outcome.said == "30");
}

TEST_CASE("processes: a second process for the same rank is refused") {
  const std::string job_id = fresh_job_id();
  Child zero([&] { return sum_to_text(*connect_shared_memory(options_of(0, 2, job_id)), 10); });
  while (abstract_sockets(job_id).empty()) std::this_thread::yield();  // rank 0 is there
  Child twin([&] { return sum_to_text(*connect_shared_memory(options_of(0, 2, job_id)), 10); });
  CHECK(twin.join().said ==
        "mismatch 0: rank 0: another live process is rank 0 of job '" + job_id + "' already");
  Child one([&] { return sum_to_text(*connect_shared_memory(options_of(1, 2, job_id)), 10); });
  CHECK(one.join().said == "30");
  CHECK(zero.join().said == "30");
}

TEST_CASE("processes: a rank that was told another size is named") {
  const std::string job_id = fresh_job_id();
  Child zero([&] {
    SharedMemoryOptions options = options_of(0, 2, job_id);
    options.timeout = std::chrono::milliseconds(2500);
    connect_shared_memory(options);
    return std::string("went on");
  });
  Child one([&] {
    connect_shared_memory(options_of(1, 3, job_id));
    return std::string("went on");
  });
  CHECK(one.join().said == "mismatch 0: rank 1: this job has 3 ranks, but rank 0 was told 2");
  CHECK(zero.join().said ==
        "timeout 1: rank 0: rank 1 of job '" + job_id +
            "' did not join the rendezvous within 2.5 s; 1 connection was rejected (1 from user " +
            std::to_string(geteuid()) + ")");
}

TEST_CASE("processes: those that do not come are named") {
  const std::string job_id = fresh_job_id();
  Child zero([&] {
    SharedMemoryOptions options = options_of(0, 4, job_id);
    options.timeout = std::chrono::milliseconds(2500);
    connect_shared_memory(options);
    return std::string("went on");
  });
  Child one([&] {
    connect_shared_memory(options_of(1, 4, job_id));
    return std::string("went on");
  });
  CHECK(zero.join().said == "timeout 2: rank 0: ranks 2, 3 of job '" + job_id +
                                "' did not join the rendezvous within 2.5 s");
  CHECK(one.join().said ==
        "peer_lost 0: rank 1: rank 0 of job '" + job_id + "' ended during the rendezvous");
}

TEST_CASE("processes: options that cannot be right are refused") {
  SharedMemoryOptions options = options_of(3, 2, "j");
  CHECK_THROWS_WITH_AS(connect_shared_memory(options),
                       "rank 3 is out of range: the job has 2 ranks", std::invalid_argument);
  options.rank = 0;
  options.size = 300;
  CHECK_THROWS_WITH_AS(connect_shared_memory(options),
                       "the job has 300 ranks on one host: expected 1 to 256",
                       std::invalid_argument);
  options.size = 2;
  options.job_key.clear();
  CHECK_THROWS_WITH_AS(connect_shared_memory(options), "the job key is empty",
                       std::invalid_argument);
}

TEST_CASE("processes: ranks start programs and fork readers of data, which leave the job alone") {
  const auto outcomes = run_processes(2, [](Communicator& comm) {
    const auto shared = comm.allocate_symmetric(1 << 20);
    std::string text;
    std::vector<pid_t> children;
    for (int round = 0; round < 6; ++round) {
      const pid_t child = fork();
      if (child == 0) {
        if (round % 2 == 0) {
          execl("/bin/true", "true", nullptr);
          _exit(1);
        }
        std::vector<int64_t> data(100000, round);  // a reader, beside its rank's calls
        _exit(std::accumulate(data.begin(), data.end(), int64_t(0)) == 100000 * round ? 0 : 1);
      }
      children.push_back(child);
      text += sum_to_text(comm, 200000) + " ";
      int64_t* const own = reinterpret_cast<int64_t*>(shared.get());
      std::fill(own, own + 50000, int64_t(comm.rank()));
      comm.all_reduce(own, own, 50000, DType::kI64, ReduceOp::kSum, "direct")->wait();
      text += std::to_string(own[49999]) + " ";
    }
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      text += status == 0 ? "well " : "not well ";
    }
    return text;
  });
  std::string expected;
  for (int round = 0; round < 6; ++round) expected += "600000 1 ";
  for (int round = 0; round < 6; ++round) expected += "well ";
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.said == expected);
    CHECK(outcome.status == 0);
  }
}

TEST_CASE("processes: a reader that outlives its rank does not hide the rank's death") {
  const Shared<std::atomic<bool>> over;
  const auto outcomes = run_processes(2, [&](Communicator& comm) {
    (void)sum_to_text(comm, 10);
    if (comm.rank() == 1) {
      if (fork() == 0) {
        const auto limit = std::chrono::steady_clock::now() + kNever;
        while (!*over && std::chrono::steady_clock::now() < limit)
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        _exit(0);
      }
      kill(getpid(), SIGKILL);
    }
    std::string said;
    try {
      said = sum_to_text(comm, 10);
    } catch (const CommError& e) {
      said = text_of(e);
    }
    *over = true;
    return said;
  });
  CHECK(outcomes[0].said.starts_with("peer_lost 1: "));
}

TEST_CASE("processes: an idle rank uses no CPU while it waits") {
  const auto outcomes = run_processes(2, [](Communicator& comm) {
    if (comm.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      return sum_to_text(comm, 10);
    }
    const clock_t before = clock();
    const std::string said = sum_to_text(comm, 10);
    const double used_s = double(clock() - before) / CLOCKS_PER_SEC;
    return used_s < 0.3 ? said : "used " + std::to_string(used_s) + " s of CPU";
  });
  CHECK(outcomes[0].said == "30");
}

TEST_CASE("processes: one that may open no more files says so, and blames no peer") {
#ifdef __SANITIZE_ADDRESS__
  MESSAGE("skipped: UBSan itself opens a pipe to look at an object's type");
  return;
#endif
  const auto text_of_failure = [](int limit, const std::function<void()>& run) -> std::string {
    rlimit usual;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &usual) == 0);
    const rlimit full{rlim_t(limit), usual.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &full) == 0);
    try {
      run();
    } catch (const std::exception& e) {
      REQUIRE(setrlimit(RLIMIT_NOFILE, &usual) == 0);
      return e.what();
    }
    return "nothing";
  };
  Child child([&] {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    const system::FileDescriptor here(ends[0]), there(ends[1]);
    const system::FileDescriptor listener = sockets::listen_unix("smp/" + fresh_job_id());
    sockaddr_un address;
    socklen_t bytes = sizeof(address);
    REQUIRE(getsockname(listener.number(), reinterpret_cast<sockaddr*>(&address), &bytes) == 0);
    const system::FileDescriptor guest(socket(AF_UNIX, SOCK_STREAM, 0));
    REQUIRE(connect(guest.number(), reinterpret_cast<sockaddr*>(&address), bytes) == 0);
    char byte = 0;
    REQUIRE(sockets::send_all(there, &byte, 1, here.number()));
    const int next = dup(0);
    close(next);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    system::FileDescriptor side;
    return std::to_string(next) + "\n" +
           text_of_failure(next, [&] { sockets::receive_all(here, &byte, 1, deadline, &side); }) +
           "\n" + text_of_failure(next, [&] { sockets::accept_one(listener); }) + "\n" +
           text_of_failure(next, [&] { sockets::process_of_peer(here); });
  });
  const std::string said = child.join().said, limit = said.substr(0, said.find('\n'));
  CHECK(said ==
        limit +
            "\ncannot receive a descriptor from a peer: this process has reached its limit of " +
            limit +
            " open files (ulimit -n)\n"
            "cannot accept a connection: Too many open files\n"
            "cannot watch the process of a peer: Too many open files");
}
