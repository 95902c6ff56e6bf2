#include "store_rendezvous.h"

#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "smp/comm/device/gdr_memory.h"
#include "smp/comm/jobs/fabric.h"
#include "smp/comm/jobs/job_environment.h"
#include "smp/comm/jobs/shared_memory.h"
#include "smp/plan/base/random_hex.h"
#include "smp/plan/env/environment.h"
#include "smp/rendezvous/sockets/host_identity.h"
#include "smp/rendezvous/sockets/tcp_socket.h"
#include "work.h"

namespace smp::pytorch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A store that counts milliseconds may be early by one of them.
constexpr milliseconds kClockGrain{10};

[[noreturn]] void fail(const std::string& text) {
  throw c10::DistBackendError({__func__, __FILE__, uint32_t(__LINE__)}, text);
}

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

std::vector<uint8_t> bytes_of_text(const std::string& text) { return {text.begin(), text.end()}; }

// The address by which the other hosts reach this one, which is MASTER_ADDR or on its network.
std::string towards(const std::string& master_address) {
  try {
    return sockets::local_address_towards(master_address);
  } catch (const std::exception& error) {
    fail(fmt::format("smp: MASTER_ADDR '{}': {}", master_address, error.what()));
  }
}

// What rank 0 writes when the others need not wait for it, before its reason.
constexpr std::string_view kNoListener = "none: ";

class StoreRendezvous {
 public:
  StoreRendezvous(const c10d::DistributedBackendOptions& group,
                  const RendezvousEnvironment& environment)
      : group_(group), environment_(environment), timeout_(timeout_of(group)) {}

  // Whoever does not come within the group's time-out, over all of it, is named.
  std::unique_ptr<comm::Communicator> run() {
    // A store may outlive a group and serve the next one of the same name.
    int64_t arrived = 0;
    ask("add", [&] { arrived = group_.store->add("smp/arrived", 1); });
    prefix_ = fmt::format("smp/{}/", (arrived - 1) / group_.group_size);
    const std::string identity = environment_.host_identity.empty() ? sockets::own_host_identity()
                                                                    : environment_.host_identity;
    set(host_key(group_.group_rank), identity);
    if (group_.group_rank == 0) {
      set("job", random_hex(8));
      set("secret", random_hex(32));
    }
    bool one_host = true;
    for (int rank = 0; rank < group_.group_size; ++rank) {
      const bool is_here = get(host_key(rank), rank) == identity;
      one_host &= is_here;
      if (is_here && rank < group_.group_rank) ++local_rank_;
    }
    return one_host ? in_this_host() : between_hosts();
  }

 private:
  std::unique_ptr<comm::Communicator> in_this_host() {
    jobs::SharedMemoryOptions options;
    options.rank = group_.group_rank;
    options.size = group_.group_size;
    options.job_id = get("job", 0);
    options.job_key = get("secret", 0);
    options.timeout = timeout_;
    options.threads = environment_.threads;
    return jobs::connect_shared_memory(options);
  }

  std::unique_ptr<comm::Communicator> between_hosts() {
    net::FabricOptions options;
    options.rank = group_.group_rank;
    options.size = group_.group_size;
    options.local_rank = local_rank_;
    options.job_id = get("job", 0);
    options.job_key = get("secret", 0);
    options.timeout = timeout_;
    options.provider = environment_.fabric_provider;
    options.protocol = environment_.fabric_protocol;
    options.subnet = environment_.fabric_subnet;
    options.host_identity = environment_.host_identity;
    options.exchange = environment_.exchange;
    options.threads = environment_.threads;
    return options.rank == 0 ? start_rendezvous(options) : join_rendezvous(options);
  }

  // Rank 0. What goes wrong before it waits for the others they hear too.
  std::unique_ptr<comm::Communicator> start_rendezvous(net::FabricOptions& options) {
    bool is_open = false;
    options.report = [](const std::string& line) { LOG(INFO) << "smp: " << line; };
    options.listening = [&](int port) {
      set("listener", fmt::format("{} {}", options.master_address, port));
      is_open = true;
    };
    try {
      if (environment_.master_address.empty())
        fail(
            "smp: a process group on several hosts needs MASTER_ADDR, which chooses the network "
            "between them");
      options.master_address = towards(environment_.master_address);
      return jobs::connect_fabric(options);
    } catch (const c10::Error& error) {
      if (!is_open)
        set("listener", fmt::format("{}{}", kNoListener, error.what_without_backtrace()));
      throw;
    } catch (const std::exception& error) {
      if (!is_open) set("listener", fmt::format("{}{}", kNoListener, error.what()));
      throw;
    }
  }

