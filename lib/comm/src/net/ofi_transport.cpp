#include "net/ofi_transport.h"

#include <fmt/format.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "net/fabric_protocol.h"
#include "net/libfabric.h"
#include "net/nearest_nic.h"
#include "net/ofi_endpoint.h"
#include "net/ofi_handles.h"

namespace smp::net {
namespace {

// A sender takes the receiver's lock to leave a message, and the receiver takes its lock while it
// copies messages.
constexpr const char* kLocksOfShm =
    "provider shm is for tests only: a rank that dies or stops can hold a lock of libfabric, and "
    "the other ranks then wait forever";

// Bytes that come with a write and name its memory.
constexpr size_t kTicketBytes = 4;

fi_info* hints_of(const LibFabric& library, const char* provider, bool writes) {
  fi_info* hints = library.new_info();
  hints->caps = FI_MSG | FI_TAGGED;
  if (writes) {
    hints->caps |= FI_RMA;
    hints->domain_attr->cq_data_size = kTicketBytes;
  }
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->fabric_attr->prov_name = strdup(provider);
  return hints;
}

// Other providers have their own addresses and do not use an IP network.
bool is_of_ip(const std::string& provider) { return provider != "efa" && provider != kInsideHost; }

// A network card may be listed several times, the best entry first.
bool is_new(const std::vector<fi_info*>& nics, const fi_info* info) {
  return std::none_of(nics.begin(), nics.end(), [&](const fi_info* nic) {
    return std::string(nic->domain_attr->name) == info->domain_attr->name;
  });
}

std::optional<int> node_of(const fi_info& info) {
  const fi_bus_attr* const bus = info.nic != nullptr ? info.nic->bus_attr : nullptr;
  if (bus == nullptr || bus->bus_type != FI_BUS_PCI) return std::nullopt;
  const fi_pci_attr& pci = bus->attr.pci;
  return numa_node_of_device(fmt::format("{:04x}:{:02x}:{:02x}.{:x}", pci.domain_id, pci.bus_id,
                                         pci.device_id, pci.function_id));
}

// A provider's endpoint at this address, or the reason why there is none.
fi_info* find(const LibFabric& library, const char* provider, const std::string& address,
              int local_rank, bool writes, std::string& nic, std::string& why_not) {
  const FabricInfo hints(library, hints_of(library, provider, writes));
  const bool ip = is_of_ip(provider);
  fi_info* found = nullptr;
  const int error =
      library.getinfo(ip ? address.c_str() : nullptr, ip ? FI_SOURCE : 0, hints.get(), &found);
  const FabricInfo all(library, found);
  if (error != 0) {
    why_not = library.text_of(error);
    return nullptr;
  }
  std::vector<fi_info*> nics;
  for (fi_info* info = found; info != nullptr; info = info->next)
    if (std::string(info->fabric_attr->prov_name) == provider && is_new(nics, info))
      nics.push_back(info);
  if (nics.empty()) {
    why_not = "no endpoint for reliable datagrams";
    return nullptr;
  }
  if (ip || nics.size() == 1) return library.copy(nics.front());  // the address selects the card
  std::vector<std::optional<int>> nodes;
  for (const fi_info* info : nics) nodes.push_back(node_of(*info));
  fi_info* const nearest = nics[nearest_nic(nodes, own_numa_node(), local_rank)];
  nic = nearest->domain_attr->name;
  return library.copy(nearest);
}

// One provider's network, by the wanted protocol if there is one.
class Provider {
 public:
  Provider(std::shared_ptr<LibFabric> library, std::string name, const std::string& address,
           int local_rank, bool wants_registered)
      : library_(std::move(library)),
        name_(std::move(name)),
        address_(address),
        local_rank_(local_rank),
        wants_registered_(wants_registered) {}

  // Nothing if the provider is not available; why_not() then has the reason.
  std::optional<OpenedTransport> open(std::optional<FabricProtocol> wanted) {
    const auto why = open_by_protocol(name_, wanted, [this](bool writes) {
      return open(writes) ? std::nullopt : std::optional(why_not_);
    });
    if (!why) return std::nullopt;
    opened_.why_protocol = *why;
    return std::move(opened_);
  }
  const std::string& why_not() const { return why_not_; }

 private:
  bool open(bool writes) {
    try {
      fi_info* const info =
          find(*library_, name_.c_str(), address_, local_rank_, writes, opened_.nic, why_not_);
      if (info == nullptr) return false;
      if (wants_registered_) info->domain_attr->mr_mode |= FI_MR_LOCAL;
      opened_.transport = open_ofi_endpoint(library_, info, writes);
    } catch (const std::runtime_error& error) {
      why_not_ = error.what();
      return false;
    }
    opened_.provider = name_;
    opened_.is_of_ip = is_of_ip(name_);
    opened_.version = library_->version_text();
    opened_.protocol = writes ? FabricProtocol::kWrite : FabricProtocol::kTagged;
    return true;
  }

  const std::shared_ptr<LibFabric> library_;
  const std::string name_;
  const std::string& address_;
  const int local_rank_;
  const bool wants_registered_;
  OpenedTransport opened_;
  std::string why_not_;
};

}  // namespace

OpenedTransport open_ofi_transport(const std::string& local_address, const std::string& pinned,
                                   std::optional<FabricProtocol> protocol, int local_rank,
                                   bool wants_registered) {
  const auto library = std::make_shared<LibFabric>();
  std::vector<std::string> order(std::begin(kProviders), std::end(kProviders));
  if (!pinned.empty()) {
    check_provider(pinned);
    order = {pinned};
  }
  std::vector<std::string> refusals;
  for (const std::string& name : order) {
    Provider provider(library, name, local_address, local_rank, wants_registered);
    if (auto opened = provider.open(protocol)) {
      opened->why = fmt::format("{}", fmt::join(refusals, "; "));
      if (name == kInsideHost) opened->caution = kLocksOfShm;
      return std::move(*opened);
    }
    refusals.push_back(fmt::format("{}: {}", name, provider.why_not()));
  }
  throw std::runtime_error(fmt::format("libfabric {} found no usable network at {} ({})",
                                       library->version_text(), local_address,
                                       fmt::join(refusals, "; ")));
}

}  // namespace smp::net
