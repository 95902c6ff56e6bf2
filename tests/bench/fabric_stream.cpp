#include <fmt/format.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "net/libfabric.h"
#include "smp/comm/jobs/job_environment.h"

// How much of what libfabric itself streams from one process to another, tagged messages of the
// same provider, smp's send and recv between hosts stream. Two ranks of one machine that take each
// other for another host; both ways by turns, in the same processes.
//
//   SMP_FABRIC_PROVIDER=net SMP_FABRIC_PROTOCOL=write
//     smp-launch --hosts h[0-1] --via local --env SMP_FABRIC_PROVIDER --env SMP_FABRIC_PROTOCOL
//     -- fabric_stream [ROUNDS [KIB]]
//
// KIB: of that size alone, to look at it with perf or strace.

using namespace smp;
using namespace smp::comm;
using namespace smp::jobs;
using namespace smp::mesh;
using namespace smp::net;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kInFlight = 8;
constexpr int64_t kSizes[] = {4 << 10, 256 << 10, 4 << 20, 64 << 20};
constexpr double kBatch = 32 << 20;  // bytes of a sample, about
constexpr double kTarget = 0.85;

// One end of libfabric's, as plain as it can be: no copies, no credits, no headers.
class Plain {
 public:
  Plain(const std::string& provider, Communicator& comm, std::vector<std::byte>& memory)
      : memory_(memory) {
    fi_info* const hints = library_.new_info();
    hints->caps = FI_MSG | FI_TAGGED;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->fabric_attr->prov_name = strdup(provider.c_str());
    const bool ip = provider != "shm";
    check(library_.getinfo(ip ? "127.0.0.1" : nullptr, ip ? FI_SOURCE : 0, hints, &info_),
          "fi_getinfo");
    library_.free(hints);
    if ((info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0)
      throw std::runtime_error(provider + " wants registered memory, which this program has not");
    check(library_.open(info_->fabric_attr, &fabric_), "fi_fabric");
    check(fi_domain(fabric_, info_, &domain_, nullptr), "fi_domain");
    fi_cq_attr queue{};
    queue.format = FI_CQ_FORMAT_CONTEXT;
    queue.size = 4 * kInFlight;
    check(fi_cq_open(domain_, &queue, &queue_, nullptr), "fi_cq_open");
    fi_av_attr addresses{};
    check(fi_av_open(domain_, &addresses, &addresses_, nullptr), "fi_av_open");
    check(fi_endpoint(domain_, info_, &endpoint_, nullptr), "fi_endpoint");
    check(fi_ep_bind(endpoint_, &queue_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    check(fi_ep_bind(endpoint_, &addresses_->fid, 0), "fi_ep_bind");
    check(fi_enable(endpoint_), "fi_enable");
    std::array<char, 256> own{};
    std::array<char, 512> all{};
    size_t bytes = own.size();
    check(fi_getname(&endpoint_->fid, own.data(), &bytes), "fi_getname");
    comm.all_gather(own.data(), all.data(), int64_t(own.size()), DType::kU8, "names")->wait();
    const char* other = all.data() + (1 - comm.rank()) * int(own.size());
    if (fi_av_insert(addresses_, other, 1, &peer_, 0, nullptr) != 1)
      throw std::runtime_error("fi_av_insert");
  }
  ~Plain() {
    for (fid* object :
         {&endpoint_->fid, &addresses_->fid, &queue_->fid, &domain_->fid, &fabric_->fid})
      fi_close(object);
    library_.free(info_);
  }
  Plain(const Plain&) = delete;
  Plain& operator=(const Plain&) = delete;

  // kInFlight messages from rank 0 to rank 1, and an empty one back.
  void stream(int rank, int64_t bytes) {
    for (int i = 0; i < kInFlight; ++i) rank == 0 ? send(i, bytes) : receive(i, bytes);
    drain();
    rank == 0 ? receive(kInFlight, 0) : send(kInFlight, 0);
    drain();
  }

 private:
  static constexpr uint64_t kTag = 7;

  void check(int error, const char* what) const {
    if (error != 0) throw std::runtime_error(fmt::format("{}: {}", what, library_.text_of(error)));
  }
  void send(int i, int64_t bytes) {
    post([&] {
      return fi_tsend(endpoint_, memory_.data(), size_t(bytes), nullptr, peer_, kTag,
                      &contexts_[size_t(i)]);
    });
  }
  void receive(int i, int64_t bytes) {
    post([&] {
      return fi_trecv(endpoint_, memory_.data(), size_t(bytes), nullptr, peer_, kTag, 0,
                      &contexts_[size_t(i)]);
    });
  }
  template <class Post>
  void post(Post once) {
    ssize_t done = 0;
    while ((done = once()) == -FI_EAGAIN) poll();
    check(int(done), "a message");
    ++pending_;
  }
  void poll() {
    std::array<fi_cq_entry, kInFlight> entries;
    const ssize_t n = fi_cq_read(queue_, entries.data(), entries.size());
    if (n > 0) {
      pending_ -= int(n);
    } else if (n != -FI_EAGAIN) {
      throw std::runtime_error("fi_cq_read");
    } else if (++idle_ % 2000 == 0) {
      sched_yield();
    }
  }
  void drain() {
    while (pending_ > 0) poll();
  }

  const net::LibFabric library_;
  std::vector<std::byte>& memory_;
  fi_info* info_ = nullptr;
  fid_fabric* fabric_ = nullptr;
  fid_domain* domain_ = nullptr;
  fid_cq* queue_ = nullptr;
  fid_av* addresses_ = nullptr;
  fid_ep* endpoint_ = nullptr;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  std::array<fi_context2, kInFlight + 1> contexts_{};
  int pending_ = 0, idle_ = 0;
};

void stream(Communicator& comm, std::vector<std::byte>& memory, int64_t bytes) {
  const int peer = 1 - comm.rank();
  std::vector<WorkPtr> works;
  for (int i = 0; i < kInFlight; ++i)
    works.push_back(comm.rank() == 0 ? comm.send(memory.data(), bytes, DType::kU8, peer, "stream")
                                     : comm.recv(memory.data(), bytes, DType::kU8, peer, "stream"));
  for (const WorkPtr& work : works) work->wait();
  (comm.rank() == 0 ? comm.recv(nullptr, 0, DType::kU8, peer, "back")
                    : comm.send(nullptr, 0, DType::kU8, peer, "back"))
      ->wait();
}

// The quietest round: what else runs on the machine only adds.
double best(const std::vector<double>& times) {
  return *std::min_element(times.begin(), times.end());
}

// Of a message, in us.
template <class Stream>
double time_of(Communicator& comm, int64_t bytes, Stream once) {
  const int times = std::max(1, int(kBatch / double(bytes * kInFlight)));
  comm.barrier("begin")->wait();
  const auto begin = Clock::now();
  for (int i = 0; i < times; ++i) once();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() /
         (times * kInFlight);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  const int64_t only = argc > 2 ? std::atoll(argv[2]) << 10 : 0;
  try {
    JobEnvironment job = read_job_environment("fabric_stream");
    if (job.size != 2 || job.provider.empty() || !job.protocol)
      throw std::runtime_error(
          "fabric_stream is for two ranks, with SMP_FABRIC_PROVIDER and SMP_FABRIC_PROTOCOL");
    job.host_identity = fmt::format("host {}", job.rank);
    const auto world = connect(job, [](const std::string&) {});
    std::vector<std::byte> memory(size_t{64} << 20, std::byte{1});
    Plain plain(job.provider, *world, memory);
    bool reached = true;
    for (const int64_t bytes : kSizes) {
      if (only > 0 && bytes != only) continue;
      std::vector<double> theirs, ours;
      for (int round = -1; round < rounds; ++round) {  // the first warms up
        const double of_plain = time_of(*world, bytes, [&] { plain.stream(world->rank(), bytes); });
        const double of_smp = time_of(*world, bytes, [&] { stream(*world, memory, bytes); });
        if (round < 0) continue;
        theirs.push_back(of_plain);
        ours.push_back(of_smp);
      }
      if (world->rank() != 0) continue;
      const double share = best(theirs) / best(ours);
      reached &= share >= kTarget || job.provider == "shm";
      fmt::print(
          "{:<12}{:<7}{:>6} KiB  libfabric {:>9.1f} us, smp {:>9.1f} us: {:.0f} % of its rate\n",
          job.provider, name_of(*job.protocol), bytes >> 10, best(theirs), best(ours), share * 100);
    }
    world->barrier("end")->wait();
    if (!reached) fmt::print(stderr, "fabric_stream: below {:.0f} % somewhere\n", kTarget * 100);
    return reached ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fabric_stream: %s\n", error.what());
    return 125;
  }
}