  std::unique_ptr<comm::Communicator> join_rendezvous(net::FabricOptions& options) {
    const std::string listener = get("listener", 0);
    if (listener.starts_with(kNoListener))
      fail(fmt::format("smp: rank 0 of {}: {}", place_of(group_),
                       listener.substr(kNoListener.size())));
    const size_t space = listener.find(' ');
    options.master_address = listener.substr(0, space);
    options.master_port = std::stoi(listener.substr(space + 1));
    return jobs::connect_fabric(options);
  }

  static std::string host_key(int rank) { return fmt::format("host/{}", rank); }

  void set(const std::string& key, const std::string& value) {
    ask("set", [&] { group_.store->set(prefix_ + key, bytes_of_text(value)); });
  }

  // What rank `of` writes.
  std::string get(const std::string& key, int of) {
    ask("wait", [&] {
      const auto left = std::chrono::ceil<milliseconds>(deadline_ - steady_clock::now());
      try {
        group_.store->wait({prefix_ + key}, std::max(left, kClockGrain));
      } catch (const c10::Error&) {  // of one type or another, by the store
        if (steady_clock::now() < deadline_ - kClockGrain) throw;
        const int64_t rank =
            group_.global_ranks_in_group.empty() ? of : group_.global_ranks_in_group[size_t(of)];
        throw comm::CommError(
            comm::CommError::Kind::kTimeout, int(rank),
            fmt::format("rank {} did not join within {} s", rank, double(timeout_.count()) / 1000));
      }
    });
    std::string value;
    ask("get", [&] { value = text_of(group_.store->get(prefix_ + key)); });
    return value;
  }

  // Runs one request to the store; what goes wrong there is no time-out of a rank.
  template <class Request>
  void ask(const char* what, const Request& request) {
    try {
      request();
    } catch (const comm::CommError&) {
      throw;
    } catch (const c10::Error& error) {
      store_failed(what, error.what_without_backtrace());
    } catch (const std::exception& error) {
      store_failed(what, error.what());
    }
  }

  [[noreturn]] void store_failed(const char* what, const std::string& why) {
    fail(fmt::format("smp: the store of {} failed in {}: {}", place_of(group_), what, why));
  }

  const c10d::DistributedBackendOptions& group_;
  const RendezvousEnvironment& environment_;
  const milliseconds timeout_;
  const steady_clock::time_point deadline_ = steady_clock::now() + timeout_;
  std::string prefix_;
  int local_rank_ = 0;  // among the group's ranks of this host
};

}  // namespace

RendezvousEnvironment RendezvousEnvironment::read() {
  const auto text = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  device::read_gdr_use();  // what is wrong with it is told here, not with the first tensor of a GPU
  return {text(env::kMasterAddr),   jobs::read_fabric_provider(), jobs::read_fabric_subnet(),
          text(env::kHostIdentity), jobs::read_fabric_protocol(), jobs::read_exchange_rule(),
          jobs::read_comm_threads()};
}

std::string own_address(const RendezvousEnvironment& environment) {
  return environment.master_address.empty() ? "127.0.0.1" : towards(environment.master_address);
}

std::unique_ptr<comm::Communicator> rendezvous(const c10d::DistributedBackendOptions& group,
                                               const RendezvousEnvironment& environment) {
  try {
    return StoreRendezvous(group, environment).run();
  } catch (const comm::CommError& e) {
    throw_torch_error(e.kind, place_of(group), e.what());
  }
}

std::string place_of(const c10d::DistributedBackendOptions& group) {
  std::vector<int> own;
  bool same = true;
  for (size_t i = 0; i < group.global_ranks_in_group.size(); ++i) {
    own.push_back(int(i));
    same &= group.global_ranks_in_group[i] == int64_t(i);
  }
  if (same) return fmt::format("process group {}", group.group_id);
  return fmt::format("process group {} (its ranks {} are {} of the job)", group.group_id,
                     fmt::join(own, ", "), fmt::join(group.global_ranks_in_group, ", "));
}

milliseconds timeout_of(const c10d::DistributedBackendOptions& group) {
  return std::chrono::duration_cast<milliseconds>(group.timeout);
}

}  // namespace smp::pytorch
