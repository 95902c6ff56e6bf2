#include "comm/processes.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <thread>

using namespace smp;
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

SharedMemoryOptions options_of(int rank, int size, const std::string& job_id) {
  SharedMemoryOptions options;
  options.rank = rank;
  options.size = size;
  options.job_id = job_id;
  options.job_key = "the key of the tests";
  options.timeout = std::chrono::seconds(20);
  return options;
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

TEST_CASE("processes: nothing is left in /dev/shm, /tmp or among the sockets, however ranks end") {
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
  CHECK(names_in("/dev/shm", options.job_id) == "");
  CHECK(names_in("/tmp", options.job_id) == "");
  CHECK(abstract_sockets(options.job_id) == "");
}

TEST_CASE("processes: a stranger with another key is refused, and the job goes on") {
  const std::string job_id = fresh_job_id();
  Child zero([&] { return sum_to_text(*connect_shared_memory(options_of(0, 2, job_id)), 10); });
  Child stranger([&] {
    SharedMemoryOptions options = options_of(1, 2, job_id);
    options.job_key = "a guess";
    connect_shared_memory(options);
    return std::string("was let in");
  });
  CHECK(stranger.join().said ==
        "mismatch 1: rank 1: rank 0 of job '" + job_id + "' has another job key");
  Child one([&] { return sum_to_text(*connect_shared_memory(options_of(1, 2, job_id)), 10); });
  CHECK(one.join().said == "30");
  CHECK(zero.join().said == "30");
}

TEST_CASE("processes: a second process for the same rank is refused") {
  const std::string job_id = fresh_job_id();
  Child zero([&] { return sum_to_text(*connect_shared_memory(options_of(0, 2, job_id)), 10); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
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
    options.timeout = std::chrono::milliseconds(700);
    connect_shared_memory(options);
    return std::string("went on");
  });
  Child one([&] {
    connect_shared_memory(options_of(1, 3, job_id));
    return std::string("went on");
  });
  CHECK(one.join().said == "mismatch 0: rank 1: this job has 3 ranks, but rank 0 was told 2");
  CHECK(zero.join().said ==
        "timeout 1: rank 0: rank 1 of job '" + job_id + "' did not come within 0.7 s");
}

TEST_CASE("processes: those that do not come are named") {
  const std::string job_id = fresh_job_id();
  Child zero([&] {
    SharedMemoryOptions options = options_of(0, 4, job_id);
    options.timeout = std::chrono::milliseconds(500);
    connect_shared_memory(options);
    return std::string("went on");
  });
  Child one([&] {
    connect_shared_memory(options_of(1, 4, job_id));
    return std::string("went on");
  });
  CHECK(zero.join().said ==
        "timeout 2: rank 0: ranks 2, 3 of job '" + job_id + "' did not come within 0.5 s");
  CHECK(one.join().said == "peer_lost 0: rank 1: rank 0 of job '" + job_id +
                               "' went away while the ranks came together");
}

TEST_CASE("processes: options that cannot be right are refused") {
  SharedMemoryOptions options = options_of(3, 2, "j");
  CHECK_THROWS_WITH_AS(connect_shared_memory(options), "no rank 3 in a job of 2 ranks",
                       std::invalid_argument);
  options.rank = 0;
  options.size = 300;
  CHECK_THROWS_WITH_AS(connect_shared_memory(options),
                       "a job of 300 ranks on one host: 1 to 256 are possible",
                       std::invalid_argument);
  options.size = 2;
  options.job_key.clear();
  CHECK_THROWS_WITH_AS(connect_shared_memory(options), "the job key is empty",
                       std::invalid_argument);
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
    return used_s < 0.03 ? said : "used " + std::to_string(used_s) + " s of CPU";
  });
  CHECK(outcomes[0].said == "30");
}
